"""The value of one tensor with the derivatives of another.

So the result of a kernel becomes differentiable by way of an expression that is equal to it, and keeps its bits."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .batching import each_in_front
from .operator import Kernels, Operator
from .records import Grads, Record
from .rules import Rules


class _SlopeType(NamedTuple):
    dtype: torch.dtype


def _copy(value: Tensor, slope: Tensor) -> Tensor:
    return value.clone()


def _empty(args: Record) -> Tensor:
    return torch.empty_like(args.value)


def _slope_type(args: Record, outputs: Record, needs: Record) -> _SlopeType:
    return _SlopeType(args.slope.dtype)


def _to_slope(saved: _SlopeType, needs: Record, cotangents: Record) -> Grads:
    return {"slope": cotangents.out.to(saved.dtype)}


def _from_slope(args: Record, tangents: Record) -> Tensor:
    return torch.zeros_like(args.value) if tangents.slope is None else tangents.slope.to(args.value.dtype)


#: (value, slope of the same shape) -> `value`, a copy of it, whose tangents and cotangents are those of `slope`.
attach = Operator(
    "attach(Tensor value, Tensor slope) -> Tensor",
    Kernels(_copy, _copy, _empty),
    each_in_front,
    Rules(_SlopeType, _slope_type, _to_slope, _from_slope),
)
