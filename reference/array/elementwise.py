"""The words of a formula that are elementwise: functions, comparisons, choices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from mpmath.libmp import from_float, to_float

from ..algorithms import STORED, Algorithm
from ..condition import Condition, NanComparison
from ..gamma import log_gamma
from ..gamma import polygamma as polygamma_of
from .constants import Precise
from .kind import ELEMENTWISE, SPECIAL, WORDS, Array, among, bind, constant, store

#: Bits of a float, and some more.
_DIGITS = 60


def _elementwise(primitive: str) -> Callable[..., Array]:
    return lambda *operands: bind(primitive, operands, {})


def _comparison(ufunc: np.ufunc) -> Callable[..., Any]:
    def rule(a: Any, b: Any) -> Any:
        # A comparison chooses a branch, and a choice has no derivative: it is made on the values under all levels, and
        # gives no array of the reading but a NumPy array of truth values.
        reading = constant(a) if isinstance(a, Array) else constant(b)
        left, right = (constant(x) if isinstance(x, Array) else reading.lift(x) for x in (a, b))
        return left.compare(ufunc, right)

    return rule


def _power(x: Any, exponent: Any) -> Array:
    if isinstance(exponent, Array) and not isinstance(x, Array) and np.ndim(x) == 0 and x == 2:
        return bind("exp2", (exponent,), {})
    if isinstance(exponent, Array) or np.ndim(exponent):
        return bind("float_power", (x, exponent), {})
    if exponent in (0.0, 1.0):  # x^0 is the constant 1 and x^1 is x: no rounding, and no singularity of a derivative
        power: Array = x if exponent else x.lift(np.ones(x.shape))
        return power
    return bind("power", (x,), {"exponent": exponent if isinstance(exponent, Precise) else float(exponent)})


def choose(condition: Any, a: Any, b: Any, share: Any = 0.5) -> Array:
    """`a` where the condition holds, else `b`.

    Where the condition is open, an evaluation may give anything from `a` to `b`, and the exact reading gives `share` of
    `a` and the rest of `b`. That is how a slope at a kink is stated.
    """
    of_reading = isinstance(condition, (Condition, NanComparison))
    of_reading = of_reading or (isinstance(condition, Array) and condition.is_condition)
    truth = condition if of_reading else np.asarray(condition, dtype=bool)
    return bind("where", (a, b), {"condition": truth, "share": share})


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(−x)), whose slope is evaluated from the result y as y (1 − y)."""
    return bind("sigmoid", (x,), {}) if isinstance(x, Array) else 1.0 / (1.0 + np.exp(-np.asarray(x)))


def of_floats(function: Callable[[float], float], x: Any) -> Any:
    """A function of one number at every element of an array of float64; it takes half the time of `numpy.vectorize`."""
    x = np.asarray(x, dtype=np.float64)
    return np.fromiter(map(function, x.reshape(-1).tolist()), np.float64, x.size).reshape(x.shape)


def erf(x: Any, absolute: bool = False) -> Any:
    """The error function 2/√π ∫₀ˣ exp(−t²) dt.

    Args:
        x: an array.
        absolute: whether an evaluation may use an approximation that is good to an absolute error alone, which suits
            1 + erf(x) and nothing that needs the digits of a small erf(x).
    """
    return bind("erf", (x,), {"absolute": absolute}) if isinstance(x, Array) else of_floats(math.erf, x)


def erfc(x: Any) -> Any:
    """1 − erf(x), without cancellation for large x."""
    return bind("erfc", (x,), {}) if isinstance(x, Array) else of_floats(math.erfc, x)


def gammaln(x: Any) -> Any:
    """log |Γ(x)|."""
    if isinstance(x, Array):
        return bind("gammaln", (x,), {})
    return of_floats(lambda number: to_float(log_gamma(from_float(number), _DIGITS)), x)


def polygamma(order: int, x: Any) -> Any:
    """The derivative of log Γ(x) of order n + 1: digamma for n = 0, trigamma for n = 1.

    Raises:
        ValueError: the order is negative.
    """
    if order < 0:
        raise ValueError(f"polygamma: got n={order}, need n >= 0")
    if isinstance(x, Array):
        return bind("polygamma", (x,), {"order": int(order)})
    return of_floats(lambda number: to_float(polygamma_of(order, from_float(number), _DIGITS)), x)


def polygamma_in(dtype: str, order: int, x: Any) -> Any:
    """`polygamma` of a framework that may store in a format what it multiplies: ζ(n + 1, x), and n! from its logarithm.

    Args:
        dtype: torch's name of the format; "" where nothing is stored. order, x: see `polygamma`.
    """
    if not dtype or order < 2 or not isinstance(x, Array):  # A factor 1 rounds nothing.
        return polygamma(order, x)
    size = float(math.factorial(order))

    def by_parts(x: Any) -> Any:
        factor = store(np.exp(store(constant(x).lift(math.log(size)), dtype, always=False)), dtype, always=False)
        return store(polygamma(order, x) / size, dtype, always=False) * factor

    return among([Algorithm(lambda x: polygamma(order, x), ""), Algorithm(by_parts, STORED)], x)


#: The primitives that are functions of NumPy; its power is another one, by its exponent.
_UFUNCS = [each for each in (getattr(np, name, None) for name in ELEMENTWISE) if isinstance(each, np.ufunc)]
_COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)

WORDS.update({ufunc: _elementwise(ufunc.__name__) for ufunc in _UFUNCS})
WORDS.update({ufunc: _comparison(ufunc) for ufunc in _COMPARISONS})
WORDS.update({np.power: _power, np.where: lambda condition, a, b: choose(condition, a, b)})
SPECIAL.update(
    {
        "erf": erf,
        "erfc": erfc,
        "expit": sigmoid,
        "gammaln": gammaln,
        "psi": lambda x: polygamma(0, x),
        "log_expit": lambda x: -np.logaddexp(0.0, -x),
        "logit": lambda x: np.log(x / (1.0 - x)),
        "xlogy": lambda x, y: choose(np.equal(x, 0.0), 0.0, x * np.log(choose(np.equal(x, 0.0), 1.0, y))),
        "cbrt": WORDS[np.cbrt],
        "exp2": WORDS[np.exp2],
        "expm1": WORDS[np.expm1],
        "log1p": WORDS[np.log1p],
    }
)
