"""Kernels of the negative log likelihood on CUDA: Triton's; without Triton those of the CPU, which are compositions.

Scores are seen as (outer, C, inner), whatever their strides, and targets as the batch indices, `count` positions each.
What is hard here is that a wrong target must raise IndexError, while only the GPU has the targets. So every program
says whether it has seen a wrong one, and the host reads that: a small kernel, and one wait for the GPU, in each call.
While a CUDA graph is captured nothing can be read; there the loss of a wrong target is NaN, and so is its gradient.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...gpu import blocks
from ...gpu.launching import empty, launch, served
from ...operator.precision import compute_dtype
from . import kernels_cpu
from .kernels_cpu import MEAN, NONE, SUM, class_dim

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


class Plan(NamedTuple):
    """What a kernel is launched with beside tensors; looked up by shapes, because a small call costs what Python does.

    Attributes:
        programs: how many. numbers: the operands after the tensors. constants: by name. warps: of a program.
        whole: whether a program holds a row whole. parts: partial sums of a batch index.
    """

    programs: int
    numbers: tuple[float | int, ...]
    constants: Mapping[str, object]
    warps: int
    whole: bool = True
    parts: int = 1


class Targets(NamedTuple):
    """What every loss is told of its targets.

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

    def require_known(self, wrong: Tensor) -> None:
        """Raises IndexError where a program says in `wrong` that it has seen what is no class and not ignored."""
        if wrong.numel() and not _captured(wrong) and bool(wrong.any()):
            raise kernels_cpu.out_of_range(self.op, self.target, self.classes, self.ignore_index)


@functools.cache
def texts() -> Any:
    """The kernels, which are imported when the first call arrives."""
    return importlib.import_module(".kernels_triton", __package__)


def _captured(t: Any) -> bool:
    return bool(t.is_cuda and torch.cuda.is_current_stream_capturing())


@functools.lru_cache(maxsize=8192)
def split(count: int, each: bool) -> Split:
    """How `count` positions go to programs, which store every position where `each`, else their sum."""
    if count <= 1024:
        block = blocks.power_of_two(count)
        return Split(1024 // block, block, 1, 1)
    block = 256 if count <= 256 * _PARTS else 1024
    steps = 1 if each else blocks.ceil_div(count, block * _PARTS)
    return Split(1, block, blocks.ceil_div(count, block * steps), steps)


def nll_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    batch_ndim: int,
    op: str = "nll_loss",
) -> tuple[Tensor, Tensor]:
    """(output, total_weight) as the CPU's kernel has them.

    Args:
        x, ..., op: as for the CPU's kernel, which raises the same errors.
    """
    if not served("nll_loss"):
        return kernels_cpu.nll_loss(x, target, weight, reduction, ignore_index, batch_ndim, op)
    scores = table(x, class_dim(x.dim(), batch_ndim))
    targets = Targets(op, target, weight, scores.shape[1], ignore_index, batch_ndim)
    out = empty(target.shape if reduction == NONE else targets.batch, x.dtype, x.device)
    total = targets.total(reduction, compute_dtype(x.dtype))
    fill_sums(targets, scores, True, out, total, reduction)
    return out, total


def total_weight(weight: Tensor, target: Tensor, ignore_index: int, batch_ndim: int) -> Tensor:
    """The sum of the weights of the targets, as the CPU's kernel has it."""
    if not served("nll_loss_total_weight"):
        return kernels_cpu.total_weight(weight, target, ignore_index, batch_ndim)
    targets = Targets("nll_loss", target, weight, weight.shape[-1], ignore_index, batch_ndim)
    total = targets.total(SUM, compute_dtype(weight.dtype))
    fill_sums(targets, None, False, None, total, SUM)
    return total


def fill_sums(
    targets: Targets, scores: Tensor | None, gather: bool, out: Tensor | None, total: Tensor, reduction: int
) -> None:
    """Fills `out`, and `total` where there is a reduction; the dtype of `total` is that of the sums.

    Args:
        targets: of the loss.
        scores: (outer, C, inner) where `gather`, else the loss of every position; None where only weights are summed.
        gather: whether each target picks its score.
        out, total: contiguous. reduction: NONE, MEAN or SUM.

    Raises:
        IndexError: a target is neither a class nor ignored.
    """
    target, wide = targets.target, total.dtype
    picks = (*scores.shape, *scores.stride()) if gather and scores is not None else (1, 1, 1, 0, 0, 0)
    plan = _sums_plan(
        target.shape, picks, targets.classes, targets.ignore_index, targets.batch_ndim, reduction, targets.batched,
        gather, wide is torch.float64,
    )  # fmt: skip
    batch, parts = plan.numbers[0], plan.parts
    partial = empty((2, int(batch), parts), wide, target.device) if parts > 1 else None
    wrong = empty((plan.programs,), torch.int32, target.device)
    tensors = target.contiguous(), scores, targets.class_weights(), out, total, partial, wrong
    launch(texts().nll_loss_forward, (plan.programs,), (*tensors, *plan.numbers), plan.constants, plan.warps)
    if partial is not None:
        block = blocks.power_of_two(parts)
        folding = {"COUNT": targets.weight is None, "MEAN": reduction == MEAN, "BLOCK": block}
        launch(texts().nll_loss_fold, (int(batch),), (partial, out, total, batch, parts), folding, blocks.warps(block))
    targets.require_known(wrong)


@functools.lru_cache(maxsize=8192)
def _sums_plan(
    shape: torch.Size,
    picks: tuple[int, ...],
    classes: int,
    ignore_index: int,
    batch_ndim: int,
    reduction: int,
    batched: bool,
    gather: bool,
    double: bool,
) -> Plan:
    """The plan of the kernel that gathers and sums.

    Args:
        shape: of the target. picks: shape and strides of (outer, C, inner), if it gathers.
        classes, ignore_index, batch_ndim, reduction: as for the kernels.
        batched: whether weights have batch dims. gather: whether targets pick. double: whether sums are in float64.
    """
    batch, count, each = math.prod(shape[:batch_ndim]), math.prod(shape[batch_ndim:]), reduction == NONE
    tile = split(count, each)
    programs = blocks.ceil_div(batch, tile.rows) * tile.parts if count or not each else 0
    constants = {
        "GATHER": gather, "BATCHED": batched, "EACH": each, "MEAN": reduction == MEAN, "DOUBLE": double,
        "ROWS": tile.rows, "BLOCK": tile.block,
    }  # fmt: skip
    numbers = (batch, count, tile.parts, tile.steps, classes, *picks[2:], ignore_index)
    return Plan(programs, numbers, constants, blocks.warps(tile.rows * tile.block), parts=1 if each else tile.parts)


def nll_loss_backward(
    grad_output: Tensor,
    target: Tensor,
    weight: Tensor | None,
    classes: int,
    ignore_index: int,
    batch_ndim: int,
    dtype: torch.dtype,
) -> Tensor:
    """-grad_output * weight at the targets, else zero, as the CPU's kernel has it.

    Args:
        grad_output, ..., dtype: as for the CPU's kernel, which raises the same errors.
    """
    if not served("nll_loss_backward"):
        return kernels_cpu.nll_loss_backward(grad_output, target, weight, classes, ignore_index, batch_ndim, dtype)
    shape, dim = target.shape, class_dim(target.dim() + 1, batch_ndim)
    out = empty((*shape[:dim], classes, *shape[dim:]), dtype, target.device)
    if not classes:  # no element, but the targets may still be wrong
        kernels_cpu.checked_index("nll_loss_backward", target, classes, ignore_index)
        return out
    targets = Targets("nll_loss_backward", target, weight, classes, ignore_index, batch_ndim)
    double, each = compute_dtype(dtype) is torch.float64, grad_output.dim() == target.dim()
    plan = _fill_plan(shape, dim, classes, ignore_index, batch_ndim, targets.batched, each, double)
    wrong = empty((plan.programs,), torch.int32, target.device)
    tensors = target.contiguous(), grad_output.contiguous(), targets.class_weights(), out, wrong
    programs = plan.programs * plan.parts
    launch(texts().nll_loss_backward, (programs,), (*tensors, *plan.numbers), plan.constants, plan.warps)
    targets.require_known(wrong)
    return out


@functools.lru_cache(maxsize=8192)
def _fill_plan(
    shape: torch.Size,
    dim: int,
    classes: int,
    ignore_index: int,
    batch_ndim: int,
    batched: bool,
    each: bool,
    double: bool,
) -> Plan:
    """The plan of the kernel that fills and scatters, whose programs are `parts` per row.

    Args:
        shape: of the target. dim: of the classes. classes, ignore_index, batch_ndim: as for the kernels.
        batched: whether weights have batch dims. each: whether every position has a cotangent.
        double: whether products are in float64.
    """
    outer, inner = math.prod(shape[:dim]), math.prod(shape[dim:])
    tile, tiles, programs, last = tiles_of(outer, classes, inner, _TILE, inner == 1)
    slices = blocks.ceil_div(classes, tile.block)
    constants = {
        "BATCHED": batched, "EACH": each, "DOUBLE": double, "ROWS": tile.rows, "BLOCK": tile.block, "LAST": last
    }  # fmt: skip
    numbers = (outer * inner, math.prod(shape[batch_ndim:]), classes, inner, tiles, slices, ignore_index)
    return Plan(programs, numbers, constants, tile.warps, parts=slices)


# ------------------------------------------------------------------------------------------ shared with cross entropy


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
