"""Kernels of cross entropy on CUDA: Triton's; without Triton those of the CPU, which are compositions.

A loss per position leaves the first kernel, and those of the negative log likelihood sum them. No log-probability is
stored; backward computes the probabilities again from the logits. What is said of wrong targets in nll_loss holds here.
"""

from __future__ import annotations

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
    """(output, total_weight) as the CPU's kernel has them, arguments and errors as well."""
    if not served("cross_entropy"):
        return kernels_cpu.cross_entropy(x, target, weight, reduction, ignore_index, smoothing, batch_ndim)
    from . import kernels_triton as texts

    each, up = reduction == NONE, compute_dtype(x.dtype)
    scores = _rows(nll.table(x, class_dim(x.dim(), batch_ndim)))
    outer, classes, inner = scores.shape
    last = scores.stride(1) == 1 or inner == 1
    targets = nll.Targets("cross_entropy", target, weight, classes, ignore_index, batch_ndim)
    losses = empty(target.shape, x.dtype if each else up, x.device)
    tile, tiles, programs = nll.tiles_of(outer, classes, inner, _FORWARD_MOST, last)
    # With a reduction the kernel that sums looks at the targets, too, and has fewer programs.
    wrong = empty((programs,), torch.int32, x.device) if each else None
    rows, batched = targets.class_weights()
    operands = (
        scores, target.contiguous(), rows, losses, wrong, *_numbers(scores, targets, tiles, smoothing)
    )  # fmt: skip
    constants = {
        "SMOOTH": bool(smoothing), "BATCHED": batched, "DOUBLE": up is torch.float64,
        "ROWS": tile.rows, "BLOCK": tile.block, "LAST": last,
    }  # fmt: skip
    kernel = texts.cross_entropy_forward if tile.whole else texts.cross_entropy_forward_long
    launch(kernel, (programs,), operands, constants, tile.warps)
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
    """The logits' gradient as the CPU's kernel has it, arguments and errors as well."""
    if not served("cross_entropy_backward"):
        return kernels_cpu.cross_entropy_backward(
            grad_output, x, target, weight, ignore_index, smoothing, batch_ndim
        )  # fmt: skip
    from . import kernels_triton as texts

    d_input = empty(x.shape, x.dtype, x.device)
    scores = _rows(nll.table(x, class_dim(x.dim(), batch_ndim)))
    outer, classes, inner = scores.shape
    if not classes:  # no element, but the targets may still be wrong
        checked_index("cross_entropy", target, classes, ignore_index)
        return d_input
    double = compute_dtype(x.dtype) is torch.float64
    # A double takes two registers, and with smoothing the weights stand beside the logits.
    most = _BACKWARD_MOST // (1 + double) // (1 + (bool(smoothing) and weight is not None))
    tile, tiles, programs = nll.tiles_of(outer, classes, inner, most, inner == 1)
    targets = nll.Targets("cross_entropy", target, weight, classes, ignore_index, batch_ndim)
    rows, batched = targets.class_weights()
    wrong = empty((programs,), torch.int32, x.device)
    operands = (
        grad_output.contiguous(), scores, target.contiguous(), rows, d_input, wrong,
        *_numbers(scores, targets, tiles, smoothing),
    )  # fmt: skip
    constants = {
        "EACH": grad_output.dim() == target.dim(), "SMOOTH": bool(smoothing), "BATCHED": batched,
        "DOUBLE": double, "ROWS": tile.rows, "BLOCK": tile.block, "LAST": inner == 1,
    }  # fmt: skip
    kernel = texts.cross_entropy_backward if tile.whole else texts.cross_entropy_backward_long
    launch(kernel, (programs,), operands, constants, tile.warps)
    targets.require_known(wrong)
    return d_input


def _rows(scores: Tensor) -> Tensor:
    """Scores of which a program can read neighbours: a row's classes without gaps, or several rows side by side."""
    return scores.contiguous() if scores.shape[2] == 1 and scores.stride(1) != 1 else scores


def _numbers(scores: Tensor, targets: nll.Targets, tiles: int, smoothing: float) -> tuple[float | int, ...]:
    """The operands that are numbers, which all kernels take alike; `tiles` is the programs of an outer index."""
    outer, classes, inner = scores.shape
    up = compute_dtype(scores.dtype)
    return (
        outer * inner, targets.positions, classes, inner, tiles, *scores.stride(), targets.ignore_index,
        as_operand(1.0 - smoothing, up), as_operand(smoothing / max(classes, 1), up),
    )  # fmt: skip
