"""What batch norm over ranks promises besides values: which ranks take part, what is sent, and of how many digits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ....oracles.op.placement import Promise
from ... import worlds
from ..mismatch import Mismatches, compare, numbers
from ..over_places import run_on_ranks

Tensor = torch.Tensor
#: sync_batch_norm, with a comm as its last argument.
Normalized = Callable[..., Tensor]


class _CountingComm:
    """A comm that notes how many elements each call sends."""

    def __init__(self, comm: Any) -> None:
        self.sent: list[int] = []
        self.rank, self.size, self._comm = comm.rank, comm.size, comm

    def all_reduce(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        self.sent.append(x.numel())
        total: Tensor = self._comm.all_reduce(x, *args, **kwargs)
        return total


def _everybody(normalized: Normalized) -> Mismatches:
    """A rank whose input needs no gradient takes part in the derivative, and no call grows with its use."""

    def program(comm: Any) -> Any:
        counted = _CountingComm(comm)
        x = torch.tensor([[-3.0, 1.0], [3.0, 5.0]]).requires_grad_(comm.rank == 0)
        mean, var = torch.zeros(2), torch.ones(2)
        y = normalized(x, mean, var, None, None, True, 1.0, 7.0, comm=counted)
        torch.autograd.backward((y * torch.tensor([[1.0], [2.0]])).sum() * (comm.rank + 1.0))
        with torch.no_grad():
            normalized(x, mean, var, None, None, False, comm=counted)
            plain = normalized(x, None, None, None, None, True, comm=counted).requires_grad
        return counted.sent, x.grad is not None, mean.requires_grad, var.requires_grad, plain

    rest = (False, False, False)
    need = [([5, 4, 5], rank == 0, *rest) for rank in range(3)]
    yield compare("elements sent, gradients, and what needs them", run_on_ranks(3, program), need)
    yield compare("elements that one rank sends", run_on_ranks(1, program)[0][0], [])


def _weight_alone(normalized: Normalized) -> Mismatches:
    """The tangent of the weight alone: every rank takes part, though its input has none."""

    def program(comm: Any) -> list[float]:
        x, weight = torch.tensor([[-3.0], [3.0]]), torch.ones(1)

        def of_weight(weight: Tensor) -> Tensor:
            return normalized(x, None, None, weight, None, True, 0.1, 7.0, comm=comm)

        return numbers(torch.func.jvp(of_weight, (weight,), (2 * weight,))[1])

    # The variance is 9, and with eps it is 16.
    yield compare("tangents", run_on_ranks(2, program), [[[-1.5], [1.5]]] * 2)


def _digits(normalized: Normalized) -> Mismatches:
    """The mean, 2²⁴ + 1, is no number of float32; the input minus the mean, ±1, is."""

    def program(comm: Any) -> list[float]:
        x = torch.tensor([[2.0**24 + 2 * comm.rank]])
        return numbers(normalized(x, None, None, None, None, True, 0.1, 3.0, comm=comm))

    yield compare("outputs", run_on_ranks(2, program), [[[-0.5]], [[0.5]]])


def _no_channels(normalized: Normalized) -> Mismatches:
    """Without channels there is nothing to normalise or to differentiate, and nothing fails."""

    def program(comm: Any) -> tuple[Any, ...]:
        def call(x: Tensor) -> Tensor:
            return normalized(x, None, None, None, None, True, comm=comm)

        x = torch.ones(2, 0, 3, requires_grad=True)
        y = call(x)
        (g,) = torch.autograd.grad(y, x, torch.ones_like(y))
        tangent = torch.func.jvp(call, (x.detach(),), (x.detach(),))[1]
        return tuple(y.shape), tuple(g.shape), tuple(tangent.shape)

    yield compare("shapes", run_on_ranks(2, program), [((2, 0, 3),) * 3] * 2)


_QUESTIONS = {
    "no channels": _no_channels,
    "every rank takes part": _everybody,
    "the weight's tangent alone": _weight_alone,
    "digits": _digits,
}


def promises_of(normalized: Normalized) -> tuple[Promise, ...]:
    """The promises of batch norm over ranks; none where the number of ranks is fixed."""
    if not worlds.may_fail():
        return ()
    return tuple(Promise(name, partial(question, normalized)) for name, question in _QUESTIONS.items())
