"""Wrong candidates of a task, by kind. Most come from the spec's own calls, so that every task has its share of each.

A candidate that computes the same function as its spec is none: `wrong_candidates` leaves out those that agree in
float64, within what float64 rounds, at the drawn arguments, at small, large and zero ones and at other sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .patching import Patched, Sighting, at, calls_of
from .stateful import STATEFUL
from .tasks import Task


@dataclass(frozen=True)
class Candidate:
    """A candidate for a task.

    Attributes:
        task: that it is for. kind: of the table. name: what exactly it does.
        make: makes a new one, without any memory of calls.
    """

    task: Task
    kind: str
    name: str
    make: Callable[[], Callable[..., Tensor]]


#: At most so many candidates of a kind that is made of the calls of a spec.
_EACH = 3


def wrong_candidates(task: Task) -> list[Candidate]:
    """All wrong candidates of a task."""
    results: list[Candidate] = []
    for kind, candidates in _KINDS.items():
        count = 0
        for name, make in candidates(task):
            if count == _EACH:
                break
            if not runs(task, make) or (kind not in _STATEFUL_KINDS and not differs(task, make)):
                continue
            results.append(Candidate(task, kind, name, make))
            count += 1
    return results


def differs(task: Task, make: Callable[[], Callable[..., Tensor]]) -> bool:
    """Whether a candidate computes another function than the spec, at some arguments, in float64.

    Raises:
        RuntimeError, IndexError, ValueError: the candidate does.
    """
    for scale in (1.0, 2.0**-12, 16.0, 0.0):
        args = [t.double() * scale for t in task.draw(7)]
        with torch.no_grad():
            right, result = task.spec(*args), make()(*args)
        size = right.abs().max().clamp_min(1e-3)
        if right.shape != result.shape or not float(((result.double() - right).abs() / size).max()) < 1e-11:
            return True
    return False


def runs(task: Task, make: Callable[[], Callable[..., Tensor]]) -> bool:
    """Whether a candidate gives a result of the right shape: one that does not would be seen by anybody."""
    args = task.draw(7)
    try:
        with torch.no_grad():
            return make()(*args).shape == task.spec(*args).shape
    except (RuntimeError, IndexError, ValueError):
        return False


# -------------------------------- errors of the result


def _scaled(task: Task, error: float) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "all elements", lambda: lambda *args: task.spec(*args) * (1 + error)

    def one(*args: Tensor) -> Tensor:
        y = task.spec(*args)
        factors = torch.ones_like(y).reshape(-1)
        factors[-1] = 1 + error
        return y * factors.reshape(y.shape)

    yield "the last element", lambda: one


def _without_tail(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The tail of a tile that is not computed: always, and at sizes that the given ones are not of."""
    sizes = {"always": 1, "beyond a multiple of 4": 4, "beyond a multiple of 8": 8}
    for title, tile in sizes.items():

        def cut(*args: Tensor, tile: int = tile) -> Tensor:
            y = task.spec(*args)
            if not y.ndim or not y.numel():
                return y * 0.75
            size = y.shape[-1]
            whole = size - 1 if tile == 1 else size // tile * tile
            return torch.where(torch.arange(size) < whole, y, 0.0)

        yield title, lambda cut=cut: cut

    def reduced(*args: Tensor) -> Tensor:
        x, *others = args
        return task.spec(torch.where(torch.arange(x.shape[-1]) < x.shape[-1] // 16 * 16, x, 0.0), *others)

    yield "input beyond a multiple of 16", lambda: reduced


# -------------------------------- other calls of torch


def _left_out(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
    for calls in _spread(calls_of(task.spec, task.draw(7))):
        tensors = [a for a in calls.args if isinstance(a, Tensor)]
        alike = [i for i, a in enumerate(calls.args) if isinstance(a, Tensor) and a.shape == calls.result.shape]
        if tensors and alike:

            def first(func: Any, args: Any, kwargs: Any, i: int = alike[0]) -> Any:
                return args[i] * 1.0

            yield f"without {calls.name} {calls.number}", _patched(task, calls, first)


def _constant(task: Task, factor: float) -> Iterator[tuple[str, Callable[[], Any]]]:
    for calls in _spread(calls_of(task.spec, task.draw(7))):
        for i, value in enumerate(calls.args):
            if isinstance(value, float) and value:

                def other(func: Any, args: Any, kwargs: Any, i: int = i) -> Any:
                    return func(*args[:i], args[i] * factor, *args[i + 1 :], **kwargs)

                yield f"{value:g} times {factor:g} in {calls.name} {calls.number}", _patched(task, calls, other)
        for word, value in calls.kwargs.items():
            if isinstance(value, float):

                def named_other(func: Any, args: Any, kwargs: Any, word: str = word) -> Any:
                    return func(*args, **{**kwargs, word: kwargs[word] * factor})

                yield f"{word} times {factor:g} in {calls.name} {calls.number}", _patched(task, calls, named_other)


def _other_axis(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
    def last_but_one(func: Any, args: Any, kwargs: Any) -> Any:
        result = func(args[0], -2, *args[2:], **kwargs)
        return result if result.shape == func(*args, **kwargs).shape else _onto(result, func(*args, **kwargs))

    for calls in calls_of(task.spec, task.draw(7)):
        if calls.name in _REDUCTIONS | {"softmax", "log_softmax"} and calls.args[0].ndim > 1:
            yield f"{calls.name} {calls.number}", _patched(task, calls, last_but_one)


def _onto(result: Tensor, like: Tensor) -> Tensor:
    """Values of one shape in another, repeated as often as it takes."""
    times = -(-like.numel() // max(result.numel(), 1))
    return result.reshape(-1).repeat(times)[: like.numel()].reshape(like.shape)


_REDUCTIONS = frozenset({"sum", "mean", "amax", "logsumexp"})
_OTHER_REDUCTIONS = {"sum": torch.mean, "mean": torch.sum, "amax": torch.amin, "logsumexp": torch.amax}


def _other_reduction(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
    for calls in calls_of(task.spec, task.draw(7)):
        if calls.name not in _REDUCTIONS:
            continue
        other = _OTHER_REDUCTIONS[calls.name]

        def replaced(func: Any, args: Any, kwargs: Any, other: Any = other) -> Any:
            return other(*args, **kwargs)

        yield f"{calls.name} {calls.number} as {other.__name__}", _patched(task, calls, replaced)
        if calls.name == "mean":

            def unbiased(func: Any, args: Any, kwargs: Any) -> Any:
                result = func(*args, **kwargs)
                count = args[0].numel() / max(result.numel(), 1)
                return result * (count / (count - 1) if count > 1 else 1.0)

            yield f"mean {calls.number} by n - 1", _patched(task, calls, unbiased)


def _without_affine(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
    for i, shape in enumerate(task.shapes):
        if i and len([n for n in shape if n > 1]) == 1:
            neutral = {"weight": torch.ones_like, "scale": torch.ones_like}
            name = task.spec.__code__.co_varnames[i]
            make = neutral.get(name, torch.zeros_like)

            def other(*args: Tensor, i: int = i, value: Any = make) -> Tensor:
                return task.spec(*args[:i], value(args[i]), *args[i + 1 :])

            yield f"{name}", lambda other=other: other


def _one_pass(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The variance as mean of squares minus square of the mean, in the dtype; equal in real arithmetic."""
    calls = calls_of(task.spec, task.draw(7))
    words = [s.name for s in calls]
    if "mean" not in words or "square" not in words or words.index("mean") > words.index("square"):
        return
    squared = calls[words.index("square")]
    if squared.args[0] is not calls[words.index("sub")].result:
        return
    centring = calls[words.index("sub")].number

    def make() -> Callable[..., Tensor]:
        memory: list[Tensor] = []

        def patch(number: int, name: str, func: Any, args: Any, kwargs: Any) -> Any:
            if number == centring:
                memory[:] = args
            if number == squared.number:
                x, mean = memory
                return torch.square(x) - torch.square(mean)
            return func(*args, **kwargs)

        return Patched(task.spec, patch)

    yield "of large means", make


# -------------------------------- reduced precision


def _rounded_to(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda t: t.to(dtype).to(t.dtype)


def _to_tf32(t: Tensor) -> Tensor:
    """Rounded to 11 bits, to nearest, ties away from zero, as tensor cores are given their factors."""
    if t.dtype != torch.float32:
        t = t.float()
    bits = t.detach().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32) + (t - t.detach())


def _whole_in(task: Task, dtype: torch.dtype) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "all of it", lambda: lambda *args: task.spec(*(t.to(dtype) for t in args)).to(args[0].dtype)
    cast = _rounded_to(dtype)
    yield "its inputs", lambda: lambda *args: task.spec(*map(cast, args))
    yield "its result", lambda: lambda *args: cast(task.spec(*args))


def _one_step_in(task: Task, dtype: torch.dtype) -> Iterator[tuple[str, Callable[[], Any]]]:
    cast = _rounded_to(dtype)
    for calls in _spread(calls_of(task.spec, task.draw(7)))[:-1]:
        yield (
            f"{calls.name} {calls.number}",
            _patched(task, calls, lambda func, args, kwargs: cast(func(*args, **kwargs))),
        )


_PRODUCTS = ("matmul", "bmm", "linear", "conv1d", "conv2d", "conv_transpose2d")


def _factors(task: Task, cast: Callable[[Tensor], Tensor]) -> Iterator[tuple[str, Callable[[], Any]]]:
    for calls in calls_of(task.spec, task.draw(7)):
        if calls.name in _PRODUCTS:

            def less(func: Any, args: Any, kwargs: Any) -> Any:
                return func(cast(args[0]), cast(args[1]), *args[2:], **kwargs)

            yield f"{calls.name} {calls.number}", _patched(task, calls, less)


# -------------------------------- the whole of it


def _patched(task: Task, call: Sighting, other: Callable[..., Any]) -> Callable[[], Any]:
    return lambda: Patched(task.spec, at(call.number, other))


def _spread(calls: list[Sighting]) -> list[Sighting]:
    """Calls that compute, the last first and then from the beginning, so that few of many are unlike."""
    computing = [s for s in calls if s.name not in ("reshape", "transpose", "getitem", "cat", "view")]
    return [*computing[-1:], *computing[:-1]]


Candidates = Callable[[Task], Iterator[tuple[str, Callable[[], Any]]]]
_KINDS: dict[str, Candidates] = {
    "relative error 1e-3": functools.partial(_scaled, error=1e-3),
    "relative error 1e-5": functools.partial(_scaled, error=1e-5),
    "one step left out": _left_out,
    "constant times 10": functools.partial(_constant, factor=10.0),
    "constant times 1.01": functools.partial(_constant, factor=1.01),
    "tail of a tile": _without_tail,
    "bias or scale left out": _without_affine,
    "other axis": _other_axis,
    "other reduction": _other_reduction,
    "one-pass variance": _one_pass,
    "bfloat16": functools.partial(_whole_in, dtype=torch.bfloat16),
    "float16": functools.partial(_whole_in, dtype=torch.float16),
    "one step in bfloat16": functools.partial(_one_step_in, dtype=torch.bfloat16),
    "factors in bfloat16": functools.partial(_factors, cast=_rounded_to(torch.bfloat16)),
    "factors in TF32": functools.partial(_factors, cast=_to_tf32),
    **STATEFUL,
}
_STATEFUL_KINDS = frozenset({*STATEFUL, "one-pass variance", "factors in TF32"})
