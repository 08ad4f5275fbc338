"""Collectives over ranks as functions that are differentiated. Each is linear, and its adjoint is another of them.

A collective is a matrix of zeros and ones from the tensors of all ranks to the results of all ranks. Of the sum of all
ranks' losses, the gradient is the transposed matrix: of a broadcast a sum on the root, of a gather a scatter.

What is hard here: a backward pass is a call, too. If one rank's input needs a gradient and another's does not, the one
waits for the other for ever; so callers see to it that all ranks differentiate or none. And calls must not be mistaken
for each other. So the call for a derivative has a tag of its own, as "loss, vjp", and a rank that is still in the
forward pass is seen to make another call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...function import Function, VmapInfo
from ...function.static_types import Ctx, LeafDims, Leaves
from ...operator.precision import compute_dtype
from .base import Comm

#: The transposed matrix of each collective. A sum on every rank is symmetric, and so is the exchange of slices.
ADJOINT = {
    "broadcast": "reduce", "reduce": "broadcast", "gather": "scatter", "scatter": "gather",
    "all_gather": "reduce_scatter", "reduce_scatter": "all_gather", "all_to_all": "all_to_all",
    "all_reduce": "all_reduce",
}  # fmt: skip

_SUMS = ("reduce", "all_reduce", "reduce_scatter")


@dataclass(frozen=True)
class Step:
    """A collective without its tensor: `Step("gather", 0, (2, 3), "rows")` puts 2 and 3 rows together on rank 0.

    Attributes:
        kind: a name in `ADJOINT`.
        root: the rank that has or gets the whole.
        sizes: rows of each rank's part, where a whole is cut or put together.
        tag: the purpose of the call.
    """

    kind: str
    root: int = 0
    sizes: tuple[int, ...] = ()
    tag: str = ""

    def adjoint(self) -> Step:
        return replace(self, kind=ADJOINT[self.kind], tag=f"{self.tag}, vjp".lstrip(", "))

    def pushed(self) -> Step:
        """The same step for tangents, with a tag of its own, since it is another call than that for values."""
        return replace(self, tag=f"{self.tag}, jvp".lstrip(", "))


class Collective(Function):
    """apply(x, comm, step): the result on this rank; zeros where a rank has none."""

    @staticmethod
    def forward(x: Tensor, comm: Comm, step: Step) -> Tensor:
        return _perform(x, comm, step)

    @staticmethod
    def setup_context(ctx: Ctx, inputs: Leaves, output: Tensor) -> None:
        _, ctx.comm, ctx.step = inputs

    @staticmethod
    def backward(ctx: Ctx, g: Tensor) -> tuple[Tensor, None, None]:
        return Collective.apply(g, ctx.comm, ctx.step.adjoint()), None, None

    @staticmethod
    def jvp(ctx: Ctx, tangent: Tensor, comm: None, step: None) -> Tensor:
        return _collective(tangent, ctx.comm, ctx.step.pushed())

    @staticmethod
    def vmap(info: VmapInfo, in_dims: LeafDims, x: Tensor, comm: Comm, step: Step) -> tuple[Tensor, int]:
        dim, _, _ = in_dims
        assert dim is not None, "the only tensor among the arguments is batched"
        # Parts are cut along axis 0, so the batch goes to the last axis.
        return _collective(x.movedim(dim, -1), comm, step), -1


def broadcast(x: Tensor, root: int, comm: Comm, tag: str = "") -> Tensor:
    """The root's x, on every rank, differentiable; other ranks give a tensor of the same shape and dtype."""
    return _collective(x, comm, Step("broadcast", root, tag=tag))


def reduce(x: Tensor, root: int, comm: Comm, tag: str = "") -> Tensor:
    """Σ x over ranks, on the root, differentiable; zeros on the others."""
    return _collective(x, comm, Step("reduce", root, tag=tag))


def gather(x: Tensor, root: int, sizes: Sequence[int], comm: Comm, tag: str = "") -> Tensor:
    """The ranks' x one after the other along axis 0, on the root, differentiable; zeros on the others.

    Args:
        x: (sizes[rank], ...).
        root: a rank.
        sizes: rows of every rank's x, the same on all.
        comm: this rank's end of the group.
        tag: what the call is for.
    """
    return _cut_along_rows(x, "gather", root, sizes, False, comm, tag)


def scatter(x: Tensor, root: int, sizes: Sequence[int], comm: Comm, tag: str = "") -> Tensor:
    """Part `rank` along axis 0 of the root's x, differentiable; other ranks give a tensor of its shape and dtype.

    Args:
        x: (sum of sizes, ...).
        root: a rank.
        sizes: rows of every rank's part, the same on all.
        comm: this rank's end of the group.
        tag: what the call is for.

    Raises:
        ValueError: not one non-negative size per rank, or another length of x.
        CommError: the ranks do not make the same call.
    """
    return _cut_along_rows(x, "scatter", root, sizes, True, comm, tag)


def all_gather(x: Tensor, sizes: Sequence[int], comm: Comm, tag: str = "") -> Tensor:
    """The ranks' x one after the other along axis 0, on every rank, differentiable: x̄ is summed over ranks."""
    return _cut_along_rows(x, "all_gather", 0, sizes, False, comm, tag)


def reduce_scatter(x: Tensor, sizes: Sequence[int], comm: Comm, tag: str = "") -> Tensor:
    """Part `rank` along axis 0 of Σ x over ranks, differentiable."""
    return _cut_along_rows(x, "reduce_scatter", 0, sizes, True, comm, tag)


def all_to_all(x: Tensor, comm: Comm, tag: str = "") -> Tensor:
    """Slice i of the result is slice `rank` of the x of rank i, differentiable. x: (ranks, ...)."""
    return _collective(_require_rows("all_to_all", x, comm.size), comm, Step("all_to_all", tag=tag))


def all_reduce(x: Tensor, comm: Comm, tag: str = "") -> Tensor:
    """Σ x over ranks, on every rank, differentiable."""
    return _collective(x, comm, Step("all_reduce", tag=tag))


def _cut_along_rows(x: Tensor, kind: str, root: int, sizes: Sequence[int], whole: bool, comm: Comm, tag: str) -> Tensor:
    """A collective of an axis 0 that is cut in `sizes`, of which this rank gives the whole or its part.

    The sizes are in the tag: ranks that have others make another call.
    """
    if len(sizes) != comm.size or min(sizes) < 0:
        raise ValueError(f"{kind}: got sizes={list(sizes)}, need one non-negative size for each of {comm.size} ranks.")
    rows = sum(sizes) if whole else sizes[comm.rank]
    step = Step(kind, root, tuple(sizes), f"{tag} in {list(sizes)}".strip())
    return _collective(_require_rows(kind, x, rows), comm, step)


def _collective(x: Tensor, comm: Comm, step: Step) -> Tensor:
    result: Tensor = Collective.apply(x, comm, step)
    return result


def _require_rows(op: str, x: Tensor, rows: int) -> Tensor:
    if x.dim() == 0 or x.shape[0] != rows:
        raise ValueError(f"{op}: got x of shape={list(x.shape)}, need shape[0]={rows}.")
    return x


def _perform(x: Tensor, comm: Comm, step: Step) -> Tensor:
    if step.kind in _SUMS and compute_dtype(x.dtype) != x.dtype:
        # Half types travel as float32 where they are added: rounded once, not once per rank.
        return _send(x.to(compute_dtype(x.dtype)), comm, step).to(x.dtype)
    return _send(x, comm, step)


def _send(x: Tensor, comm: Comm, step: Step) -> Tensor:
    home = comm.rank == step.root
    # A rank that gets nothing returns zeros of the shape that the root gets. So the collective stays one matrix, in
    # which that rank has rows of zeros, and its adjoint needs no case of its own.
    match step.kind:
        case "broadcast":
            return comm.broadcast(x, step.root, step.tag)
        case "reduce":
            total = comm.reduce(x, step.root, tag=step.tag)
            return total if home else torch.zeros_like(total)
        case "gather":
            parts = comm.gather(x, step.root, step.tag)
            return torch.cat(parts) if home else x.new_zeros((sum(step.sizes), *x.shape[1:]))
        case "scatter":
            return comm.scatter(_pad(x, step.sizes), step.root, step.tag)[: step.sizes[comm.rank]].clone()
        case "all_gather":
            return torch.cat(comm.all_gather(x, step.tag))
        case "reduce_scatter":
            return comm.all_to_all(_pad(x, step.sizes), step.tag)[:, : step.sizes[comm.rank]].sum(0, dtype=x.dtype)
        case "all_to_all":
            return comm.all_to_all(x, step.tag)
    return comm.all_reduce(x, tag=step.tag)


def _pad(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """(ranks, longest part, ...): the parts of x, filled up with zeros, for slices must be equal on the wire."""
    whole = x.new_zeros((len(sizes), max(sizes), *x.shape[1:]))
    for row, part in zip(whole, x.split(list(sizes)), strict=True):
        row[: part.shape[0]] = part
    return whole
