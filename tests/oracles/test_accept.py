"""The accept set: a right output at 0.99 of the bound is in it, one value beyond the bound is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpmath import libmp

from opassay.oracles.bound.accept import Elements, ReadingError, place_in_accept_sets
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball, balls
from opassay.oracles.bound.scale import scaled
from opassay.reference.exact import Exact, evaluate
from opassay.reference.exact import exact as exact_array
from opassay.reference.formats import BINARY16, BINARY32, FORMATS, Format, round_array, round_to, ulp_array
from opassay.reference.norms.layer_norm import layer_norm

from ..reference.bit_patterns import neighbours

DTYPES = tuple(FORMATS)
#: Radii of the evaluation in unit roundoffs of the output's format.
RADII = (2.0**-20, 0.3, 1.0, 7.5, 1000.0)


def _sum(*parts: Any) -> Any:
    """The exact sum of float64 arrays, as raw numbers."""
    raw = [np.frompyfunc(libmp.from_float, 1, 1)(np.asarray(p, dtype=np.float64)) for p in parts]
    total = raw[0]
    for part in raw[1:]:
        total = np.frompyfunc(libmp.mpf_add, 2, 1)(total, part)
    return np.asarray(total, dtype=object)


def _rounded(fmt: Format, raws: Any) -> Any:
    """Raw numbers rounded once, as float64."""
    return np.asarray(np.frompyfunc(lambda x: libmp.to_float(round_to(fmt, x)), 1, 1)(raws), dtype=np.float64)


def _neighbour(fmt: Format, values: Any, side: int) -> Any:
    """The next value of the format below (0) or above (1)."""
    step = np.frompyfunc(lambda v: libmp.to_float(neighbours(fmt, libmp.from_float(v))[side]), 1, 1)
    return np.asarray(step(values), dtype=np.float64)


class Case:
    """Exact values y = high + low, balls that hold them, and δ of both."""

    def __init__(self, dtype: str, roundoffs: float, seed: int, exactly: bool, count: int = 60) -> None:
        rng = np.random.default_rng([seed, DTYPES.index(dtype)])
        self.fmt = FORMATS[dtype]
        reach = 2.0 ** rng.uniform(self.fmt.exponent_min / 2, self.fmt.exponent_max / 2, count)
        high = rng.choice([-1.0, 1.0], count) * (1 + rng.random(count)) * reach
        radius = np.abs(high) * self.fmt.unit_roundoff * roundoffs
        low = (
            np.where(np.arange(count) % 2, rng.uniform(-0.4, 0.4, count) * radius, 0.0) if exactly else np.zeros(count)
        )
        terms = contract(dtype)
        self.ball = Ball(np.asarray(high, dtype=terms.centre_type), radius, terms)
        self.values = _sum(high, low)
        self.exact = Exact(self.values) if exactly else None
        self.delta = radius + np.abs(low)

    def judged(self, computed: Any) -> Elements:
        return place_in_accept_sets(computed, self.fmt, self.ball, self.exact)

    def at(self, times: float) -> Any:
        """RN(y + times δ)."""
        return _rounded(self.fmt, np.frompyfunc(libmp.mpf_add, 2, 1)(self.values, _sum(times * self.delta)))


#: Binary64 by the ball alone has a test of its own.
CASES = [(d, r, e) for d in DTYPES for r in RADII for e in (True, False)]


@pytest.fixture(params=CASES, ids=str)
def case(request: Any) -> Case:
    dtype, roundoffs, exactly = request.param
    return Case(dtype, roundoffs, 1, exactly)


def test_an_output_at_099_of_the_bound_is_accepted(case: Case) -> None:
    for times in (-0.99, -0.5, 0.0, 0.5, 0.99):
        judgement = case.judged(case.at(times))
        assert judgement.accepted.all()
        assert judgement.judged.all()
        assert (judgement.ratio <= 1).all()


def test_an_output_beyond_the_bound_is_not_accepted(case: Case) -> None:
    for side, times in ((0, -1 - 2.0**-40), (1, 1 + 2.0**-40)):
        judgement = case.judged(_neighbour(case.fmt, case.at(times), side))
        assert not judgement.accepted.any()
        assert judgement.judged.all()


def test_the_accept_set_ends_where_the_rounded_bound_ends(case: Case) -> None:
    """Every value from four below to four above both ends, against the definition."""
    for times in (-1.0, 1.0):
        inner, outer = case.at(times * (1 - 2.0**-40)), case.at(times * (1 + 2.0**-40))
        computed = inner
        for _ in range(4):
            computed = _neighbour(case.fmt, computed, int(times > 0))
            beyond = computed > outer if times > 0 else computed < outer
            assert not case.judged(computed).accepted[beyond].any()


@pytest.mark.parametrize("roundoffs", RADII)
def test_the_ball_alone_decides_binary64_to_the_ulp(roundoffs: float) -> None:
    case = Case("float64", roundoffs, 1, exactly=False)
    for times in (-0.99, 0.99):
        judgement = case.judged(case.at(times))
        assert judgement.accepted.all()
        assert (judgement.ratio <= 1).all()
    for side, times in ((0, -1 - 2.0**-40), (1, 1 + 2.0**-40)):
        assert not case.judged(_neighbour(case.fmt, case.at(times), side)).accepted.any()


@pytest.mark.parametrize(("dtype", "exactly"), [(d, e) for d in DTYPES for e in (True, False)])
def test_the_ratio_is_at_most_one_exactly_where_accepted(dtype: str, exactly: bool) -> None:
    for seed in range(20):
        rng = np.random.default_rng([seed, 99])
        case = Case(dtype, float(rng.choice(RADII)), seed, exactly)
        times = float(rng.uniform(-1.5, 1.5))
        computed = case.at(times)
        judgement = case.judged(computed)
        assert (judgement.ratio[judgement.accepted] <= 1).all(), f"seed={seed}"


def test_the_width_is_the_smallest_fault_that_shows(case: Case) -> None:
    judgement = case.judged(case.at(0.0))
    unit = ulp_array(case.fmt, judgement.value)
    assert (judgement.width >= 0.5).all()
    farther = np.frompyfunc(libmp.mpf_add, 2, 1)(case.values, _sum(2.0 * judgement.width * unit + unit))
    assert not case.judged(_rounded(case.fmt, farther)).accepted.any()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_most_accept_sets_of_the_half_types_are_single_values(dtype: str) -> None:
    fmt, rng = FORMATS[dtype], np.random.default_rng(3)
    values = [round_array(fmt, rng.standard_normal(shape)) for shape in ((16, 32), (32,), (32,))]

    def formula(x: Any, w: Any, b: Any) -> Any:
        return layer_norm(x, (32,), w, b, 1e-5)

    exact = evaluate(formula, *values)[0][0]
    ball = balls(formula, values, contract(dtype))[0]
    right = _rounded(fmt, exact.values)
    assert place_in_accept_sets(right, fmt, ball, exact).accepted.all()
    single = ~place_in_accept_sets(_neighbour(fmt, right, 0), fmt, ball, exact).accepted
    single &= ~place_in_accept_sets(_neighbour(fmt, right, 1), fmt, ball, exact).accepted
    assert np.mean(single) > 0.9


# ---------------------------------------------------------------------------------------- decided exactly


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("side", [-1, 1])
def test_a_value_next_to_a_rounding_boundary_is_decided_exactly(dtype: str, side: int) -> None:
    """y = midpoint (1 ± 2^-60): float64 would round it to the midpoint first, and then to even."""
    fmt = FORMATS[dtype]
    values = round_array(fmt, np.random.default_rng(4).uniform(1, 2, 40))
    above = _neighbour(fmt, values, 1)
    middle = values.astype(np.longdouble) + ulp_array(fmt, values) / 2
    centre = middle + side * values * np.longdouble(2.0**-60)
    high = centre.astype(np.float64)
    exact = Exact(_sum(high, (centre - high).astype(np.float64)))
    ball = Ball(centre, None, contract("float64"))
    right, wrong = (above, values) if side > 0 else (values, above)
    assert place_in_accept_sets(right, fmt, ball, exact).accepted.all()
    assert not place_in_accept_sets(wrong, fmt, ball, exact).accepted.any()
    twice = round_array(fmt, high)
    assert dtype == "float64" or (twice != right).any(), "no element rounds twice: the test tests nothing"


def test_an_output_without_axes_is_decided_exactly_as_well() -> None:
    """y = midpoint (1 + 2^-60) of binary16, as one number."""
    low, middle = np.float64(1.0), np.longdouble(1 + 2.0**-11)
    centre = np.asarray(middle * (1 + np.longdouble(2.0**-60)))
    high = centre.astype(np.float64)
    exact = Exact(_sum([high], [(centre - high).astype(np.float64)]).reshape(()))
    ball = Ball(centre, None, contract("float64"))
    assert place_in_accept_sets(np.asarray(1 + 2.0**-10), BINARY16, ball, exact).accepted
    assert not place_in_accept_sets(np.asarray(low), BINARY16, ball, exact).accepted


def test_a_value_on_a_rounding_boundary_rounds_to_even_or_by_the_bound_either_way() -> None:
    middle = np.array([1 + 2.0**-24, 1 + 3 * 2.0**-24])
    exact, terms = Exact(_sum(middle)), contract("float64")
    even, odd = np.array([1.0, 1 + 2.0**-22]), np.array([1 + 2.0**-23, 1 + 2.0**-23])
    assert place_in_accept_sets(even, BINARY32, Ball(middle.astype(np.longdouble), None, terms), exact).accepted.all()
    wide = Ball(middle.astype(np.longdouble), np.full(2, 2.0**-62), terms)
    assert place_in_accept_sets(odd, BINARY32, wide, exact).accepted.all()
    assert place_in_accept_sets(even, BINARY32, wide, exact).accepted.all()


# ---------------------------------------------------------------------------------------- overflow


def _one(dtype: str, value: float, radius: float, exactly: bool = True) -> tuple[Ball, Exact | None]:
    centre = np.array([value], dtype=contract(dtype).centre_type)
    return Ball(centre, np.array([radius]), contract(dtype)), Exact(_sum([value])) if exactly else None


@pytest.mark.parametrize("exactly", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("offset", "radius", "largest", "infinite"),
    [(-2.0, 0.5, False, False), (0.0, 0.25, True, False), (0.25, 0.5, True, True), (0.75, 0.5, True, True),
     (1.5, 0.5, False, True), (9.0, 2.0, False, True)],
)  # fmt: skip
def test_infinity_is_accepted_where_the_bound_overflows(
    dtype: str, exactly: bool, offset: float, radius: float, largest: bool, infinite: bool
) -> None:
    """y = max + offset ulp, and half an ulp above the largest value rounding becomes infinite."""
    fmt = FORMATS[dtype]
    unit = float(ulp_array(fmt, fmt.max))
    for sign in (-1.0, 1.0):
        ball, exact = _one(dtype, sign * (fmt.max + offset * unit), radius * unit, exactly)
        for computed, accepted in ((fmt.max, largest), (np.inf, infinite), (-np.inf, False), (np.nan, False)):
            places = place_in_accept_sets(np.array([sign * computed]), fmt, ball, exact)
            assert places.judged.all()
            assert places.accepted.all() == accepted, (computed, sign)
            assert bool(places.special[0]) is (offset >= 0.5)


@pytest.mark.parametrize("exactly", [True, False])
def test_an_exact_value_beyond_binary64_is_not_judged(exactly: bool) -> None:
    centre = np.array([2.0], dtype=np.longdouble) ** 1030
    raws = np.empty(1, dtype=object)
    raws[0] = libmp.from_man_exp(1, 1030)
    ball = Ball(centre, np.array([np.inf]), contract("float64"))
    places = place_in_accept_sets(np.array([np.inf]), FORMATS["float64"], ball, Exact(raws) if exactly else None)
    assert not places.judged.any()


# ---------------------------------------------------------------------------------------- NaN, infinities, domain

_SPECIAL = {np.nan: libmp.fnan, np.inf: libmp.finf, -np.inf: libmp.fninf}


def _special(value: float) -> tuple[Ball, Exact]:
    raws = np.empty(1, dtype=object)
    raws[0] = _SPECIAL[value]
    return Ball(np.array([value]), np.array([0.0]), contract("float32"), True), Exact(raws)


@pytest.mark.parametrize("value", list(_SPECIAL))
@pytest.mark.parametrize("computed", [np.nan, np.inf, -np.inf, 1.0])
def test_special_values_must_match_where_an_operand_was_special(value: float, computed: float) -> None:
    ball, exact = _special(value)
    places = place_in_accept_sets(np.array([computed]), BINARY32, ball, exact, finite_inputs=False)
    same = computed == value or (np.isnan(computed) and np.isnan(value))
    assert places.judged.all()
    assert places.special.all()
    assert places.accepted.all() == same
    assert places.ratio[0] == (0.0 if same else np.inf)


@pytest.mark.parametrize("value", list(_SPECIAL))
def test_a_special_value_that_another_evaluation_may_miss_is_not_judged(value: float) -> None:
    ball, exact = _special(value)
    unsure = Ball(ball.centre, np.array([np.nan]), ball.contract, True)
    assert not place_in_accept_sets(np.array([1.0]), BINARY32, unsure, exact, finite_inputs=False).judged.any()


@pytest.mark.parametrize("value", list(_SPECIAL))
@pytest.mark.parametrize("computed", [np.nan, np.inf, -np.inf, 1.0])
def test_a_derivative_at_infinity_must_only_not_be_finite(value: float, computed: float) -> None:
    ball, exact = _special(value)
    places = place_in_accept_sets(np.array([computed]), BINARY32, ball, exact, finite_inputs=False, order=1)
    assert places.accepted.all() == (not np.isfinite(computed))


@pytest.mark.parametrize("value", list(_SPECIAL))
def test_a_singularity_at_finite_operands_is_not_judged(value: float) -> None:
    ball, exact = _special(value)
    for reading in (exact, None):
        places = place_in_accept_sets(np.array([1.0]), BINARY32, ball, reading, finite_inputs=True)
        assert not places.judged.any()
        assert places.accepted.all()


@pytest.mark.parametrize("computed", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("exactly", [True, False])
def test_a_special_output_is_wrong_where_the_value_is_finite(computed: float, exactly: bool) -> None:
    ball, exact = _one("float32", 1.0, 2.0**-20, exactly)
    places = place_in_accept_sets(np.array([computed]), BINARY32, ball, exact)
    assert places.judged.all()
    assert not places.accepted.any()
    assert places.ratio[0] == np.inf


def test_elements_outside_the_domain_are_counted_and_not_judged() -> None:
    radius = np.array([2.0**-20, np.inf, np.nan, 0.0])
    ball = Ball(np.ones(4), radius, contract("float32"))
    for exact in (None, Exact(_sum(np.ones(4)))):
        places = place_in_accept_sets(np.array([1.0, 5.0, 5.0, 5.0]), BINARY32, ball, exact)
        assert places.judged.tolist() == [True, False, False, True]
        assert places.accepted.tolist() == [True, True, True, False]
        assert places.ratio[1:3].tolist() == [0.0, 0.0]
        assert np.isnan(places.width[1:3]).all()


def test_readings_that_contradict_each_other_are_an_error_of_the_framework() -> None:
    ball, _ = _one("float32", 1.0, 0.25)
    with pytest.raises(ReadingError, match=r"exact value outside its ball: got \|c − y\|=1 at .*need at most r=0.25"):
        place_in_accept_sets(np.array([1.0]), BINARY32, ball, Exact(_sum([2.0])))
    place_in_accept_sets(np.array([1.0]), BINARY32, ball, Exact(_sum([1.25])))


def test_zero_is_accepted_with_either_sign() -> None:
    ball, exact = _one("float16", 0.0, 0.0)
    for zero in (0.0, -0.0):
        assert place_in_accept_sets(np.array([zero]), BINARY16, ball, exact).accepted.all()
    assert not place_in_accept_sets(np.array([2.0**-24]), BINARY16, ball, exact).accepted.any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_subnormals_are_judged_to_the_smallest_one(dtype: str) -> None:
    fmt = FORMATS[dtype]
    smallest = fmt.smallest_subnormal
    ball, exact = _one(dtype, 5 * smallest, 0.0)
    accepted = [k for k in range(11) if place_in_accept_sets(np.array([k * smallest]), fmt, ball, exact).accepted.all()]
    assert accepted in ([5], [4, 5, 6])  # binary64 has no half of the smallest subnormal for the directed slack
    assert dtype == "float64" or accepted == [5]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1, 1)])
def test_shapes_without_and_with_one_element(shape: tuple[int, ...]) -> None:
    ball = Ball(np.ones(shape), None, contract("float32"))
    for exact in (None, exact_array(np.ones(shape))):
        places = place_in_accept_sets(np.ones(shape), BINARY32, ball, exact)
        assert np.shape(places.accepted) == shape
        assert np.all(places.accepted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_error_beside_a_cancelled_value_is_small_on_the_scale_of_its_tensor(dtype: str) -> None:
    fmt = FORMATS[dtype]
    u, tiny = fmt.unit_roundoff, fmt.smallest_normal * 4
    values, radius = np.array([1.0, 0.0, tiny]), np.array([0.0, 3 * u, 3 * u])
    computed = np.array([1.0, 2 * u, 2 * u])
    places = place_in_accept_sets(
        computed, fmt, Ball(values.astype(contract(dtype).centre_type), radius, contract(dtype)), None
    )
    assert places.accepted.all()
    on_scale = scaled(fmt, places, u)
    assert on_scale.near_zero.tolist() == [False, True, True]
    assert places.ulp[1] > 1000  # what an ulp of these values would tell: nothing
    assert on_scale.errors[0] == 0.0
    assert np.all((on_scale.errors[1:] > 0.5) & (on_scale.errors[1:] < 3))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_of_subnormals_is_measured_against_the_smallest_normal_number(dtype: str) -> None:
    fmt = FORMATS[dtype]
    ball, exact = _one(dtype, 1.25 * fmt.smallest_subnormal, 0.0) if dtype != "float64" else _one(dtype, 5e-324, 5e-324)
    places = place_in_accept_sets(np.array([fmt.smallest_subnormal]), fmt, ball, exact)
    assert places.accepted.all()
    assert scaled(fmt, places, fmt.unit_roundoff).errors[0] <= 2


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_exact_value_far_below_all_formats_is_decided(sign: float) -> None:
    """The exponential of −1e300 has an exponent of as many digits: no sum of it and the bound is ever formed."""
    (value,) = evaluate(lambda x: sign * np.exp(x), np.array([-1e300]))[0]
    least = BINARY32.smallest_subnormal
    ball = Ball(np.zeros(1), np.full(1, least), contract("float32"))
    places = place_in_accept_sets(np.array([sign * 2.0 * least]), BINARY32, ball, value)
    assert not places.accepted[0]
    assert places.edges((0,))[:2] == (-least, least)
    assert place_in_accept_sets(np.array([sign * least]), BINARY32, ball, value).accepted[0]
