"""Errors that elements have in common: of a factor that is one number for a whole row.

docs/design/tolerance.md derives what they are, and what is assumed ("Errors that a row has in common"). A ball carries
coefficients a_s of numbers ε_s in [−1, 1], one for each factor s, and its radius includes them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....reference.array import Params
from .ball import FOLLOW, RULES, Ball, centre_of
from .shared_error import Common, Shift
from .spread import SLACK

#: An error, its coefficient in a result, the sum of the magnitudes of what that is added up of, and of how many.
_Contribution = tuple[Common[Ball], Any, Any, int]
#: A ball forgets further common errors, which stay in its radius. Reverse mode of a norm meets two or three.
MOST = 6


def follow(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    """Give a result the common errors of its operands, and narrow its radius where these errors cancel.

    Args:
        primitive, operands, params: the operation. out: its result, with the radius of the rule.
    """
    if out.exact:
        return
    x = operands[0]
    if primitive in ("broadcast", "store"):
        if primitive == "broadcast":
            out.origin = x if x.origin is None else x.origin
        out.common = x.common
    elif primitive in ("reshape", "transpose"):
        out.common = tuple(_move(each, x, primitive, params) for each in _plain(x))
    elif primitive == "max":
        out.common = (Shift(out, out.radii),)
    elif primitive == "exp":
        out.common = tuple(_of_exponential(out, each) for each in x.common if isinstance(each, Shift))
    elif primitive == "log":
        _follow_logarithm(out, x)
    elif primitive in ("sum", "matmul"):
        _merge(out, _contributions(primitive, operands, params))
    else:
        _follow_elements(primitive, out, operands, params)
        if primitive in ("add", "subtract"):
            _follow_shifts(primitive, out, operands)
    if out.special and out.common:
        # Elements that are not finite have no error in common; of a shift, exponentials count those that are finite.
        finite = np.isfinite(out.centre)
        out.common = tuple(
            each if isinstance(each, Shift) else each.changed(lambda a: np.where(finite, a, 0.0)) for each in out.common
        )


def _follow_elements(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    terms = _terms(primitive, out, operands, params)
    if not terms:
        return
    if len({each.key for each in terms}) == len(terms):  # Nothing can cancel.
        out.common = tuple(terms[:MOST])
    else:
        _merge(out, [(each, each.coefficient, np.abs(each.coefficient), 1) for each in terms])


def _move(error: Common[Ball], x: Ball, primitive: str, params: Params) -> Common[Ball]:
    """A common error of a ball whose elements are moved."""

    def move(values: Any) -> Any:
        return centre_of(primitive, params, x.contract, np.broadcast_to(values, x.shape))

    return Common(error.source, lambda: move(error.coefficient), error, lambda: move(_places(error)))


def _places(error: Common[Ball]) -> Any:
    if error.places is not None:
        return error.places()
    shape = error.source.shape
    return np.arange(math.prod(shape), dtype=np.float64).reshape(shape)


def _of_exponential(out: Ball, shift: Common[Ball]) -> Common[Ball]:
    """The common error of exponentials of a row less its largest element: a factor of all of them."""
    y = np.asarray(out.centre, dtype=np.float64)
    # One that may be flushed to zero has an error of its own.
    least = 4.0 * out.contract.accumulate.smallest_normal

    def coefficient() -> Any:
        return np.where(y < least, 0.0, y) * np.expm1(np.abs(shift.coefficient))

    source = Ball(shift.source.centre, None, out.contract)
    source.common = (shift,)
    return Common(source, coefficient)


def _follow_logarithm(out: Ball, x: Ball) -> None:
    """Give the logarithm of a sum of exponentials of a row less its largest element the error of that element."""
    c = np.asarray(x.centre, dtype=np.float64)
    for error in _plain(x):
        shift = error.source.common[0] if error.source.common else error
        if not isinstance(shift, Shift) or error.places is not None or np.shape(shift.coefficient) != x.shape:
            continue
        size = np.abs(shift.coefficient)
        factor = np.expm1(size)
        part = np.where(size > 0, np.minimum(error.coefficient / factor, c), c)
        rest = np.maximum(x.radii() - part * factor, 0.0) + x.radii() * (8.0 * SLACK)
        without = (c - part) * factor + rest * (1.0 + factor)
        # exp(-reach) of c is as far below c as a logarithm is off by all, whose own rounding the rule adds.
        reach = size - np.log1p(-np.minimum(without / c * (1.0 + 8.0 * SLACK), 1.0))
        radius = RULES["log"](
            out.contract, Ball(x.centre, -c * np.expm1(-reach) * (1.0 + 8.0 * SLACK), out.contract)
        ).radii()
        less = (c > 0) & (radius <= out.radii()) & np.isfinite(radius)
        out.radius = np.where(less, radius, out.radii())
        coefficient = np.where(less, shift.coefficient, 0.0)
        out.common = (Shift(shift.source, functools.partial(np.copy, coefficient)),)
        return


def _follow_shifts(primitive: str, out: Ball, operands: Sequence[Ball]) -> None:
    """Errors of the largest element of a row: where a row is less it, and where they cancel."""
    shifts = [[each for each in x.common if isinstance(each, Shift)] for x in operands]
    sign = -1.0 if primitive == "subtract" else 1.0
    for one in shifts[0]:
        for other in (each for each in shifts[1] if each.key == one.key):
            reached = np.abs(one.coefficient) + np.abs(other.coefficient)
            remaining = np.abs(one.coefficient + sign * other.coefficient)
            narrowed = out.radius - reached + remaining + reached * (8.0 * SLACK)
            out.radius = np.where(np.isfinite(narrowed), narrowed, out.radius)
            return
    if primitive == "subtract" and operands[1].centre.size < out.centre.size:
        out.common += tuple(Shift(each.source, functools.partial(_negate, each)) for each in shifts[1])


def _negate(error: Common[Ball]) -> Any:
    return -error.coefficient


def _contributions(primitive: str, operands: Sequence[Ball], params: Params) -> list[_Contribution]:
    """What is added up of each common error, for an error that is one for all that is added up.

    A factor that is another number for each summand has no common error; its errors stay in the radius.
    """
    ndim = operands[0].centre.ndim
    if primitive == "sum":
        (x,), axes = operands, params["axes"]
        summands = math.prod(x.shape[axis] for axis in axes)
        return [
            (error, *(np.sum(each, axis=axes, keepdims=True) for each in (a, np.abs(a))), summands)
            for error, a in _along(x, axes)
        ]
    one, other = operands
    if ndim < 2 or other.centre.ndim != ndim:
        return []
    a, b = (np.asarray(x.centre, dtype=np.float64) for x in operands)
    return [
        *((error, c @ b, np.abs(c) @ np.abs(b), one.shape[-1]) for error, c in _along(one, (ndim - 1,))),
        *((error, a @ c, np.abs(a) @ np.abs(c), one.shape[-1]) for error, c in _along(other, (ndim - 2,))),
    ]


def _along(x: Ball, axes: tuple[int, ...]) -> list[tuple[Common[Ball], Any]]:
    """The common errors that are one for all elements along some axes, and their coefficients in every element."""

    def of_row(error: Common[Ball]) -> Common[Ball]:
        if error.places is None:
            return error
        return Common(error.source, lambda: error.coefficient, error, lambda: _first_along(_places(error), axes))

    of = [each for each in _plain(x) if _is_one_along(each, axes, x.centre.ndim)]
    return [(of_row(each), np.broadcast_to(each.coefficient, x.shape)) for each in of]


def _merge(out: Ball, contributions: Sequence[_Contribution]) -> None:
    """Narrow a radius to what common errors reach together."""
    if not contributions:
        return
    reached = sum((size for _, _, size, _ in contributions), np.zeros(()))
    merged: dict[tuple[Ball, int], tuple[Common[Ball], Any]] = {}
    for error, coefficient, _, _ in contributions:
        before = merged.get(error.key, (error, 0.0))
        merged[error.key] = error, before[1] + coefficient
    remaining = sum((np.abs(a) for _, a in merged.values()), np.zeros(()))
    summands = max(n for *_, n in contributions)
    # Coefficients and their sums are rounded, each by 2^-53 of the summands, which is less than 2 SLACK in all.
    narrowed = out.radius - reached + remaining + reached * (8.0 * summands * SLACK)
    out.radius = np.where(np.isfinite(narrowed), narrowed, out.radius)
    out.common = tuple(_with_coefficient(*each) for each in list(merged.values())[:MOST])


def _with_coefficient(error: Common[Ball], coefficient: Any) -> Common[Ball]:
    return Common(error.source, lambda: coefficient, None, error.places)


def common_of_either(a: Ball, b: Ball) -> tuple[Common[Ball], ...]:
    """The common errors of what is the result of one of two algorithms: of each error the smaller coefficient."""

    def smaller(one: Common[Ball], other: Common[Ball]) -> Common[Ball]:
        def coefficient() -> Any:
            x, y = one.coefficient, other.coefficient
            return np.where(x * y > 0, np.sign(x) * np.minimum(np.abs(x), np.abs(y)), 0.0)

        return Common(one.source, coefficient, None, one.places)

    of_a, of_b = ({each.key: each for each in _plain(x)} for x in (a, b))
    return tuple(smaller(one, of_b[key]) for key, one in of_a.items() if key in of_b)


def _plain(x: Ball) -> list[Common[Ball]]:
    """The common errors of a ball that are in its elements as they are."""
    return [each for each in x.common if not isinstance(each, Shift)]


def _terms(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> list[Common[Ball]]:
    """The contribution of each common error of each operand to a result; one source may occur several times."""
    if primitive == "negative":
        return [each.changed(np.negative) for each in _plain(operands[0])]
    if primitive not in ("add", "subtract", "multiply", "divide", "where"):
        return []
    one, other = operands
    if primitive == "where":
        return _of_choice(one, other, params["condition"])
    if primitive == "add":
        return [*_plain(one), *_plain(other)]
    if primitive == "subtract":
        return [*_plain(one), *(each.changed(np.negative) for each in _plain(other))]
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

    def over(a: Any) -> Any:
        with np.errstate(divide="ignore", invalid="ignore"):  # An element of which the divisor is zero has no bound.
            return a / by

    def of_divisor(a: Any) -> Any:
        return over(-np.asarray(quotient, dtype=np.float64) * a)

    return [*(each.changed(over) for each in of_one), *(each.changed(of_divisor) for each in of_other)]


def _of_choice(one: Ball, other: Ball, condition: Any) -> list[Common[Ball]]:
    if not isinstance(condition, np.ndarray) or condition.dtype != bool:
        return []
    return [
        *(each.changed(lambda a: np.where(condition, a, 0.0)) for each in _plain(one)),
        *(each.changed(lambda a: np.where(condition, 0.0, a)) for each in _plain(other)),
    ]


def _as_factor(x: Ball, out: Ball) -> Sequence[Common[Ball]]:
    """The common errors of a factor.

    A factor that is shorter than the product is one number for a whole row, and so what it has besides its common
    errors is a common one, too. A factor of length 1 along some axis counts as well, because the product may be
    repeated along that axis.
    """
    if x.exact or x.centre.ndim == 0:
        return ()
    if x.origin is not None:
        return _with_own(x.origin)
    if x.shape == out.shape and (x.common or 1 not in x.shape):
        return _plain(x)
    return _with_own(x)


def _with_own(x: Ball) -> list[Common[Ball]]:
    """The common errors of a factor of a row, and the rest of its error, which is a common one of the row."""
    common = [each for each in _plain(x) if each.source is not x]

    def rest() -> Any:
        return np.maximum(x.radii() - sum((np.abs(each.coefficient) for each in common), np.zeros(())), 0.0)

    return [*common, Common(x, rest if common else x.radii)]


def _is_one_along(error: Common[Ball], axes: tuple[int, ...], ndim: int) -> bool:
    """Whether a factor is the same for all elements along some axes of an array; axes are not negative."""
    if error.places is None:
        shape = (1,) * (ndim - error.source.centre.ndim) + error.source.shape
        return all(shape[axis] == 1 for axis in axes)
    places = error.places()
    return bool(np.all(places == _first_along(places, axes)))


def _first_along(values: Any, axes: tuple[int, ...]) -> Any:
    return values[tuple(slice(0, 1) if i in axes else slice(None) for i in range(values.ndim))]


FOLLOW.append(follow)
