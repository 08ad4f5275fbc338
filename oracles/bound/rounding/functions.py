"""Elementary functions of balls: centres, how far results reach, and the roundings of an evaluation.

Every function of one argument is a row of a table: how its centre is computed, and a spread, which bounds
|f(x) − f(c)| for all x with |x − c| ≤ r (`spread`). Step functions and functions of two arguments have rules of their
own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....reference.array import LOG_2, LOG_10
from ....reference.array.elementwise import of_floats
from ..contract import EXP2, Contract
from .arithmetic import rounded
from .ball import RULES, Ball, magnitude_of
from .rules import evaluated, flushed_below, rule_of
from .spread import SLACK, Spread, nearest, of_exp, of_log

#: How many terms give the digits of an 80-bit float wherever the series and the continued fraction are used.
_LONGEST_SERIES, _LONGEST_FRACTION = 90, 260
#: From here on exp(−x²) is 0 in every format of centres.
_NOTHING_LEFT = 200.0


def _bounded(c: Any, r: Any, reach: Any) -> Any:
    # An argument that may have overflowed is not judged, although a sine of anything is at most one.
    return np.where(np.isfinite(r) | ~np.isfinite(c), reach, np.inf)


def _where_bounded(reach: Spread) -> Spread:
    return lambda c, r, y: _bounded(c, r, reach(c, r, y))


def _decay(x: Any) -> Any:
    """exp(−x²) without rounding x², whose rounding would cost as many digits as x² has before the point."""
    head = np.ldexp(np.rint(np.ldexp(x, 20)), -20)  # so few bits that its square is exact where exp is not 0
    return np.exp(-head * head) * np.exp((head - x) * (head + x))


def _root_pi(like: Any) -> Any:
    return np.sqrt(4.0 * np.arctan(like.dtype.type(1.0)))


def _erf_series(x: Any) -> Any:
    """2/√π exp(−x²) Σ 2ⁿ x^(2n+1) / (2n+1)!!, whose terms are all positive (DLMF 7.6.2); for 0 ≤ x ≤ 3."""
    term, total, factor = x, x, 2.0 * x * x
    for odd in range(3, 3 + 2 * _LONGEST_SERIES, 2):
        term = term * factor / odd
        total = total + term
    return total * _decay(x) * 2.0 / _root_pi(x)


def _erfc_fraction(x: Any) -> Any:
    """The continued fraction of erfc (DLMF 7.9.1), from its tail; for x ≥ 1."""
    tail = x
    for number in range(_LONGEST_FRACTION, 0, -1):
        tail = x + 0.5 * number / tail
    return _decay(x) / (tail * _root_pi(x))


def erf_centre(x: Any) -> Any:
    """The error function: C's for float64, which is within an ulp; for wider floats a series."""
    if x.dtype == np.float64:
        return of_floats(math.erf, x)
    size = np.abs(x)
    near = _erf_series(np.minimum(size, 3.0))
    return np.copysign(np.where(size < 3.0, near, 1.0 - _erfc_fraction(np.clip(size, 3.0, _NOTHING_LEFT))), x)


def erfc_centre(x: Any) -> Any:
    """1 − erf(x), with the digits of its own."""
    if x.dtype == np.float64:
        return of_floats(math.erfc, x)
    far = _erfc_fraction(np.clip(np.abs(x), 1.0, _NOTHING_LEFT))
    return np.where(np.isnan(x), x, np.where(x >= 1.0, far, np.where(x <= -1.0, 2.0 - far, 1.0 - erf_centre(x))))


def _of_erf(c: Any, r: Any, y: Any) -> Any:
    return r * ((2.0 / math.sqrt(math.pi)) * np.exp(-np.square(nearest(c, r))))


def _erf(contract: Contract, a: Ball, absolute: bool = False) -> Ball:
    out = evaluated(contract, "erf", a, erf_centre(a.centre), _where_bounded(_of_erf))
    if not (absolute and contract.functions.absolute.get("erf")):
        return out
    return Ball(
        out.centre, out.radii() + contract.functions.absolute["erf"] * contract.accumulate.unit_roundoff, contract
    )


def _of_sin(c: Any, r: Any, y: Any) -> Any:
    # sin(c + d) − sin c = cos c sin d − sin c (1 − cos d), and no two values are further apart than 2.
    return np.minimum(r * (np.abs(np.cos(c)) + 0.5 * r), 2.0)


def _of_tan(c: Any, r: Any, y: Any) -> Any:
    # tan(c + d) − tan c = sin d / (cos c cos(c + d)); where the cosine may be zero there is a pole.
    cosine = np.abs(np.cos(c))
    return np.where(cosine > r, r / (cosine * (cosine - r)), np.inf)


def _of_cosh(c: Any, r: Any, y: Any) -> Any:
    # cosh(c + d) − cosh c = sinh c sinh d + cosh c (cosh d − 1)
    return np.abs(np.sinh(c)) * np.sinh(r) + y * (2.0 * np.square(np.sinh(0.5 * r)))


def _of_arcsin(c: Any, r: Any, y: Any) -> Any:
    furthest = np.abs(c) + r
    return np.where(furthest < 1.0, r / np.sqrt(np.maximum(1.0 - np.square(furthest), 0.0)), np.inf)


def _of_arccosh(c: Any, r: Any, y: Any) -> Any:
    least = c - r
    return np.where(least > 1.0, r / np.sqrt((least - 1.0) * (least + 1.0)), np.inf)


def _of_arctanh(c: Any, r: Any, y: Any) -> Any:
    furthest = np.abs(c) + r
    return np.where(furthest < 1.0, r / ((1.0 - furthest) * (1.0 + furthest)), np.inf)


def _of_exp2(c: Any, r: Any, y: Any) -> Any:
    return of_exp(c * float(LOG_2), r * float(LOG_2), y) * (1.0 + SLACK)


def _exp2(contract: Contract, a: Ball) -> Ball:
    return flushed_below(evaluated(contract, "exp2", a, np.exp2(a.centre), _where_bounded(_of_exp2)), a)


def _of_cbrt(c: Any, r: Any, y: Any) -> Any:
    # The slope at the nearer end; through zero, where it is unbounded, |∛a − ∛c| ≤ 2^(2/3) ∛|a − c|.
    least = np.abs(c) - r
    slope = np.where(least > 0, 1.0 / (3.0 * np.square(np.cbrt(np.maximum(least, 0.0)))), np.inf)
    return np.minimum(np.where(r > 0, r * slope, 0.0), 1.5875 * np.cbrt(r))


_ONE_ARGUMENT: dict[str, tuple[Callable[[Any], Any], Spread]] = {
    "sin": (np.sin, _of_sin),
    "cos": (np.cos, lambda c, r, y: np.minimum(r * (np.abs(np.sin(c)) + 0.5 * r), 2.0)),
    "tan": (np.tan, _of_tan),
    "arcsin": (np.arcsin, _of_arcsin),
    "arccos": (np.arccos, _of_arcsin),  # the same slope, but for the sign
    "arctan": (np.arctan, lambda c, r, y: r / (1.0 + np.square(nearest(c, r)))),
    "sinh": (np.sinh, lambda c, r, y: np.cosh(c) * np.expm1(r)),
    "cosh": (np.cosh, _of_cosh),
    "arcsinh": (np.arcsinh, lambda c, r, y: r / np.sqrt(1.0 + np.square(nearest(c, r)))),
    "arccosh": (np.arccosh, _of_arccosh),
    "arctanh": (np.arctanh, _of_arctanh),
    "log10": (np.log10, lambda c, r, y: of_log(c, r, y) / float(LOG_10)),
    "cbrt": (np.cbrt, _of_cbrt),
    "erfc": (erfc_centre, _of_erf),
}


def _step(value: Callable[[Any], Any]) -> Callable[..., Ball]:
    """A function that never decreases and rounds nothing: its results reach from its value at one end to the other's.

    Without systematic errors an evaluation takes the step that the centre takes.
    """

    def rule(contract: Contract, a: Ball) -> Ball:
        y = value(a.centre)
        if a.radius is None or not contract.systematic:
            return Ball(y, None if a.radius is None else np.where(np.isfinite(a.radius), 0.0, a.radius), contract)
        # The ends are rounded themselves, and must not fall short of a step for that.
        reach = np.where(False if a.settled is None else a.settled, 0.0, a.radii() * (1.0 + SLACK))
        reach = np.where(reach > 0, reach + magnitude_of(a.centre) * (2.0 * contract.centre_roundoff), 0.0)
        low, high = value(a.centre - reach), value(a.centre + reach)
        # A step that may be taken or not is as near to either side.
        open_ = (high > low) & (reach > 0) & np.isfinite(high - low)
        middle = 0.5 * low + 0.5 * high
        half = 0.5 * high - 0.5 * low
        half = half + np.where(magnitude_of(middle) < 2.0**50, 0.0, magnitude_of(half + np.abs(middle)) * 2.0**-50)
        radius = np.where(open_, half, np.where(reach > 0, np.maximum(high - y, y - low), 0.0)).astype(np.float64)
        return Ball(np.where(open_, middle, y), _bounded(a.centre, a.radius, radius), contract)

    return rule


def _radius_of_two(a: Ball, b: Ball, reach: Callable[[], Any]) -> Any:
    if a.radius is None and b.radius is None:
        return None
    infinite = np.isinf(a.radii() + b.radii()) & np.isfinite(a.centre) & np.isfinite(b.centre)
    return np.where(infinite, np.inf, np.asarray(reach(), dtype=np.float64))


_inexact_log2 = rule_of("log2", np.log2, _where_bounded(lambda c, r, y: of_log(c, r, y) / float(LOG_2)))


def _log2(contract: Contract, a: Ball) -> Ball:
    """A logarithm; of a power of two that has no error it is the exponent, which a step that follows knows."""
    out = _inexact_log2(contract, a)
    out.settled = (a.radii() == 0) & (np.frexp(a.centre)[0] == 0.5)
    return out


def _hypot(contract: Contract, a: Ball, b: Ball) -> Ball:
    # The length of a difference is at least the difference of lengths.
    radius = _radius_of_two(a, b, lambda: np.hypot(a.radii(), b.radii()) * (1.0 + SLACK))
    return rounded(contract, np.hypot(a.centre, b.centre), radius, times=2.0 * contract.functions.ulps["hypot"])


def _arctan2(contract: Contract, y: Ball, x: Ball) -> Ball:
    angle, length = np.arctan2(y.centre, x.centre), np.hypot(y.centre, x.centre)
    off = np.hypot(y.radii(), x.radii()) * (1.0 + SLACK)
    # A disc around the point is seen from the origin under the angle arcsin(off / length).
    radius = np.where(off < length, np.arcsin(np.minimum(off / length, 1.0)), 2.0 * math.pi) * (1.0 + 4.0 * SLACK)
    # Along the negative half axis the angle jumps from −π to π; on it, by the sign of a zero, which the exact reading
    # does not have.
    cut = (np.abs(y.centre) <= y.radii()) & (x.centre - x.radii() <= 0)
    radius = np.where(cut, 2.0 * math.pi, np.where(off > 0, radius, 0.0)).astype(np.float64)
    return rounded(contract, angle, radius, times=2.0 * contract.functions.ulps["arctan2"])


def _logaddexp(contract: Contract, a: Ball, b: Ball) -> Ball:
    """The larger operand plus log1p(exp(−|a − b|)); the slopes are at least 0 and add up to 1."""
    y = np.logaddexp(a.centre, b.centre)
    gap = np.where(a.centre == b.centre, 0.0, np.abs(a.centre - b.centre)).astype(np.float64)
    decay = np.exp(-gap)
    ulps, u = contract.functions.ulps, contract.roundoff
    # The errors before the last sum: of the difference and the exponential, whose slope in the result is at most
    # `decay`, and of the logarithm. As a power of two the exponential has an exponent with a further error of 2u of it.
    exponent = gap * (3.0 if EXP2 in contract.algorithms else 1.0)
    exponent = np.where(decay > 0, exponent, 0.0)  # From -inf on, nothing is added.
    lost = decay * (exponent + 2.0 * ulps["exp"]) * u + np.log1p(decay) * (2.0 * ulps["log1p"] * u)
    before = np.maximum(a.radii(), b.radii())
    # The centre is a sum as well, whose terms may be larger than it.
    reach = magnitude_of(np.maximum(a.centre, b.centre)) * (4.0 * contract.centre_roundoff)
    radius = np.where(np.isfinite(y), before + lost * (1.0 + 2.0**-10) + reach, before)
    return rounded(contract, y, radius)


def _fmod(contract: Contract, a: Ball, b: Ball) -> Ball:
    """The remainder, which is exact; where the whole quotient is open, anything between minus and plus the divisor."""
    y = np.fmod(a.centre, b.centre)
    if a.radius is None and b.radius is None:
        return Ball(y, None, contract)
    size, its = magnitude_of(a.centre), magnitude_of(b.centre)
    least = (size - a.radii()) / (its + b.radii()) * (1.0 - 4.0 * SLACK)
    most = np.where(its > b.radii(), (size + a.radii()) / (its - b.radii()) * (1.0 + 4.0 * SLACK), np.inf)
    whole = np.floor(np.maximum(least, 0.0))
    sure = np.floor(most) == whole
    radius = np.where(sure, (a.radii() + whole * b.radii()) * (1.0 + 4.0 * SLACK), 2.0 * (its + b.radii()))
    radius = np.where((a.radii() + b.radii() == 0), 0.0, radius)
    return Ball(y, np.where(its > b.radii(), radius, np.where(np.isfinite(y), np.inf, radius)), contract)


def _bound_power(contract: Contract, a: Ball, b: Ball) -> Ball:
    """a^b; a negative base has integer exponents alone, and those without any error."""
    y = np.power(a.centre, b.centre)
    size, exponent = magnitude_of(a.centre), magnitude_of(b.centre)
    # log(a^b) moves by at most |log a| r_b + (|b| + r_b) times what log a moves.
    moved = np.where(a.radii() == 0, 0.0, of_log(size, a.radii(), y))
    scale = np.where(b.radii() == 0, 0.0, np.abs(np.log(size)) * b.radii()) + (exponent + b.radii()) * moved
    growth = np.expm1(scale * (1.0 + 8.0 * SLACK))
    growth = np.where((b.radii() > 0) & (a.centre - a.radii() <= 0), np.inf, growth)
    exact = (a.radii() == 0) & (b.radii() == 0)
    radius = np.where(exact, 0.0, np.where((y == 0) & np.isfinite(growth), 0.0, magnitude_of(y) * growth))
    # An integer power may be made of products, and the reciprocal of those.
    whole = np.where(b.centre == np.rint(b.centre), np.minimum(exponent, 64.0), 0.0)
    times = float(max(2.0 * contract.functions.ulps["power"], np.max(whole, initial=0.0)))
    return rounded(contract, y, np.where(np.isnan(radius) & np.isfinite(y), np.inf, radius), times=times)


RULES.update(
    {
        **{name: rule_of(name, value, _where_bounded(reach)) for name, (value, reach) in _ONE_ARGUMENT.items()},
        **{name: _step(getattr(np, name)) for name in ("floor", "ceil", "rint", "trunc", "sign")},
        "erf": _erf,
        "exp2": _exp2,
        "log2": _log2,
        "hypot": _hypot,
        "arctan2": _arctan2,
        "logaddexp": _logaddexp,
        "fmod": _fmod,
        "float_power": _bound_power,
    }
)
