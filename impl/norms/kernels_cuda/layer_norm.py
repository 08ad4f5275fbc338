"""Kernels of layer norm on CUDA: Triton's; without Triton those of the CPU, whose values are ATen's.

Rows that fit into registers are read once. Backward, a fixed number of programs goes over all rows and leaves partial
sums of d_weight and d_bias, which a second launch adds up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...gpu import blocks
from ...gpu.launching import as_operand, empty, launch, served
from ...operator.precision import compute_dtype
from ..kernels_cpu import layer_norm as cpu
from ..kernels_cpu.operands import MaskedOutputs, Outputs
from ..layout import Rows
from . import partial_sums

#: Elements of the longest rows that are kept in registers, in float32: of one operand forward, of two backward.
_FORWARD_MOST, _BACKWARD_MOST = 32768, 8192
#: Rows and columns of a block in rows that do not fit.
_ROWS, _COLUMNS = 4, 1024


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, row_ndim: int, eps: float) -> Outputs:
    """(out, mean, rstd) with statistics in float32 for the half types.

    Args:
        x, weight, bias, row_ndim, eps: as for the CPU's.
    """
    if served("layer_norm"):
        return _forward(x, weight, bias, row_ndim, eps)
    return cpu.layer_norm(x, weight, bias, row_ndim, eps)


def native_layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, row_ndim: int, eps: float) -> Outputs:
    """`layer_norm`. The mean of a row that holds an infinity is as mathematics has it, for both.

    Args:
        x, weight, bias, row_ndim, eps: as for the CPU's.
    """
    if served("native_layer_norm"):
        return _forward(x, weight, bias, row_ndim, eps)
    return cpu.native_layer_norm(x, weight, bias, row_ndim, eps)


def _forward(x: Tensor, weight: Tensor | None, bias: Tensor | None, row_ndim: int, eps: float) -> Outputs:
    from ..kernels_triton import layer_norm as texts

    wide, shape = compute_dtype(x.dtype), Rows(row_ndim).statistics_shape(x.shape)
    out = empty(x.shape, x.dtype, x.device)
    mean, rstd = empty(shape, wide, x.device), empty(shape, wide, x.device)
    rows = mean.numel()
    if out.numel() == 0:
        return out, mean.fill_(torch.nan), rstd.fill_(torch.nan)  # the mean of nothing, or no mean at all
    length = out.numel() // rows
    tile = blocks.along_rows(length, _FORWARD_MOST * 4 // wide.itemsize)
    weight, bias = (None if t is None else t.contiguous() for t in (weight, bias))
    launch(
        texts.layer_norm_forward if tile.whole else texts.layer_norm_forward_long,
        (blocks.ceil_div(rows, tile.rows),),
        (x.contiguous(), weight, bias, out, mean, rstd, rows, length, as_operand(eps, wide)),
        {"DOUBLE": wide is torch.float64, "ROWS": tile.rows, "BLOCK": tile.block},
        tile.warps,
    )
    return out, mean, rstd


def layer_norm_backward(
    grad_out: Tensor,
    grad_mean: Tensor | None,
    grad_rstd: Tensor | None,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias_dtype: torch.dtype | None,
    row_ndim: int,
    eps: float | None,
    batch_ndim: int,
    output_mask: Sequence[bool],
) -> MaskedOutputs:
    """(d_input, d_weight, d_bias) from the given mean and rstd; None where masked or without such a parameter.

    Args:
        grad_out, grad_mean, grad_rstd, x, mean, rstd, weight: as for the CPU's.
        bias_dtype, row_ndim, eps, batch_ndim, output_mask: as for the CPU's.
    """
    if not served("layer_norm_backward"):
        return cpu.layer_norm_backward(
            grad_out, grad_mean, grad_rstd, x, mean, rstd, weight, bias_dtype, row_ndim, eps, batch_ndim, output_mask
        )
    wants_input, wants_weight, wants_bias = output_mask
    layout = Rows(row_ndim, batch_ndim)
    shape = layout.affine_shape(x.shape)
    d_input = empty(x.shape, x.dtype, x.device) if wants_input else None
    d_weight = empty(shape, weight.dtype, x.device) if wants_weight and weight is not None else None
    d_bias = empty(shape, bias_dtype, x.device) if wants_bias and bias_dtype is not None else None
    if x.numel() == 0:  # no row adds to the sums
        for t in (d_weight, d_bias):
            if t is not None:
                t.zero_()
    elif not (d_input is None and d_weight is None and d_bias is None):
        operands = tuple(
            None if t is None else t.contiguous() for t in (grad_out, x, mean, rstd, _sliced(weight, layout, shape))
        )
        given = tuple(None if t is None or d_input is None else t.contiguous() for t in (grad_mean, grad_rstd))
        slices = math.prod(shape[:batch_ndim])
        _backward(operands, given, d_input, (d_weight, d_bias), (slices, mean.numel() // slices))
    return d_input, d_weight, d_bias


def _sliced(weight: Tensor | None, layout: Rows, shape: tuple[int, ...]) -> Tensor | None:
    """A weight as (*row) for all slices, or with one (*row) for each."""
    if weight is None or weight.dim() == layout.row_ndim:
        return weight
    return weight.expand(shape)


def _backward(
    operands: tuple[Tensor | None, ...],
    given: tuple[Tensor | None, ...],
    d_input: Tensor | None,
    results: partial_sums.Pair,
    sizes: tuple[int, int],
) -> None:
    """Write the results.

    Args:
        operands: grad_out, x, mean, rstd, weight. given: grad_mean, grad_rstd. All of them contiguous.
        d_input, results: contiguous, or None where nobody wants them.
        sizes: the number of slices, each with a weight and sums of its own, and of rows to a slice.
    """
    from ..kernels_triton import layer_norm as texts

    _, x, mean, _, weight = operands
    assert x is not None and mean is not None  # noqa: PT018 (once, for speed)
    slices, rows = sizes
    length = x.numel() // (slices * rows)
    w_step = 0 if weight is None or weight.numel() == length else length
    wide = mean.dtype
    tile = blocks.along_rows(length, _BACKWARD_MOST * 4 // wide.itemsize)
    tall, columns = (tile.rows, 1) if tile.whole else (_ROWS, blocks.ceil_div(length, _COLUMNS))
    tiles = blocks.ceil_div(rows, tall)
    sums = any(t is not None for t in results)
    parts = min(tiles, max(1, partial_sums.SHARERS // (slices * columns))) if sums else tiles
    partial = partial_sums.places(results, slices, parts, wide)
    sized = (parts, parts * tall, blocks.ceil_div(tiles, parts))
    constants = {"DOUBLE": wide is torch.float64}
    read = {"NORMALIZED": d_input is not None or results[0] is not None}
    if tile.whole:
        launch(
            texts.layer_norm_backward,
            (slices * parts,),
            (*operands, *given, d_input, *partial, rows, length, *sized, w_step),
            constants | read | {"ROWS": tall, "BLOCK": tile.block},
            16,
        )
    else:
        bar = slope = None
        if d_input is not None:
            bar, slope = empty(mean.shape, wide, x.device), empty(mean.shape, wide, x.device)
            launch(
                texts.layer_norm_slopes,
                (slices * rows,),
                (*operands, given[1], bar, slope, rows, length, w_step),
                constants | {"BLOCK": tile.block},
                tile.warps,
            )
        launch(
            texts.layer_norm_backward_long,
            (slices * parts * columns,),
            (*operands, given[0], bar, slope, d_input, *partial, rows, length, *sized, columns, w_step),
            constants | read | {"ROWS": tall, "BLOCK": _COLUMNS},
            8,
        )
    partial_sums.add_up(partial, results)
