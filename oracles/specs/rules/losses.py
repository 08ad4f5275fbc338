"""Aten operations that are losses; those that torch decomposes into others need no rule here."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ....reference import losses
from ....reference.activations import log_sigmoid
from ....reference.algorithms import STORED, Algorithm, Inapplicable
from ....reference.array import among, attach, attach_slopes, constant, order_of, scatter, sigmoid
from ....reference.losses import MEAN, NONE, SUM
from .activations import softplus
from .steps import reduce_loss
from .table import LIBRARY, RULES, Rule, enter, may_store

aten = torch.ops.aten

#: The least divisor x (1 − x) in the slope of a binary cross entropy; torch clamps it there.
_LEAST_DIVISOR = 1e-12


def _of_targets(formula: Rule) -> Rule:
    def rule(x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
        at = np.asarray(target)
        output, total_weight = formula(x, at, weight, reduction, ignore_index)
        if reduction == NONE:
            return [output, total_weight]

        def add_one_by_one(x: Any, *weights: Any) -> Any:
            each = np.ravel(formula(x, at, *(weights or (None,)), NONE, ignore_index)[0])
            total = may_store(scatter(each, np.zeros(np.size(each), dtype=np.int64), (1,), in_place=True)[0])
            count = formula(x, at, *(weights or (None,)), reduction, ignore_index)[1]
            return total / count if reduction == MEAN else total

        def whole(x: Any, *weights: Any) -> Any:
            return formula(x, at, *(weights or (None,)), reduction, ignore_index)[0]

        arrays = [x] if weight is None else [x, weight]
        return [among([Algorithm(whole, ""), Algorithm(add_one_by_one, STORED)], *arrays), total_weight]

    return rule


def _binary_cross_entropy(x: Any, target: Any, weight: Any = None, reduction: int = MEAN) -> Any:
    texts = (_cross_entropy_of_two, _cross_entropy_by_one_quotient, _cross_entropy_beyond_clamps)
    ways = [Algorithm(text, "") for text in texts]
    loss = among(ways, x, target)
    return reduce_loss(loss if weight is None else loss * weight, reduction)


def _cross_entropy_of_two(x: Any, target: Any) -> Any:
    """−(t log x + (1 − t) log(1 − x)), whose logarithms torch clamps to −100 at least."""
    parts = (np.log(x), np.log1p(-x))
    log_x, log_rest = (np.where(part < -100.0, -100.0, part) for part in parts)
    return (target - 1.0) * log_rest - target * log_x


def _cross_entropy_by_one_quotient(x: Any, target: Any) -> Any:
    """With the slope (x − t) / (x (1 − x)), whose divisor torch and most kernels clamp to 10⁻¹² at least."""
    p, t = constant(x), constant(target)
    slope = (p - t) / np.maximum((1.0 - p) * p, _LEAST_DIVISOR)
    value = _cross_entropy_of_two(p, t)
    return attach_slopes(value, (x, slope), (target, np.log1p(-p) - np.log(p)))


def _cross_entropy_beyond_clamps(x: Any, target: Any) -> Any:
    """With second derivatives of logarithms that are not clamped: at 0 and 1, the ends of its domain, it has none."""
    loss = (target - 1.0) * np.log1p(-x) - target * np.log(x)
    if order_of(loss) < 2:
        raise Inapplicable
    return attach(_cross_entropy_of_two(constant(x), constant(target)), loss, always=True)


def _binary_cross_entropy_with_logits(
    x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = MEAN
) -> Any:
    """torch's text, (1 − t) x − v log σ(x) with v = (p − 1) t + 1, and the other texts that are in use.

    At t = 1 none of them cancels, as softplus(x) − t x does. Differentiated as it reads, torch's text has the slope
    (1 − t) − v σ(−x), which does not cancel at t = 1; torch and every kernel take σ(x) − t all the same.
    """
    texts = [_of_log_sigmoid, _of_largest, _of_softplus, _with_slope_of_sigmoid]
    ways = [*(Algorithm(text, "") for text in texts), Algorithm(_of_stored_parts, STORED)]
    loss = among(ways, *(each for each in (x, target, pos_weight) if each is not None))
    return reduce_loss(may_store(loss if weight is None else loss * weight), reduction)


def _weight_of_positives(t: Any, p: Any) -> Any:
    return 1.0 if p is None else (p - 1.0) * t + 1.0


def _of_log_sigmoid(x: Any, t: Any, p: Any = None) -> Any:
    return (1.0 - t) * x - _weight_of_positives(t, p) * log_sigmoid(x)


def _of_stored_parts(x: Any, t: Any, p: Any = None) -> Any:
    """torch's text, whose steps are operations of their own."""
    log = may_store(log_sigmoid(x))
    weighted = log if p is None else may_store(log * may_store(_weight_of_positives(t, p)))
    return may_store(may_store(1.0 - t) * x) - weighted


def _of_largest(x: Any, t: Any, p: Any = None) -> Any:
    """max(x, 0) − t x + log(1 + exp(−|x|))."""
    tail = np.log1p(np.exp(np.where(x < 0, x, -x)))
    if p is None:  # No evaluation rounds x · 1.
        product = x * t
        return np.where(x < 0, 0.0, x) - attach(np.where(t == 1, x, product), product, always=True) + tail
    return (1.0 - t) * x + _weight_of_positives(t, p) * (tail + np.where(x < 0, -x, 0.0))


def _of_softplus(x: Any, t: Any, p: Any = None) -> Any:
    """(1 − t) softplus(x) + p t softplus(−x)."""
    return (1.0 - t) * softplus(x) + (t if p is None else p * t) * softplus(-x)


def _with_slope_of_sigmoid(x: Any, t: Any, p: Any = None) -> Any:
    """(p t + 1 − t) σ(x) − p t, which is σ(x) − t without a weight."""
    logit, label, share = constant(x), constant(t), constant(p)
    value, gate = _of_log_sigmoid(logit, label, share), sigmoid(logit)
    if p is None:
        return attach_slopes(value, (x, gate - label), (t, -logit))
    positive, one = share * label, log_sigmoid(logit)
    slopes = (positive + 1.0 - label) * gate - positive, log_sigmoid(-logit) - share * one, -label * one
    return attach_slopes(value, *zip((x, t, p), slopes, strict=True))


def _multi_margin(x: Any, target: Any, p: Any = 1, margin: Any = 1.0, weight: Any = None, reduction: int = MEAN) -> Any:
    """Σ w_t max(0, m − x_t + x_j)^p / C over all j but t; its slope is 0 where the margin is just kept."""
    rows, classes = np.reshape(x, (-1, np.shape(x)[-1])), np.shape(x)[-1]
    index = np.reshape(np.asarray(target), (-1, 1))
    gap = margin - np.take_along_axis(rows, index, 1) + rows
    # The target itself is left out, whatever its own margin is.
    excess = np.where(np.arange(classes) == index, 0.0, np.where(gap <= 0, 0.0, gap))
    each = excess if p == 1 else np.square(excess)
    each = each if weight is None else each * np.reshape(weight[index], (-1, 1))
    loss = np.sum(each, axis=1) / float(classes)
    return np.reshape(loss, np.shape(target)) if reduction == NONE else reduce_loss(loss, reduction)


def _multilabel_margin(x: Any, target: Any, reduction: int) -> tuple[Any, Any]:
    """Σ max(0, 1 − (x_t − x_j)) / C over all targets t and all j that are no target; targets end at the first −1."""
    rows, classes = np.reshape(x, (-1, np.shape(x)[-1])), np.shape(x)[-1]
    listed = np.reshape(np.asarray(target), (-1, classes))
    counts = np.cumsum(listed < 0, axis=1) == 0
    indices = np.where(counts, listed, 0)
    is_target = np.zeros(listed.shape, dtype=bool)
    for row, targets, valid in zip(is_target, listed, counts, strict=True):
        row[targets[valid]] = True
    gap = 1.0 - (np.take_along_axis(rows, indices, 1)[:, :, None] - rows[:, None, :])
    in_sum = counts[:, :, None] & ~is_target[:, None, :]
    each = np.sum(np.where(in_sum, np.where(gap <= 0, 0.0, gap), 0.0), axis=(1, 2)) / float(classes)
    loss = each if reduction == NONE and np.ndim(x) > 1 else reduce_loss(each, reduction or SUM)
    return loss, np.reshape(is_target, np.shape(x)).astype(np.float64)


# torch decomposes this loss before it asks any table of decompositions, so a stand-in calls an operation of our own.
_NAME = "binary_cross_entropy_with_logits"
LIBRARY.define(f"{_NAME}(Tensor x, Tensor target, Tensor? weight, Tensor? pos_weight, int reduction) -> Tensor")
for _key in ("CPU", "Meta"):
    LIBRARY.impl(_NAME, lambda *args: aten.binary_cross_entropy_with_logits.default(*args), _key)

RULES[torch.ops.opassay_specs.binary_cross_entropy_with_logits.default] = _binary_cross_entropy_with_logits
enter(
    {
        "nll_loss_forward nll_loss2d_forward": _of_targets(losses.nll_loss_forward),
        "binary_cross_entropy": _binary_cross_entropy,
        # torch's decomposition takes the slope of a clamp where the margin is just kept, and its own kernels take 0.
        "multi_margin_loss": _multi_margin,
        # torch's decomposition counts targets beyond the first −1, which the operation itself does not.
        "multilabel_margin_loss_forward": _multilabel_margin,
    }
)
