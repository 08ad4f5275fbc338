"""Kernels of group norm on CUDA: Triton's; without Triton ATen's values, by the kernels of the CPU.

Groups that fit into registers are read once. Backward, the sums for d_weight and d_bias are those of a sample's
channel, one program's each, and a second launch adds them up over the samples.

ATen's CUDA kernels take no float32 parameters with a half-precision input and keep its statistics in half precision, so
without Triton half-precision operands are taken to float32 around them.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...gpu import blocks
from ...gpu.launching import as_operand, by_triton, dense, empty, launch, solid
from ...operator.precision import HALF, compute_dtype
from ..kernels_cpu import group_norm as cpu
from ..kernels_cpu.operands import ForwardKernel, Gradients, Moved, Outputs
from ..layout import Groups
from . import partial_sums

#: Elements of the largest groups that are kept in registers, in float32: of one operand forward, of two backward.
_FORWARD_MOST, _BACKWARD_MOST = 16384, 8192
#: Elements of a program that keeps several groups at once, and of a piece of a group that does not fit.
_ELEMENTS = 4096


def group_norm_jvp(
    x: Tensor, weight: Tensor | None, t_input: Tensor | None, t_weight: Tensor | None, t_bias: Tensor | None,
    groups: int, eps: float, statistics: bool,
) -> Moved | None:  # fmt: skip
    """Tangents of (out, mean, rstd); those that are zero are None, and all of it where x is not read.

    Args:
        x, weight, groups, eps: as for `group_norm`.
        t_input, t_weight, t_bias: tangents, None for zero.
        statistics: whether the tangents of mean and rstd are wanted.
    """
    if not x.numel() or (t_input is None and t_weight is None):
        return None
    from ..kernels_triton import group_norm_jvp as texts

    wide, shape = compute_dtype(x.dtype), Groups(groups).statistics_shape(x.shape)
    out = empty(x.shape, x.dtype, x.device)
    t_mean = t_rstd = None
    if statistics and t_input is not None:
        t_mean, t_rstd = (empty(shape, wide, x.device) for _ in range(2))
    operands = [dense(solid(t)) for t in (t_input, weight, t_weight, t_bias)]
    sizes = _sizes(x, groups)
    rows, _, each, positions, _ = sizes
    tile = _tile(each, positions, _BACKWARD_MOST * 4 // wide.itemsize)
    launch(
        texts.group_norm_jvp if tile.whole else texts.group_norm_jvp_long,
        (blocks.ceil_div(rows, tile.rows),),
        (x.contiguous(), *operands, out, t_mean, t_rstd, *sizes, as_operand(eps, wide)),
        {"DOUBLE": wide is torch.float64, "ROWS": tile.rows, "CHANNELS": tile.channels, "BLOCK": tile.block},
        tile.warps,
    )
    return out, t_mean, t_rstd


def _in_float32(norm: ForwardKernel) -> ForwardKernel:
    """A kernel of the CPU between conversions."""

    def rounded(x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> Outputs:
        if x.dtype not in HALF:
            return norm(x, weight, bias, groups, eps)
        weight, bias = (None if t is None else t.float() for t in (weight, bias))
        out, mean, rstd = norm(x.float(), weight, bias, groups, eps)
        return out.to(x.dtype), mean, rstd

    return rounded


def _backward_in_float32(args: cpu.GroupBackward) -> Gradients:
    """The same backward.

    The parameters' gradients come back in the parameters' dtypes, which the kernel knows from weight and bias_dtype. It
    takes x for float32, so only d_input is left to be rounded.
    """
    dtype = args.x.dtype
    if dtype in HALF:
        args = args._replace(grad_out=args.grad_out.float(), x=args.x.float())
    d_input, d_weight, d_bias = cpu.group_norm_backward(args)
    return None if d_input is None else d_input.to(dtype), d_weight, d_bias


class _Tile(NamedTuple):
    """What one program takes.

    Attributes:
        rows, channels, block: groups, and channels and positions of each at a time; powers of two.
        warps: of 32 threads.
        whole: whether a block holds a whole group; else a program goes over its group in pieces.
    """

    rows: int
    channels: int
    block: int
    warps: int
    whole: bool


@functools.lru_cache(maxsize=8192)
def _tile(each: int, positions: int, most: int) -> _Tile:
    """The tile for groups of `each` channels.

    Args:
        most: elements that the kernel can keep in registers.
    """
    channels, block = blocks.power_of_two(each), blocks.power_of_two(positions)
    size = channels * block
    if size > most:
        block = min(block, _ELEMENTS)
        return _Tile(1, min(channels, _ELEMENTS // block), block, 8, False)
    rows = max(1, _ELEMENTS // max(size, 64)) if size <= 2048 else 1
    return _Tile(rows, channels, block, blocks.warps(rows * size), True)


def _sizes(x: Tensor, groups: int) -> tuple[int, int, int, int, int]:
    """Of groups: how many, how many in a sample, channels of one, positions of a channel, elements of one."""
    each, positions = x.shape[1] // groups, math.prod(x.shape[2:])
    return x.shape[0] * groups, groups, each, positions, each * positions


@by_triton("group_norm", _in_float32(cpu.group_norm))
def group_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> Outputs:
    """(out, mean, rstd) with statistics in float32 for the half types.

    Args:
        x, weight, bias, groups, eps: as for the CPU's.
    """
    from ..kernels_triton import group_norm as texts

    wide, shape = compute_dtype(x.dtype), Groups(groups).statistics_shape(x.shape)
    out = empty(x.shape, x.dtype, x.device)
    mean, rstd = empty(shape, wide, x.device), empty(shape, wide, x.device)
    if out.numel() == 0:
        return out, mean.fill_(torch.nan), rstd.fill_(torch.nan)  # the mean of nothing, or no mean at all
    sizes = _sizes(x, groups)
    rows, _, each, positions, _ = sizes
    tile = _tile(each, positions, _FORWARD_MOST * 4 // wide.itemsize)
    launch(
        texts.group_norm_forward if tile.whole else texts.group_norm_forward_long,
        (blocks.ceil_div(rows, tile.rows),),
        (x.contiguous(), dense(weight), dense(bias), out, mean, rstd, *sizes, as_operand(eps, wide)),
        {"DOUBLE": wide is torch.float64, "ROWS": tile.rows, "CHANNELS": tile.channels, "BLOCK": tile.block},
        # Every thread reads the weights of the channels that it has elements of: of many elements in few channels.
        max(4, tile.rows * tile.channels * tile.block // 2048) if tile.whole else tile.warps,
    )
    return out, mean, rstd


#: The mean of a group that holds an infinity is as mathematics has it, for both.
native_group_norm = by_triton("native_group_norm", _in_float32(cpu.native_group_norm))(group_norm)


@by_triton("group_norm_backward", _backward_in_float32)
def group_norm_backward(args: cpu.GroupBackward) -> Gradients:
    """(d_input, d_weight, d_bias) from the given mean and rstd; None where masked or without such a parameter."""
    from ..kernels_triton import group_norm as texts

    operands = args.operands()
    x, mask, groups = operands.x, operands.mask, operands.layout.groups
    d_input, *sums = results = partial_sums.allocate(x, operands.weight, operands.layout, mask, args.bias_dtype)
    if not any(mask) or x.numel() == 0:
        return results
    cotangents = [None if d_input is None else dense(t) for t in (args.grad_mean, args.grad_rstd)]
    sizes = _sizes(x, groups)
    rows, _, each, positions, _ = sizes
    wide = compute_dtype(x.dtype)
    tile = _tile(each, positions, _BACKWARD_MOST * 4 // wide.itemsize)
    partial = partial_sums.places(sums, 1, x.shape[0], wide)
    constants = {
        "NORMALIZED": any(mask[:2]), "DOUBLE": wide is torch.float64,
        "ROWS": tile.rows, "CHANNELS": tile.channels, "BLOCK": tile.block,
    }  # fmt: skip
    launch(
        texts.group_norm_backward if tile.whole else texts.group_norm_backward_long,
        (blocks.ceil_div(rows, tile.rows),),
        (*map(dense, operands[:5]), *cotangents, d_input, *partial, *sizes),
        constants,
        tile.warps,
    )
    partial_sums.add_up(partial, sums)
    return results
