"""Formulas of the negative log likelihood and of cross entropy with class indices.

Classes are axis 1 of the input, or axis 0 of a single row (C,); a target has the other axes. A target that is
`ignore_index` counts for nothing, whatever stands in its row: the row is replaced before anything is computed from it.
What is hard here: an ignored row may hold NaN or infinities, and 0 · ∞ is NaN; so nothing is ever multiplied by a mask,
and `np.where` takes the place of such a row. Where no target counts at all, an index array has nothing to follow.

Smoothing: C. Szegedy et al., Rethinking the Inception Architecture for Computer Vision, arXiv:1512.00567, section 7.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .algorithms import reordered
from .array import constant, scatter

Array = Any
NONE, MEAN, SUM = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class _Targets:
    """Targets as an index that is safe to follow, and which of them count."""

    index: Any
    counts: Any
    axis: int

    @classmethod
    def of(cls, input: Array, target: Any, ignore_index: int) -> _Targets:
        target = np.asarray(target).astype(np.int64)
        target = np.reshape(target, ()) if np.ndim(input) == 1 else target
        counts = target != ignore_index
        # `ignore_index` may lie outside the classes. Class 0 stands in for it, and what is found there is thrown away.
        return cls(np.where(counts, target, 0), counts, 0 if np.ndim(input) == 1 else 1)

    def grid(self) -> tuple[Any, ...]:
        """The index of every target's element, with the class axis kept."""
        index = np.expand_dims(self.index, self.axis)
        grid = list(np.ogrid[tuple(slice(n) for n in index.shape)])
        grid[self.axis] = index
        return tuple(grid)

    def pick(self, x: Array) -> Array:
        """The target's element of every position; 0 where ignored."""
        # Zeros that are still computed from x: the output keeps x's reading and its derivative levels, all of them
        # zero.
        if not self.counts.any():
            return np.sum(np.where(False, x, 0.0), axis=self.axis)
        return np.where(self.counts, np.squeeze(x[self.grid()], axis=self.axis), 0.0)

    def look_up(self, weight: Array) -> Array:
        """The target's weight of every position; 0 where ignored."""
        if not self.counts.any():
            return np.broadcast_to(np.sum(np.where(False, weight, 0.0)), self.counts.shape)
        return np.where(self.counts, weight[self.index], 0.0)

    def mask(self, x: Array) -> Array:
        """x with 0 in ignored rows."""
        return np.where(np.expand_dims(self.counts, self.axis), x, 0.0)


def _reduce_loss(loss: Array, weights: Array | None, counts: Any, reduction: int) -> tuple[Array, Array]:
    """(output, total weight) from the losses and weights of all positions, 0 where ignored."""
    # A zero in the reading of the loss: a total weight that is a plain count would have no reading of its own.
    nothing = np.sum(np.where(False, loss, 0.0))
    if reduction == NONE:
        return loss, nothing
    total_weight = float(np.count_nonzero(counts)) if weights is None else np.sum(weights)
    total = np.sum(loss)
    return (total / total_weight if reduction == MEAN else total), total_weight + nothing


def nll_loss(
    input: Array, target: Any, weight: Array | None = None, ignore_index: int = -100, reduction: str = "mean"
) -> Array:
    """−w_t x_t at every target t: each, their sum, or their sum over Σ w_t.

    Args:
        input: log-probabilities x, (C,) or (N, C, ...).
        target: classes, () or (N, ...), or `ignore_index`.
        weight: w, (C,), or None for ones.
        ignore_index: a target that counts for nothing.
        reduction: "none", "mean" or "sum".
    """
    return nll_loss_forward(input, target, weight, _number(reduction), ignore_index)[0]


def _number(reduction: str) -> int:
    return {"none": NONE, "mean": MEAN, "sum": SUM}[reduction]


def nll_loss_forward(
    self: Array, target: Any, weight: Array | None, reduction: int, ignore_index: int
) -> tuple[Array, Array]:
    """(loss, Σ w_t) for (C,) or (N, C); the second is 0 without a reduction.

    Args:
        self: the input of `nll_loss`. target, weight, ignore_index: as there.
        reduction: 0, 1 or 2 for none, mean and sum, as aten numbers them.
    """
    targets = _Targets.of(self, target, ignore_index)
    weights = None if weight is None else targets.look_up(weight)
    loss = -targets.pick(self)
    if weights is not None:
        loss = np.where(targets.counts, weights * loss, 0.0)
    return _reduce_loss(loss, weights, targets.counts, reduction)


#: Of (N, C, H, W).
nll_loss2d_forward = reordered("nll_loss2d_forward", nll_loss_forward)


def nll_loss_backward(
    grad_output: Array, self: Array, target: Any, weight: Array | None, reduction: int, ignore_index: int,
    total_weight: Array,
) -> Array:  # fmt: skip
    """−ḡ w_t at every target, over the given total weight for a mean, 0 elsewhere; for (C,) or (N, C).

    Args:
        grad_output: ḡ, of the shape of the loss.
        self, target, weight, reduction, ignore_index: as in `nll_loss_forward`.
        total_weight: (), as `nll_loss_forward` returns it.
    """
    targets = _Targets.of(self, target, ignore_index)
    g = grad_output if reduction == NONE else np.reshape(grad_output, ())
    g = g / np.reshape(total_weight, ()) if reduction == MEAN else g
    if not targets.counts.any():
        return np.where(False, self, 0.0) + np.sum(np.where(False, g, 0.0))
    value = np.broadcast_to(-g, targets.counts.shape) if weight is None else -g * targets.look_up(weight)
    # Each position adds to one element, its target's, of zeros: the adjoint of picking it.
    value = np.where(targets.counts, value, 0.0)
    return scatter(np.expand_dims(value, targets.axis), targets.grid(), np.shape(self))


#: Of (N, C, H, W).
nll_loss2d_backward = reordered("nll_loss2d_backward", nll_loss_backward)


def cross_entropy(
    input: Array, target: Any, weight: Array | None = None, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:  # fmt: skip
    """−(1 − s) w_t z_t − s/C Σ_c w_c z_c with z = log softmax(x): each, their sum, or their sum over Σ w_t.

    Args:
        input: x, (C,) or (N, C, ...).
        target, weight, ignore_index, reduction: as in `nll_loss`.
        label_smoothing: s, from 0 to 1.
    """
    targets = _Targets.of(input, target, ignore_index)
    weights = None if weight is None else targets.look_up(weight)
    z = _log_softmax(targets.mask(input), targets.axis)
    loss = -targets.pick(z)
    if weights is not None:
        loss = weights * loss
    if label_smoothing:
        classes = max(np.shape(input)[targets.axis], 1)
        if weight is not None:
            z = z * np.reshape(weight, (-1, *(1,) * (np.ndim(input) - 1 - targets.axis)))
        smooth = -np.sum(z, axis=targets.axis)
        loss = loss * (1.0 - label_smoothing) + smooth * (label_smoothing / classes)
    loss = np.where(targets.counts, loss, 0.0)
    return _reduce_loss(loss, weights, targets.counts, _number(reduction))[0]


def _log_softmax(x: Array, axis: int) -> Array:
    """The largest x is subtracted first, which changes neither value nor derivatives in exact arithmetic."""
    if not np.size(x):
        return x
    centred = x - constant(np.max(x, axis=axis, keepdims=True))
    return centred - np.log(np.sum(np.exp(centred), axis=axis, keepdims=True))
