"""Kernels of cross entropy on CUDA: Triton's; without Triton those of the CPU, which are compositions.

A loss per position leaves the first kernel, and those of the negative log likelihood sum them. No log-probability is
stored; backward computes the probabilities again from the logits. What is said of wrong targets in nll_loss holds here.
"""

from __future__ import annotations

import functools
import importlib
import math
from typing import Any

import torch
from torch import Tensor

from ...gpu.launching import as_operand, empty, launch, served
from ...operator.precision import compute_dtype
from ..nll_loss import kernels_cuda as nll
from ..nll_loss.kernels_cpu import NONE, checked_index, class_dim
from . import kernels_cpu

#: Elements of the longest rows that are kept in registers: forward, which reads longer ones once as well, and backward
#: in single precision without weights beside them.
_FORWARD_MOST, _BACKWARD_MOST = 8192, 32768


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    smoothing: float,
    batch_ndim: int,
) -> tuple[Tensor, Tensor]:
    """(output, total_weight) as the CPU's kernel has them.

    Args:
        x, ..., batch_ndim: as for the CPU's kernel, which raises the same errors.
    """
    if not served("cross_entropy"):
        return kernels_cpu.cross_entropy(x, target, weight, reduction, ignore_index, smoothing, batch_ndim)
    each, up = reduction == NONE, compute_dtype(x.dtype)
    scores = _rows_of_classes(nll.table(x, class_dim(x.dim(), batch_ndim)))
    classes = scores.shape[1]
    targets = nll.Targets("cross_entropy", target, weight, classes, ignore_index, batch_ndim)
    losses = empty(target.shape, x.dtype if each else up, x.device)
    strides, dense = scores.stride(), scores.stride(1) == 1 or scores.shape[2] == 1
    plan = _plan(
        _FORWARD_MOST, dense, scores.shape, strides, target.shape[batch_ndim:], ignore_index, smoothing,
        targets.batched, up,
    )  # fmt: skip
    # With a reduction the kernel that sums looks at the targets, too, and has fewer programs.
    wrong = empty((plan.programs,), torch.int32, x.device) if each else None
    kernel = _texts().cross_entropy_forward if plan.whole else _texts().cross_entropy_forward_long
    operands = scores, target.contiguous(), targets.class_weights(), losses, wrong, *plan.numbers
    launch(kernel, (plan.programs,), operands, plan.constants, plan.warps)
    total = targets.total(reduction, up)
    if wrong is not None:
        targets.require_known(wrong)
        return losses, total
    out = empty(targets.batch, x.dtype, x.device)
    nll.fill_sums(targets, losses, False, out, total, reduction)
    return out, total


def cross_entropy_backward(
    grad_output: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    smoothing: float,
    batch_ndim: int,
) -> Tensor:
    """The logits' gradient as the CPU's kernel has it.

    Args:
        grad_output, ..., batch_ndim: as for the CPU's kernel, which raises the same errors.
    """
    if not served("cross_entropy_backward"):
        return kernels_cpu.cross_entropy_backward(
            grad_output, x, target, weight, ignore_index, smoothing, batch_ndim
        )  # fmt: skip
    d_input = empty(x.shape, x.dtype, x.device)
    scores = _rows_of_classes(nll.table(x, class_dim(x.dim(), batch_ndim)))
    classes, up = scores.shape[1], compute_dtype(x.dtype)
    if not classes:  # no element, but the targets may still be wrong
        checked_index("cross_entropy", target, classes, ignore_index)
        return d_input
    targets = nll.Targets("cross_entropy", target, weight, classes, ignore_index, batch_ndim)
    dense, beside = scores.shape[2] == 1, bool(smoothing) and weight is not None
    # A double takes two registers, with smoothing the weights stand beside the logits, and rows that lie side by side
    # have an address for each element.
    most = _BACKWARD_MOST >> ((up is torch.float64) + beside + (not dense))
    plan = _plan(
        most, dense, scores.shape, scores.stride(), target.shape[batch_ndim:], ignore_index, smoothing,
        targets.batched, up,
    )  # fmt: skip
    wrong = empty((plan.programs,), torch.int32, x.device)
    kernel = _texts().cross_entropy_backward if plan.whole else _texts().cross_entropy_backward_long
    operands = (
        grad_output.contiguous(), scores, target.contiguous(), targets.class_weights(), d_input, wrong, *plan.numbers
    )  # fmt: skip
    constants = {"EACH": grad_output.dim() == target.dim(), **plan.constants}
    launch(kernel, (plan.programs,), operands, constants, plan.warps)
    targets.require_known(wrong)
    return d_input


def _rows_of_classes(scores: Tensor) -> Tensor:
    """Scores of which a program can read neighbours: a row's classes without gaps, or several rows side by side."""
    return scores.contiguous() if scores.shape[2] == 1 and scores.stride(1) != 1 else scores


@functools.cache
def _texts() -> Any:
    """The kernels, which are imported when the first call arrives."""
    return importlib.import_module(".kernels_triton", __package__)


@functools.lru_cache(maxsize=8192)
def _plan(
    most: int,
    dense: bool,
    shape: torch.Size,
    strides: tuple[int, ...],
    positions: torch.Size,
    ignore_index: int,
    smoothing: float,
    batched: bool,
    wide: torch.dtype,
) -> nll.Plan:
    """The plan of either direction, whose operands that are numbers are the same.

    Args:
        most, dense: as for `nll_loss.kernels_cuda.tiles_of`.
        shape, strides: of (outer, C, inner). positions: the dims of a batch index.
        ignore_index, smoothing: as for the kernels.
        batched: whether weights have batch dims. wide: the dtype of the sums.
    """
    outer, classes, inner = shape
    tile, tiles, programs, last = nll.tiles_of(outer, classes, inner, most, dense)
    numbers = (
        outer * inner, math.prod(positions), classes, inner, tiles, *strides, ignore_index,
        as_operand(1.0 - smoothing, wide), as_operand(smoothing / max(classes, 1), wide),
    )  # fmt: skip
    constants = {
        "SMOOTH": bool(smoothing), "BATCHED": batched, "DOUBLE": wide is torch.float64,
        "ROWS": tile.rows, "BLOCK": tile.block, "LAST": last,
    }  # fmt: skip
    return nll.Plan(programs, numbers, constants, tile.warps, tile.whole)
