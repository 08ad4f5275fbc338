"""Kernels of softmax and log-softmax on CUDA: Triton's; without Triton those of the CPU, which are compositions.

A tensor is seen as (outer, length, inner), the sums over `length`. Where inner is 1 a program takes rows that follow
each other, else rows that lie side by side. Rows that do not fit into registers are read twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..gpu import blocks
from ..gpu.launching import by_triton, dense, empty, launch, solid
from ..operator.precision import HALF, compute_dtype
from . import expressions, kernels_cpu

#: Elements of the longest rows that are kept in registers: of one operand forward, of two backward and in a tangent.
_FORWARD_MOST, _BACKWARD_MOST = 32768, 8192


def forward_kernel(log: bool) -> kernels_cpu.Forward:
    """The kernel of softmax, or of log_softmax."""

    @by_triton("log_softmax" if log else "softmax", kernels_cpu.forward_kernel(log))
    def kernel(x: Tensor, dim: int, dtype: torch.dtype | None) -> tuple[Tensor, Tensor | None]:
        from . import kernels_triton as texts

        dtype = x.dtype if dtype is None else dtype
        out = empty(x.shape, dtype, x.device)
        kernels = texts.softmax_forward, texts.softmax_forward_long
        _launch_rows(kernels, _FORWARD_MOST, (x.contiguous(), out), dim, log, kernels_cpu.wider(x.dtype, dtype))
        return out, expressions.zero_shift(x) if dtype in HALF else None

    return kernel


def backward_kernel(log: bool) -> kernels_cpu.Backward:
    """The kernel of softmax's backward op, or of log_softmax's."""

    @by_triton("log_softmax_backward" if log else "softmax_backward", kernels_cpu.backward_kernel(log))
    def kernel(grad: Tensor, output: Tensor, shift: Tensor | None, dim: int, input_dtype: torch.dtype) -> Tensor:
        """The cotangent of the input in `input_dtype`.

        Args:
            grad, output, shift, dim, input_dtype: as for the CPU's.
        """
        from . import kernels_triton as texts

        d_input = empty(grad.shape, input_dtype, grad.device)
        wide = torch.promote_types(kernels_cpu.wider(grad.dtype, input_dtype), compute_dtype(output.dtype))
        kernels = texts.softmax_backward, texts.softmax_backward_long
        _launch_rows(kernels, _BACKWARD_MOST, (grad.contiguous(), output.contiguous(), d_input), dim, log, wide)
        return d_input

    return kernel


def jvp_kernel(log: bool) -> Callable[[Tensor, Tensor, int, torch.dtype], Tensor]:
    """The kernel of softmax's tangent, or of log_softmax's."""

    def kernel(x: Tensor, t: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
        """The tangent of the output in `dtype`.

        Args:
            x, t: the input and its tangent, of one shape and dtype.
            dim: of the sums, not negative.
            dtype: of the result.
        """
        from . import kernels_triton as texts

        out = empty(x.shape, dtype, x.device)
        kernels = texts.softmax_jvp, texts.softmax_jvp_long
        tensors = (x.contiguous(), dense(solid(t)), out)
        _launch_rows(kernels, _BACKWARD_MOST, tensors, dim, log, kernels_cpu.wider(x.dtype, dtype))
        return out

    return kernel


def _launch_rows(
    kernels: tuple[object, object], most: int, tensors: tuple[Any, ...], dim: int, log: bool, wide: torch.dtype
) -> None:
    """One kernel over all rows.

    Args:
        kernels: for rows that fit into registers, and for others. most: elements of the longest row that fits.
        tensors: contiguous and of one shape. dim: of the sums, not negative. log: whether of log-softmax.
        wide: the dtype in which it is computed.
    """
    shape = tensors[0].shape
    if not tensors[0].numel():
        return
    length = shape[dim] if shape else 1
    inner = math.prod(shape[dim + 1 :])
    outer = math.prod(shape[:dim])
    # Rows that lie side by side are read densely where at least a sector of 32 bytes of neighbours is; fewer are taken
    # as rows of their own, several samples at a time.
    dense = inner >= blocks.DENSE
    if not dense:
        tile, tiles = blocks.along_rows(length, most), 1
        programs = blocks.ceil_div(outer * inner, tile.rows)
    else:
        tile = blocks.across_rows(length, inner, most)
        tiles = blocks.ceil_div(inner, tile.rows)
        programs = outer * tiles
    constants = {
        "LOG": log, "DOUBLE": wide is torch.float64, "ROWS": tile.rows, "BLOCK": tile.block, "LAST": inner == 1,
        "DENSE": dense,
    }  # fmt: skip
    launch(kernels[not tile.whole], (programs,), (*tensors, outer * inner, length, inner, tiles), constants, tile.warps)
