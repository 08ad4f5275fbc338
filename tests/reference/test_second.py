"""The second reading: intervals hold the truth, jets are derivatives, and both readings agree on every primitive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpmath import libmp

from opassay.oracles.op.transforms import FIRST, REFERENCE, SECOND, THIRD, Word
from opassay.oracles.op.transforms import along as along_tapes
from opassay.reference.array import bind, constant, fourier, one_less, sigmoid
from opassay.reference.derivative import rules
from opassay.reference.exact import evaluate, functions, numbers
from opassay.reference.softmax import softmax
from workshop.checking.comparing import compare_element, interval_of
from workshop.second import Undecided, along, enclosures, precision
from workshop.second.functions import UNARY
from workshop.second.intervals import (
    ONE,
    add,
    divide,
    multiply,
    point,
    subtract,
)

Formula = Callable[..., Any]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def _findings(formula: Formula, word: Word, operands: list[Any], outputs: int = 1) -> set[str]:
    """What the two readings say of each other along a word, whose directions follow the operands of the formula."""
    rng = np.random.default_rng(len(word))
    inputs = len(operands)
    shapes, outs = [np.shape(x) for x in operands], [np.shape(formula(*operands))] * outputs
    for step in word:
        shapes, outs = (shapes * 2, outs) if step == "jvp" else (shapes + outs, shapes)
    arguments = [*operands, *(rng.standard_normal(shape) for shape in shapes[inputs:])]
    first, _ = evaluate(along_tapes(REFERENCE, word, formula, inputs, outputs), *arguments)
    second = enclosures(along(word, formula, inputs, outputs), *arguments)
    return {
        compare_element(raw, interval, other.scale, len(word)).kind
        for mine, other in zip(first, second, strict=True)
        for raw, interval in zip(mine.values.ravel(), other.intervals.ravel(), strict=True)
    }


_ANY, _POSITIVE = np.array([-1.7, -0.3, 0.011, 0.4, 2.3]), np.array([1e-5, 0.2, 0.9, 1.1, 40.0])
_INSIDE, _ABOVE = np.array([-0.9, -0.2, 0.3, 0.99]), np.array([1.2, 2.5, 30.0])
_UNARY: dict[str, Any] = {
    **dict.fromkeys(
        ("absolute", "square", "exp", "expm1", "tanh", "sigmoid", "sin", "cos", "tan", "arctan", "sinh", "cosh",
         "arcsinh", "exp2", "cbrt", "erf", "erfc", "floor", "ceil", "rint", "trunc", "sign", "negative",
         "gammaln", "polygamma"), _ANY
    ),
    **dict.fromkeys(("sqrt", "log", "log1p", "log2", "log10"), _POSITIVE),
    **dict.fromkeys(("arcsin", "arccos", "arctanh"), _INSIDE),
    "arccosh": _ABOVE,
}  # fmt: skip
_PARAMS: dict[str, dict[str, Any]] = {"erf": {"absolute": False}, "polygamma": {"order": 1}}
_BINARY = ("add", "subtract", "multiply", "divide", "hypot", "arctan2", "logaddexp", "fmod", "maximum", "minimum")


@pytest.mark.parametrize("name", [*_UNARY, *_BINARY, "power", "float_power"])
def test_the_readings_agree_on_every_primitive_and_its_derivatives(name: str) -> None:
    operands = [_UNARY[name]] if name in _UNARY else [_POSITIVE, _ANY]

    def formula(*operands: Any) -> Any:
        if not hasattr(operands[0], "apply"):
            return operands[0]  # only the shape is asked for
        if name == "power":
            return np.power(operands[0], 0.1) * np.power(operands[1], -2.0)
        return bind(name, operands, _PARAMS.get(name, {}))

    for word in ((), *FIRST, *SECOND, THIRD[0]):
        assert _findings(formula, word, operands) == {"agree"}, word


def test_the_readings_agree_on_fourier_transforms() -> None:
    x = np.random.default_rng(5).standard_normal((2, 3, 2))

    def formula(x: Any) -> Any:
        return fourier(fourier(x, (0, 1), power=1) * x, (1,), inverse=True, power=2)

    for word in ((), *FIRST):
        assert _findings(formula, word, [x]) == {"agree"}, word


def test_words_of_every_nesting_are_the_same_derivatives() -> None:
    x = np.random.default_rng(1).standard_normal((2, 3))
    for word in (*FIRST, *SECOND, *THIRD):
        assert _findings(lambda x: softmax(x, -1), word, [x]) == {"agree"}, word


def test_the_slope_of_a_power_has_an_exponent_that_no_float_holds() -> None:
    exponent = one_less(-0.1)
    assert exponent == -1.1
    assert exponent + 0.0 != one_less(exponent) + 1.0 or hasattr(exponent, "low")
    assert _findings(lambda x: np.power(x, -0.1), ("vjp",), [np.array([1e-30, 1e30])]) == {"agree"}


def test_ties_and_kinks_have_the_middle_slope() -> None:
    # Of three equal elements the exact reading says the float nearest to a third; any part of the slope is right there.
    tied = np.array([2.0, 1.0, 2.0, 1.5])
    for formula in (np.max, lambda x: np.maximum(x, 2.0), lambda x: np.absolute(x - 2.0)):
        assert _findings(formula, ("vjp",), [tied]) == {"agree"}


def test_special_values_are_those_of_ieee_754() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 5e-324, 1.7e308])
    formulas: list[Formula] = [
        lambda x: 1.0 / x, lambda x: x - x, lambda x: x * 0.0, lambda x: np.log(x), lambda x: np.sqrt(x),
        lambda x: np.exp(x), lambda x: np.tanh(x), sigmoid, lambda x: np.power(x, -3.0), lambda x: np.max(x),
        lambda x: np.where(x > 0, x, 0.0), lambda x: x / x, lambda x: np.arctan(x), lambda x: np.log1p(x),
    ]  # fmt: skip
    for formula in formulas:
        assert _findings(formula, (), [x]) == {"agree"}


def test_a_zero_by_cancellation_and_a_difference_that_needs_a_high_precision() -> None:
    assert _findings(lambda x: np.sum(x - np.mean(x)), (), [np.array([1.0, 2.0, 4.0]) / 7]) == {"agree"}
    (ball,) = enclosures(lambda x: (1.0 + x) - 1.0, np.array([2.0**-1000]))
    assert ball.bits > 1000
    assert ball.intervals[0] == 2.0**-1000


def test_a_comparison_that_no_precision_decides_is_told() -> None:
    with pytest.raises(Undecided):
        enclosures(lambda x: np.where(x / 3.0 * 3.0 > x, x, 0.0), np.array([0.1]))


def test_intervals_contain_the_truth_and_are_rounded_outwards() -> None:
    with precision(60):
        third = divide(ONE, point(3.0))
        assert third.lower() < third.upper()
        assert multiply(third, point(3.0)).contains(1)
        assert not multiply(third, point(3.0)).is_exact()
        around = point(0.5, 1.5)
        assert UNARY["square"](around).contains(4)
        assert UNARY["square"](around) < 4.001
        assert UNARY["square"](around) >= 0
        assert UNARY["sin"](point(1.5, 0.5)).contains(1)
        assert UNARY["cos"](point(3.5, 0.5)).contains(-1)


def test_constants_carry_no_derivative() -> None:
    x = np.array([1.0, 2.0])
    assert _findings(lambda x: x * constant(x), ("vjp",), [x]) == {"agree"}
    (ball,) = enclosures(along(("jvp",), lambda x: x * constant(x), 1, 1), x, x)
    assert ball.intervals.tolist() == [1.0, 4.0]


# ------------------------------------------------------------------------------------------------- planted faults


def test_a_wrong_value_of_the_exact_reading_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = libmp.mpf_tanh

    def wrong(x: Any, prec: int, rnd: str = "n") -> Any:
        return libmp.mpf_mul(right(x, prec, rnd), libmp.from_float(1.0 + 2.0**-50))

    monkeypatch.setattr(libmp, "mpf_tanh", wrong)
    numbers.primitives_at.cache_clear()
    try:
        assert "disagree" in _findings(lambda x: np.tanh(x), (), [_ANY])
    finally:
        numbers.primitives_at.cache_clear()


@pytest.mark.parametrize("name", ["tanh", "log1p", "sqrt", "divide"])
def test_a_wrong_derivative_rule_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    first, *others = rules.DIAGONAL[name]

    def doubled(g: Any, y: Any, xs: Any, params: Any) -> Any:
        return first(g, y, xs, params) * (1.0 + 2.0**-40)

    monkeypatch.setitem(rules.DIAGONAL, name, (doubled, *others))
    operands = [_POSITIVE, _POSITIVE] if name == "divide" else [_POSITIVE]
    formula: Formula = np.divide if name == "divide" else lambda x: getattr(np, name)(x)
    for word in FIRST:
        assert "disagree" in _findings(formula, word, operands)


def test_a_wrong_word_is_seen() -> None:
    """A function of NumPy that the words would make another one of: NumPy's own runs in the second reading."""
    x = np.array([1.0, 2.0, 4.0])
    (first,), _ = evaluate(lambda x: np.var(x, ddof=1), x)
    (second,) = enclosures(lambda x: np.var(x), x)
    assert compare_element(first.values[()], second.intervals[()], second.scale, 0).kind == "disagree"


# ------------------------------------------------------------------------------- historical bugs of mpmath and gmpy2

#: What an old release gave, from its issue: (primitive, argument, bits of precision, the wrong result). The installed
#: releases are right at all of them.
HISTORICAL = {
    "mpmath #164, log of a tiny number at 2000 digits": ("log", 1e-100, 6650, "-5.65627e2091"),
    "mpmath #73, exp(-1) at 512 digits": ("exp", -1.0, 1704, "2.7182818284590452"),
    "gmpy2 #82, atanh was asin": ("arctanh", 0.5, 200, "0.52359877559829893"),
}


@pytest.mark.parametrize("bug", HISTORICAL)
def test_old_wrong_results_lie_outside_and_those_of_today_inside(bug: str) -> None:
    name, argument, bits, wrong = HISTORICAL[bug]
    with precision(bits):
        interval = UNARY[name](point(argument))
        assert not interval.contains(point(wrong))
        today = {**functions.unary(bits), "log": functions.log, "exp": libmp.mpf_exp}[name]
        number = libmp.from_float(argument)
        raw = today(number) if name == "arctanh" else today(number, bits)
        assert compare_element(raw, interval, 0, 0).kind == "agree"
        old = libmp.from_str(wrong, bits, "n")
        assert compare_element(old, interval, 0, 0).kind == "disagree"


def test_sums_of_far_apart_numbers_are_rounded_to_the_right_side() -> None:
    """mpmath #200: −1 + 9867 2^−200, rounded towards zero to 10 bits, was −1."""
    with precision(300):
        exact = subtract(point((9867, -200)), ONE)
    with precision(10):
        rounded = add(point((9867, -200)), -ONE)
    assert exact.is_exact()
    assert rounded.contains(exact)
    assert not rounded.is_exact()


def test_an_exponential_that_the_installed_mpmath_rounds_to_the_wrong_side() -> None:
    """mpmath #1181: exp(−2^−53), rounded up to 53 bits, is 1; releases up to 1.4 give 1 − 2^−53, half an ulp below.

    The exact reading never trusts the last place: it takes two precisions that agree to half of their bits.
    """
    argument = (1, 1, -53, 1)
    theirs = libmp.mpf_exp(argument, 53, "u")
    with precision(53):
        rounded = UNARY["exp"](interval_of(argument))
    with precision(200):
        exact = UNARY["exp"](interval_of(argument))
        assert rounded.lower() < exact < rounded.upper()
        off = interval_of(theirs) < exact
    assert off == (libmp.to_float(theirs) < 1.0), "either the bug is there, or the result is the upper end"
