"""Errors that elements have in common: of a factor that is one number for a whole row.

What this is for. Where a row is multiplied by a number that was computed for it, a scale or a slope, one error of that
number is in all elements of the row, times what each was multiplied by. A ball alone forgets that: of the sum of
k (x_i − μ) it says that it may be off by Δk Σ|x_i − μ|, although k is the same in all of them, and so no error of k is
off by more than Δk |Σ(x_i − μ)|, which is nothing. So balls carry such errors apart, and sums, differences and products
of them are bounded by the coefficients that are left.

The rule. A ball with common errors says, for every evaluation, e_i = c_i + Σ_s a_si ε_s + ρ_i with |ε_s| ≤ 1, one ε_s
for all elements that have the factor s in common, and |ρ_i| ≤ r_i − Σ_s |a_si|. What an operation makes of its operands
is linear in the ε_s but for products of two errors. Its rule in `rules.py` bounds those, the ρ_i and the rounding, and
besides that `reached`: what the coefficients of the operands reach one by one. They reach no farther than the sum
Σ|a'_s| of the new coefficients; so r' = r − reached + Σ|a'_s| is a bound, too. For a quotient q = a / b with
|b − c_b| ≤ r_b, the error is N / b with N = (a − c_a) − q (b − c_b), its linear part N / c_b, and |N / b − N / c_b| is
at most |N| r_b / (|c_b| (|c_b| − r_b)): that is the bound of the rule, |N| / (|c_b| − r_b), less |N| / |c_b|.

What is assumed: a factor of a row is one number in an evaluation, as it is in every one that computes it and then uses
it. A term of a row is not: x − μ may be evaluated in ways that never subtract a rounded μ from x (Welford's variance,
or Σ g x − μ Σ g), so only products make a common error, and a square forgets them.
From second derivatives on, where evaluations are of closed forms that may compute a factor once more, in another way,
nothing is assumed (`Contract.roundings`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....reference.array import Params
from .ball import FOLLOW, Ball
from .shared_error import Common
from .spread import SLACK

#: A ball forgets further common errors, which stay in its radius. Reverse mode of a norm meets two or three.
MOST = 6


def follow(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    """Give a result the common errors of its operands, and narrow its radius where these errors cancel.

    Args:
        primitive, operands, params: the operation. out: its result, with the radius of the rule.
    """
    if out.exact:
        return
    if primitive == "broadcast":
        (x,) = operands
        out.origin = x if x.origin is None else x.origin
        out.common = x.common
        return
    terms = _terms(primitive, out, operands)
    summands = 1
    if primitive == "sum":
        axes = params["axes"]
        summands = max(1, operands[0].centre.size // max(out.centre.size, 1))
        # A factor that is another number for each summand has no common error; its errors stay in the radius.
        terms = [each for each in terms if _is_one_along(each.source, axes, out.centre.ndim)]
    if not terms:
        return
    if primitive != "sum" and len({id(each.source) for each in terms}) == len(terms):  # Nothing can cancel.
        out.common = tuple(terms[:MOST])
        return
    pairs = [(each.source, each.coefficient) for each in terms]
    if primitive == "sum":
        pairs = [(s, np.broadcast_to(a, operands[0].shape)) for s, a in pairs]
        reached = sum(np.sum(np.abs(a), axis=axes, keepdims=True) for _, a in pairs)
        pairs = [(s, np.sum(a, axis=axes, keepdims=True)) for s, a in pairs]
    else:
        reached = sum(np.abs(a) for _, a in pairs)
    merged: dict[Ball, Any] = {}
    for source, coefficient in pairs:
        merged[source] = merged[source] + coefficient if source in merged else coefficient
    remaining = sum((np.abs(a) for a in merged.values()), np.zeros(()))
    # Coefficients and their sums are rounded, each by 2^-53 of the summands, which is less than 2 SLACK in all.
    narrowed = out.radius - reached + remaining + reached * (8.0 * summands * SLACK)
    out.radius = np.where(np.isfinite(narrowed), narrowed, out.radius)
    out.common = tuple(_make_error(source, a) for source, a in list(merged.items())[:MOST])


def _make_error(source: Ball, coefficient: Any) -> Common[Ball]:
    return Common(source, lambda: coefficient)


def _terms(primitive: str, out: Ball, operands: Sequence[Ball]) -> list[Common[Ball]]:
    """The contribution of each common error of each operand to a result; one source may occur several times."""
    if primitive == "negative":
        return [each.changed(np.negative) for each in operands[0].common]
    if primitive == "sum":
        return list(operands[0].common)
    if primitive not in ("add", "subtract", "multiply", "divide"):
        return []
    one, other = operands
    if primitive == "add":
        return [*one.common, *other.common]
    if primitive == "subtract":
        return [*one.common, *(each.changed(np.negative) for each in other.common)]
    if one is other:
        return []
    of_one, of_other = _as_factor(one, out), _as_factor(other, out)
    if not of_one and not of_other:
        return []
    by = np.asarray(other.centre, dtype=np.float64)
    if primitive == "multiply":
        times = np.asarray(one.centre, dtype=np.float64)
        return [
            *(each.changed(lambda a: a * by) for each in of_one),
            *(each.changed(lambda a: a * times) for each in of_other),
        ]
    quotient = out.centre

    def of_divisor(a: Any) -> Any:
        return -np.asarray(quotient, dtype=np.float64) * a / by

    return [*(each.changed(lambda a: a / by) for each in of_one), *(each.changed(of_divisor) for each in of_other)]


def _as_factor(x: Ball, out: Ball) -> Sequence[Common[Ball]]:
    """The common errors of a factor.

    A factor that is shorter than the product is one number for a whole row, and so its own error is a common one. A
    factor of length 1 along some axis counts as well, because the product may be repeated along that axis.
    """
    if x.exact or x.centre.ndim == 0:
        return ()
    if x.origin is not None:
        return (Common(x.origin, x.radii),)
    if x.shape == out.shape and (x.common or 1 not in x.shape):
        return x.common
    return (Common(x, x.radii),)


def _is_one_along(source: Ball, axes: tuple[int, ...], ndim: int) -> bool:
    """Whether a factor is the same for all elements along some axes of an array.

    Args:
        source: the factor. axes, ndim: the axes of the array, and its number of dims.
    """
    shape = (1,) * (ndim - source.centre.ndim) + source.shape
    return all(shape[axis] == 1 for axis in axes)


FOLLOW.append(follow)
