"""The logarithm of the gamma function and the polygamma functions of balls.

Centres are mpmath's. What libraries do is add up parts that may be larger than what they make: ψ(x) is ψ(x + n), for an
n that makes that easy, minus 1/x + 1/(x + 1) + ..., and an x below 1/2 is reflected, ψ(x) = ψ(1 − x) − π cot πx, where
the product πx is rounded. So an error is one of the parts, which near a zero of the result are all there is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from mpmath import libmp

from ....reference import gamma
from ..contract import Contract
from .arithmetic import rounded
from .ball import RULES, Ball, magnitude_of
from .spread import SLACK

#: Largest error of the parts in ulps. CUDA documents 6 for lgamma outside of (−10.001, −2.264), where the reflection
#: cancels (CUDA C++ Programming Guide, mathematical functions), counted from the rounded result; SLEEF, which torch
#: takes on CPUs, 1 of a positive number. For the others nobody documents one: of 10,800 arguments torch 2.13 on CPUs is
#: off by 0.7 ulp of the parts at most for lgamma, by 2.6 for digamma, and by 2.9 for polygamma;
#: `tests/oracles/test_gamma_functions.py` holds it to this bound. Its trigamma of float64 numbers leaves out terms.
ULPS = 6.5
#: ψ(x + 10) for x < 10, twice, as a part of ψ(x): the sum of reciprocals is the difference of both.
_SHIFTED = 6.0
#: Relative errors of πx in units of u: of π, of the product, and some more for those of second order.
_OF_ARGUMENT = 3.0
#: How many terms of a sum libraries add up before they take the rest of it by a series.
_LAST = 10
#: How many terms of a series are added one by one before its integral is taken.
_TERMS = 8


def _of_numbers(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """A function of mpmath's raw numbers, of arrays of float64 or longdouble."""

    def of_array(x: Any) -> Any:
        wide = x.dtype == np.longdouble

        def value(number: Any) -> Any:
            head = float(number)
            raw = libmp.from_float(head)
            if wide and math.isfinite(head):
                raw = libmp.mpf_add(raw, libmp.from_float(float(number - head)))
            y = function(raw, 68)
            head = libmp.to_float(y, rnd="n")
            if not wide or not math.isfinite(head):
                return head
            return np.longdouble(head) + np.longdouble(libmp.to_float(libmp.mpf_sub(y, libmp.from_float(head))))

        return np.array([value(number) for number in x.ravel()], dtype=x.dtype).reshape(x.shape)

    return of_array


#: Where the series of ψ^(n) for large numbers begins, and the Bernoulli numbers B_2, B_4, ... in it.
_SHIFT = 32
_BERNOULLI = [
    np.longdouble(p) / np.longdouble(q)
    for p, q in ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510))
]
#: Relative error of a centre: of 32 sums of powers, each of which is off by some roundings of the longest float.
_OF_CENTRE = 2.0**-58

gammaln_centre = _of_numbers(gamma.log_gamma)


def polygamma_centre(order: int, x: Any) -> Any:
    """The centres of ψ^(n), as floats of the argument's type, within `_OF_CENTRE` of themselves."""
    raw = _of_numbers(functools.partial(gamma.polygamma, order))
    if not 0 < order <= len(_BERNOULLI):
        return raw(x)
    y = _of_positive(order, x.astype(np.longdouble)).astype(x.dtype)
    reflected = ~(x >= 0)
    if reflected.any():
        y = np.array(y)
        # Of an odd order both parts of a reflection have terms of one sign, and nothing cancels.
        y[reflected] = _reflected(order, x[reflected].astype(np.longdouble)) if order % 2 else raw(x[reflected])
    return y


def _reflected(order: int, x: Any) -> Any:
    """ψ^(n) of negative longdouble numbers, for an odd n; see `gamma.polygamma`."""
    angle = np.arctan(np.longdouble(1.0)) * 4 * (x - np.rint(x))
    cotangent, slope = np.cos(angle) / np.sin(angle), np.zeros_like(x)
    for coefficient in reversed(gamma.cotangent_slope(order)):
        slope = slope * cotangent + coefficient
    pole = (x == np.rint(x)) & np.isfinite(x)
    y = -_of_positive(order, 1 - x) - (4 * np.arctan(np.longdouble(1.0))) ** (order + 1) * slope
    return np.where(pole, np.inf, y)


def _of_positive(order: int, x: Any) -> Any:
    """ψ^(n) of longdouble numbers from zero on: ± n! Σ (x + k)^(−n − 1), the rest of it by Euler and Maclaurin.

    All terms that matter are positive. What the series leaves out is less than its next term (DLMF 2.10), which from 32
    on is below 2^-68 of the sum for all orders up to 8.
    """
    total = sum((x + k) ** -(order + 1) for k in range(_SHIFT))
    far = x + _SHIFT
    rest = (far**-order) / order + far ** -(order + 1) / 2
    rising = 1.0
    for j, bernoulli in enumerate(_BERNOULLI, 1):
        # B_2j / (2j)! (n + 1) (n + 2) ... (n + 2j − 1)
        rising *= (order + 2 * j - 1) * ((order + 2 * j - 2) if j > 1 else 1.0) / ((2 * j) * (2 * j - 1))
        rest = rest + bernoulli * rising * far ** -(order + 2 * j)
    return (1 if order % 2 else -1) * math.factorial(order) * (total + rest)


def _largest_sum(x: Any, order: int) -> Any:
    """A bound on |ψ^(n)(x)| = n! Σ (x + k)^(−n − 1) for n > 0 and x > 0."""
    terms = sum((x + k) ** -(order + 1.0) for k in range(_TERMS))
    rest = x + _TERMS
    return math.factorial(order) * (terms + rest**-order / order + rest ** -(order + 1.0)) * (1.0 + 32.0 * SLACK)


def _largest(order: int, x: Any) -> Any:
    """A bound on |ψ^(n)(x)| from the float64 number x; infinite at a pole."""
    below = x - np.floor(x)
    if order:
        either = _largest_sum(np.where(x > 0, x, below), order)
        return np.where(x > 0, either, either + _largest_sum(1.0 - below, order))
    reflected = np.where(x > 0, x, 1.0 - x)
    far = reflected + _TERMS
    # ψ(x) lies between log x − 1/x and log x − 1/(2x), DLMF 5.11.2; the sum is exact but for roundings.
    sums = sum(1.0 / (reflected + k) for k in range(_TERMS))
    at_most = np.abs(np.log(far) - 0.75 / far - sums) + 0.25 / far
    pole = np.where(x > 0, 0.0, math.pi / np.abs(np.tan(math.pi * below)))
    # Roundings are those of the sums, and of a distance to the pole, which `_reach` moves outwards.
    return (at_most + pole) * (1.0 + 2.0**-30) + 2.0**-30


def _reach(order: int, c: Any, r: Any) -> Any:
    """How far ψ^(n) is from its value at c within r: between poles its slope is largest in magnitude at an end.

    For ψ^(n + 1) is convex between two poles where n + 1 is odd, and rises or falls there where it is even.
    """
    c = np.asarray(c, dtype=np.float64)
    r = r + np.where(r > 0, np.abs(c) * 2.0**-50, 0.0)
    low, high = c - r, c + r
    clear = (low > 0) | ((np.floor(low) == np.floor(high)) & (np.floor(low) < low))
    slope = np.maximum(_largest(order + 1, low), _largest(order + 1, high))
    return np.where(r > 0, np.where(clear, r * slope, np.where(np.isfinite(c), np.inf, 0.0)), 0.0)


def _gammaln(contract: Contract, x: Ball) -> Ball:
    y = gammaln_centre(x.centre)
    radius = _reach(-1, x.centre, x.radii())
    beyond = np.where(np.asarray(x.centre) < 0, 1.0 - np.asarray(x.centre, dtype=np.float64), 1.0)
    parts = np.where(np.isfinite(beyond), 2.0 * np.abs(gammaln_centre(np.minimum(beyond, 2.0**1000))), 0.0)
    return _rounded(contract, y, radius, parts)


def _polygamma(contract: Contract, x: Ball, order: int) -> Ball:
    y = polygamma_centre(order, x.centre)
    reflected = np.asarray(x.centre) < 0.5
    moved = np.where(reflected, magnitude_of(x.centre) * (_OF_ARGUMENT * contract.roundoff), 0.0)
    radius = _reach(order, x.centre, x.radii() + np.where(np.isfinite(moved), moved, 0.0))
    # |ψ^(n)(1/2)| is n! (2^(n + 1) − 1) ζ(n + 1), and of the sums on both sides of x the lesser one is at most that.
    if order > 1:
        # n! ζ(n + 1, x), of which the rest behind a sum is x^(−n − 1) times x / n; that power may be subnormal.
        tiny = contract.accumulate.smallest_normal if contract.flush else contract.accumulate.eta
        size = np.where(np.isfinite(x.centre), magnitude_of(x.centre), 0.0)
        rest = 2.0 * math.factorial(order) * (size / order + _SHIFT) * tiny
        # The x + k of the sum are rounded one after another, some ten times.
        radius = radius + rest + _LAST * (order + 1) * contract.roundoff * _largest_sum(size + 1.0, order)
    both = 2.0 * math.factorial(order) * 2.0 ** (order + 1) * 1.65
    return _rounded(contract, y, radius, (np.where(reflected, both, 0.0) if order else _SHIFTED), _OF_CENTRE)


def _rounded(contract: Contract, y: Any, radius: Any, parts: Any, centre: float = 0.0) -> Ball:
    lost = np.where(np.isfinite(y), parts * (2.0 * ULPS * contract.roundoff) + magnitude_of(y) * centre, 0.0)
    return rounded(contract, y, np.asarray(radius + lost, dtype=np.float64), times=2.0 * ULPS)


RULES.update({"gammaln": _gammaln, "polygamma": _polygamma})
