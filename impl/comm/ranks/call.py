"""The fingerprint of a collective call, by which ranks find out whether they all make the same call."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

REDUCTIONS = ("sum", "max", "min")


class CommError(RuntimeError):
    """A collective that cannot take place; the text names ranks, call numbers and calls."""


@dataclass(frozen=True)
class Call:
    """The fingerprint of a collective.

    Attributes:
        op: its name, as the method of `Comm`.
        dtype, shape: of the tensor that this rank passes.
        root: the rank that sends or receives alone, or None.
        reduction: one of `REDUCTIONS`, or None.
        tag: the caller's word for the purpose of the call; part of the fingerprint.
    """

    op: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    root: int | None = None
    reduction: str | None = None
    tag: str = ""

    def __str__(self) -> str:
        name = f"{self.op}[{self.tag}]" if self.tag else self.op
        words = [f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"]
        words += [f"root={self.root}"] if self.root is not None else []
        words += [self.reduction] if self.reduction is not None else []
        return f"{name}({', '.join(words)})"

    def key(self) -> tuple[object, ...]:
        """The part of the fingerprint in which all ranks must agree; lengths of gathered tensors may differ."""
        # Ranks may have batches of different length, and gathering them is the one collective that has room for that.
        uneven = self.op in ("all_gather", "gather")
        return (self.op, self.dtype, self.shape[1:] if uneven else self.shape, self.root, self.reduction, self.tag)


def call_of(op: str, x: Tensor, size: int, root: int | None, reduction: str | None, tag: str) -> Call:
    """The call of a rank in a world of `size` ranks.

    Args:
        op: the name of the collective.
        x: the tensor that this rank passes: strided, any dtype; at least one dim where it is gathered or cut, and one
            slice per rank where it is cut.
        size: how many ranks there are.
        root: a rank, or None where no rank is special.
        reduction: one of `REDUCTIONS`, or None.
        tag: what the call is for.

    Raises:
        TypeError: x is no strided tensor.
        ValueError: a reduction or a root that does not exist, or a shape that does not fit.
    """
    # All this is refused here, before anything is sent: a call that fails on one rank alone leaves the others waiting.
    if not isinstance(x, Tensor):
        raise TypeError(f"{op}: got x of type {type(x).__name__}, need a tensor.")
    if x.layout != torch.strided:
        raise TypeError(f"{op}: got x of layout={x.layout}, need a strided tensor.")
    if reduction is not None and reduction not in REDUCTIONS:
        raise ValueError(f"{op}: got reduction={reduction!r}, need one of {', '.join(REDUCTIONS)}.")
    if root is not None and not 0 <= root < size:
        raise ValueError(f"{op}: got root={root}, need a rank of {size}, counted from 0.")
    if op in ("all_gather", "gather") and x.dim() == 0:
        raise ValueError(f"{op}: got x of shape=[], need at least one dim; x.reshape(1) is a vector.")
    if op in ("scatter", "all_to_all") and (x.dim() == 0 or x.shape[0] != size):
        raise ValueError(f"{op}: got x of shape={list(x.shape)}, need one slice per rank, shape[0]={size}.")
    return Call(op, x.dtype, tuple(x.shape), root, reduction, tag)
