"""The words of a formula that choose between values, ask whether they are finite, or are made of such choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..missing import NoReadingError
from .elementwise import choose
from .kind import WORDS, Array


def is_nan(x: Any) -> Any:
    """Where an element is NaN: NaN alone differs from itself."""
    return np.not_equal(x, x)


def is_finite(x: Any) -> Any:
    """Where an element is a number; open where an evaluation may overflow."""
    return np.less(np.absolute(x), np.inf)


def is_infinite(x: Any) -> Any:
    """Where an element is an infinity."""
    return np.equal(np.absolute(x), np.inf)


def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """The nearest numbers between two limits, either of which may be None."""
    least, most = a_min if min is None else min, a_max if max is None else max
    raised = a if least is None else np.maximum(a, least)
    return raised if most is None else np.minimum(raised, most)


def _heaviside(x: Any, at_zero: Any) -> Any:
    like = x if isinstance(x, Array) else at_zero
    return choose(np.less(x, 0.0), like.lift(0.0), choose(np.equal(x, 0.0), at_zero, like.lift(1.0)))


def _beside_nan(extreme: Any) -> Any:
    """fmax and fmin, which pass over a NaN where the other operand is a number."""

    return lambda a, b: extreme(choose(is_nan(a), b, a), choose(is_nan(b), a, b))


def _copysign(x: Any, sign: Any) -> Any:
    size = np.absolute(x)
    return choose(np.less(sign, 0.0), -size, size)


def _nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    infinite = is_infinite(x)
    if (posinf is None or neginf is None) and np.any(np.asarray(infinite, dtype=bool)):
        raise NoReadingError("nan_to_num: got an infinity, need posinf= and neginf=, which else depend on the dtype")
    numbers = choose(is_nan(x), nan, x)
    if posinf is None or neginf is None:
        return numbers
    return choose(infinite, choose(np.less(x, 0.0), neginf, posinf), numbers)


def _select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0.0) -> Any:
    selection = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        selection = np.where(condition, choice, selection)
    return selection


def _piecewise(x: Any, condlist: Sequence[Any], funclist: Sequence[Any]) -> Any:
    values = [each(x) if callable(each) else each for each in funclist]
    default = values.pop() if len(values) > len(condlist) else 0.0
    # NumPy takes the last condition that holds, and `select` the first.
    return _select(list(condlist)[::-1], [x.lift(v) if not isinstance(v, Array) else v for v in values][::-1], default)


def _floor_divide(a: Any, b: Any) -> Any:
    return np.floor(np.divide(a, b))


def _remainder(a: Any, b: Any) -> Any:
    """What is left of `a` after multiples of `b`, with the sign of `b`."""
    rest = np.fmod(a, b)
    other = np.logical_and(np.not_equal(rest, 0.0), np.not_equal(np.less(rest, 0.0), np.less(b, 0.0)))
    return choose(other, rest + b, rest)


def _round(a: Any, decimals: int = 0) -> Any:
    """The nearest multiples of 10^−decimals, as NumPy takes them: scaled, rounded to even and scaled back."""
    scale = 10.0 ** abs(decimals)
    if decimals < 0:
        return np.rint(a / scale) * scale
    return np.rint(a * scale) / scale if decimals else np.rint(a)


def _sinc(x: Any) -> Any:
    """sin(πx) / (πx), which is 1 at zero."""
    angle = x * np.pi
    nothing = np.equal(x, 0.0)
    return choose(nothing, x.lift(1.0), np.sin(angle) / choose(nothing, x.lift(1.0), angle))


def _choose_from(a: Any, choices: Any) -> Any:
    selection = choices[0]
    for number in range(1, len(choices)):
        selection = np.where(np.equal(a, number), choices[number], selection)
    return selection


def _identity(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


WORDS.update(
    {
        np.isnan: is_nan, np.isfinite: is_finite, np.isinf: is_infinite, np.signbit: lambda x: np.less(x, 0.0),
        np.clip: clip, np.heaviside: _heaviside, np.fmax: _beside_nan(np.maximum), np.fmin: _beside_nan(np.minimum),
        np.fabs: np.absolute, np.copysign: _copysign, np.nan_to_num: _nan_to_num, np.select: _select,
        np.choose: _choose_from, np.sinc: _sinc, np.piecewise: _piecewise, np.floor_divide: _floor_divide,
        np.remainder: _remainder, np.divmod: lambda a, b: (_floor_divide(a, b), _remainder(a, b)),
        np.modf: lambda x: (x - np.trunc(x), np.trunc(x)), np.round: _round, np.around: _round, np.fix: np.trunc,
        np.positive: _identity, np.conjugate: _identity, np.real: _identity, np.copy: _identity,
        np.reciprocal: lambda x: np.divide(1.0, x), np.degrees: lambda x: x * (180.0 / np.pi),
        np.rad2deg: lambda x: x * (180.0 / np.pi), np.radians: lambda x: x * (np.pi / 180.0),
        np.deg2rad: lambda x: x * (np.pi / 180.0),
        np.logaddexp2: lambda a, b: (
            np.log2(np.exp2(a - np.maximum(a, b)) + np.exp2(b - np.maximum(a, b))) + np.maximum(a, b)
        ),
    }
)  # fmt: skip
