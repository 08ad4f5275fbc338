"""Differentiable collectives over ranks: what they refuse, keep, and what their adjoints are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.impl.comm import Comm, CommError, LockstepWorld, SoloComm, collective

SIZES = (2, 0, 3)
RANKS = len(SIZES)
#: Of every kind: a call of (x, comm), and the shape of x by rank.
KINDS: dict[str, tuple[Any, Any]] = {
    "broadcast": (lambda x, comm: collective.broadcast(x, 1, comm), lambda rank: (4, 2)),
    "reduce": (lambda x, comm: collective.reduce(x, 1, comm), lambda rank: (4, 2)),
    "gather": (lambda x, comm: collective.gather(x, 1, SIZES, comm), lambda rank: (SIZES[rank], 2)),
    "scatter": (lambda x, comm: collective.scatter(x, 1, SIZES, comm), lambda rank: (5, 2)),
    "all_gather": (lambda x, comm: collective.all_gather(x, SIZES, comm), lambda rank: (SIZES[rank], 2)),
    "reduce_scatter": (lambda x, comm: collective.reduce_scatter(x, SIZES, comm), lambda rank: (5, 2)),
    "all_to_all": (collective.all_to_all, lambda rank: (RANKS, 2)),
    "all_reduce": (collective.all_reduce, lambda rank: (4, 2)),
}


def numbers(shape: tuple[int, ...], seed: int, dtype: torch.dtype) -> Tensor:
    """Integers that tell the place and the seed, complex ones where the dtype is."""
    x = ((torch.arange(torch.Size(shape).numel()).reshape(shape) * 7 + 13 * seed) % 11 - 5).to(torch.float64)
    return torch.complex(x, x.roll(1, -1) + 1).to(dtype) if dtype.is_complex else x.to(dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_gradient_is_the_transposed_matrix(kind: str, dtype: torch.dtype) -> None:
    # ⟨B x, y⟩ over all ranks = ⟨x, Bᵀ y⟩, exactly, on integers.
    call, shape = KINDS[kind]

    def program(comm: Comm) -> tuple[Any, Any]:
        x = numbers(shape(comm.rank), comm.rank, dtype).requires_grad_()
        y = call(x, comm)
        g = numbers(tuple(y.shape), comm.rank + 5, dtype)
        (x_bar,) = torch.autograd.grad(y, x, g)
        return (y.detach().conj() * g).sum(), (x.detach().conj() * x_bar).sum()

    left, right = zip(*LockstepWorld(RANKS, order="random", seed=3).run(program), strict=True)
    assert sum(left) == sum(right)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("kind", KINDS)
def test_dtypes_stay(kind: str, dtype: torch.dtype) -> None:
    call, shape = KINDS[kind]

    def program(comm: Comm) -> Any:
        return call(numbers(shape(comm.rank), comm.rank, dtype), comm).dtype

    assert LockstepWorld(RANKS).run(program) == [dtype] * RANKS


def test_ranks_that_cut_differently_make_different_calls() -> None:
    def program(comm: Comm) -> Any:
        return collective.scatter(torch.arange(4.0), 0, (1, 3) if comm.rank else (3, 1), comm)

    with pytest.raises(CommError, match=r"in \[3, 1\].*in \[1, 3\]"):
        LockstepWorld(2).run(program)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda comm: collective.all_gather(torch.ones(2), (2, 2), comm), ValueError, r"sizes=\[2, 2\].*1 rank"),
        (lambda comm: collective.scatter(torch.ones(2), 0, (-2,), comm), ValueError, "non-negative"),
        (lambda comm: collective.gather(torch.ones(2), 0, (3,), comm), ValueError, r"shape=\[2\], need shape\[0\]=3"),
        (lambda comm: collective.all_to_all(torch.ones(2), comm), ValueError, r"shape\[0\]=1"),
        (lambda comm: collective.broadcast(torch.ones(2), 1, comm), ValueError, "root=1"),
        (lambda comm: collective.all_reduce(torch.eye(2).to_sparse(), comm), TypeError, "strided"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call(SoloComm())


def test_what_other_ranks_hold_is_not_looked_at() -> None:
    def program(comm: Comm) -> Any:
        x = torch.ones(2) if comm.rank == 1 else torch.full((2,), torch.nan)
        x.requires_grad_()
        y = collective.broadcast(x, 1, comm)
        (g,) = torch.autograd.grad(y, x, torch.ones(2))
        return y.tolist(), g.tolist()

    assert LockstepWorld(3).run(program) == [([1, 1], [0, 0]), ([1, 1], [3, 3]), ([1, 1], [0, 0])]
