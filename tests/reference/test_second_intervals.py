"""Intervals of arb on the extended real line: where arb's rule is another one, and that no interval misses a value."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import flint
import numpy as np
import pytest

from opassay.reference.array import bind
from opassay.reference.exact import DEFAULT_PRECISION, evaluate
from workshop.checking.comparing import STATED_BITS, interval_of
from workshop.second import Interval, Undecided, enclosures, intervals, precision
from workshop.second.functions import BINARY, UNARY
from workshop.second.intervals import (
    INFINITY,
    NAN,
    ONE,
    WHOLE,
    ZERO,
    Function,
    below,
    equal,
    extended,
    is_point,
    point,
)

arb = flint.arb
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
FUNCTIONS: dict[str, Function] = {
    **UNARY, **BINARY, **{name: getattr(intervals, name) for name in ("add", "subtract", "multiply", "divide")},
}  # fmt: skip
_MINUS, _AROUND = -INFINITY, point(0, 1)


def _same(x: Interval, y: Interval) -> bool:
    """Whether two intervals are one point, both NaN, or both unknown."""
    if x.is_nan() or y.is_nan() or not (is_point(x) and is_point(y)):
        return bool(x.is_nan() == y.is_nan() and is_point(x) == is_point(y) and x.is_finite() == y.is_finite())
    return bool(x == y)


#: What is asked, what arb answers, and what IEEE 754 says, or what is known.
_OTHER_RULES: dict[str, tuple[Any, str, tuple[Interval, ...], Interval]] = {
    "a quotient by zero": (arb.__truediv__, "divide", (ONE, ZERO), INFINITY),
    "a negative quotient by zero": (arb.__truediv__, "divide", (-ONE, ZERO), _MINUS),
    "a sum of an infinity and an interval": (arb.__add__, "add", (INFINITY, _AROUND), INFINITY),
    "log at its pole": (arb.log, "log", (ZERO,), _MINUS),
    "log1p at its pole": (arb.log1p, "log1p", (-ONE,), _MINUS),
    "arctanh at its pole": (arb.atanh, "arctanh", (ONE,), INFINITY),
    "erf at infinity": (arb.erf, "erf", (INFINITY,), ONE),
    "erfc at minus infinity": (arb.erfc, "erfc", (_MINUS,), 2 * ONE),
    "floor at infinity": (arb.floor, "floor", (INFINITY,), INFINITY),
    "sin at infinity": (arb.sin, "sin", (INFINITY,), NAN),
    "arcsin of NaN": (arb.asin, "arcsin", (NAN,), NAN),
    "sign of NaN": (arb.sgn, "sign", (NAN,), NAN),
    "1 to the power NaN": (arb.__pow__, "power", (ONE, NAN), ONE),
    "1 to the power infinity": (arb.__pow__, "power", (ONE, INFINITY), ONE),
    "a negative power of zero": (arb.__pow__, "power", (ZERO, point(-3)), INFINITY),
    "an odd power of minus infinity": (arb.__pow__, "power", (_MINUS, point(3)), _MINUS),
    "a root of minus infinity": (arb.__pow__, "power", (_MINUS, point(-0.25)), ZERO),
    "hypot of an infinity and NaN": (lambda x, y: (x * x + y * y).sqrt(), "hypot", (INFINITY, NAN), INFINITY),
    "an interval around zero as a divisor": (arb.__truediv__, "divide", (ONE, _AROUND), WHOLE),
    "zero over an interval around it": (arb.__truediv__, "divide", (ZERO, _AROUND), WHOLE),
    "an infinity times an interval around zero": (arb.__mul__, "multiply", (INFINITY, _AROUND), WHOLE),
    "sqrt of an interval around zero": (arb.sqrt, "sqrt", (_AROUND,), WHOLE),
    "sin of what is not known": (arb.sin, "sin", (WHOLE,), WHOLE),
}


@pytest.mark.parametrize("case", _OTHER_RULES)
def test_where_the_rule_of_arb_is_another_one(case: str) -> None:
    of_arb, name, operands, value = _OTHER_RULES[case]
    assert _same(FUNCTIONS[name](*operands), value)
    assert not _same(of_arb(*operands), value), "arb has this rule now, so it needs none of ours"


@pytest.mark.parametrize(
    ("name", "operands"),
    [("subtract", (INFINITY, INFINITY)), ("multiply", (ZERO, INFINITY)), ("divide", (ZERO, ZERO)), ("log", (-ONE,)),
     ("divide", (INFINITY, INFINITY)), ("sqrt", (-ONE,)), ("fmod", (ONE, ZERO)), ("arcsin", (point(1.5, 0.25),))],
)  # fmt: skip
def test_what_does_not_exist_is_nan_and_known(name: str, operands: tuple[Interval, ...]) -> None:
    assert FUNCTIONS[name](*operands).is_nan()


def test_there_is_one_zero() -> None:
    assert FUNCTIONS["divide"](ONE, point(-0.0)) == INFINITY
    assert FUNCTIONS["arctan2"](point(-0.0), -ONE).overlaps(arb.pi())


def test_exponentials_of_every_float_are_finite() -> None:
    """arb's numbers have exponents of any size, and its exponential ends where its result has one of 2 · 448 bits."""
    large = point(1.7e308)
    with precision(896):
        for name in ("exp", "sinh", "cosh", "expm1"):
            assert UNARY[name](large).is_finite()
            assert UNARY[name](large) > large
        assert UNARY["exp"](-large) > 0
        assert UNARY["log"](UNARY["exp"](large)).overlaps(large)
    with precision(1792):
        assert UNARY["exp2"](large) > large
        assert FUNCTIONS["power"](large, large) > large
    with precision(448):
        for name in ("exp", "sinh", "cosh", "expm1"):
            assert _same(UNARY[name](large), WHOLE)
        assert UNARY["exp"](-large).contains(0)


def test_comparisons_decide_or_say_that_they_do_not() -> None:
    assert below(_MINUS, INFINITY)
    assert not below(INFINITY, INFINITY)
    assert equal(INFINITY, INFINITY)
    assert not equal(INFINITY, _MINUS)
    assert not below(_AROUND, point(-2))
    for compare in (below, equal):
        assert not compare(NAN, NAN)
        assert not compare(NAN, WHOLE)
        for x, y in ((_AROUND, ZERO), (_AROUND, _AROUND), (WHOLE, INFINITY), (ZERO, WHOLE)):
            with pytest.raises(Undecided):
                compare(x, y)


def test_the_precision_is_set_for_a_call_alone() -> None:
    before = flint.ctx.prec
    with pytest.raises(Undecided):
        enclosures(lambda x: np.where(x / 3.0 * 3.0 > x, x, 0.0), np.array([0.1]))
    assert flint.ctx.prec == before


# ---------------------------------------------------------------------------------------- no interval misses a value

_SPECIAL = (0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -0.5, 2.0, -3.0, 2.5, -2.5, 1e300, -1e300, 5e-324,
            1.0 + 2.0**-52, 1.0 - 2.0**-53, 700.0, -700.0)  # fmt: skip


def _boxes(count: int, seed: str) -> Iterator[tuple[float, Interval]]:
    """Numbers, and intervals that hold them: points, and others of all sizes."""
    rng = random.Random(seed)
    for _ in range(count):
        large = rng.choice((-1, 1)) * math.ldexp(rng.random(), rng.randint(-40, 12))
        number = rng.choice((rng.choice(_SPECIAL), large))
        radius = math.ldexp(rng.random(), rng.randint(-60, 6))
        if rng.random() < 0.4 or not math.isfinite(number):
            yield number, point(number)
        else:
            with precision(2000):
                yield number, point(point(number) + point(radius) * rng.uniform(-1.0, 1.0), radius)


def _exact(name: str, numbers: list[float]) -> Interval:
    """The exact reading's value."""

    def formula(*operands: Any) -> Any:
        if name == "power":
            return np.power(operands[0], numbers[1])
        return bind(name, operands, {"absolute": False} if name == "erf" else {})

    (value,), _ = evaluate(formula, *map(np.array, numbers))
    return interval_of(value.values[()])


def _miss(name: str, function: Function, count: int = 60) -> list[str]:
    """The values that are not in the interval of a function on a box that holds their arguments."""
    arity = 1 if name in UNARY else 2
    boxes = [*_boxes(arity * count, name)]
    missed = []
    for first in range(0, len(boxes), arity):
        numbers, operands = zip(*boxes[first : first + arity], strict=True)
        value, bits = _exact(name, [*numbers]), (30, 60, 448)[first % 3]
        with precision(bits):
            interval = function(*operands)
        with precision(4 * DEFAULT_PRECISION):
            stated = value if value.is_zero() else value * point(1, (1, -STATED_BITS))
            known = interval.is_finite() or is_point(interval)
            inside = interval.is_nan() if value.is_nan() else not interval.is_nan() and interval.overlaps(stated)
        if known and not inside:
            missed.append(f"{name}{numbers}: {interval.str(20)} misses {value.str(20)}")
    return missed


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_interval_holds_the_values_of_its_numbers(name: str) -> None:
    assert _miss(name, FUNCTIONS[name]) == []


@pytest.mark.parametrize("name", ["multiply", "exp", "fmod", "sqrt"])
def test_an_interval_without_its_radius_is_seen(name: str) -> None:
    assert _miss(name, lambda *operands: FUNCTIONS[name](*operands).mid())


def test_a_special_value_from_numbers_that_stand_for_too_many_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One number for the whole line has a sign, a logarithm and no pole."""
    monkeypatch.setattr(intervals, "_samples", lambda x: [float(x.mid())])
    assert _miss("divide", FUNCTIONS["divide"], 200)


def test_an_overflow_of_floats_is_no_infinity() -> None:
    """Where arb has no value, NumPy's infinity counts at poles alone: its numbers are small ones."""
    without_values: Callable[..., Interval] = extended("exp", lambda x: WHOLE)
    assert _same(without_values(point(1e300)), WHOLE)
    assert _same(without_values(INFINITY), INFINITY)


# ------------------------------------------------------------------------------------------------- without the package


@pytest.mark.fast_cases("import workshop.second")
@pytest.mark.parametrize(
    "program",
    ["import workshop.second",
     "from workshop.commands.second_opinion import second_opinion_command as c; c(['trace'], standalone_mode=False)"],
)  # fmt: skip
def test_a_missing_package_is_named_with_its_extra(program: str) -> None:
    blocked = f"import sys; sys.modules['flint'] = None; {program}"
    process = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)
    message = 'the second exact reading needs python-flint, which is not installed; pip install "opassay[second]"'
    assert process.stderr.splitlines()[-1].endswith(message)
