"""The way from the exact program to the computed one, on which the error of the loss is shared out among the calls.

The recorded calls are made again in float64, each of what the earlier ones gave, and to each result a part t of its own
error is added. At t = 0 that is the exact program, at t = 1 the computed one. The derivative of the loss by t is the
sum of a(t) times e, where e is a call's own error and a(t) the derivative of the loss by its result. So the error of
the loss is the sum of e times the mean of a over the way: nothing is left, however large the errors are.

What a program chose is no rounding error: integers, masks and draws are those that were recorded.

What is hard here is memory: an operand is a view of what earlier calls wrote. So each storage has its deviations after
each write, by place, and gradients are added up there.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch._decomp import decomposition_table

from .call import DROPOUT, DispatcherCall, Tensor, is_floating, kind_of
from .mapped_memory import MappedMemory
from .recording import FollowedError
from .widening import as_wide_function, difference, wide_numbers, widen
from .writers import MemoryPlace, Root, Source, StorageWriters, Writing

#: Kinds of calls whose results are as they were recorded.
_GIVEN = frozenset({"random", "memory", "silent", "integers"})
#: How many points of the way derivatives are taken at, by Gauss's rule; more while more than this part is left.
_POINTS, _LEFT = (1, 3, 9), 0.01
#: A result: the number of its call, and its position.
_Key = tuple[int, int]
_Memory = dict[_Key, Tensor]
_Function = Callable[..., tuple[Tensor, ...]]


class ErrorPath:
    """The calls that reach what an error is asked of.

    Attributes:
        error: of the sum of the roots, each times its weight. shares: number of a call -> what it adds to the error.
    """

    def __init__(self, calls: Sequence[DispatcherCall], writers: StorageWriters, roots: Sequence[Root]) -> None:
        """Go the way.

        Args:
            calls: of the recording. writers: of the same. roots: what an error is asked of.

        Raises:
            LookupError: a call that reaches a root was not kept, or an operand was not written by a recorded call.
            Exception: an operation has no float64 or no derivative: of torch, anything.
        """
        self._sources, self._roots = writers.sources, roots
        writings = _find_reaching(writers, roots)
        by_number = {call.number: call for call in calls if not call.covered}
        self._calls = [by_number[number] for number in sorted({number for number, _ in writings})]
        if any(call.number in writers.strange for call in self._calls):
            raise LookupError("an operation was not recorded")
        self._places = {key: writing.geometry for key, writing in writings.items()}
        self._formers = {key: _key_of(writers.formers[key]) for key in writings if key in writers.formers}
        self._links: dict[_Key, tuple[_Key, MemoryPlace]] = {}
        self._errors: _Memory = {}
        # What is in float64 takes some ten times what the program has, and lies in a file.
        self._copy = MappedMemory().copy
        # A graph is run to know what it drew, in the formats that it had.
        self._functions = {each.number: as_wide_function(each) for each in self._calls if kind_of(each) not in _GIVEN}
        self._link()
        with wide_numbers():
            self.error = -self._deviation(self._advance(0.0))
            for count in _POINTS:
                self.shares: dict[int, float] = {}
                for part, weight in zip(*_gauss(count), strict=True):
                    self._go_back(self._advance(part), weight)
                if abs(self.error - sum(self.shares.values())) <= _LEFT * sum(map(abs, self.shares.values())):
                    break

    def _link(self) -> None:
        """Find the operands that have the values that calls left in memory."""
        memory: _Memory = {}
        for call in self._calls:
            for index, (x, source) in enumerate(zip(call.tensors, self._sources[call.number], strict=True)):
                key, place = _end_of(source), source[1]
                if key in memory and is_floating(x) and x.shape == place[0]:
                    values = _view(memory[key], x, place)
                    if not bool(((values == widen(x)) | values.isnan()).all()):
                        raise LookupError("memory was written by no call that was recorded")
                    self._links[call.number, index] = key, place
            for position, y in enumerate(call.results):
                self._write(memory, (call.number, position), widen(y), math.nan)
        for root in self._roots:
            key = _end_of(root.source)
            if key and not (key in memory and bool(_view(memory[key], root.weight, root.source[1]).isfinite().all())):
                raise ValueError("what is followed is no number that a call gave")

    def _write(self, memory: _Memory, key: _Key, values: Tensor, empty: float = 0.0) -> None:
        """Put a result where it lies, in a copy of the memory that was there."""
        place = self._places.get(key)
        if place is None or not is_floating(values) or values.shape != place[0]:
            return
        former = memory.get(self._formers.get(key, key))
        own = memory[key] = self._with_room(None if former is None else self._copy(former), values, place, empty)
        _view(own, values, place).copy_(values)

    def _advance(self, part: float) -> _Memory:
        """Make the calls with a part of their errors: by how much each result is off the computed one, in memory."""
        memory: _Memory = {}
        for call in self._calls:
            for position, deviation in enumerate(self._deviations(call, part, memory)):
                self._write(memory, (call.number, position), deviation)
        return memory

    def _deviations(self, call: DispatcherCall, part: float, memory: _Memory) -> Iterator[Tensor]:
        if kind_of(call) in _GIVEN:
            yield from (torch.zeros_like(widen(y)) for y in call.results)
            return
        function, computed = self._functions[call.number], _operands_of(call)
        if (call.number, 0) not in self._errors:
            for position, (y, exact) in enumerate(zip(call.results, _run(function, computed), strict=False)):
                self._errors[call.number, position] = self._copy(difference(y, exact))
        is_moved = any((call.number, index) in self._links for index in range(len(computed)))
        results = _run(function, self._operands(call, memory)) if is_moved else ()
        for position, y in enumerate(call.results):
            error = self._errors.get((call.number, position), torch.zeros(()))
            moved = difference(results[position], y) if position < len(results) else -error
            yield moved + part * error

    def _operands(self, call: DispatcherCall, memory: _Memory) -> list[Tensor]:
        """The operands of a call as they are on the way."""
        operands = _operands_of(call)
        for index, x in enumerate(call.tensors):
            if (call.number, index) in self._links:
                key, place = self._links[call.number, index]
                operands[index] = operands[index] + _view(memory[key], x, place)
        return operands

    def _deviation(self, memory: _Memory) -> float:
        total = 0.0
        for root in self._roots:
            key = _end_of(root.source)
            if key in memory:
                values = _view(memory[key], root.weight, root.source[1])
                total += float((widen(root.weight) * values).sum())
        return total

    def _go_back(self, memory: _Memory, weight: float) -> None:
        """Add what the errors are worth at this part of the way, by the derivatives there."""
        slopes: _Memory = {}
        for root in self._roots:
            key = _end_of(root.source)
            if key is not None:
                self._add(slopes, self._first(key), root.source[1], widen(root.weight), root.weight)
        for call in reversed(self._calls):
            by_results = [self._take(slopes, (call.number, position), y) for position, y in enumerate(call.results)]
            for position, slope in enumerate(by_results):
                error = self._errors.get((call.number, position))
                if slope is not None and error is not None:
                    pair = (torch.view_as_real(z.resolve_conj()) if z.is_complex() else z for z in (slope, error))
                    worth = weight * float(torch.mul(*pair).sum())
                    self.shares[call.number] = self.shares.get(call.number, 0.0) + worth
            if kind_of(call) not in _GIVEN and any(slope is not None for slope in by_results):
                self._pull_back(call, by_results, self._operands(call, memory), slopes)

    def _take(self, slopes: _Memory, key: _Key, result: Tensor) -> Tensor | None:
        """The derivative by a result; before its call the memory had other numbers."""
        first, place = self._first(key), self._places.get(key)
        if first not in slopes or place is None or not is_floating(result) or result.shape != place[0]:
            return None
        slopes[first] = self._with_room(slopes[first], result, place)
        view = _view(slopes[first], result, place)
        slope = view.clone()
        view.zero_()
        return slope

    def _first(self, key: _Key) -> _Key:
        """The first write to the memory of a result."""
        while key in self._formers:
            key = self._formers[key]
        return key

    def _pull_back(
        self, call: DispatcherCall, by_results: Sequence[Tensor | None], operands: Sequence[Tensor], slopes: _Memory
    ) -> None:
        wanted = [index for index in range(len(operands)) if (call.number, index) in self._links]
        pulled = pull_back(self._functions[call.number], call, wanted, operands, by_results)
        for index, slope in zip(wanted, pulled, strict=True):
            if slope is not None:
                key, place = self._links[call.number, index]
                self._add(slopes, self._first(key), place, slope, call.tensors[index])

    def _add(self, slopes: _Memory, key: _Key, place: MemoryPlace, slope: Tensor, like: Tensor) -> None:
        """Add a derivative by a view to that by its memory."""
        slopes[key] = self._with_room(slopes.get(key), like, place)
        _add_to(slopes[key], place, slope, like)

    def _with_room(self, memory: Tensor | None, like: Tensor, place: MemoryPlace, empty: float = 0.0) -> Tensor:
        own = _with_room(memory, like, place, empty)
        return own if own is memory else self._copy(own)


def pull_back(
    function: _Function, call: DispatcherCall, wanted: Sequence[int], operands: Sequence[Tensor],
    by_results: Sequence[Tensor | None],
) -> Sequence[Tensor | None]:  # fmt: skip
    """The derivatives by the wanted operands, from those by the results; None where nothing depends on an operand.

    Args:
        function: of a call. operands: values of its operands, whose `requires_grad` is set.
    """
    leaves = [x.requires_grad_(index in wanted) for index, x in enumerate(operands)]
    own, count, best = [leaves[index] for index in wanted], -1, None
    failure: Exception = NotImplementedError("what stands for the operation does not give this result")
    for form in _forms_of(function, call) if wanted else ():
        try:
            pairs, is_whole = _differentiable(form, leaves, by_results)
            if len(pairs) > count:
                of, weights = [y for y, _ in pairs], [g for _, g in pairs]
                best = torch.autograd.grad(of, own, weights, allow_unused=True) if of else None
                count = len(pairs)
            if is_whole:
                break
        except Exception as err:  # It has no derivative in this form, and whatever torch says of that.
            failure = err
    if count < 0 and wanted:
        raise failure
    return best or [None] * len(wanted)


@contextlib.contextmanager
def refuse_constants() -> Iterator[None]:
    """torch takes an operator without a derivative for a constant, and warns: here it raises."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*an autograd kernel was not registered")
        yield


def _forms_of(function: _Function, call: DispatcherCall) -> Iterator[_Function]:
    """A call as it is, and in simpler operations.

    torch silently leaves out what goes through the statistics that a norm gives beside its value, and has no derivative
    of its backward by them. Its decomposition has both.
    """
    yield function
    if call.op in decomposition_table:
        yield as_wide_function(replace(call, op=decomposition_table[call.op]))


def _differentiable(
    form: _Function, leaves: Sequence[Tensor], by_results: Sequence[Tensor | None]
) -> tuple[list[tuple[Tensor, Tensor]], bool]:  # fmt: skip
    """The results that depend on leaves, each with the derivative by it; whether these are all that have one.

    Raises:
        NotImplementedError: what stands for the operation does not give a result of which there is a derivative.
    """
    with torch.enable_grad():
        results = form(*(x.clone() for x in leaves))  # An operation may write what it is given.
    wanted = [i for i, g in enumerate(by_results) if g is not None and bool(g.any())]
    if wanted and wanted[-1] >= len(results):
        raise NotImplementedError("what stands for the operation does not give this result")
    pairs = [(y, g.to(y)) for y, g in zip(results, by_results, strict=False) if g is not None and y.requires_grad]
    return pairs, len(pairs) >= len(wanted)


def follow_error(calls: Sequence[DispatcherCall], writers: StorageWriters, roots: Sequence[Root]) -> FollowedError:
    """Go the way from the exact program to the computed one; nothing is known where that cannot be done."""
    if any(root.source[0] for root in roots) and all(root.weight.dtype != torch.float64 for root in roots):
        with contextlib.suppress(Exception), refuse_constants():  # of torch, anything
            path = ErrorPath(calls, writers, roots)
            return FollowedError(path.error, path.shares)
    return FollowedError()


def _find_reaching(writers: StorageWriters, roots: Sequence[Root]) -> dict[_Key, Writing]:
    """What was written that reaches a root."""
    ahead = [each for root in roots for each in root.source[0][-1:]]
    writings: dict[_Key, Writing] = {}
    while ahead:
        writing = ahead.pop()
        if _key_of(writing) not in writings:
            writings[_key_of(writing)] = writing
            ahead += [each for every, _ in writers.sources[writing.number] for each in every[-1:]]
            former = writers.formers.get(_key_of(writing))
            ahead += [] if former is None else [former]
    return writings


def _key_of(writing: Writing) -> _Key:
    return writing.number, writing.position


def _end_of(source: Source) -> _Key | None:
    """The last write to the memory of a tensor."""
    return _key_of(source[0][-1]) if source[0] else None


def _gauss(count: int) -> tuple[list[float], list[float]]:
    """Points between 0 and 1, and their weights."""
    points, weights = np.polynomial.legendre.leggauss(count)
    return (points / 2 + 0.5).tolist(), (weights / 2).tolist()


def operands_of(call: DispatcherCall) -> list[Tensor]:
    """The operands as they were computed, and the mask that the call drew."""
    return [x.detach() for x in (*call.tensors, *(call.results[1:] if call.op is DROPOUT else ()))]


def _operands_of(call: DispatcherCall) -> list[Tensor]:
    return list(map(widen, operands_of(call)))


def _run(function: _Function, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    with torch.no_grad():
        return function(*(x.clone() for x in operands))


def _with_room(memory: Tensor | None, like: Tensor, place: MemoryPlace, empty: float = 0.0) -> Tensor:
    """Memory of real numbers in which a tensor has place; a complex number takes two."""
    shape, strides, offset = place[:3]
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    room = 0 if 0 in shape else 2 * (last + 1 if like.is_complex() else last // 2 + 1)
    more = room - (0 if memory is None else len(memory))
    if memory is not None and more <= 0:
        return memory
    added = torch.full((max(more, 0),), empty, dtype=torch.float64, device=like.device)
    return added if memory is None else torch.cat([memory, added])


def _view(memory: Tensor, like: Tensor, place: MemoryPlace) -> Tensor:
    """The elements of memory that a tensor is a view of."""
    memory = _with_room(memory, like, place)
    view = (torch.view_as_complex(memory.view(-1, 2)) if like.is_complex() else memory).as_strided(*place[:3])
    view = view.conj() if place.is_conj else view
    return torch._neg_view(view) if place.is_neg else view


def _add_to(own: Tensor, place: MemoryPlace, slope: Tensor, like: Tensor) -> None:
    numbers = torch.view_as_complex(own.view(-1, 2)) if like.is_complex() else own
    slope = slope.conj() if place.is_conj else slope
    slope = (-slope if place.is_neg else slope).resolve_conj().to(numbers.dtype)
    places = torch.arange(len(numbers), device=numbers.device).as_strided(*place[:3])
    numbers.index_add_(0, places.reshape(-1), slope.reshape(-1))
