"""Aten operations whose kernels round each step to the dtype of their operands, which matters in half types.

What this is for. A contract that lets intermediates be stored lets an evaluation round between two operations. Some
kernels of torch do several steps of arithmetic in the half type itself; others add terms one by one to a stored sum.
Separate operations for the same steps would round in the same places, so both are legal. torch's decompositions of
these operations compute in float32, so here are other decompositions, or rules with a way that stores its steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....reference.algorithms import STORED, Algorithm, Reverse
from ....reference.array import among, constant, is_special
from ....reference.losses import MEAN, NONE
from .table import DECOMPOSED, Rule, enter, may_store


def reduce_loss(loss: Any, reduction: int) -> Any:
    """The losses of all elements, a tensor or an array, after the reduction that has this number in aten."""
    if reduction == NONE:
        return loss
    return loss.mean() if reduction == MEAN else loss.sum()


def _bend(near: Callable[[Any], Any], far: Callable[[Any], Any], end: float) -> Rule:
    """A loss of d = x − target: near(d) for |d| < `end`, and far(|d|) for |d| > `end`.

    At |d| = `end` both have the same value and slope, but other second derivatives. An evaluation may take either
    there, so there is one way for each.
    """

    def loss_with(beyond: Callable[[Any, Any], Any]) -> Rule:
        def loss(x: Any, target: Any) -> Any:
            off = may_store(x - target)
            is_far = beyond(np.absolute(constant(off)), end)
            # `near` takes d and not |d|, because |d| has no derivative at 0, where `near` has all of them. Far off it
            # has no part, also where d is infinite.
            return np.where(is_far, far(may_store(np.absolute(off))), near(np.where(is_far, 0.0, off)))

        return loss

    ways = [Algorithm(loss_with(beyond), "") for beyond in (np.greater_equal, np.greater)]
    return lambda x, target: among(ways, x, target)


def _smooth(x: Any, target: Any, reduction: int = MEAN, beta: float = 1.0) -> Any:
    if beta == 0:
        return reduce_loss(np.absolute(may_store(x - target)), reduction)
    near = lambda off: may_store(may_store(0.5 * off) * off) / beta  # noqa: E731
    return reduce_loss(_bend(near, lambda size: size - 0.5 * beta, beta)(x, target), reduction)


def _huber(x: Any, target: Any, reduction: int = MEAN, delta: float = 1.0) -> Any:
    loss = _bend(lambda off: may_store(0.5 * off) * off, lambda size: delta * may_store(size - 0.5 * delta), delta)
    return reduce_loss(loss(x, target), reduction)


def _soft_margin(x: Tensor, target: Tensor, reduction: int = MEAN) -> Any:
    # torch computes it in the dtype of x, whatever that of the target is.
    return reduce_loss((-x * target).to(x.dtype).exp().log1p(), reduction)


def _entropy(x: Tensor) -> Tensor:
    # The right derivative of −x log x at 0 is infinite, as that of √x, whose value there is also 0.
    zero = torch.where(x == 0, torch.where(x == 0, x, 1.0).sqrt(), -torch.inf)
    return torch.where(x.isnan(), x, torch.where(x > 0, -x * torch.log(x), zero))


def _cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Tensor:
    a, b = torch.broadcast_tensors(a, b)
    first, second = (torch.tensor(order, device=a.device) for order in ([1, 2, 0], [2, 0, 1]))
    one = a.index_select(dim, first) * b.index_select(dim, second)
    return one - a.index_select(dim, second) * b.index_select(dim, first)


def _inverse_root(x: Any) -> Any:
    def cotangent(x: Any, g: Any) -> Any:
        y = may_store(1.0 / np.sqrt(x))
        return may_store(g * may_store(may_store(np.square(y)) * y)) * -0.5

    ways = [
        Algorithm(lambda x: 1.0 / np.sqrt(x), ""),
        Algorithm(lambda x: 1.0 / may_store(np.sqrt(x)), STORED),
        Algorithm(Reverse(cotangent), STORED),
    ]
    return among(ways, x)


def _trilinear(a: Any, b: Any, c: Any, of_a: Any, of_b: Any, of_c: Any, summed: Any, unroll_dim: int = 1) -> Any:
    """Σ a b c over some axes, where each factor has length 1 along the axes that are named after it."""
    first = tuple(axis for axis in summed if axis in of_c)

    def whole(*factors: Any) -> Any:
        left, middle, right = _expand_factors(factors, (of_a, of_b, of_c))
        return np.sum(left * middle * right, axis=tuple(summed))

    def pair_by_pair(*factors: Any) -> Any:
        left, middle, right = _expand_factors(factors, (of_a, of_b, of_c))
        pair = may_store(np.sum(left * middle, axis=first, keepdims=True)) if first else may_store(left * middle)
        rest = tuple(axis for axis in summed if axis not in first)
        return np.squeeze(np.sum(pair * right, axis=rest, keepdims=True), axis=tuple(summed))

    # With an infinite factor, sums of opposite infinities are in one of them, and not in the other.
    name = "" if any(map(is_special, (a, b, c))) else STORED
    return among([Algorithm(whole, ""), Algorithm(pair_by_pair, name)], a, b, c)


def _expand_factors(factors: Any, axes: Any) -> list[Any]:
    arrays = []
    for x, missing in zip(factors, axes, strict=True):
        for axis in missing:
            x = np.expand_dims(x, axis)
        arrays.append(x)
    return arrays


enter(
    {
        "mse_loss": lambda x, target, reduction=MEAN: reduce_loss((x - target).square(), reduction),
        "soft_margin_loss": _soft_margin,
        "special_entr": _entropy,
        "linalg_cross": _cross,
    },
    DECOMPOSED,
)
enter({"smooth_l1_loss": _smooth, "huber_loss": _huber, "rsqrt": _inverse_root, "_trilinear": _trilinear})
