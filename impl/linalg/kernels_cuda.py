"""Kernels of the trace and of its adjoint on CUDA: Triton's; without Triton the compositions that serve the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..gpu import blocks
from ..gpu.launching import by_triton, empty, launch

#: Elements that a program has of a diagonal at a time, or of a matrix.
_MOST = 4096


def sums(composed: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The kernel of traces of matrices (*batch, n, m), of any strides."""

    @by_triton("trace", composed)
    def kernel(x: Tensor) -> Tensor:
        from . import kernels_triton as texts

        out = empty(x.shape[:-2], x.dtype, x.device)
        side, matrices = min(x.shape[-2:]), out.numel()
        # A view, unless the matrices of a batch lie where no one stride leads from each to the next.
        diagonals = x.diagonal(dim1=-2, dim2=-1).reshape(matrices, side)
        tile = blocks.along_rows(side, _MOST)
        constants = {"DOUBLE": x.dtype is torch.float64, "ROWS": tile.rows, "BLOCK": tile.block}
        operands = diagonals, out, matrices, side, *diagonals.stride()
        launch(texts.trace_forward, (blocks.ceil_div(matrices, tile.rows),), operands, constants, tile.warps)
        return out

    return kernel


def matrices(composed: Callable[[Tensor, int, int], Tensor]) -> Callable[[Tensor, int, int], Tensor]:
    """The kernel of matrices (*batch, rows, columns): grad on the diagonal, zero elsewhere."""

    @by_triton("trace_backward", composed)
    def kernel(grad: Tensor, rows: int, columns: int) -> Tensor:
        from . import kernels_triton as texts

        out = empty((*grad.shape, rows, columns), grad.dtype, grad.device)
        if not out.numel():
            return out
        elements, count, step = rows * columns, math.prod(grad.shape), columns + 1
        tile = blocks.along_rows(elements, _MOST)
        pieces = blocks.ceil_div(elements, tile.block)
        constants = {"ROWS": tile.rows, "BLOCK": tile.block, "SHORT": step < tile.block}
        operands = grad.contiguous(), out, count, elements, min(rows, columns) * step, step, pieces
        programs = blocks.ceil_div(count, tile.rows) * pieces
        launch(texts.trace_backward, (programs,), operands, constants, tile.warps)
        return out

    return kernel
