"""Kernels of log-sigmoid on the CPU: ATen's; float32 for the half types, a chunk at a time that stays in cache."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..operator.precision import HALF, raised
from ..operator.records import Record
from ..operator.torch_private import without_wrapper

_CHUNK = 1 << 16
_aten_forward = without_wrapper(torch.ops.aten.log_sigmoid_forward.default)
_aten_backward: Callable[[Tensor, Tensor, Tensor], Tensor] = without_wrapper(
    torch.ops.aten.log_sigmoid_backward.default
)


def log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """(out, exp(-|x|)); the second is None for the half types, whose rounding would limit the digits of the slope."""
    out, buffer = _aten_forward(x.contiguous())
    return out, None if x.dtype in HALF else buffer


def fake(args: Record) -> tuple[Tensor, Tensor | None]:
    """Fake (out, buffer), with a buffer where the kernels have one: on the CPU alone, and not for the half types."""
    x = args.input
    has_buffer = x.device.type == "cpu" and x.dtype not in HALF
    return x.new_empty(x.shape), x.new_empty(x.shape) if has_buffer else None


def log_sigmoid_backward(grad: Tensor, x: Tensor, buffer: Tensor | None) -> Tensor:
    """grad / (1 + exp(x)) from exp(-|x|), given or computed."""
    if buffer is not None:
        return _aten_backward(grad.contiguous(), x.contiguous(), buffer.contiguous())
    if x.numel() <= _CHUNK:
        return backward_at_once(grad, x)
    out = torch.empty(x.shape, dtype=x.dtype)
    parts = (t.reshape(-1).split(_CHUNK) for t in (grad, x, out))
    for some, values, result in zip(*parts, strict=True):
        result.copy_(backward_at_once(some, values))
    return out


def backward_at_once(grad: Tensor, x: Tensor) -> Tensor:
    """`log_sigmoid_backward` without a buffer, all elements at a time: for every device."""
    wide = raised(x)
    return _aten_backward(raised(grad.contiguous()), wide, wide.abs().neg_().exp_()).to(x.dtype)
