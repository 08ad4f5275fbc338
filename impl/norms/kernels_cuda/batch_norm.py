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
from ...gpu.launching import Prepared, as_operand, by_triton, dense, empty
from ...operator.precision import compute_dtype
from ..kernels_cpu import batch_norm as cpu
from ..kernels_cpu.operands import Gradients, Outputs
from ..layout import memory_format
from ..running import Running, in_place, updating

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
_COMBINED_CHANNELS, _COMBINED_PARTS, COMBINING_WARPS = 8, 128, 8


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
def cut_of(shape: torch.Size, memory: torch.memory_format, dtype: torch.dtype, operands: int) -> Cut:
    """How a tensor is cut. Nothing but `channels` and the number of tiles depends on how many channels there are.

    Args:
        shape, memory, dtype: of the input, (N, C, *) without zeros; channels_last where channels lie side by side.
        operands: of the input's size that a program holds.
    """
    last = memory is not torch.contiguous_format
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
    double_of = {"DOUBLE": dtype is torch.float64}
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


class Launches(NamedTuple):
    """What a training forward launches, in order: `whole` alone, or the other three.

    Attributes:
        partial: the shape of the partial results of the first of three launches, None for one launch.
        statistic: the shape of a statistic. wide: the dtype of sums.
    """

    partial: tuple[int, int, int] | None
    statistic: tuple[int]
    wide: torch.dtype
    whole: Prepared
    moments: Prepared
    combine: Prepared
    apply: Prepared


@functools.lru_cache(maxsize=8192)
def _forward(shape: torch.Size, memory: torch.memory_format, dtype: torch.dtype, eps: float) -> Launches:
    """The launches of a training forward.

    Args:
        shape, memory, dtype: of the input, `memory` its memory format. eps: added to the variance.
    """
    from ..kernels_triton import batch_norm as texts

    wide, cut = compute_dtype(dtype), cut_of(shape, memory, dtype, 1)
    samples, lines, length, over, _ = cut.extents
    count, less, added = (as_operand(float(value), wide) for value in (cut.elements, cut.elements - 1, eps))
    results = cut.pieces * lines
    extents = (cut.channels, cut.each, cut.pieces, samples, length, over, results)
    combined = {**cut.parts, "SAMPLES": cut.constants["SAMPLES"], "POSITIONS": cut.constants["POSITIONS"]}
    last = (count, less, added)
    return Launches(
        None if cut.whole else (2, cut.pieces, lines), (cut.channels,), wide,
        Prepared(texts.batch_norm_whole, cut.tiles, (*cut.extents, *last), cut.constants, cut.warps),
        Prepared(texts.batch_norm_moments, cut.tiles, (*cut.extents, results), cut.constants, cut.warps),
        Prepared(texts.batch_norm_combine, cut.combining, (*extents, *last), combined, COMBINING_WARPS),
        _apply(cut, False, added),
    )  # fmt: skip


def _apply(cut: Cut, constant: bool, eps: float | int) -> Prepared:
    """The launch that normalises, by statistics that may be constants, an input of some cut."""
    from ..kernels_triton import batch_norm as texts

    constants = {"CONSTANT": constant, **cut.constants}
    return Prepared(texts.batch_norm_apply, cut.tiles, (*cut.extents, cut.each, eps), constants, cut.warps)


@by_triton("batch_norm_training", cpu.batch_norm_training)
def batch_norm_training(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> cpu.Trained:
    """Normalises by the statistics of the batch."""
    if not x.numel():
        return cpu.batch_norm_training(x, weight, bias, eps)
    moments = empty((2, x.shape[1]), compute_dtype(x.dtype), x.device)
    return *_train(x, weight, bias, eps, (moments, None, None, 0.0, 0.0)), moments


@by_triton("batch_norm_training with running statistics", updating(cpu.batch_norm_training))
def batch_norm_training_and_update(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, running: Running
) -> Outputs:
    """(out, mean, invstd); the kernel that computes the moments also updates the running statistics.

    Args:
        x, weight, bias, eps: as for the CPU's. running: the statistics to update.
    """
    if not (x.numel() and in_place(running, x, weight, bias)):
        return updating(batch_norm_training)(x, weight, bias, eps, running)
    mean, var, momentum = running
    wide = compute_dtype(x.dtype)
    factors = as_operand(1.0 - momentum, wide), as_operand(float(momentum), wide)
    outputs = _train(x, weight, bias, eps, (None, mean, var, *factors))
    # torch does not see that a kernel writes. So the versions are raised, for a graph that has saved a statistic must
    # find it changed.
    torch.autograd.graph.increment_version((mean, var))
    return outputs


def _train(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, moved: tuple[object, ...]) -> Outputs:
    """(out, mean, invstd).

    Args:
        x, weight, bias, eps: as for the CPU's. moved: the moments to fill, or the running statistics and their factors.
    """
    memory = memory_format(x)
    partial, statistic, wide, whole, moments, combine, apply = _forward(x.shape, memory, x.dtype, eps)
    device = x.device
    x, out = x.contiguous(memory_format=memory), output_like(x, memory)
    mean, invstd = empty(statistic, wide, device), empty(statistic, wide, device)
    if weight is not None:
        weight = weight.contiguous()
    if bias is not None:
        bias = bias.contiguous()
    if partial is None:
        whole.run(x, weight, bias, out, mean, invstd, *moved)
        return out, mean, invstd
    sums = empty(partial, wide, device)
    moments.run(x, sums)
    combine.run(sums, mean, invstd, *moved)
    apply.run(x, mean, invstd, weight, bias, out)
    return out, mean, invstd


@functools.lru_cache(maxsize=8192)
def _evaluation(shape: torch.Size, memory: torch.memory_format, dtype: torch.dtype, eps: float) -> Prepared:
    """The launch by constant statistics.

    Args:
        shape, memory, dtype: of the input, `memory` its memory format. eps: added to the variance.
    """
    return _apply(cut_of(shape, memory, dtype, 1), True, as_operand(float(eps), compute_dtype(dtype)))


@by_triton("batch_norm_evaluation", cpu.batch_norm_evaluation)
def batch_norm_evaluation(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor, eps: float
) -> Tensor:
    """out from constant statistics.

    Args:
        x, weight, bias, running_mean, running_var, eps: as for the CPU's.
    """
    if not x.numel():
        return cpu.batch_norm_evaluation(x, weight, bias, running_mean, running_var, eps)
    memory = memory_format(x)
    x, out = x.contiguous(memory_format=memory), output_like(x, memory)
    parameters = [dense(t) for t in (running_mean, running_var, weight, bias)]
    _evaluation(x.shape, memory, x.dtype, eps).run(x, *parameters, out)
    return out


class BackwardLaunches(NamedTuple):
    """What a backward launches: `whole` alone, or sums of tiles, those of channels, and d_input from these.

    Attributes:
        partial: the shape of the sums of tiles, None for one launch. combined: that of sums of channels.
        wide: the dtype of sums.
    """

    partial: tuple[int, int] | None
    combined: tuple[int, int]
    wide: torch.dtype
    whole: Prepared
    sums: Prepared
    combine: Prepared
    apply: Prepared


@functools.lru_cache(maxsize=8192)
def _backward(
    shape: torch.Size, memory: torch.memory_format, dtype: torch.dtype, eps: float | None
) -> BackwardLaunches:
    """The launches of a backward.

    Args:
        shape, memory, dtype: of the input, `memory` its memory format.
        eps: added to the variance where statistics are constants, else None.
    """
    from ..kernels_triton import batch_norm_backward as texts

    wide, cut = compute_dtype(dtype), cut_of(shape, memory, dtype, 2)
    count = as_operand(float(cut.elements), wide)
    number = count if eps is None else as_operand(float(eps), wide)
    constants = {"CONSTANT": eps is not None, **cut.constants}
    extents = (*cut.extents, cut.each, cut.channels, count)
    return BackwardLaunches(
        None if cut.whole and eps is None else (cut.pieces, cut.extents[1]), (2, cut.channels), wide,
        Prepared(texts.batch_norm_backward_whole, cut.tiles, (*cut.extents, count), cut.constants, cut.warps),
        Prepared(texts.batch_norm_backward_sums, cut.tiles, (*cut.extents, cut.each, number), constants, cut.warps),
        Prepared(
            texts.batch_norm_backward_combine, cut.combining, (cut.channels, cut.each, cut.pieces), cut.parts,
            COMBINING_WARPS,
        ),
        Prepared(texts.batch_norm_backward_apply, cut.tiles, extents, cut.constants, cut.warps),
    )  # fmt: skip


@by_triton("batch_norm_backward", cpu.batch_norm_backward)
def batch_norm_backward(args: cpu.BatchBackward) -> Gradients:
    """(d_input, d_weight, d_bias) from the given batch statistics; None where masked."""
    return _run_backward(args, None) if args.x.numel() else cpu.batch_norm_backward(args)


@by_triton("batch_norm_evaluation_backward", cpu.batch_norm_evaluation_backward)
def batch_norm_evaluation_backward(args: cpu.BatchBackward) -> Gradients:
    """(d_input, d_weight, d_bias) from constant statistics; None where masked."""
    return _run_backward(args, args.eps) if args.x.numel() else cpu.batch_norm_evaluation_backward(args)


def _run_backward(args: cpu.BatchBackward, eps: float | None) -> Gradients:
    """The backward of either op; `eps`: see `_backward`."""
    grad_out, grad_mean, grad_invstd, x, mean, scale, weight, weight_dtype, bias_dtype, _, output_mask = args
    if not any(output_mask):
        return None, None, None
    memory = memory_format(x)
    partial, combined, wide, whole, sums, combine, apply = _backward(x.shape, memory, x.dtype, eps)
    grad_out, x = grad_out.contiguous(memory_format=memory), x.contiguous(memory_format=memory)
    outputs = d_input, d_weight, d_bias = _gradients(x, memory, (weight_dtype, bias_dtype), output_mask)
    operands = (grad_out, x, mean.contiguous(), scale.contiguous())
    factors = (dense(weight), dense(grad_mean), dense(grad_invstd))
    if partial is None:
        whole.run(*operands, *factors, *outputs)
        return outputs
    # By constants the sums' kernel writes d_input, which needs no sums.
    from_constants, from_sums = (None, d_input) if eps is None else (d_input, None)
    products = from_sums is not None or d_weight is not None
    summed = products or d_bias is not None
    parts = [empty(partial, wide, x.device) if needed else None for needed in (summed, products)]
    sums.run(*operands, None if eps is None else factors[0], from_constants, *parts)
    of_channels = None if from_sums is None else empty(combined, wide, x.device)
    if summed:
        combine.run(*parts, of_channels, d_weight, d_bias)
    if from_sums is not None:
        apply.run(*operands, of_channels, *factors, from_sums)
    return outputs


def output_like(x: Tensor, memory: torch.memory_format) -> Tensor:
    """A tensor shaped as x, in its dtype and in a memory format."""
    if memory is torch.contiguous_format:
        return empty(x.shape, x.dtype, x.device)
    batch, channels, *positions = x.shape
    return empty((batch, *positions, channels), x.dtype, x.device).movedim(-1, 1)


def _gradients(
    x: Tensor, memory: torch.memory_format, dtypes: tuple[torch.dtype, torch.dtype], mask: Sequence[bool]
) -> Gradients:
    """Tensors for the gradients that the mask asks for.

    Args:
        x: the input, dense. memory: its memory format. dtypes: of the other two. mask: which of the three.
    """
    d_weight, d_bias = (
        empty(x.shape[1:2], dtype, x.device) if needed else None for dtype, needed in zip(dtypes, mask[1:], strict=True)
    )
    return output_like(x, memory) if mask[0] else None, d_weight, d_bias
