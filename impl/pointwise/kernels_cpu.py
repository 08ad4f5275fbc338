"""Kernels of log-sigmoid on the CPU: ATen's; float32 for the half types, a chunk at a time that stays in cache."""

from __future__ import annotations

import torch
from torch import Tensor

from ..operator.precision import HALF, raised
from ..operator.records import Record
from ..operator.torch_private import without_wrapper

_CHUNK = 1 << 16
_aten_forward = without_wrapper(torch.ops.aten.log_sigmoid_forward.default)
_aten_backward = without_wrapper(torch.ops.aten.log_sigmoid_backward.default)


def log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """(out, exp(-|x|)); None for the half types, whose exp(-|x|) would be rounded."""
    out, buffer = _aten_forward(x.contiguous())
    # A half-precision exp(-|x|) has 8 or 11 significant bits, and a slope made of it would have no more.
    return out, None if x.dtype in HALF else buffer


def fake(args: Record) -> tuple[Tensor, Tensor | None]:
    """Fake (out, buffer), of either device."""
    x = args.input
    # The fake must have a buffer where the kernels have one: only on the CPU, and not for the half types.
    kept = x.device.type == "cpu" and x.dtype not in HALF
    return x.new_empty(x.shape), x.new_empty(x.shape) if kept else None


def log_sigmoid_backward(grad: Tensor, x: Tensor, buffer: Tensor | None) -> Tensor:
    """grad / (1 + exp(x)) from exp(-|x|), given or computed; without the buffer on any device."""
    out: Tensor
    if buffer is not None:
        out = _aten_backward(grad.contiguous(), x.contiguous(), buffer.contiguous())
        return out
    if x.numel() <= _CHUNK or not x.is_cpu:
        wide = raised(x.contiguous())
        out = _aten_backward(raised(grad.contiguous()), wide, wide.abs().neg_().exp_())
        return out.to(x.dtype)
    out = torch.empty(x.shape, dtype=x.dtype)
    parts = (t.reshape(-1).split(_CHUNK) for t in (grad, x, out))
    for some, values, result in zip(*parts, strict=True):
        result.copy_(log_sigmoid_backward(some, values, None))
    return out
