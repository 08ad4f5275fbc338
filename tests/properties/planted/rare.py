"""Faults at a number of dims, of a count, or of elements that few samples have."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from opassay import Code
from opassay.properties.catalog.loading import load_op
from opassay.reference.losses import MEAN

from .fault import Fault

Tensor = torch.Tensor
#: Ops that take any number of dims, each with the place of a tensor that has all of them.
ANY_DIMS = {
    "layer_norm": 0, "rms_norm": 0, "group_norm": 0, "softmax": 0, "log_softmax": 0,
    "softmax_backward_data": 0, "log_sigmoid": 0, "nll_loss": 0, "cross_entropy": 0, "scatter": 2,
}  # fmt: skip


def _right(op: str) -> Callable[..., Any]:
    subject: Callable[..., Any] = load_op(op).subjects["opassay"]
    return subject


def _at_dims(op: str, dims: int) -> Fault:
    """The op with twice the gradient of the first element, where its tensor has so many dims."""
    at, right = ANY_DIMS[op], _right(op)

    def faulty(*args: Any) -> Any:
        x = args[at]
        if x.dim() == dims and x.numel():
            factors = torch.ones_like(x)
            factors.view(-1)[0] = 2
            args = (*args[:at], x * factors - (x * (factors - 1)).detach(), *args[at + 1 :])
        return right(*args)

    return Fault(op, f"wrong at {dims} dims alone", faulty, "VJP")


def _stuck(op: str, dtype: str, most: int) -> Fault:
    """A loss whose mean divides by a count in a half type, which goes no further than `most`."""
    right = _right(op)

    def faulty(*args: Any) -> Any:
        out, (_, target, weight, ignored, reduction, *_) = right(*args), args
        if op.endswith("forward"):  # as ATen has them
            ignored, reduction = reduction, ignored
        count = int((target != ignored).sum())
        if reduction not in ("mean", MEAN) or weight is not None or count <= most:
            return out
        return (out[0] * (count / most), *out[1:]) if isinstance(out, tuple) else out * (count / most)

    return Fault(op, f"count of {dtype}", faulty, "SIZE", dtype)


def _short_mean(dtype: str, most: int) -> Fault:
    """RMS norm, which divides its squares by a count of a half type."""
    right = _right("rms_norm")

    def faulty(x: Tensor, shape: tuple[int, ...], *rest: Any) -> Any:
        return right(x, shape, *rest) * (most / max(most, math.prod(shape))) ** 0.5

    return Fault("rms_norm", f"count of {dtype}", faulty, "SIZE", dtype)


def _broadcasting(op: str, at: int, shape: Callable[..., Sequence[int]]) -> Fault:
    """The op, which takes one element for as many as there should be."""
    right = _right(op)

    def faulty(*args: Any) -> Any:
        one = args[at]
        if isinstance(one, Tensor) and one.numel() == 1:
            args = (*args[:at], one.reshape(()).expand(shape(*args)), *args[at + 1 :])
        return right(*args)

    return Fault(op, "one element broadcast", faulty, "ERROR", codes=(Code.NOT_RAISED,))


#: Ops with the place of an argument, and the shape that it should have.
PARAMETERS: tuple[tuple[str, int, Callable[..., Sequence[int]]], ...] = (
    ("layer_norm", 2, lambda x, shape, *_: shape),
    ("group_norm", 3, lambda x, *_: x.shape[1:2]),
    ("batch_norm", 3, lambda x, *_: x.shape[1:2]),
    ("nll_loss", 2, lambda x, *_: x.shape[0 if x.dim() == 1 else 1 :][:1]),
    ("log_sigmoid_backward", 0, lambda g, x, *_: x.shape),
)


def _beyond(op: str) -> Fault:
    """The op, whose first output is not written from element 2^20 on."""
    right = _right(op)

    def faulty(*args: Any) -> Any:
        outputs = right(*args)
        first, *rest = outputs if isinstance(outputs, tuple) else (outputs,)
        if first.numel() > 2**20:
            first = torch.where(torch.arange(first.numel()).reshape(first.shape) < 2**20, first, 0.0)
        return (first, *rest) if isinstance(outputs, tuple) else first

    return Fault(op, "nothing beyond 2^20 elements", faulty, "SIZE")


#: Ops whose slices are independent, of each family.
SLICED = (
    "layer_norm",
    "group_norm",
    "batch_norm",
    "softmax",
    "nll_loss",
    "cross_entropy",
    "log_sigmoid",
    "fused_add_rms_norm",
)
#: The largest number to which each half type adds one.
COUNTS = {"float16": 2048, "bfloat16": 256}
LOSSES = ("nll_loss", "cross_entropy", "nll_loss_forward", "nll_loss2d_forward")
FAULTS = (
    *(_at_dims(op, dims) for op in ANY_DIMS for dims in (5, 6)),
    *(_stuck(op, dtype, most) for op in LOSSES for dtype, most in COUNTS.items()),
    *map(_beyond, SLICED),
    *(_broadcasting(*parameter) for parameter in PARAMETERS),
    *(_short_mean(dtype, most) for dtype, most in COUNTS.items()),
)
