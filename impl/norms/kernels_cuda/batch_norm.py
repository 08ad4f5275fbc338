"""Kernels of batch norm on CUDA: Triton's; without Triton those of the CPU, which are compositions.

A channel that fits into one tile is read once, in one launch. Otherwise statistics, or sums of a backward, take two
launches, one over tiles and one over what these yield, and a third one reads everything again. How channels are cut
depends on the shape of one channel and on the memory format alone, so a channel has the same bits among any others.

Every output owns its memory. Memory formats are those of the CPU's kernels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...gpu.blocks import ceil_div, power_of_two, warps
from ...gpu.launching import as_operand, empty, launch, served
from ...operator.precision import compute_dtype
from ..kernels_cpu import batch_norm as cpu
from ..kernels_cpu.batch_norm import MaskedOutputs
from ..layout import memory_format

#: Elements of the largest tile, by operands that a program holds: one forward, two backward.
_ALONG_LINES = {1: 8192, 2: 4096}
#: The same where lines lie side by side, so that every thread keeps numbers of several channels besides.
_ACROSS_LINES = {1: 8192, 2: 2048}
#: Elements of a tile of short lines, of which a program takes several.
_FILLED = 4096
#: Lines side by side of which a program takes elements at least, so that loads are dense; and lines at most.
_SIDE_BY_SIDE, _LINES_MOST = 32, 1024
#: Positions fewer than these are lines of their own, where there are so many samples that partial results are few.
_SHORT, _MANY_SAMPLES = 32, 64
#: Partial results of how many channels, and how many of each, a program adds at a time, and its warps.
_COMBINED_CHANNELS, _COMBINED_PARTS, _COMBINING_WARPS = 8, 128, 8


class Cut(NamedTuple):
    """How memory is seen and cut into tiles; see `kernels_triton.batch_norm`.

    Attributes:
        extents: samples, lines, length of a line; then pieces of a length, and tiles that all lines make.
        channels: of the tensor. each: lines of a channel.
        pieces: of a line, of all samples. elements: of a channel.
        constants: of kernels that work on tiles. parts: of kernels that combine partial results.
        warps: of kernels that work on tiles.
    """

    extents: tuple[int, int, int, int, int]
    channels: int
    each: int
    pieces: int
    elements: int
    constants: Mapping[str, object]
    parts: Mapping[str, object]
    warps: int

    @property
    def whole(self) -> bool:
        """Whether a channel is within one tile."""
        return self.pieces == 1 and self.each == 1

    @property
    def tiles(self) -> tuple[int]:
        """The grid of kernels that work on tiles."""
        return (self.pieces * self.extents[4],)

    @property
    def combining(self) -> tuple[int]:
        """The grid of kernels that combine partial results."""
        return (ceil_div(self.channels, _COMBINED_CHANNELS),)


@functools.lru_cache(maxsize=8192)
def cut_of(shape: torch.Size, last: bool, double: bool, operands: int) -> Cut:
    """How a tensor is cut. Nothing but `channels` and the number of tiles depends on how many channels there are.

    Args:
        shape: (N, C, *), without zeros. last: whether the channels lie side by side in memory.
        double: whether sums are float64. operands: of the input's size that a program holds.
    """
    batch, channels, positions = shape[0], shape[1], math.prod(shape[2:])
    samples, lines, length, each = batch, channels, positions, 1
    if last or positions == 1:
        samples, length, last = 1, batch * positions, True
    elif positions < _SHORT and batch >= _MANY_SAMPLES:
        samples, lines, length, each, last = 1, channels * positions, batch, positions, True
    most, least = (_ACROSS_LINES[operands], _SIDE_BY_SIDE) if last else (_ALONG_LINES[operands], 1)
    at_once = min(power_of_two(length), most // least)
    together = min(power_of_two(samples), most // at_once)
    side = max(least, min(_LINES_MOST, _FILLED // operands // (at_once * together)))
    over = ceil_div(length, at_once)
    tile = {"SAMPLES": together, "POSITIONS": at_once}
    double_of = {"DOUBLE": double}
    return Cut(
        extents=(samples, lines, length, over, ceil_div(lines, side)),
        channels=channels,
        each=each,
        pieces=ceil_div(samples, together) * over,
        elements=batch * positions,
        constants={**double_of, "LAST": last, "LINES": side, **tile},
        parts={**double_of, "CHANNELS": _COMBINED_CHANNELS, "BLOCK": _COMBINED_PARTS},
        warps=warps(at_once * together * side * operands),
    )


def batch_norm_training(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(out, mean, invstd, moments): moments (2, C) are mean and unbiased variance, for the running statistics.

    Args:
        x, weight, bias, eps: as for the CPU's.
    """
    if not x.numel() or not served("batch_norm_training"):
        return cpu.batch_norm_training(x, weight, bias, eps)
    from ..kernels_triton import batch_norm as texts

    wide, wanted = compute_dtype(x.dtype), memory_format(x)
    cut = _cut(x, wanted, 1)
    x, out = x.contiguous(memory_format=wanted), _output(x, wanted)
    mean, invstd, moments = (_wide(x, *shape, cut.channels) for shape in ((), (), (2,)))
    numbers = [as_operand(value, wide) for value in (float(cut.elements), float(cut.elements - 1), eps)]
    weight, bias = _dense(weight), _dense(bias)
    if cut.whole:
        operands: tuple[object, ...] = (x, weight, bias, out, mean, invstd, moments, *cut.extents, *numbers)
        launch(texts.batch_norm_whole, cut.tiles, operands, cut.constants, cut.warps)
        return out, mean, invstd, moments
    sums, squares = (_wide(x, cut.pieces, cut.extents[1]) for _ in range(2))
    launch(texts.batch_norm_moments, cut.tiles, (x, sums, squares, *cut.extents), cut.constants, cut.warps)
    samples, _, length, over, _ = cut.extents
    extents = (cut.channels, cut.each, cut.pieces, samples, length, over)
    tile = {name: cut.constants[name] for name in ("SAMPLES", "POSITIONS")}
    operands = (sums, squares, mean, invstd, moments, *extents, *numbers)
    launch(texts.batch_norm_combine, cut.combining, operands, {**cut.parts, **tile}, _COMBINING_WARPS)
    operands = (x, mean, invstd, weight, bias, out, *cut.extents, cut.each, numbers[2])
    launch(texts.batch_norm_apply, cut.tiles, operands, {"CONSTANT": False, **cut.constants}, cut.warps)
    return out, mean, invstd, moments


def batch_norm_evaluation(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor, eps: float
) -> Tensor:
    """out from constant statistics.

    Args:
        x, weight, bias, running_mean, running_var, eps: as for the CPU's.
    """
    if not x.numel() or not served("batch_norm_evaluation"):
        return cpu.batch_norm_evaluation(x, weight, bias, running_mean, running_var, eps)
    from ..kernels_triton import batch_norm as texts

    wanted = memory_format(x)
    cut = _cut(x, wanted, 1)
    x, out = x.contiguous(memory_format=wanted), _output(x, wanted)
    parameters = [_dense(t) for t in (running_mean, running_var, weight, bias)]
    operands: tuple[object, ...] = (
        x,
        *parameters,
        out,
        *cut.extents,
        cut.each,
        as_operand(eps, compute_dtype(x.dtype)),
    )
    launch(texts.batch_norm_apply, cut.tiles, operands, {"CONSTANT": True, **cut.constants}, cut.warps)
    return out


def batch_norm_backward(
    grad_out: Tensor,
    grad_mean: Tensor | None,
    grad_invstd: Tensor | None,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    weight_dtype: torch.dtype,
    bias_dtype: torch.dtype,
    eps: float | None,
    output_mask: Sequence[bool],
) -> MaskedOutputs:
    """(d_input, d_weight, d_bias) from the given batch statistics; None where masked.

    Args:
        grad_out, grad_mean, grad_invstd, x, mean, invstd, weight: as for the CPU's.
        weight_dtype, bias_dtype, eps, output_mask: as for the CPU's.
    """
    if not x.numel() or not served("batch_norm_backward"):
        return cpu.batch_norm_backward(
            grad_out, grad_mean, grad_invstd, x, mean, invstd, weight, weight_dtype, bias_dtype, eps, output_mask
        )
    if not any(output_mask):
        return None, None, None
    from ..kernels_triton import batch_norm_backward as texts

    wanted = memory_format(x)
    cut = _cut(x, wanted, 2)
    grad_out, x = grad_out.contiguous(memory_format=wanted), x.contiguous(memory_format=wanted)
    outputs = d_input, d_weight, d_bias = _gradients(x, wanted, (weight_dtype, bias_dtype), output_mask)
    mean, invstd = mean.contiguous(), invstd.contiguous()
    factors = (_dense(weight), _dense(grad_mean), _dense(grad_invstd))
    count = as_operand(float(cut.elements), compute_dtype(x.dtype))
    if cut.whole:
        operands: tuple[object, ...] = (grad_out, x, mean, invstd, *factors, *outputs, *cut.extents, count)
        launch(texts.batch_norm_backward_whole, cut.tiles, operands, cut.constants, cut.warps)
        return outputs
    parts = _parts(x, cut, d_input is not None or d_weight is not None)
    operands = (grad_out, x, mean, invstd, None, None, *parts, *cut.extents, cut.each, count)
    launch(texts.batch_norm_backward_sums, cut.tiles, operands, {"CONSTANT": False, **cut.constants}, cut.warps)
    sums = None if d_input is None else _wide(x, 2, cut.channels)
    _combine(cut, (*parts, sums, d_weight, d_bias))
    if d_input is not None:
        operands = (grad_out, x, mean, invstd, sums, *factors, d_input, *cut.extents, cut.each, cut.channels, count)
        launch(texts.batch_norm_backward_apply, cut.tiles, operands, cut.constants, cut.warps)
    return outputs


def batch_norm_evaluation_backward(
    grad_out: Tensor,
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None,
    weight_dtype: torch.dtype,
    bias_dtype: torch.dtype,
    eps: float,
    output_mask: Sequence[bool],
) -> MaskedOutputs:
    """(d_input, d_weight, d_bias) from constant statistics; None where masked.

    Args:
        grad_out, x, running_mean, running_var, weight: as for the CPU's.
        weight_dtype, bias_dtype, eps, output_mask: as for the CPU's.
    """
    if not x.numel() or not served("batch_norm_evaluation_backward"):
        return cpu.batch_norm_evaluation_backward(
            grad_out, x, running_mean, running_var, weight, weight_dtype, bias_dtype, eps, output_mask
        )
    if not any(output_mask):
        return None, None, None
    from ..kernels_triton import batch_norm_backward as texts

    wanted = memory_format(x)
    cut = _cut(x, wanted, 2)
    grad_out, x = grad_out.contiguous(memory_format=wanted), x.contiguous(memory_format=wanted)
    outputs = d_input, d_weight, d_bias = _gradients(x, wanted, (weight_dtype, bias_dtype), output_mask)
    summed = d_weight is not None or d_bias is not None
    parts = _parts(x, cut, d_weight is not None) if summed else (None, None)
    operands: tuple[object, ...] = (
        grad_out, x, running_mean.contiguous(), running_var.contiguous(), _dense(weight), d_input, *parts,
        *cut.extents, cut.each, as_operand(eps, compute_dtype(x.dtype)),
    )  # fmt: skip
    launch(texts.batch_norm_backward_sums, cut.tiles, operands, {"CONSTANT": True, **cut.constants}, cut.warps)
    if summed:
        _combine(cut, (*parts, None, d_weight, d_bias))
    return outputs


def _combine(cut: Cut, tensors: tuple[Tensor | None, ...]) -> None:
    """Sums of channels from those of pieces.

    Args:
        cut: the tensor's. tensors: the kernel's first operands.
    """
    from ..kernels_triton import batch_norm_backward as texts

    operands: tuple[object, ...] = (*tensors, cut.channels, cut.each, cut.pieces)
    launch(texts.batch_norm_backward_combine, cut.combining, operands, cut.parts, _COMBINING_WARPS)


def _cut(x: Tensor, wanted: torch.memory_format, operands: int) -> Cut:
    return cut_of(x.shape, wanted is not torch.contiguous_format, x.dtype is torch.float64, operands)


def _dense(t: Tensor | None) -> Tensor | None:
    return None if t is None else t.contiguous()


def _wide(x: Tensor, *shape: int) -> Tensor:
    """A tensor in the dtype of the sums."""
    return empty(shape, compute_dtype(x.dtype), x.device)


def _parts(x: Tensor, cut: Cut, products: bool) -> tuple[Tensor, Tensor | None]:
    """Sums of g and, where these are wanted, of g xh, of every piece of a line."""
    return _wide(x, cut.pieces, cut.extents[1]), _wide(x, cut.pieces, cut.extents[1]) if products else None


def _output(x: Tensor, wanted: torch.memory_format) -> Tensor:
    """A tensor shaped as x, in its dtype and in a memory format."""
    if wanted is torch.contiguous_format:
        return empty(x.shape, x.dtype, x.device)
    batch, channels, *positions = x.shape
    return empty((batch, *positions, channels), x.dtype, x.device).movedim(-1, 1)


def _gradients(
    x: Tensor, wanted: torch.memory_format, dtypes: tuple[torch.dtype, torch.dtype], mask: Sequence[bool]
) -> MaskedOutputs:
    """Tensors for the gradients that are wanted.

    Args:
        x: the input, dense. wanted: its memory format. dtypes: of the other two. mask: which of the three.
    """
    d_weight, d_bias = (
        empty(x.shape[1:2], dtype, x.device) if needed else None for dtype, needed in zip(dtypes, mask[1:], strict=True)
    )
    return _output(x, wanted) if mask[0] else None, d_weight, d_bias
