"""Aten operations that are losses; those that torch decomposes into others need no rule here."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ....reference import losses
from .table import RULES, Rule, enter

aten = torch.ops.aten

#: aten's numbers for how the losses of all elements become one.
_NONE, _MEAN, _SUM = 0, 1, 2


def _reduced(loss: Any, reduction: int) -> Any:
    if reduction == _NONE:
        return loss
    return np.mean(loss) if reduction == _MEAN else np.sum(loss)


def _of_targets(formula: Rule) -> Rule:
    def rule(x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
        return list(formula(x, np.asarray(target), weight, reduction, ignore_index))

    return rule


def _binary_cross_entropy(x: Any, target: Any, weight: Any = None, reduction: int = _MEAN) -> Any:
    """−(t log x + (1 − t) log(1 − x)), whose logarithms torch holds at −100 from below."""
    found, other = (np.log(x), np.log1p(-x))
    found, other = (np.where(part < -100.0, -100.0, part) for part in (found, other))
    loss = (target - 1.0) * other - target * found
    return _reduced(loss if weight is None else loss * weight, reduction)


def _multilabel_margin(x: Any, target: Any, reduction: int) -> tuple[Any, Any]:
    """Σ max(0, 1 − (x_t − x_j)) / C over all targets t and all j that are no target; targets end at the first −1."""
    rows, classes = np.reshape(x, (-1, np.shape(x)[-1])), np.shape(x)[-1]
    listed = np.reshape(np.asarray(target), (-1, classes))
    counts = np.cumsum(listed < 0, axis=1) == 0
    known = np.where(counts, listed, 0)
    is_target = np.zeros(listed.shape, dtype=bool)
    for row, targets, valid in zip(is_target, listed, counts, strict=True):
        row[targets[valid]] = True
    gap = 1.0 - (np.take_along_axis(rows, known, 1)[:, :, None] - rows[:, None, :])
    wanted = counts[:, :, None] & ~is_target[:, None, :]
    each = np.sum(np.where(wanted, np.where(gap <= 0, 0.0, gap), 0.0), axis=(1, 2)) / float(classes)
    loss = each if reduction == _NONE and np.ndim(x) > 1 else _reduced(each, reduction or _SUM)
    return loss, np.reshape(is_target, np.shape(x)).astype(np.float64)


enter(_of_targets(losses.nll_loss_forward), aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
RULES[aten.binary_cross_entropy.default] = _binary_cross_entropy
# torch's decomposition of it counts targets beyond the first −1, which the operation itself does not.
RULES[aten.multilabel_margin_loss_forward.default] = _multilabel_margin
