"""Aten operations that reduce dims, or normalise along one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....reference.algorithms import STORED, Algorithm, Reverse
from ....reference.array import amax, among, constant, is_special
from ....reference.condition import compared, condition, is_open, possibly, surely
from ....reference.softmax import less_log_sum, log_softmax, log_softmax_by, of_stored_sum, softmax
from ...bound.contract import LOG_SUM
from .elementwise import truth_of
from .table import Rule, axes_of, enter, may_store


def _over_dims(f: Rule) -> Rule:
    return lambda x, dim=None, keepdim=False, dtype=None: f(x, axis=axes_of(dim), keepdims=keepdim)


def _amax(x: Any, dim: Any = (), keepdim: bool = False) -> Any:
    return amax(x, axes_of(dim), keepdim)


def _logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    axes = axes_of(dim)

    def log_of_sum(x: Any, step: Rule) -> Any:
        if 0 in np.shape(x):  # Of nothing there is no largest, and the logarithm of its sum is -∞.
            return np.log(np.sum(np.exp(x), axis=axes, keepdims=True))
        largest = constant(np.max(x, axis=axes, keepdims=True))
        infinite = surely(np.isinf(largest))  # An infinity less itself is NaN, and the sum is infinite without that.
        largest = np.where(infinite, 0.0, largest) if infinite.any() else largest
        return step(np.log(step(np.sum(step(np.exp(step(x - largest))), axis=axes, keepdims=True)))) + largest

    def cotangent(x: Any, g: Any) -> Any:
        """The cotangent of x, from the saved result as torch has it: its rounding error is a share of every slope."""
        return g * may_store(np.exp(may_store(x - may_store(log_of_sum(x, lambda t: t)))))

    ways = [
        Algorithm(lambda x: log_of_sum(x, lambda t: t), ""),
        Algorithm(lambda x: log_of_sum(x, may_store), STORED),
        Algorithm(Reverse(cotangent), ""),
    ]
    total = among(ways, x)
    return total if keepdim else np.squeeze(total, axis=axes)


def _softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    def of_stored_powers(x: Any) -> Any:
        powers = may_store(np.exp(x - constant(np.max(x, axis=dim, keepdims=True))))
        return powers / np.sum(powers, axis=dim, keepdims=True)

    if np.ndim(x) and is_special(x):
        lost = np.asarray(surely(np.max(constant(x), axis=dim, keepdims=True) == -np.inf))
        if lost.any():  # 0 / 0, of which nobody says what its slope is: of a masked row it is masked, too.
            lost = compared(np.less, np.broadcast_to(lost, np.shape(x)), lost)
            return np.where(lost, np.nan, _softmax(np.where(lost, 0.0, x), dim))
    if np.ndim(x) == 0 or dim % np.ndim(x) == np.ndim(x) - 1:
        return softmax(x, dim)
    # Where elements of a row do not lie side by side, torch keeps the exponentials in the memory of the result.
    return among([Algorithm(lambda x: softmax(x, dim), ""), Algorithm(of_stored_powers, STORED)], x)


def _log_softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    texts = ((of_stored_sum, STORED), (less_log_sum, LOG_SUM))
    others = (Algorithm(lambda x, text=text: log_softmax_by(text, x, dim), name) for text, name in texts)
    return among([Algorithm(lambda x: log_softmax(x, dim), ""), *others], x)


def _over(reduce: Callable[..., Any]) -> Rule:
    """`any` or `all` of truth values that depend on floating numbers, and so may be open."""

    def rule(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        axes, x = axes_of(dim), truth_of(x)
        if not is_open(x):
            return reduce(np.asarray(x), axis=axes, keepdims=keepdim)
        every, some = (reduce(part, axis=axes, keepdims=keepdim) for part in (surely(x), possibly(x)))
        return condition(every, some, x.reading)

    return rule


enter(
    {
        "sum sum.dim_IntList": _over_dims(np.sum),
        "mean mean.dim": _over_dims(np.mean),
        "any any.dim any.dims": _over(np.any),
        "all all.dim all.dims": _over(np.all),
        "amax max": _amax,
        "amin": lambda x, dim=(), keepdim=False: -_amax(-x, dim, keepdim),
        "logsumexp": _logsumexp,
        "_softmax": _softmax,
        "_log_softmax": _log_softmax,
    }
)
