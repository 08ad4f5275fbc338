"""Wrong candidates whose single calls are right: caches, buffers, writes, gradients, threads of what was before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .tasks import Task

Candidates = Callable[[Task], Iterator[tuple[str, Callable[[], Any]]]]


def _cache(key: Callable[[Tensor], Any]) -> Candidates:
    def candidates(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
        def of_the_result() -> Callable[..., Tensor]:
            memory: dict[Any, Tensor] = {}

            def candidate(*args: Tensor) -> Tensor:
                name = tuple(key(t) for t in args)
                if name not in memory:
                    memory[name] = task.spec(*args).detach()
                return memory[name].clone()

            return candidate

        yield "the result", of_the_result

        def of_the_last_operand() -> Callable[..., Tensor]:
            memory: dict[Any, Tensor] = {}

            def candidate(*args: Tensor) -> Tensor:
                last = memory.setdefault(key(args[-1]), args[-1].detach().clone())
                return task.spec(*args[:-1], last)

            return candidate

        if len(task.shapes) > 1:
            yield "the last operand", of_the_last_operand

    return candidates


def _stale_output(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
    def make() -> Callable[..., Tensor]:
        memory: dict[Any, Tensor] = {}

        def candidate(*args: Tensor) -> Tensor:
            y = task.spec(*args)
            if torch.is_grad_enabled():
                return y
            out = memory.setdefault((y.shape, y.dtype), torch.empty_like(y))
            return out.copy_(y)

        return candidate

    yield "one output buffer for all calls", make

    def summing() -> Callable[..., Tensor]:
        memory: dict[Any, Tensor] = {}

        def candidate(*args: Tensor) -> Tensor:
            y = task.spec(*args)
            total = memory.setdefault((y.shape, y.dtype), torch.zeros_like(y))
            result = y + total * 2.0**-12
            memory[y.shape, y.dtype] = y.detach()
            return result

        return candidate

    yield "a little of the call before", summing


def _writes_input(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
    def scratch(*args: Tensor) -> Tensor:
        y = task.spec(*args)
        with torch.no_grad():
            args[0].data.mul_(2.0)
        return y

    yield "scales the first input", lambda: scratch

    def last(*args: Tensor) -> Tensor:
        y = task.spec(*args).clone()
        args[-1].data.reshape(-1)[-1:] = 0.0
        return y

    yield "one element of the last", lambda: last


class _WrongGradient(torch.autograd.Function):
    """The identity, whose gradient is another."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * ctx.factor, None


def _wrong_gradient(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
    for factor in (1.001, -1.0):
        yield f"times {factor:g}", lambda factor=factor: lambda *a: _WrongGradient.apply(task.spec(*a), factor)

    def detached(*args: Tensor) -> Tensor:
        return (
            task.spec(*args[:-1], args[-1].detach())
            if len(args) > 1
            else task.spec(args[0].detach() * 0.5 + args[0] * 0.5)
        )

    yield "none of the last operand", lambda: detached


def _ignores_strides(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
    def flat(*args: Tensor) -> Tensor:
        x, *others = args
        view = x.as_strided(x.shape, torch.empty(x.shape).stride(), x.storage_offset())
        return task.spec(view, *others)

    yield "reads the first input as contiguous", lambda: flat


def _unwritten(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
    def make(*args: Tensor) -> Tensor:
        y = task.spec(*args)
        return y + torch.empty(y.shape, dtype=y.dtype) * 0.0

    yield "adds zero times memory that nobody wrote", lambda: make


def _specialized(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What holds for the drawn arguments alone."""

    def finite(*args: Tensor) -> Tensor:
        return torch.nan_to_num(task.spec(*args))

    yield "NaN and infinities taken away", lambda: finite

    def small(*args: Tensor) -> Tensor:
        return task.spec(*(t.clamp(-50.0, 50.0) for t in args))

    yield "inputs clipped to 50", lambda: small

    def signless(*args: Tensor) -> Tensor:
        return task.spec(*(torch.where(t.abs() < 1e-4, torch.zeros_like(t), t) for t in args))

    yield "inputs below 1e-4 as zero", lambda: signless


STATEFUL: dict[str, Candidates] = {
    "cache by shape": _cache(lambda t: (t.shape, t.dtype)),
    "cache by pointer": _cache(lambda t: (t.data_ptr(), t.shape)),
    "cache by object": _cache(lambda t: (id(t), t.shape)),
    "stale output": _stale_output,
    "writes an input": _writes_input,
    "wrong gradient": _wrong_gradient,
    "strides ignored": _ignores_strides,
    "memory not written": _unwritten,
    "for common inputs alone": _specialized,
}
