"""A spec that is one sum, and the operand whose elements are its terms: what can be probed from outside.

What this is for: whoever wants to see along which tree a candidate adds up must choose every term of its sums, and read
each sum off its outputs. That can be done where the spec is a sum, a mean or a product of matrices: with ones in all
other operands, and zeros in what is added, the elements of one operand are the terms.

What is hard here: to know that of any spec. It is called in float64 with chosen values. A gradient of random weights
tells which elements go into the same outputs; then values tell that every output is the same multiple of the sum of
such a set, masks of both signs that nothing but this sum comes of them, and its reading that nothing else is added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from opassay.oracles.bound.rounding.ball import ball
from opassay.oracles.bound.rounding.lengths import record_lengths
from opassay.oracles.bound.terms import Terms
from opassay.oracles.op.declaration import is_float, to_array
from opassay.oracles.verdicts.violation import error_lines
from opassay.properties.candidates.arguments import CallArguments, State, Tensor, device_of
from opassay.properties.candidates.results import result_of
from opassay.properties.candidates.specification import Specification
from opassay.reference.formats import FORMATS

#: Random weights of outputs are integers below this, so that float64 adds up 2^13 of them without rounding.
_WEIGHTS = 2**40
#: Of a mask: M, so that M + 1 is exact in float64, and how many masks are tried.
_MASK, _MASKS = 2.0**20, 4


class ProbeError(ValueError):
    """A candidate or a spec that cannot be probed; the text says why."""


@dataclass(frozen=True)
class IsolatedSum:
    """Sums that a spec consists of.

    Attributes:
        operands: tensors in the order of the state and then of the arguments, with which the elements of one of them
            are the terms.
        operand: the position of that one.
        places: (sums, terms): which of its elements, in order of memory that is contiguous, are the terms of each sum.
        owners: of every element of the output, in order, the number of its sum.
        scale: what a sum is multiplied by.
    """

    operands: tuple[Tensor, ...]
    operand: int
    places: Any
    owners: Any
    scale: float

    @property
    def terms(self) -> int:
        """How many terms each of the sums has."""
        return int(self.places.shape[1])

    def with_values(self, values: Any) -> tuple[Tensor, ...]:
        """The operands with values in the places of the terms; `values`: (sums, terms) float64."""
        operand = self.operands[self.operand]
        flat = np.ones(operand.numel())
        flat[self.places] = values
        filled = torch.from_numpy(flat).reshape(operand.shape).to(operand.dtype).to(operand.device)
        filled = filled if operand.is_contiguous() else torch.empty_like(operand).copy_(filled)
        return (*self.operands[: self.operand], filled, *self.operands[self.operand + 1 :])


def isolate_sum(spec: Specification, arguments: CallArguments, terms: Terms) -> IsolatedSum:
    """The sums that a spec consists of, by the operand that has the terms of the most of them.

    Args:
        spec, arguments: what is called, and how. terms: by which it is read.

    Raises:
        ProbeError: it is no sum, no mean and no product of matrices, or it has more than one.
    """
    state = spec.state
    need = "a probe needs a spec that is one sum, mean or product of matrices along an axis"
    if spec.numpy:
        raise ProbeError(f"{spec.name} is a formula in NumPy; a probe needs one in PyTorch")
    if spec.find_writes(arguments, state):
        raise ProbeError(f"{spec.name} writes what it is called with; {need}")
    lengths = _lengths_of_sums(spec, arguments, terms)
    if len(lengths) != 1:
        raise ProbeError(f"{spec.name} adds up {len(lengths)} times; {need}")
    tensors = [*state.values(), *arguments.tensors]
    formats = {str(t.dtype).removeprefix("torch.") for t in tensors if t.is_floating_point() or t.is_complex()}
    if not formats or not formats <= FORMATS.keys():
        raise ProbeError(
            f"{spec.name} takes {', '.join(sorted(formats)) or 'integers'}; {need} of {', '.join(FORMATS)}"
        )
    called = _SpecInDoubles(spec, arguments)
    sums = [one for i, t in enumerate(tensors) if t.is_floating_point() and (one := _by_operand(called, i)) is not None]
    sums = [one for one in sums if one.terms == lengths[0]]
    if not sums:
        raise ProbeError(f"{spec.name} gives no sums of elements of one operand alone; {need}")
    best = max(sums, key=lambda one: len(one.places))
    own = tuple(x.to(t.dtype) if t.is_floating_point() else t for x, t in zip(best.operands, tensors, strict=True))
    if any(x.stride() != t.stride() for x, t in zip(own, tensors, strict=True)):
        raise ProbeError(f"elements of what {spec.name} takes share memory; a probe writes each of them")
    return IsolatedSum(own, best.operand, best.places, best.owners, best.scale)


def _lengths_of_sums(spec: Specification, arguments: CallArguments, terms: Terms) -> list[int]:
    """How many terms each sum has that the text of a spec forms, of those whose bounds go by the tree of a contract.

    A reading may evaluate the text several times, and so it is evaluated here, once.
    """
    tensors = [*spec.state.values(), *arguments.tensors]
    contract = terms.contract(spec.dtype_of(arguments, spec.state), device_of(tensors))
    operands = [ball(to_array(t), contract) if is_float(t) else t.numpy(force=True) for t in tensors]
    try:
        with record_lengths() as lengths, np.errstate(all="ignore"):
            spec.traced_at(arguments, spec.state)(*operands)
    except Exception as err:
        raise ProbeError(f"{spec.name} cannot be read: {' '.join(error_lines(err))[:200]}") from err
    return lengths.every


class _SpecInDoubles:
    """A spec as a function of its operands in float64."""

    def __init__(self, spec: Specification, arguments: CallArguments) -> None:
        self._spec, self._arguments, self._names = spec, arguments, list(spec.state)
        tensors = [t.detach() for t in (*spec.state.values(), *arguments.tensors)]
        self.ones = [torch.ones_like(t, dtype=torch.float64) if t.is_floating_point() else t for t in tensors]

    def output(self, operands: Sequence[Tensor]) -> Tensor | None:
        """The one floating output, flat and in float64; None where the spec gives another result, or raises."""
        count = len(self._names)
        state: State = dict(zip(self._names, operands, strict=False))
        arguments = self._arguments.with_tensors(operands[count:])
        try:
            with torch.enable_grad():
                outputs = result_of(self._spec.call_at(state, arguments.args)).tensors
        except Exception:  # float64 may be none of its dtypes
            return None
        if len(outputs) != 1 or not outputs[0].is_floating_point():
            return None
        return outputs[0].reshape(-1).double()


def _by_operand(spec: _SpecInDoubles, position: int) -> IsolatedSum | None:
    """The sums of the elements of an operand; None where the spec is none."""
    operands = list(spec.ones)
    size = operands[position].numel()
    if size < 2 or not _remove_others(spec, operands, position):
        return None
    weights = _gradient(spec, operands, position)
    if weights is None:
        return None
    values, numbers, counts = np.unique(weights, return_inverse=True, return_counts=True)
    is_term = values != 0
    if not is_term.any() or len(set(counts[is_term])) != 1 or counts[is_term][0] < 2:
        return None
    order = np.argsort(numbers, kind="stable")
    order = order[is_term[numbers[order]]]
    return _with_owners(spec, operands, position, order.reshape(int(is_term.sum()), -1))


def _remove_others(spec: _SpecInDoubles, operands: list[Tensor], position: int) -> bool:
    """Make zeros of the operands that are added to the sums; whether nothing else is added then."""

    def shares() -> tuple[Tensor, Tensor] | None:
        """What comes of the operand, and what without it."""
        without = spec.output([torch.zeros_like(t) if i == position else t for i, t in enumerate(operands)])
        whole = spec.output(operands)
        return None if whole is None or without is None else (whole - without, without)

    for i, tensor in enumerate(operands):
        if i == position or not tensor.is_floating_point():
            continue
        both = shares()
        if both is None or not bool(both[1].any()):
            break
        operands[i] = torch.zeros_like(tensor)
        both = shares()
        if both is None or not bool(both[0].all()):  # it is a factor
            operands[i] = tensor
    both = shares()
    return both is not None and not bool(both[1].any())


def _gradient(spec: _SpecInDoubles, operands: Sequence[Tensor], position: int) -> Any:
    """For each element of an operand the sum of random weights of the outputs that it goes into; None where none is."""
    moving = operands[position].clone().requires_grad_()
    output = spec.output([moving if i == position else t for i, t in enumerate(operands)])
    if output is None or not output.requires_grad or not output.numel():
        return None
    weights = np.random.default_rng(0).integers(1, _WEIGHTS, output.numel()).astype(np.float64)
    (gradient,) = torch.autograd.grad(output @ torch.from_numpy(weights).to(output.device), moving)
    return gradient.reshape(-1).numpy(force=True)


def _with_owners(spec: _SpecInDoubles, operands: Sequence[Tensor], position: int, places: Any) -> IsolatedSum | None:
    """The sums over these places; None where an output is no multiple of one of them."""
    count, terms = places.shape
    isolated = IsolatedSum(tuple(operands), position, places, None, 1.0)
    of_ones = _output_at(spec, isolated, np.ones((count, terms)))
    if of_ones is None or not of_ones.size or not of_ones[0] > 0 or np.ptp(of_ones):
        return None
    numbers = np.arange(1.0, count + 1.0)
    coded = _output_at(spec, isolated, np.repeat(numbers[:, None], terms, 1))
    if coded is None:
        return None
    owners = np.rint(coded / of_ones[0]).astype(np.int64) - 1
    if not (np.all(owners >= 0) and np.all(owners < count)):
        return None
    isolated = IsolatedSum(tuple(operands), position, places, owners, float(of_ones[0]) / terms)
    draws = np.random.default_rng(1)
    for _ in range(_MASKS):
        values = draws.integers(1, 4, (count, terms)).astype(np.float64)
        first = draws.integers(terms, size=count)
        second = (first + draws.integers(1, terms, size=count)) % terms
        values[np.arange(count), first], values[np.arange(count), second] = _MASK, -_MASK
        output = _output_at(spec, isolated, values)
        # Whatever the order, float64 adds these up without rounding; the scale alone rounds.
        right = values.sum(1)[owners]
        if output is None or not np.array_equal(np.rint(output / isolated.scale), right):
            return None
    return isolated


def _output_at(spec: _SpecInDoubles, isolated: IsolatedSum, values: Any) -> Any:
    """The output with values in the places of the terms, as an array; None where there is none that is finite."""
    output = spec.output(isolated.with_values(values))
    array = None if output is None else output.numpy(force=True)
    return array if array is not None and np.isfinite(array).all() else None
