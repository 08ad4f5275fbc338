"""Kernels of layer norm and of RMS norm on CUDA: Triton's; without Triton those of the CPU, whose values are ATen's.

Rows that fit into registers are read once. Backward, a fixed number of programs goes over all rows and leaves partial
sums of d_weight and d_bias, which a second launch adds up.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...gpu import blocks
from ...gpu.launching import as_operand, by_triton, dense, empty, launch, solid
from ...operator.precision import compute_dtype
from ..kernels_cpu import layer_norm as cpu
from ..kernels_cpu import rms_norm as cpu_rms
from ..kernels_cpu.operands import Gradients, Moved, Outputs
from ..layout import Rows, rows_of
from . import partial_sums

#: Of the longest rows that are kept in registers: bytes forward, and elements in float32 of the two operands backward.
_FORWARD_MOST, _BACKWARD_MOST = 65536, 8192
#: Rows, columns and warps of a block in rows that do not fit.
_ROWS, _COLUMNS, _WARPS = 1, 2048, 4


@functools.lru_cache(maxsize=8192)
def _tile(length: int, most: int) -> blocks.Tile:
    """The tile for rows of a length; of several short rows half as much as usual.

    A thread then has so many neighbouring columns that it reads weights, of a row's length, by 16 bytes, too.

    Args:
        length: of a row. most: elements of the longest row that the kernel can keep in registers.
    """
    tile = blocks.along_rows(length, most)
    return tile if tile.rows == 1 else tile._replace(rows=tile.rows // 2, warps=4)


@by_triton("layer_norm", cpu.layer_norm)
def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, row_ndim: int, eps: float) -> Outputs:
    """(out, mean, rstd) with statistics in float32 for the half types.

    Args:
        x, weight, bias, row_ndim, eps: as for the CPU's.
    """
    wide, shape = compute_dtype(x.dtype), rows_of(row_ndim).statistics_shape(x.shape)
    out, mean, rstd = empty(x.shape, x.dtype, x.device), empty(shape, wide, x.device), empty(shape, wide, x.device)
    _forward(x, (None, weight, bias), (out, None, mean, rstd), eps)
    return out, mean, rstd


@by_triton("rms_norm", cpu_rms.rms_norm)
def rms_norm(x: Tensor, residual: Tensor | None, weight: Tensor | None, row_ndim: int, eps: float) -> cpu_rms.Outputs:
    """(out, total, rstd) of a norm without a mean, by the kernels of layer norm.

    Args:
        x, residual, weight, row_ndim, eps: as for the CPU's.
    """
    out = empty(x.shape, x.dtype, x.device)
    total = None if residual is None else empty(x.shape, x.dtype, x.device)
    rstd = empty(rows_of(row_ndim).statistics_shape(x.shape), compute_dtype(x.dtype), x.device)
    _forward(x, (residual, weight, None), (out, total, None, rstd), eps)
    return out, total, rstd


def _forward(
    x: Tensor, operands: Sequence[Tensor | None], results: tuple[Tensor, Tensor | None, Tensor | None, Tensor],
    eps: float,
) -> None:  # fmt: skip
    """Write the results of a forward kernel.

    Args:
        x: the rows.
        operands: the residual that is added to them, weight and bias; None for those that there are not.
        results: out, the sum with the residual, mean, which a norm without one has not, and rstd.
        eps: as for `layer_norm`.
    """
    from ..kernels_triton import layer_norm as texts

    _, _, mean, rstd = results
    if x.numel() == 0:
        for statistic in (mean, rstd):
            if statistic is not None:
                statistic.fill_(torch.nan)  # the mean of nothing, or no mean at all
        return
    wide, rows = rstd.dtype, rstd.numel()
    length = x.numel() // rows
    tile = _tile(length, _FORWARD_MOST // min(x.itemsize, 4))
    # A residual is a second operand in registers: threads of many columns are made two of half as many.
    twice = operands[0] is not None and tile.rows == 1 and tile.block >= 16 * 32 * tile.warps
    launch(
        texts.layer_norm_forward if tile.whole else texts.layer_norm_forward_long,
        (blocks.ceil_div(rows, tile.rows),),
        (x.contiguous(), *map(dense, operands), *results, rows, length, as_operand(eps, wide)),
        {"DOUBLE": wide is torch.float64, "ROWS": tile.rows, "BLOCK": tile.block},
        min(32, 2 * tile.warps) if twice else tile.warps,
    )


#: The mean of a row that holds an infinity is as mathematics has it, for both.
native_layer_norm = by_triton("native_layer_norm", cpu.native_layer_norm)(layer_norm)


def layer_norm_jvp(
    x: Tensor, weight: Tensor | None, t_input: Tensor | None, t_weight: Tensor | None, t_bias: Tensor | None,
    row_ndim: int, eps: float, statistics: bool,
) -> Moved | None:  # fmt: skip
    """Tangents of (out, mean, rstd); those that are zero are None, and all of it where x is not read.

    Args:
        x, weight, row_ndim, eps: as for `layer_norm`.
        t_input, t_weight, t_bias: tangents, None for zero.
        statistics: whether the tangents of mean and rstd are wanted.
    """
    if not x.numel() or (t_input is None and t_weight is None):
        return None
    from ..kernels_triton import layer_norm_jvp as texts

    wide, shape = compute_dtype(x.dtype), rows_of(row_ndim).statistics_shape(x.shape)
    rows = math.prod(shape)
    length = x.numel() // rows
    out = empty(x.shape, x.dtype, x.device)
    t_mean = t_rstd = None
    if statistics and t_input is not None:
        t_mean, t_rstd = (empty(shape, wide, x.device) for _ in range(2))
    operands = [dense(solid(t)) for t in (t_input, weight, t_weight, t_bias)]
    tile = _tile(length, _BACKWARD_MOST * 4 // wide.itemsize)
    launch(
        texts.layer_norm_jvp if tile.whole else texts.layer_norm_jvp_long,
        (blocks.ceil_div(rows, tile.rows),),
        (x.contiguous(), *operands, out, t_mean, t_rstd, rows, length, as_operand(eps, wide)),
        {"DOUBLE": wide is torch.float64, "ROWS": tile.rows, "BLOCK": tile.block},
        tile.warps,
    )
    return out, t_mean, t_rstd


@by_triton("layer_norm_backward", cpu.layer_norm_backward)
def layer_norm_backward(args: cpu.LayerBackward) -> Gradients:
    """(d_input, d_weight, d_bias) from the given mean and rstd; None where masked or without such a parameter."""
    operands = args.operands()
    return _gradients_of_rows(
        operands[:5], operands.layout, operands.mask, (args.grad_mean, args.grad_rstd, None), args.bias_dtype
    )


@by_triton("rms_norm_backward", cpu_rms.rms_norm_backward)
def rms_norm_backward(args: cpu_rms.RmsBackward) -> cpu_rms.Gradients:
    """(d_input, d_weight) from the given rstd; None where masked or without a weight."""
    output_mask = args.output_mask
    mask = (output_mask[0], output_mask[1] and args.weight is not None, False)
    operands = (args.grad_out, args.x, None, args.rstd, args.weight)
    through = (None, args.grad_rstd, args.grad_total)
    return _gradients_of_rows(operands, rows_of(args.row_ndim, args.batch_ndim), mask, through, None)[:2]


def _gradients_of_rows(
    operands: Sequence[Any], layout: Rows, mask: tuple[bool, bool, bool], through: Sequence[Tensor | None],
    bias_dtype: torch.dtype | None,
) -> Gradients:  # fmt: skip
    """(d_input, d_weight, d_bias), None where masked.

    Args:
        operands: grad_out, x, mean or None, rstd, and the weight: that of all slices, or one (*row) for each.
        layout: the norm's. mask: which gradients to compute; False for a parameter that is not there.
        through: the cotangents of mean, of rstd and of x itself, or None for zero.
        bias_dtype: of d_bias.
    """
    from ..kernels_triton import layer_norm as texts

    _, x, _, rstd, weight = operands
    if weight is not None and weight.dim() > layout.row_ndim:  # one (*row) for each slice
        weight = weight.expand(layout.affine_shape(x.shape))
    d_input, *sums = results = partial_sums.allocate(x, weight, layout, mask, bias_dtype)
    if not any(mask) or x.numel() == 0:
        return results
    operands = [*map(dense, (*operands[:4], weight))]
    grad_mean, grad_rstd, grad_x = (None if d_input is None else dense(t) for t in through)
    slices = math.prod(x.shape[: layout.batch_ndim])
    rows = rstd.numel() // slices
    length = x.numel() // rstd.numel()
    w_step = 0 if weight is None or weight.numel() == length else length
    wide = rstd.dtype
    tile = _tile(length, _BACKWARD_MOST * 4 // wide.itemsize)
    tall, columns = (tile.rows, 1) if tile.whole else (_ROWS, blocks.ceil_div(length, _COLUMNS))
    tiles = blocks.ceil_div(rows, tall)
    parts = tiles
    if any(mask[1:]):
        # Of programs with few warps more than two find room on a multiprocessor.
        sharers = partial_sums.SHARERS if tile.whole and tile.rows == 1 else 2 * partial_sums.SHARERS
        parts = min(tiles, max(1, sharers // (slices * columns)))
    partial = partial_sums.places(sums, slices, parts, wide)
    sized = (parts, parts * tall, blocks.ceil_div(tiles, parts))
    slopes: tuple[Tensor | None, Tensor | None] = None, None
    if not tile.whole and d_input is not None:
        slopes = _slopes_of_rows(operands, grad_rstd, rows, w_step, tile)
    launch(
        texts.layer_norm_backward,
        (slices * parts * columns,),
        (
            *operands, grad_mean, grad_rstd if tile.whole else None, grad_x, *slopes, d_input, *partial, rows, length,
            *sized, columns, w_step,
        ),
        {
            "DOUBLE": wide is torch.float64, "NORMALIZED": any(mask[:2]), "WHOLE": tile.whole, "ROWS": tall,
            "BLOCK": tile.block if tile.whole else _COLUMNS,
        },
        _WARPS if not tile.whole else tile.warps if tile.rows * tile.block < 4096 else 16,
    )  # fmt: skip
    partial_sums.add_up(partial, sums)
    return results


def _slopes_of_rows(
    operands: Sequence[Any], grad_rstd: Tensor | None, rows: int, w_step: int, tile: blocks.Tile
) -> tuple[Tensor | None, Tensor]:
    """(bar, slope) of each row, which every tile of a long row reads; a norm without a mean has no bar.

    Args:
        operands: contiguous, as of `_gradients_of_rows`. grad_rstd: the cotangent of rstd, or None for zero.
        rows: of a slice. w_step: from the weight of a slice to that of the next. tile: of a row.
    """
    from ..kernels_triton import layer_norm as texts

    _, x, mean, rstd, _ = operands
    slope = empty(rstd.shape, rstd.dtype, x.device)
    bar = None if mean is None else empty(rstd.shape, rstd.dtype, x.device)
    launch(
        texts.layer_norm_slopes,
        (rstd.numel(),),
        (*operands, grad_rstd, bar, slope, rows, x.numel() // rstd.numel(), w_step),
        {"DOUBLE": rstd.dtype is torch.float64, "BLOCK": tile.block * 4 // x.element_size()},
        tile.warps,
    )
    return bar, slope
