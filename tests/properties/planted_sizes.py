"""Faults that begin at a length: a correct op that stops reading, or writing, where one of its axes is longer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch

from opassay import Op
from opassay.properties.catalog.loading import load_op

Tensor = torch.Tensor
Args = tuple[Any, ...]
#: (arguments) -> the input with its axes in the order of the names, and the way back to its own shape.
View = Callable[[Args], tuple[Tensor, Callable[[Tensor], Tensor]]]


@dataclasses.dataclass(frozen=True)
class Axes:
    """The axes of an op's input (its first argument), by name."""

    names: tuple[str, ...]
    view: View


def _reshaped(*shape: Callable[[Args], int]) -> View:
    def view(args: Args) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        x = args[0]
        return x.reshape([one(args) for one in shape]), lambda y: y.reshape(x.shape)

    return view


def _row(args: Args) -> int:
    return math.prod(args[1])


def _rest(args: Args) -> int:
    return int(args[0].numel()) // _row(args)


def _along_dim(args: Args) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    x, dim = args[:2]
    if not x.dim():
        return x.reshape(1, 1), lambda y: y.reshape(())
    moved = x.movedim(dim, -1)
    return moved.reshape(-1, moved.shape[-1]), lambda y: y.reshape(moved.shape).movedim(-1, dim)


def _classes(args: Args) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    x = args[0]
    whole = x.unsqueeze(0) if x.dim() == 1 else x
    return whole.reshape(*whole.shape[:2], math.prod(whole.shape[2:])), lambda y: y.reshape(x.shape)


_image = _reshaped(*(lambda a, i=i: a[0].shape[i] for i in (0, 1)), lambda a: math.prod(a[0].shape[2:]))
_flat = _reshaped(lambda a: math.prod(a[0].shape[:-1]), lambda a: a[0].shape[-1] if a[0].dim() else 1)
AXES: dict[str, Axes] = {
    "layer_norm": Axes(("rows", "row"), _reshaped(_rest, _row)),
    "group_norm": Axes(("n", "channels", "positions"), _image),
    "batch_norm": Axes(("n", "channels", "positions"), _image),
    "softmax": Axes(("rows", "row"), _along_dim),
    "log_softmax": Axes(("rows", "row"), _along_dim),
    "cross_entropy": Axes(("batch", "classes", "positions"), _classes),
    "nll_loss": Axes(("batch", "classes", "positions"), _classes),
    "cross_map_lrn2d": Axes(("images", "channels", "positions"), _image),
    "log_sigmoid": Axes(("rows", "row"), _flat),
}


class _Tail(torch.autograd.Function):
    """The identity but for what lies beyond `first` − 1 along an axis: zero, in the value or in the gradient."""

    @staticmethod
    def forward(x: Tensor, axis: int, first: int, how: str) -> Tensor:
        return _cut(x, axis, first) if how == "forward" else x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.inputs = inputs[1:]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        axis, first, how = ctx.inputs
        return (_cut(g, axis, first) if how == "backward" else g), None, None, None


def _cut(x: Tensor, axis: int, first: int) -> Tensor:
    mask = torch.arange(x.shape[axis]) < first - 1
    return x * mask.reshape(-1, *(1,) * (x.dim() - 1 - axis)).to(x.dtype)


def stops_at(name: str, axis: str, first: int, how: str) -> Op:
    """The op, whose "faulty" subject takes elements from number `first` of an axis on for zero, or their gradients."""
    declared = load_op(name)
    axes = AXES[name]
    at = axes.names.index(axis)

    def faulty(*args: Any) -> Any:
        whole, back = axes.view(args)
        if whole.shape[at] >= first:
            cut: Any = _Tail.apply(whole, at, first, how)  # type: ignore[no-untyped-call]
            args = (back(cut), *args[1:])
        return declared.subjects["opassay"](*args)

    fault: Op = dataclasses.replace(declared, subjects={"faulty": faulty})
    return fault


def long_diagonal(first: int, how: str) -> Op:
    """Trace, of which the part of the diagonal from element `first` on counts nothing, or has a gradient of zero."""
    declared = load_op("trace")

    def faulty(x: Tensor) -> Tensor:
        if min(x.shape) >= first:
            x = _Tail.apply(x, 0, first, how)  # type: ignore[no-untyped-call]
        out: Tensor = declared.subjects["opassay"](x)
        return out

    fault: Op = dataclasses.replace(declared, subjects={"faulty": faulty})
    return fault


def many_rows(axis: int, first: int) -> Op:
    """Trace that is off where a matrix has so many rows, or columns, however short its diagonal is."""
    declared = load_op("trace")

    def faulty(x: Tensor) -> Tensor:
        out: Tensor = declared.subjects["opassay"](x)
        return out * 2 if x.shape[axis] >= first else out

    fault: Op = dataclasses.replace(declared, subjects={"faulty": faulty})
    return fault
