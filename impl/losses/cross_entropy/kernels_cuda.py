"""Kernels of cross entropy on CUDA: Triton's; without Triton those of the CPU, which are compositions.

A loss per position leaves the first kernel, and those of the negative log likelihood sum them. No log-probability is
stored; backward computes the probabilities again from the logits. What is said of wrong targets in nll_loss holds here.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...gpu.launching import Prepared, as_operand, by_triton, empty
from ...operator.precision import compute_dtype
from ...operator.records import new
from ..nll_loss import kernels_cuda as nll
from ..nll_loss.kernels_cpu import NONE, check_index, class_dim
from . import kernels_cpu
from .kernels_cpu import SmoothedLoss, SmoothedLossBackward

#: Elements of the longest rows that are kept in registers: forward, which reads longer ones once as well, and backward
#: in single precision without weights beside them.
_FORWARD_MOST, _BACKWARD_MOST = 8192, 32768


class LossLaunch(NamedTuple):
    """What the shapes of a call decide: the launch of a kernel, forward or backward, and how it reads the logits.

    Attributes:
        kernel: the launch, of which every program marks whether it has seen a wrong target.
        classes: C. direct: whether the kernel can read x where it is; else it reads `_rows_of_classes` of x.
    """

    kernel: Prepared
    classes: int
    direct: bool


@by_triton("cross_entropy", kernels_cpu.cross_entropy)
def cross_entropy(args: SmoothedLoss) -> tuple[Tensor, Tensor]:
    """(output, total_weight) as the CPU's kernel has them, which raises the same errors."""
    x, target, weight, reduction, ignore_index, smoothing, batch_ndim = args
    each, dtype, device = reduction == NONE, x.dtype, x.device
    up, batched = compute_dtype(dtype), weight is not None and weight.dim() > 1
    kernel, classes, direct = _plan_launch(
        x.shape, x.stride(), dtype, target.shape, batched, ignore_index, smoothing, batch_ndim, None
    )
    scores = x if direct else _rows_of_classes(x, batch_ndim)
    targets = new(nll.Targets, ("cross_entropy", target, weight, classes, ignore_index, batch_ndim))
    losses = empty(target.shape, dtype if each else up, device)
    # With a reduction the kernel that sums looks at the targets, too, and has fewer programs.
    wrong = empty(kernel.grid, torch.int32, device) if each else None
    kernel.run(scores, target.contiguous(), targets.class_weights(), losses, wrong)
    total = targets.total(reduction, up)
    if wrong is not None:
        targets.require_classes(wrong)
        return losses, total
    out = empty(total.shape, dtype, device)
    nll.fill_sums(targets, reduction, None, (losses, out, total))
    return out, total


@by_triton("cross_entropy_backward", kernels_cpu.cross_entropy_backward)
def cross_entropy_backward(args: SmoothedLossBackward) -> Tensor:
    """The logits' gradient as the CPU's kernel has it, which raises the same errors."""
    grad_output, x, target, weight, ignore_index, smoothing, batch_ndim = args
    d_input = empty(x.shape, x.dtype, x.device)
    if not x.shape[class_dim(x.dim(), batch_ndim)]:  # no element, but the targets may still be wrong
        check_index("cross_entropy", target, 0, ignore_index)
        return d_input
    batched, back = weight is not None and weight.dim() > 1, (weight is not None, grad_output.dim() == target.dim())
    kernel, classes, direct = _plan_launch(
        x.shape, x.stride(), x.dtype, target.shape, batched, ignore_index, smoothing, batch_ndim, back
    )
    scores = x if direct else _rows_of_classes(x, batch_ndim)
    targets = new(nll.Targets, ("cross_entropy", target, weight, classes, ignore_index, batch_ndim))
    wrong = empty(kernel.grid, torch.int32, x.device)
    kernel.run(grad_output.contiguous(), scores, target.contiguous(), targets.class_weights(), d_input, wrong)
    targets.require_classes(wrong)
    return d_input


@functools.lru_cache(maxsize=8192)
def _plan_launch(
    shape: torch.Size, strides: tuple[int, ...], dtype: torch.dtype, positions: torch.Size, batched: bool,
    ignore_index: int, smoothing: float, batch_ndim: int, back: tuple[bool, bool] | None,
) -> LossLaunch:  # fmt: skip
    """The launch for a call.

    Args:
        shape, strides, dtype: of the logits. positions: the shape of the target.
        batched: whether weights have batch dims. ignore_index, smoothing, batch_ndim: as for the kernels.
        back: None forward; backward whether there are weights, and whether every position has a cotangent.
    """
    from . import kernels_triton as texts

    x = torch.empty_strided(shape, strides, device="meta")
    scores = _rows_of_classes(x, batch_ndim)
    direct = scores.untyped_storage()._cdata == x.untyped_storage()._cdata  # a view of the logits
    wide = compute_dtype(dtype)
    constants: dict[str, object] = {}
    if back is None:
        dense, most = scores.stride(1) == 1 or scores.shape[2] == 1, _FORWARD_MOST
        kernels = texts.cross_entropy_forward, texts.cross_entropy_forward_long
    else:
        weighted, constants["EACH"] = back
        # A double takes two registers, with smoothing the weights stand beside the logits, and rows that lie side by
        # side have an address for each element.
        dense = scores.shape[2] == 1
        most = _BACKWARD_MOST >> ((wide is torch.float64) + (bool(smoothing) and weighted) + (not dense))
        kernels = texts.cross_entropy_backward, texts.cross_entropy_backward_long
    outer, classes, inner = scores.shape
    tile, tiles, programs, last = nll.tiles_of(outer, classes, inner, most, dense)
    numbers = (
        outer * inner, math.prod(positions[batch_ndim:]), classes, inner, tiles, *scores.stride(), ignore_index,
        as_operand(1.0 - smoothing, wide), as_operand(smoothing / max(classes, 1), wide),
    )  # fmt: skip
    constants |= {
        "SMOOTH": bool(smoothing), "BATCHED": batched, "DOUBLE": wide is torch.float64,
        "ROWS": tile.rows, "BLOCK": tile.block, "LAST": last,
    }  # fmt: skip
    return LossLaunch(Prepared(kernels[not tile.whole], (programs,), numbers, constants, tile.warps), classes, direct)


def _rows_of_classes(x: Tensor, batch_ndim: int) -> Tensor:
    """Scores of which a program can read neighbours: a row's classes without gaps, or several rows side by side."""
    scores = nll.table(x, class_dim(x.dim(), batch_ndim))
    return scores.contiguous() if scores.shape[2] == 1 and scores.stride(1) != 1 else scores
