"""Aten operations that are elementwise."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from ....reference.algorithms import STORED, Algorithm, Inapplicable
from ....reference.array import (
    Array,
    among,
    attach,
    attach_slopes,
    constant,
    erf,
    erfc,
    gammaln,
    order_of,
    polygamma,
    polygamma_in,
    sigmoid,
    store,
)
from ....reference.condition import condition, is_open, possibly, surely
from ....reference.derivative import format_of_steps
from .table import DECOMPOSED, Rule, enter, may_store, with_numbers

#: A float32 number that needs at most 16 of its 24 bits, such as 0.75, is taken to be what was written, not rounded.
_FEW_DIGITS = 2.0**16


def _identity(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


def _with_alpha(f: Rule) -> Rule:
    f = with_numbers(f)
    return lambda a, b, alpha=1: f(a, b if alpha == 1 else b * alpha)


def _scalar(x: Any, number: float) -> Any:
    """A number beside a tensor x, which torch makes a tensor of x's dtype."""
    return store(constant(x).lift(float(number)), always=False) if isinstance(x, Array) else number


def recover_decimal(number: Any) -> Any:
    """A number that somebody wrote, where torch hands it over as a float32 one: 10⁻⁶ in rms_norm, for example.

    Of a float32 number of many digits it is the shortest decimal that rounds to it.
    """
    if not isinstance(number, float) or float(np.float32(number)) != number:
        return number
    return float(str(np.float32(number))) if (np.frexp(number)[0] * _FEW_DIGITS) % 1.0 else number


def _read_power(x: Any, exponent: Any) -> Any:
    """A constant power: torch takes some exponents by functions of their own, as a square root."""
    special: dict[float, Rule] = {2: np.square, 0.5: np.sqrt, -0.5: lambda x: 1.0 / np.sqrt(x)}
    whole: Rule = special[exponent] if exponent in special else lambda x: np.power(x, exponent)
    # Some kernels of half types store the intermediate results of a power.
    in_steps: dict[float, Rule] = {
        3: lambda x: may_store(np.square(x)) * x,
        -2: lambda x: 1.0 / may_store(np.square(x)),
        -0.5: lambda x: 1.0 / may_store(np.sqrt(x)),
    }
    return among([Algorithm(whole, ""), Algorithm(in_steps[exponent], STORED)], x) if exponent in in_steps else whole(x)


# Of a spec in torch's words the slope at a kink is the one that torch takes there, and no other.


def _clamp(x: Any, least: Any = None, most: Any = None) -> Any:
    if isinstance(least, Array) and isinstance(most, Array) and not _has_slope_between():
        least = _without_slope_between(least, most)
    x = x if least is None else np.where(x < least, least, _with_nan_of(least, x))
    return x if most is None else np.where(x > most, most, _with_nan_of(most, x))


def _with_nan_of(bound: Any, x: Any) -> Any:
    """`x`, or NaN where a bound is NaN."""
    lost = np.isnan(constant(bound))
    return np.where(lost, np.nan, x) if np.any(possibly(lost)) else x


def _without_slope_between(least: Any, most: Any) -> Any:
    return np.where(least == most, constant(least), least)


@functools.cache
def _has_slope_between() -> bool:
    """Whether `clamp` between equal ends has a slope in the lower one, for what lies below: torch 2.13 has none."""
    with torch.enable_grad(), torch.inference_mode(False):
        least = torch.ones(1, requires_grad=True)
        (slope,) = torch.autograd.grad(torch.clamp(torch.zeros(1), least, torch.ones(1)), least)
    return bool(slope)


def _sign(x: Any) -> Any:
    """The sign of a number; of a NaN it is NaN, or 0 by (x > 0) − (x < 0), as torch has it, which no document says."""
    ways: list[Rule] = [lambda x: np.where(np.isnan(x), 0.0, np.sign(x)), np.sign]
    return among([Algorithm(way, "") for way in ways], x)


def _share_slope(extreme: np.ufunc) -> Rule:
    """A maximum or minimum of two whose slope is shared by operands that are equal."""
    return lambda a, b: np.where(a == b, 0.5 * a + 0.5 * b, extreme(a, b))


def _times_logarithm(log: Rule, shift: float) -> Rule:
    """x log(shift + y), which is 0 for x = 0 whatever y is, although it moves as the logarithm where that is a number.

    Args:
        log: of y, with the shift in it.
    """

    def divisor(y: Any) -> Any:
        return may_store(y + shift) if shift else y

    def is_nothing(x: Any, y: Any) -> Any:
        endless = np.logical_or(np.less_equal(y, -shift), np.equal(y, np.inf))
        return np.logical_and(np.equal(x, 0.0), endless)

    def as_it_reads(x: Any, y: Any) -> Any:
        nothing = is_nothing(x, y)
        x, y = (t if isinstance(t, Array) else np.asarray(t, dtype=np.float64) for t in (x, y))
        product: list[Rule] = [lambda x, y: x * log(y), lambda x, y: x * may_store(log(y))]
        ways = [Algorithm(way, name) for way, name in zip(product, ("", STORED), strict=True)]
        return np.where(nothing, 0.0, among(ways, x, np.where(nothing, 1.0, y)))

    def by_quotient(x: Any, y: Any) -> Any:
        """With the slope x / (shift + y) in y, which torch takes where both are 0, too, where it is NaN."""
        p, q = constant(x), constant(y)
        # Of an infinite y the value at x = 0 is 0, and the slope in x is infinite all the same.
        nothing = np.logical_and(np.equal(p, 0.0), np.less_equal(q, -shift))
        slope = np.where(nothing, 0.0, log(np.where(nothing, 1.0, q)))
        return attach_slopes(as_it_reads(p, q), (x, slope), (y, p / divisor(q)))

    def at_the_edge(x: Any, y: Any) -> Any:
        """With second derivatives of the product alone: where both are 0 it has none."""
        product = x * log(y)
        if order_of(product) < 2:
            raise Inapplicable
        return attach(as_it_reads(constant(x), constant(y)), product, always=True)

    return lambda x, y: among([Algorithm(way, "") for way in (as_it_reads, by_quotient, at_the_edge)], x, y)


_xlogy, _xlog1py = _times_logarithm(np.log, 0.0), _times_logarithm(np.log1p, 1.0)


def _copysign(x: Any, sign: Any) -> Any:
    """copysign by the sign bit. The sign of a zero is known only of inputs that no arithmetic has changed."""
    sign = torch.as_tensor(sign, dtype=x.dtype)
    return torch.where(sign.signbit(), -x.abs(), x.abs())


def _is_truth(x: Any) -> bool:
    return is_open(x) or (isinstance(x, np.ndarray) and x.dtype.kind == "b")


def _multiply(a: Any, b: Any) -> Any:
    """A product; of truth values it is their conjunction, as torch has it in isfinite."""
    return np.logical_and(a, b) if _is_truth(a) and _is_truth(b) else np.multiply(a, b)


def truth_of(x: Any) -> Any:
    """A number as a truth value: whether it is not zero."""
    return x if _is_truth(x) else np.not_equal(x, 0)


def _of_truths(f: Rule) -> Rule:
    return lambda *xs: f(*map(truth_of, xs))


def _exclusive(a: Any, b: Any) -> Any:
    return np.logical_and(np.logical_or(a, b), np.logical_not(np.logical_and(a, b)))


def _is_negative(x: Any) -> Any:
    """Whether a sign is set; that of a zero and of a NaN depends on how they came about, which no reading knows."""
    below, not_above = np.less(x, 0.0), np.logical_not(np.greater(x, 0.0))
    return condition(surely(below), possibly(not_above), constant(x))


def _floor_divide(a: Any, b: Any) -> Any:
    """The floor of a quotient; a finite number over an infinity of the other sign gives −1 and not the floor of −0."""
    # A step has slope 0 wherever it is, and torch does not ask how the quotient moves.
    a, b = constant(a), constant(b)
    quotient = np.floor(store(np.divide(a, b), always=False))
    beyond = np.logical_and(np.equal(np.absolute(b), np.inf), np.less(np.absolute(a), np.inf))
    below = np.logical_or(*(np.logical_and(np.less(x, 0.0), np.greater(y, 0.0)) for x, y in ((a, b), (b, a))))
    # Python, NumPy and torch take a remainder first, of which nothing is left where the dividend is infinite.
    quotient = np.where(np.logical_and(beyond, below), -1.0, quotient)
    return np.where(np.equal(np.absolute(a), np.inf), np.nan, quotient)


def _divide(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return np.divide(a, b)
    if rounding_mode == "floor":
        return _floor_divide(a, b)
    return np.trunc(store(np.divide(constant(a), constant(b)), always=False))


def _times_power_of_two(x: Any, exponent: Any) -> Any:
    known = not isinstance(exponent, Array) and np.asarray(exponent).dtype.kind in "iu"
    return x * (np.ldexp(1.0, exponent) if known else np.exp2(exponent))


#: Functions of one argument that torch and NumPy name alike, or by another name.
_NAMES = {
    **{name: name for name in ("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "square")},
    **{name: name for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil", "trunc")},
    **{name: name for name in ("isnan", "isinf", "isfinite")},
    **{"atan": "arctan", "atanh": "arctanh", "round": "rint", "neg": "negative", "_neg_view": "negative"},
}
enter({name: getattr(np, word) for name, word in _NAMES.items()})
enter({"copysign.Tensor copysign.Scalar": _copysign}, DECOMPOSED)
enter(
    {
        # A formula is about real numbers. So operations that change only the dtype, the memory or the graph leave a
        # value as it is, and the rounding that comes with a dtype is the business of the contract.
        "clone alias _to_copy lift_fresh lift_fresh_copy contiguous positive resolve_neg resolve_conj": _identity,
        "add.Tensor add.Scalar": _with_alpha(np.add),
        "sub.Tensor sub.Scalar": _with_alpha(np.subtract),
        "rsub.Scalar rsub.Tensor": lambda a, b, alpha=1: b - (a if alpha == 1 else a * alpha),
        "mul.Tensor mul.Scalar": with_numbers(_multiply),
        "div.Scalar": with_numbers(np.divide),
        "div.Tensor_mode div.Scalar_mode": _divide,
        "gt.Scalar gt.Tensor": np.greater,
        "ge.Scalar ge.Tensor": np.greater_equal,
        "lt.Scalar lt.Tensor": np.less,
        "le.Scalar le.Tensor": np.less_equal,
        "eq.Scalar eq.Tensor": np.equal,
        "ne.Scalar ne.Tensor": np.not_equal,
        "logical_not bitwise_not": _of_truths(np.logical_not),
        "logical_and bitwise_and.Tensor": _of_truths(np.logical_and),
        "logical_or bitwise_or.Tensor": _of_truths(np.logical_or),
        "logical_xor bitwise_xor.Tensor": _of_truths(_exclusive),
        "fmod.Tensor": np.fmod,
        "fmod.Scalar": lambda a, b: np.fmod(a, _scalar(a, b)),
        "remainder.Tensor remainder.Scalar_Tensor": np.remainder,
        "remainder.Scalar": lambda a, b: np.remainder(a, _scalar(a, b)),
        "floor_divide floor_divide.Scalar": _floor_divide,
        "xlogy.Tensor xlogy.Scalar_Self xlogy.Scalar_Other": _xlogy,
        "special_xlog1py special_xlog1py.self_scalar special_xlog1py.other_scalar": _xlog1py,
        "sign sgn": _sign,
        "where.self where.ScalarOther where.ScalarSelf": np.where,
        "abs": lambda x: np.where(x == 0, 0.0, np.absolute(x)),
        "reciprocal": lambda x: 1.0 / x,
        "erf": erf,
        "erfc": erfc,
        "lgamma": gammaln,
        "digamma": lambda x: polygamma(0, x),
        "polygamma": lambda order, x: polygamma_in(format_of_steps(), order, x),
        "sigmoid": sigmoid,
        "pow.Scalar": lambda base, x: np.power(_scalar(x, base), x),
        "pow.Tensor_Tensor": np.power,
        "pow.Tensor_Scalar": _read_power,
        "ldexp.Tensor": _times_power_of_two,
        "round.decimals": np.round,
        "signbit": _is_negative,
        "fmax": lambda a, b: np.where((a >= b) | np.isnan(b), a, b),
        "fmin": lambda a, b: np.where((a <= b) | np.isnan(b), a, b),
        "relu": lambda x: np.where(x <= 0, 0.0, x),
        "clamp clamp.Tensor clamp_min clamp_min.Tensor": _clamp,
        "clamp_max clamp_max.Tensor": lambda x, most: _clamp(x, None, most),
        "maximum": _share_slope(np.maximum),
        "minimum": _share_slope(np.minimum),
    }
)
