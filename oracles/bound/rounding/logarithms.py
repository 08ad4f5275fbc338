"""Forms of logarithms: of numbers that are above zero in every evaluation, and are multiplied, divided and added up.

What this is for. In half types the errors of forty quotients in turn are no small numbers, and what a form of z - c
leaves out of each comes to the next ones. Of log(z / c) a product or a quotient leaves out nothing: the logarithms are
added, as in Sinkhorn's algorithm, whose rows and columns are scaled again and again.

The rules. With z = c exp(λ), |λ| <= Λ in every evaluation: of a product λ = λ_a + λ_b; a rounding by a factor 1 + δ
with |δ| <= d adds -log(1 - d) at most. Of a sum λ = log Σ w exp(λ_i) with w = c_i / Σ c. That is at least Σ w λ_i
(Jensen), and at most Σ w exp(λ_i) - 1 = Σ w λ_i + Σ w (exp(λ_i) - 1 - λ_i), in which exp(λ) - 1 - λ <= exp(Λ) - 1 -
Λ; and it is Σ w λ_i and half of a variance under some weights, so max Λ_i² / 2 at most. Both hold of λ_i - Σ w λ_i in
the place of λ_i. Back to z - c = c (exp(λ) - 1) the same difference is left out, and on the way here log(1 + t) - t,
with |t| <= r / c.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....reference.array import Params
from .ball import Ball
from .forms import ONE, STEPS, TOO_WIDE, AffineForm, padded, sum_of_magnitudes
from .slopes import slopes_of
from .spread import SLACK

#: A logarithm beyond this says nothing.
_FAR = 64.0
_MOVES = frozenset({"reshape", "broadcast", "transpose", "getitem"})
_PRIMITIVES = _MOVES | {"multiply", "divide", "sum", "store"}


def is_positive(ball: Ball, form: AffineForm | None = None) -> bool:
    """Whether every element is above zero in every evaluation."""
    return bool(form is not None and form.relative) or bool(np.all(ball.centre > ball.radii()))


def may_be_relative(primitive: str, balls: Sequence[Ball], forms: Sequence[AffineForm | None], params: Params) -> bool:
    """Whether a primitive has a form of logarithms, as where an operand has one already."""
    if primitive not in _PRIMITIVES or params.get("means") or balls[0].contract.flush:
        return False
    having = any(form is not None and form.relative for form in forms)
    return having and all(is_positive(x, form) for x, form in zip(balls, forms, strict=True))


def relative_form(ball: Ball, form: AffineForm) -> AffineForm:
    """The form of logarithms of numbers that are above zero."""
    if form.relative:
        return form
    centre = np.asarray(ball.centre, dtype=np.float64)
    share = np.minimum(form.reach, ball.radii()) / centre * (1.0 + STEPS * SLACK)
    remainder = np.maximum(-np.log1p(-share) - share, 0.0)
    loose = form.loose / centre + remainder + (share + form.size / centre) * (STEPS * SLACK)
    return AffineForm(form.terms / centre[..., None], loose, True)


def linear_form(ball: Ball, form: AffineForm) -> AffineForm:
    """The form of the numbers themselves."""
    if not form.relative:
        return form
    centre = np.asarray(ball.centre, dtype=np.float64)
    half = 0.5 * _beyond_slope(form.reach)
    loose = centre * (form.loose + half + (form.reach + half) * (STEPS * SLACK))
    terms = padded(form.terms, max(ONE + 1, form.terms.shape[-1])) * centre[..., None]
    terms[..., ONE] += centre * half
    return AffineForm(terms, loose)


def radius_of(ball: Ball, form: AffineForm) -> Any:
    """The radius that a form gives."""
    if not form.relative:
        return form.reach
    return np.asarray(ball.centre, dtype=np.float64) * np.expm1(form.reach) * (1.0 + STEPS * SLACK)


def combine_relative(
    primitive: str,
    out: Ball,
    balls: Sequence[Ball],
    forms: Sequence[AffineForm | None],
    params: Params,
    least: Any,
    more: Any,
) -> AffineForm:
    """The form of logarithms of a result.

    Args:
        primitive, params: what is applied. out: its ball. balls, forms: of the operands; None for one without errors.
        least: the radius for operands without errors, which is the rounding of the centre. more: what the radius has
            besides that of its rule.
    """
    having = {
        i: relative_form(x, form) for i, (x, form) in enumerate(zip(balls, forms, strict=True)) if form is not None
    }
    symbols = max(ONE + 1, *(form.terms.shape[-1] for form in having.values()))
    slack = (STEPS + symbols + max(int(x.centre.size) for x in balls)) * SLACK
    terms, loose = np.zeros((*out.shape, symbols)), np.zeros(out.shape)
    for i, form in having.items():
        take = _linear_part(primitive, out, balls, params)
        part = take(form.terms)
        terms[..., : part.shape[-1]] += -part if primitive == "divide" and i else part
        loose = loose + take(form.loose) * (1.0 + slack) + take(form.size) * slack
        if primitive == "sum":
            apart = (sum_of_magnitudes(form.terms - part) + form.loose + take(form.loose)) * (1.0 + slack)
            beyond = [_beyond_mean(each, take, params["axes"]) for each in (form.reach, apart)]
            # Between zero and that: the half of it, which is known, and as much to both sides.
            half = 0.5 * np.minimum(*beyond)
            terms[..., ONE] += half
            loose = loose + half * (1.0 + slack)
    return _with_rounding(primitive, out, AffineForm(terms, loose, True), params, least, more)


def _linear_part(primitive: str, out: Ball, balls: Sequence[Ball], params: Params) -> Callable[[Any], Any]:
    """What a primitive makes of logarithms to first order: of arrays, with an axis of symbols or not."""
    if primitive == "sum":
        axes, (x,) = params["axes"], balls
        weights = np.asarray(x.centre / np.sum(x.centre, axis=axes, keepdims=True), dtype=np.float64)
        return lambda part: np.sum(
            part * (weights if part.ndim == weights.ndim else weights[..., None]), axis=axes, keepdims=True
        )
    if primitive in _MOVES:
        (slope,) = slopes_of(primitive, out, balls, params) or [None]
        assert slope is not None
        return slope.apply
    return lambda part: part


def _with_rounding(primitive: str, out: Ball, form: AffineForm, params: Params, least: Any, more: Any) -> AffineForm:
    """The form with the rounding of the result; where it is too wide, what the ball has alone."""
    contract, centre = out.contract, np.asarray(out.centre, dtype=np.float64)
    inverse = np.exp(np.minimum(form.reach, _FAR))  # c / z at most
    share: Any = 0.0
    if primitive == "store":
        fmt = contract.stored_in(params.get("dtype", ""))
        share = fmt.unit_roundoff + fmt.eta * inverse / centre
    elif primitive not in _MOVES:
        # The rounding of a product is a share of it, and what underflows.
        share = (least + contract.underflow * (inverse - 1.0)) / centre
    share = np.minimum(share + more * inverse / centre, 1.0) * (1.0 + STEPS * SLACK)
    result = AffineForm(form.terms, form.loose - np.log1p(-share), True)
    radius = out.radii()
    useless = ~(radius_of(out, result) <= radius * TOO_WIDE)
    if useless.any():
        result.terms[useless] = 0.0
        loose = np.where(useless, -np.log1p(-np.minimum(radius / centre * (1.0 + STEPS * SLACK), 1.0)), result.loose)
        result = AffineForm(result.terms, loose, True)
    return result


def _beyond_mean(reach: Any, take: Callable[[Any], Any], axes: tuple[int, ...]) -> Any:
    """What a sum has besides the mean of the logarithms, which are so far from one number at most."""
    return np.minimum(take(_beyond_slope(reach)), 0.5 * np.square(np.max(reach, axis=axes, keepdims=True)))


def _beyond_slope(reach: Any) -> Any:
    """exp(r) - 1 - r, rounded up."""
    return np.where(reach < _FAR, np.maximum(np.expm1(reach) - reach, 0.0) + reach * (2.0 * SLACK), np.inf)
