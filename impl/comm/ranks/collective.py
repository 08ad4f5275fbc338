"""Collectives over ranks as functions that are differentiated. Each is linear, and its adjoint is another of them.

A collective is a matrix of zeros and ones from the tensors of all ranks to the results of all ranks. Of the sum of all
ranks' losses, the gradient is the transposed matrix: of a broadcast a sum on the root, of a gather a scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...function import Function
from ...operator.precision import compute_dtype
from .base import Comm

ADJOINT = {
    "broadcast": "reduce", "reduce": "broadcast", "gather": "scatter", "scatter": "gather",
    "all_gather": "reduce_scatter", "reduce_scatter": "all_gather", "all_to_all": "all_to_all",
    "all_reduce": "all_reduce",
}  # fmt: skip

_SUMS = ("reduce", "all_reduce", "reduce_scatter")


@dataclass(frozen=True)
class Step:
    """What is done.

    Attributes:
        kind: a name in `ADJOINT`. root: the rank that has or gets the whole. tag: what for.
        sizes: rows of each rank's part, where a whole is cut.
    """

    kind: str
    root: int = 0
    sizes: tuple[int, ...] = ()
    tag: str = ""

    def adjoint(self) -> Step:
        return replace(self, kind=ADJOINT[self.kind], tag=f"{self.tag}, vjp".lstrip(", "))

    def pushed(self) -> Step:
        """The same step for tangents: of another call than that for values."""
        return replace(self, tag=f"{self.tag}, jvp".lstrip(", "))


class Collective(Function):
    """apply(x, comm, step): the result on this rank; zeros where a rank has none."""

    @staticmethod
    def forward(x: Tensor, comm: Comm, step: Step) -> Tensor:
        return _done(x, comm, step)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        _, ctx.comm, ctx.step = inputs

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return Collective.apply(g, ctx.comm, ctx.step.adjoint()), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, comm: Any, step: Any) -> Any:
        return Collective.apply(tangent, ctx.comm, ctx.step.pushed())

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, comm: Comm, step: Step) -> Any:
        # Axis 0 is what is cut, so the batch goes to the end.
        return Collective.apply(x.movedim(in_dims[0], -1), comm, step), -1


def broadcast(x: Tensor, root: int, comm: Comm, tag: str = "") -> Tensor:
    """The root's x, on every rank, differentiable; other ranks give a tensor of the same shape and dtype."""
    return Collective.apply(x, comm, Step("broadcast", root, tag=tag))  # type: ignore[no-any-return]


def reduce(x: Tensor, root: int, comm: Comm, tag: str = "") -> Tensor:
    """Σ x over ranks, on the root, differentiable; zeros on the others."""
    return Collective.apply(x, comm, Step("reduce", root, tag=tag))  # type: ignore[no-any-return]


def gather(x: Tensor, root: int, sizes: Sequence[int], comm: Comm, tag: str = "") -> Tensor:
    """The ranks' x one after the other along axis 0, on the root, differentiable; zeros on the others.

    Args:
        x: (sizes[rank], ...). root: a rank. sizes: rows of every rank's x, the same on all.
    """
    return _cut(x, "gather", root, sizes, False, comm, tag)


def scatter(x: Tensor, root: int, sizes: Sequence[int], comm: Comm, tag: str = "") -> Tensor:
    """Part `rank` along axis 0 of the root's x, differentiable; other ranks give a tensor of its shape and dtype."""
    return _cut(x, "scatter", root, sizes, True, comm, tag)


def all_gather(x: Tensor, sizes: Sequence[int], comm: Comm, tag: str = "") -> Tensor:
    """The ranks' x one after the other along axis 0, on every rank, differentiable: x̄ is summed over ranks."""
    return _cut(x, "all_gather", 0, sizes, False, comm, tag)


def reduce_scatter(x: Tensor, sizes: Sequence[int], comm: Comm, tag: str = "") -> Tensor:
    """Part `rank` along axis 0 of Σ x over ranks, differentiable."""
    return _cut(x, "reduce_scatter", 0, sizes, True, comm, tag)


def all_to_all(x: Tensor, comm: Comm, tag: str = "") -> Tensor:
    """Slice i of the result is slice `rank` of the x of rank i, differentiable. x: (ranks, ...)."""
    return Collective.apply(_fitting("all_to_all", x, comm.size), comm, Step("all_to_all", tag=tag))  # type: ignore[no-any-return]


def all_reduce(x: Tensor, comm: Comm, tag: str = "") -> Tensor:
    """Σ x over ranks, on every rank, differentiable."""
    return Collective.apply(x, comm, Step("all_reduce", tag=tag))  # type: ignore[no-any-return]


def _cut(x: Tensor, kind: str, root: int, sizes: Sequence[int], whole: bool, comm: Comm, tag: str) -> Tensor:
    """A collective of an axis 0 that is cut in `sizes`, of which this rank gives the whole or its part.

    The sizes are in the tag: ranks that have others make another call.
    """
    if len(sizes) != comm.size or min(sizes) < 0:
        raise ValueError(f"{kind}: got sizes={list(sizes)}, need one non-negative size for each of {comm.size} ranks.")
    rows = sum(sizes) if whole else sizes[comm.rank]
    step = Step(kind, root, tuple(sizes), f"{tag} in {list(sizes)}".strip())
    return Collective.apply(_fitting(kind, x, rows), comm, step)  # type: ignore[no-any-return]


def _fitting(op: str, x: Tensor, rows: int) -> Tensor:
    if x.dim() == 0 or x.shape[0] != rows:
        raise ValueError(f"{op}: got x of shape={list(x.shape)}, need shape[0]={rows}.")
    return x


def _done(x: Tensor, comm: Comm, step: Step) -> Tensor:
    if step.kind in _SUMS and compute_dtype(x.dtype) != x.dtype:
        # Half types travel as float32 where they are added: rounded once, not once per rank.
        return _carried_out(x.to(compute_dtype(x.dtype)), comm, step).to(x.dtype)
    return _carried_out(x, comm, step)


def _carried_out(x: Tensor, comm: Comm, step: Step) -> Tensor:
    home = comm.rank == step.root
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
            return comm.scatter(_padded(x, step.sizes), step.root, step.tag)[: step.sizes[comm.rank]].clone()
        case "all_gather":
            return torch.cat(comm.all_gather(x, step.tag))
        case "reduce_scatter":
            return comm.all_to_all(_padded(x, step.sizes), step.tag)[:, : step.sizes[comm.rank]].sum(0, dtype=x.dtype)
        case "all_to_all":
            return comm.all_to_all(x, step.tag)
    return comm.all_reduce(x, tag=step.tag)


def _padded(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """(ranks, longest part, ...): the parts of x, filled up with zeros, for slices must be equal on the wire."""
    whole = x.new_zeros((len(sizes), max(sizes), *x.shape[1:]))
    for row, part in zip(whole, x.split(list(sizes)), strict=True):
        row[: part.shape[0]] = part
    return whole
