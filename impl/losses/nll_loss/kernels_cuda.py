"""Kernels of the negative log likelihood on CUDA: Triton's; without Triton those of the CPU, which are compositions.

Scores are seen as (outer, C, inner), whatever their strides, and targets as the batch indices, `count` positions each.
What is hard here is that a wrong target must be refused, while only the GPU has the targets. So every program says
whether it has seen a wrong one, and the GPU asserts that none has: the host waits for nothing.
Until the GPU asserts that a target is wrong, its loss is NaN, and so is its gradient.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...gpu import blocks
from ...gpu.launching import Prepared, by_triton, empty
from ...operator.precision import compute_dtype
from . import kernels_cpu
from .kernels_cpu import MEAN, NONE, SUM, Loss, LossBackward, class_dim

#: The most partial sums of a batch index, which one program can then add.
_PARTS = 1024
#: Elements of a program that stores them all, or that has few classes.
_TILE = 4096


class Split(NamedTuple):
    """How the positions of a batch index go to programs.

    Attributes:
        rows, block: batch indices of a program, and positions of each at a time.
        parts, steps: programs of a batch index, and blocks of each.
    """

    rows: int
    block: int
    parts: int
    steps: int


class Sums(NamedTuple):
    """The launches that gather and sum; looked up by shapes, because a small call costs what Python does.

    Attributes:
        gather: of every position; every program marks whether it has seen a wrong target.
        fold: of partial sums, None where there are none. partial: the shape of partial sums.
    """

    gather: Prepared
    fold: Prepared | None
    partial: tuple[int, int, int]


class Targets(NamedTuple):
    """The targets of a loss, with the weights and the numbers that go with them.

    Attributes:
        op: the name that messages speak of.
        target, weight: as the kernels get them. classes: C.
        ignore_index, batch_ndim: as for the kernels.
    """

    op: str
    target: Tensor
    weight: Tensor | None
    classes: int
    ignore_index: int
    batch_ndim: int

    @property
    def batch(self) -> torch.Size:
        """The batch dims, each index of which is a loss of its own."""
        return self.target.shape[: self.batch_ndim]

    @property
    def batched(self) -> bool:
        """Whether each batch index has weights of its own."""
        return self.weight is not None and self.weight.dim() > 1

    def class_weights(self) -> Tensor | None:
        """The weights without gaps."""
        weight = self.weight
        if weight is None:
            return None
        return (weight if weight.dim() == 1 else weight.expand(*self.batch, -1)).contiguous()

    def total(self, reduction: int, wide: torch.dtype) -> Tensor:
        """The total weight in dtype `wide`: to be filled, or 0 without a reduction."""
        if reduction == NONE:
            return torch.zeros(self.batch, dtype=wide, device=self.target.device)
        return empty(self.batch, wide, self.target.device)

    def require_classes(self, wrong: Tensor) -> None:
        """IndexError where a program says in `wrong` that it has read a target that is no class and not ignored.

        A GPU asserts it instead, as torch's own losses do, because to raise an error the host would have to wait.
        """
        if wrong.is_cuda and wrong.numel():
            rule = kernels_cpu.target_rule(self.classes, self.ignore_index)
            torch._assert_async((wrong == 0).all(), f"{self.op}: got a wrong target, need {rule}.")
        elif wrong.numel() and bool(wrong.any()):
            raise kernels_cpu.out_of_range(self.op, self.target, self.classes, self.ignore_index)


@functools.lru_cache(maxsize=8192)
def split(count: int, each: bool) -> Split:
    """How `count` positions go to programs, which store every position where `each`, else their sum."""
    if count <= 1024:
        block = blocks.power_of_two(count)
        return Split(1024 // block, block, 1, 1)
    block = 256 if count <= 256 * _PARTS else 1024
    steps = 1 if each else blocks.ceil_div(count, block * _PARTS)
    return Split(1, block, blocks.ceil_div(count, block * steps), steps)


@by_triton("nll_loss", kernels_cpu.nll_loss)
def nll_loss(args: Loss, op: str = "nll_loss") -> tuple[Tensor, Tensor]:
    """(output, total_weight) as the CPU's kernel has them, which raises the same errors.

    Args:
        args: the arguments. op: the name that messages speak of.
    """
    x, target, weight, reduction, ignore_index, batch_ndim = args
    scores = table(x, class_dim(x.dim(), batch_ndim))
    targets = Targets(op, target, weight, scores.shape[1], ignore_index, batch_ndim)
    out = empty(target.shape if reduction == NONE else targets.batch, x.dtype, x.device)
    total = targets.total(reduction, compute_dtype(x.dtype))
    picks = (*scores.shape, *scores.stride())
    fill_sums(targets, reduction, picks, (scores, out, total))
    return out, total


@by_triton("nll_loss_total_weight", kernels_cpu.total_weight)
def total_weight(weight: Tensor, target: Tensor, ignore_index: int, batch_ndim: int) -> Tensor:
    """The sum of the weights of the targets, as the CPU's kernel has it."""
    targets = Targets("nll_loss", target, weight, weight.shape[-1], ignore_index, batch_ndim)
    total = targets.total(SUM, compute_dtype(weight.dtype))
    fill_sums(targets, SUM, None, (None, None, total))
    return total


def fill_sums(
    targets: Targets, reduction: int, picks: tuple[int, ...] | None,
    tensors: tuple[Tensor | None, Tensor | None, Tensor],
) -> None:  # fmt: skip
    """Fills the output, and the total weight where there is a reduction.

    Args:
        targets: of the loss. reduction: NONE, MEAN or SUM.
        picks: shape and strides of (outer, C, inner) where each target picks its score; None where it does not.
        tensors: that table, else the loss of every position, None where only weights are summed; the output and the
            total weight, contiguous, the latter in the dtype of the sums.

    Raises:
        IndexError: a target is neither a class nor ignored.
    """
    scores, out, total = tensors
    target, wide = targets.target, total.dtype
    gather, fold, shape = _gathering(
        target.shape, picks, targets.classes, targets.ignore_index, targets.batch_ndim, reduction, targets.batched,
        targets.weight is None, wide is torch.float64,
    )  # fmt: skip
    partial = empty(shape, wide, target.device) if fold is not None else None
    wrong = empty(gather.grid, torch.int32, target.device)
    gather.run(target.contiguous(), scores, targets.class_weights(), out, total, partial, wrong)
    if fold is not None:
        fold.run(partial, out, total)
    targets.require_classes(wrong)


@functools.lru_cache(maxsize=8192)
def _gathering(
    shape: torch.Size, picks: tuple[int, ...] | None, classes: int, ignore_index: int, batch_ndim: int, reduction: int,
    batched: bool, ones: bool, double: bool,
) -> Sums:  # fmt: skip
    """The launches that gather and sum.

    Args:
        shape: of the target. picks: as for `fill_sums`.
        classes, ignore_index, batch_ndim, reduction: as for the kernels.
        batched: whether weights have batch dims. ones: whether there are none. double: whether sums are in float64.
    """
    from . import kernels_triton as texts

    batch, count, each = math.prod(shape[:batch_ndim]), math.prod(shape[batch_ndim:]), reduction == NONE
    tile = split(count, each)
    programs = blocks.ceil_div(batch, tile.rows) * tile.parts if count or not each else 0
    constants = {
        "GATHER": picks is not None, "BATCHED": batched, "EACH": each, "MEAN": reduction == MEAN, "DOUBLE": double,
        "ROWS": tile.rows, "BLOCK": tile.block,
    }  # fmt: skip
    strides = (1, 0, 0, 0) if picks is None else picks[2:]
    numbers = (batch, count, tile.parts, tile.steps, classes, *strides, ignore_index)
    warps = blocks.warps(tile.rows * tile.block)
    gather = Prepared(texts.nll_loss_forward, (programs,), numbers, constants, warps)
    fold, block = None, blocks.power_of_two(tile.parts)
    if tile.parts > 1 and not each:
        folding = {"COUNT": ones, "MEAN": reduction == MEAN, "BLOCK": block}
        fold = Prepared(texts.nll_loss_fold, (batch,), (batch, tile.parts), folding, blocks.warps(block))
    return Sums(gather, fold, (2, batch, tile.parts))


@by_triton("nll_loss_backward", kernels_cpu.nll_loss_backward)
def nll_loss_backward(args: LossBackward) -> Tensor:
    """-grad_output * weight at the targets, else zero, as the CPU's kernel has it, which raises the same errors."""
    grad_output, target, weight, classes, ignore_index, batch_ndim, dtype = args
    shape, dim = target.shape, class_dim(target.dim() + 1, batch_ndim)
    op = kernels_cpu.aten_name("backward", target.dim() - batch_ndim)
    out = empty((*shape[:dim], classes, *shape[dim:]), dtype, target.device)
    if not classes:  # no element, but the targets may still be wrong
        kernels_cpu.check_index(op, target, classes, ignore_index)
        return out
    targets = Targets(op, target, weight, classes, ignore_index, batch_ndim)
    double, each = compute_dtype(dtype) is torch.float64, grad_output.dim() == target.dim()
    fill, programs = _fill(shape, dim, classes, ignore_index, batch_ndim, targets.batched, each, double)
    wrong = empty(programs, torch.int32, target.device)
    fill.run(target.contiguous(), grad_output.contiguous(), targets.class_weights(), out, wrong)
    targets.require_classes(wrong)
    return out


@functools.lru_cache(maxsize=8192)
def _fill(
    shape: torch.Size, dim: int, classes: int, ignore_index: int, batch_ndim: int, batched: bool, each: bool,
    double: bool,
) -> tuple[Prepared, tuple[int]]:  # fmt: skip
    """The launch that fills and scatters, and the shape of what its rows of programs say of wrong targets.

    Args:
        shape: of the target. dim: of the classes. classes, ignore_index, batch_ndim: as for the kernels.
        batched: whether weights have batch dims. each: whether every position has a cotangent.
        double: whether products are in float64.
    """
    from . import kernels_triton as texts

    outer, inner = math.prod(shape[:dim]), math.prod(shape[dim:])
    tile, tiles, programs, last = tiles_of(outer, classes, inner, _TILE, inner == 1)
    slices = blocks.ceil_div(classes, tile.block)
    constants = {
        "BATCHED": batched, "EACH": each, "DOUBLE": double, "ROWS": tile.rows, "BLOCK": tile.block, "LAST": last
    }  # fmt: skip
    numbers = (outer * inner, math.prod(shape[batch_ndim:]), classes, inner, tiles, slices, ignore_index)
    return Prepared(texts.nll_loss_backward, (programs * slices,), numbers, constants, tile.warps), (programs,)


def table(x: Tensor, dim: int) -> Tensor:
    """Scores as (outer, C, inner): a view where there is one."""
    return x.reshape(math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :]))


def tiles_of(outer: int, classes: int, inner: int, most: int, dense: bool) -> tuple[blocks.Tile, int, int, bool]:
    """What a program takes of (outer, C, inner), how many programs an outer index has, and how many there are.

    Last comes whether a program takes positions that follow each other, else it takes those of one outer index.

    Args:
        outer, classes, inner: the shape. most: elements that the kernel can keep in registers.
        dense: whether the classes of a position follow each other.
    """
    tile = blocks.along_rows(classes, most)
    if tile.block < 64:  # few classes: as many positions as fill a program
        tile = blocks.Tile(_TILE // max(tile.block, 4), tile.block, blocks.warps(_TILE), True)
    # A few positions that lie side by side would leave a program idle. It takes those of several outer indices.
    if dense or (tile.whole and inner < 32 and inner <= tile.rows):
        return tile, 1, blocks.ceil_div(outer * inner, tile.rows), True
    tile = blocks.across_rows(classes, inner, most)
    tiles = blocks.ceil_div(inner, tile.rows)
    return tile, tiles, outer * tiles, False
