"""Kernels of softmax and log-softmax: ATen's, which has the same ones on CUDA; float32 for the half types.

A forward op has two outputs: the values, and for a half-precision result its `shift` (expressions.py), which is there
for derivatives of higher order.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..operator import torch_private as private
from ..operator.precision import HALF, compute_dtype
from ..operator.records import Record
from . import expressions

_CHUNK = 1 << 17
"""Elements of a half-precision operand that are taken to float32 at a time."""

_aten_softmax_backward = private.softmax_backward_data
_aten_log_softmax_backward = private.log_softmax_backward_data
_deterministic = torch.are_deterministic_algorithms_enabled

Forward = Callable[[Tensor, int, torch.dtype | None], tuple[Tensor, Tensor | None]]
Backward = Callable[[Tensor, Tensor, Tensor | None, int, torch.dtype], Tensor]


def wider(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    """The dtype to compute in where values come in `a` and leave in `b`."""
    return torch.promote_types(compute_dtype(a), b)


def _softmax(x: Tensor, dim: int) -> Tensor:
    """ATen's softmax; where deterministic algorithms are asked for, with `dim` made last.

    Along any other dim ATen hands columns to threads, and computes in another way those that fill no vector: which ones
    these are depends on the number of threads.
    """
    if _deterministic():
        return torch.softmax(x.movedim(dim, -1).contiguous(), -1).movedim(-1, dim).contiguous()
    return torch.softmax(x, dim)


def _softmax_backward(grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """ATen's backward of softmax; where deterministic algorithms are asked for, with `dim` not the last one.

    Along the last dim the order of its sums depends on the number of threads, so one more dim follows.
    """
    out: Tensor
    if _deterministic():
        out = _aten_softmax_backward(grad.unsqueeze(-1), output.unsqueeze(-1), dim, dtype)
        return out.squeeze(-1)
    out = _aten_softmax_backward(grad, output, dim, dtype)
    return out


def forward_kernel(log: bool) -> Forward:
    """The kernel of softmax, or of log_softmax."""
    aten: Callable[[Tensor, int], Tensor] = torch.log_softmax if log else _softmax

    def kernel(x: Tensor, dim: int, dtype: torch.dtype | None) -> tuple[Tensor, Tensor | None]:
        input_dtype = x.dtype
        dtype = input_dtype if dtype is None else dtype
        # Along the last dim ATen's softmax computes half-precision rows in float32 and rounds the result alone, as
        # `_half` would do with a copy. Along other dims it rounds intermediates, too. A half `dtype` comes only with
        # an input of that dtype, since the public functions round the results of wider inputs themselves.
        if dtype in HALF and (log or dim < x.dim() - 1):
            out = _half(aten, x, dim)
        else:
            out = aten(x if dtype is input_dtype else x.to(dtype), dim)
        return out, expressions.zero_shift(x) if dtype in HALF else None

    return kernel


def _half(aten: Callable[[Tensor, int], Tensor], x: Tensor, dim: int) -> Tensor:
    """A half-precision result, computed in float32 and rounded once, some rows at a time: the copies stay in cache."""
    # The pieces are cut along a dim that is not summed over, so every row stays whole. A vector has no such
    # dim and is one piece.
    axis = 0 if dim else x.dim() - 1
    if x.numel() <= _CHUNK or axis == dim:
        return aten(x.float(), dim).to(x.dtype)
    step = max(1, _CHUNK * x.shape[axis] // x.numel())
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    for some, result in zip(x.split(step, axis), out.split(step, axis), strict=True):
        result.copy_(aten(some.float(), dim))
    return out


def fake(args: Record) -> tuple[Tensor, Tensor | None]:
    """Fake outputs of a forward op."""
    x = args.input
    out = x.new_empty(x.shape, dtype=args.dtype)
    return out, expressions.zero_shift(x) if out.dtype in HALF else None


def backward_kernel(log: bool) -> Backward:
    """The kernel of softmax's backward op, or of log_softmax's."""
    aten = _aten_log_softmax_backward if log else _softmax_backward

    def kernel(grad: Tensor, output: Tensor, shift: Tensor | None, dim: int, input_dtype: torch.dtype) -> Tensor:
        """The cotangent of the input in `input_dtype`.

        Args:
            grad, output: of one shape; the output in the cotangent's dtype, or in a half type beside float32.
            shift: not read; the derivatives of this op need it.
            dim: of the sums, not negative.
            input_dtype: of the result, not wider than the cotangent's.
        """
        # ATen takes operands of one dtype. The output is in a half type where the cotangent was raised to float32.
        dtype = grad.dtype
        out: Tensor = aten(grad, output if output.dtype is dtype else output.to(dtype), dim, dtype)
        return out if out.dtype is input_dtype else out.to(input_dtype)

    return kernel


def backward_fake(args: Record) -> Tensor:
    """The fake output of a backward op."""
    out: Tensor = args.grad.new_empty(args.grad.shape, dtype=args.input_dtype)
    return out
