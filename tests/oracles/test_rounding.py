"""The rounding reading is attacked: no evaluation in any order and with any rounding may leave its ball."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.contract import Contract, contract
from opassay.oracles.bound.rounding import Ball, ball, balls
from opassay.oracles.bound.rounding.ball import RULES
from opassay.oracles.bound.rounding.functions import erf_centre, erfc_centre
from opassay.oracles.bound.terms import terms
from opassay.reference.algorithms import Algorithm, Inapplicable
from opassay.reference.array import PRIMITIVES, STORAGE, among, attach, bind, erf, erfc, gammaln, polygamma, store
from opassay.reference.derivative import vjp
from opassay.reference.exact import evaluate, exact, precision, to_float_pair
from opassay.reference.formats import BINARY32, FORMATS, round_array
from opassay.reference.norms.layer_norm import native_layer_norm
from workshop.random_evaluation import evaluate_at_random


def _random(rng: Any, shape: tuple[int, ...], positive: bool = False) -> Any:
    values = round_array(BINARY32, rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 2))
    return round_array(BINARY32, np.abs(values) + 1e-3) if positive else values


def _norm_and_gradient(x: Any, w: Any, g: Any) -> tuple[Any, ...]:
    outputs, pull = vjp(lambda a, b: native_layer_norm(a, (a.shape[-1],), b, None, 1e-5), (x, w))
    return (*outputs, *pull(g, np.mean(g, -1, keepdims=True), np.mean(g, -1, keepdims=True)))


def _convolution_and_gradient(x: Any, w: Any, g: Any) -> tuple[Any, ...]:
    def convolved(a: Any, b: Any) -> Any:
        return bind("correlate", (a, b), {"stride": (2,), "dilation": (2,)})

    outputs, pull = vjp(convolved, (x, w))
    return (*outputs, *pull(g))


ATTACKED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], bool]] = {
    "elementary": (lambda a: np.log1p(np.exp(-np.absolute(a))) + np.tanh(a), ((4, 3),), False),
    "expm1 of log": (lambda a: np.expm1(np.log(a) * 0.1), ((4, 3),), True),
    "circular": (lambda a: np.sin(a * 3.0) + np.cos(a / 3.0) * np.tan(a * 0.1), ((4, 3),), False),
    "inverse": (lambda a: np.arctan(a * 3.0) + np.arcsin(np.sin(a) * 0.9) * np.arccos(np.cos(a / 3.0) * 0.9),
                ((4, 3),), False),
    "hyperbolic": (lambda a: np.sinh(a * 0.1) + np.cosh(a * 0.3) + np.arcsinh(a * 3.0), ((4, 3),), False),
    "inverse hyperbolic": (lambda a: np.arccosh(1.0 + a / 3.0) + np.arctanh(np.tanh(a * 0.1) * 0.9), ((4, 3),), True),
    "bases": (lambda a: np.log2(a * 3.0) + np.log10(a / 3.0) * np.exp2(a * 0.1), ((4, 3),), True),
    "cube roots": (lambda a: np.cbrt(a * 3.0 - a) + np.cbrt(a / 7.0), ((4, 3),), False),
    "error functions": (lambda a: erf(a * 0.3) * a + erfc(a / 3.0), ((4, 3),), False),
    "gamma functions": (lambda a: gammaln(a * 0.3) + polygamma(0, a / 3.0) * polygamma(1, a * 0.7), ((4, 3),), False),
    "angles": (lambda a, b: np.arctan2(a * 3.0, b / 3.0) + np.hypot(a / 7.0, b * 3.0), ((4, 3), (3,)), False),
    "logaddexp": (lambda a, b: np.logaddexp(a / 3.0, b * 0.1) + np.logaddexp(a, a - 0.7), ((4, 3), (3,)), False),
    "remainders": (lambda a, b: np.fmod(a * 3.0, b / 3.0), ((4, 3), (3,)), False),
    "steps": (lambda a: (np.floor(a * 3.0) + np.ceil(a / 3.0) * np.rint(a * 0.1) + np.trunc(a / 7.0)) * 0.3
              - np.sign(a - 0.3) / 3.0, ((4, 3),), False),
    "array exponents": (lambda a, b: (a * 1.1) ** (b * 0.03) + 2.0 ** (b / 30.0) + 1.7 ** (a / 30.0), ((4, 3), (3,)),
                        True),
    "steps at their edges": (lambda a: np.floor((a / 3.0) * 3.0 / a) + np.sign(a * 0.1 - a / 10.0), ((4, 3),), False),
    "power": (lambda a: np.power(1.0 + a * a, -0.75) * a, ((4, 3),), False),
    "quotients": (lambda a, b: (a - b) / (np.square(b) + 0.5), ((4, 3), (3,)), False),
    "softmax": (lambda a: (lambda e: e / np.sum(e, -1, keepdims=True))(np.exp(a - np.max(a, -1, keepdims=True))),
                ((3, 7),), False),
    "moves": (lambda a: np.concatenate([np.transpose(a)[1:], np.maximum(np.transpose(a)[:1], 0.5)], 0) @ a,
              ((3, 4),), False),
    "scans": (lambda a: np.cumsum(np.sort(a * a, axis=0), axis=0) / np.prod(a, axis=1, keepdims=True), ((4, 3),), True),
    "products of matrices": (lambda a, b: np.einsum("bij,bjk->bki", a, b), ((2, 3, 5), (2, 5, 4)), False),
    "convolution and its gradient": (_convolution_and_gradient, ((2, 1, 2, 7), (1, 3, 2, 2), (2, 1, 3, 3)), False),
    "layer norm and its gradient": (_norm_and_gradient, ((3, 9), (9,), (3, 9)), False),
}  # fmt: skip


def _largest_ratio(name: str, allowed: Contract, seeds: int) -> float:
    """The largest error over its bound of legal evaluations, none of which leaves its ball."""
    formula, shapes, positive = ATTACKED[name]
    largest = 0.0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        values = [_random(rng, s, positive) for s in shapes]
        readings = balls(formula, values, allowed)
        for _ in range(3):
            for got, need in zip(evaluate_at_random(formula, values, allowed, rng), readings, strict=True):
                radius = need.radii()
                assert (np.abs(got - need.centre) <= radius).all(), f"seed={seed}"
                judged = np.isfinite(radius) & (radius > 0)
                ratios = np.abs(got - need.centre)[judged] / radius[judged]
                largest = max(largest, float(ratios.max(initial=0.0)))
    return largest


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("name", ATTACKED)
def test_no_random_evaluation_leaves_the_ball(name: str) -> None:
    largest = _largest_ratio(name, contract("float32"), 50)
    assert largest > 0.1, f"largest error/bound {largest}: the bound is too loose to see a fault"


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize(
    "preset", ["torch", "tensor_core", "fast_math", "strict+approximate", "torch+bfloat16_partials"]
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_no_evaluation_under_laxer_terms_leaves_the_ball(preset: str, dtype: str) -> None:
    for name in ATTACKED:
        _largest_ratio(name, terms(preset).contract(dtype, "cuda"), 2)


@pytest.mark.parametrize(
    ("primitive", "word"),
    [("sin", np.sin), ("tan", np.tan), ("exp2", np.exp2), ("sinh", np.sinh), ("log2", np.log2), ("erfc", erfc)],
)  # fmt: skip
def test_a_planted_rule_without_reach_is_seen(monkeypatch: pytest.MonkeyPatch, primitive: str, word: Any) -> None:
    right = RULES[primitive]
    monkeypatch.setitem(ATTACKED, "planted", (lambda a: word(a / 3.0 * 1.1 * 0.7 / 0.3), ((20, 5),), True))
    test_no_random_evaluation_leaves_the_ball("planted")
    monkeypatch.setitem(RULES, primitive, lambda terms, a: right(terms, Ball(a.centre, None, terms)))
    with pytest.raises(AssertionError, match="seed="):
        test_no_random_evaluation_leaves_the_ball("planted")


def test_the_error_function_of_wide_centres_has_their_digits() -> None:
    arguments = np.array([0.0, 1e-300, -1e-10, 0.3, 0.9999, -1.5, 2.9999, 3.0, 5.5, -26.0, np.inf, np.nan])
    for word, centre in ((erf, erf_centre), (erfc, erfc_centre)):
        with np.errstate(all="ignore"), precision(200):
            wide = centre(arguments.astype(np.longdouble))
            high, low = to_float_pair(word(exact(arguments)))
        known = np.isfinite(arguments)
        apart = np.abs((wide.astype(np.float64) - high) + ((wide - wide.astype(np.float64)).astype(np.float64) - low))
        assert np.all(apart[known] <= 2.0**-58 * np.abs(high[known])), "a wide centre is no better than a float64"
        assert np.array_equal(wide[~known].astype(np.float64), high[~known], equal_nan=True)


def test_a_cheap_error_function_is_allowed_where_a_spec_uses_one() -> None:
    x = np.array([1e-20, -3.0])
    terms = contract("float32")
    plain, cheap = (balls(lambda x, a=absolute: erf(x, a), [x], terms)[0].radii() for absolute in (False, True))
    assert np.all(cheap - plain >= 11 * 2.0**-24)
    assert plain[0] < 1e-25
    assert np.array_equal(
        *(balls(lambda x, a=a: erf(x, a), [x], contract("float64"))[0].radii() for a in (False, True))
    )


def test_steps_and_angles_near_their_edges_hold_both_sides() -> None:
    terms = contract("float32")
    third = _one(1.0, terms) / 3.0
    three, nothing = third * 9.0, third - third * 1.0
    one: Any = functools.partial(_one, terms=terms)
    with np.errstate(all="ignore"):
        assert (np.floor(three).centre, np.floor(three).radii()) == (2.5, 0.5)
        assert np.floor(third).radii() == 0.0
        assert np.sign(nothing).radii() == 1.0
        assert np.arctan2(one(-0.0), one(-1.0)).radii() >= 2 * np.pi
        assert np.fmod(three, one(1.5)).radii() >= 1.5
        assert np.fmod(one(7.0), one(1.5)).radii() == 0.0
        assert np.isinf(np.tan(_one(np.pi / 2, terms) * (1.0 + third - third)).radii())


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("name", ATTACKED)
def test_the_exact_value_is_in_the_ball(name: str, dtype: str) -> None:
    formula, shapes, positive = ATTACKED[name]
    for seed in range(8):
        rng = np.random.default_rng(seed)
        values = [_random(rng, s, positive) for s in shapes]
        true = evaluate(formula, *values)[0]
        for got, need in zip(true, balls(formula, values, contract(dtype)), strict=True):
            high, low = to_float_pair(got)
            assert (np.abs((need.centre - high) - low) <= need.radii()).all(), f"seed={seed}"


def _one(value: float, terms: Contract) -> Ball:
    return ball(np.array([value]), terms)


def test_overflow_and_division_through_zero_are_not_judged() -> None:
    terms = contract("float32")
    with np.errstate(all="ignore"):
        big = _one(2.0**100, terms)
        assert np.isinf((big * big).radii()).all()
        total: Any = np.sum(np.concatenate([big, big]) * 2.0**27)
        assert np.isinf(total.radii()).all()
        uncertain = _one(1.0, terms) / 3.0 - _one(1.0, terms) / 3.0
        assert not np.isfinite((1.0 / uncertain).radii()).any()
        assert not np.isfinite(np.log(uncertain).radii()).any()


def test_a_special_value_is_sure_unless_zero_may_meet_infinity() -> None:
    terms = contract("float32")
    with np.errstate(all="ignore"):
        infinity = _one(np.inf, terms)
        nearly_zero = _one(1.0, terms) / 3.0 - _one(1.0, terms) / 3.0
        sure = (infinity * 2.5, infinity * 0.0, infinity - infinity, infinity + nearly_zero, np.exp(-infinity))
        unsure = (infinity * nearly_zero, infinity / nearly_zero)
    assert all(x.radii() == 0 for x in sure)
    assert all(np.isnan(x.radii()) for x in unsure)


def test_higher_orders_may_round_more_often() -> None:
    one, two = (contract("float32", "cpu", order) for order in (1, 2))
    assert (_one(1.5, two) + _one(0.3, two)).radii() > 1.9 * (_one(1.5, one) + _one(0.3, one)).radii()


def test_powers_of_two_scale_without_rounding() -> None:
    terms = contract("float32")
    x = _one(1.5, terms) / 3.0
    assert (x * 4.0).radii() == 4.0 * x.radii()
    assert (x / 8.0).radii() == x.radii() / 8.0


def test_underflow_is_counted_beside_a_nan() -> None:
    terms = contract("float64")
    with np.errstate(all="ignore"):
        halved = ball(np.array([5e-324, np.nan]), terms) / 2.0
    assert halved.radii()[0] >= 5e-324


def test_a_constant_that_the_format_lacks_has_its_rounding() -> None:
    terms = contract("float32")
    assert terms.accumulate.unit_roundoff * 1e-5 == ball(np.zeros(1), terms).lift(1e-5).radii()
    assert ball(np.zeros(1), terms).lift(0.5).radii() == 0


def test_a_store_costs_one_rounding_of_its_format() -> None:
    terms = contract("bfloat16")
    stored = store(_one(1.1, terms))
    assert stored.radii() >= 2.0**-8
    assert store(_one(1.5, terms)).radii() == 0  # The format has it.
    assert store(_one(1.0, contract("float32"))).radii() == 0


def test_what_is_stored_by_a_name_has_derivatives_that_are_stored() -> None:
    terms = contract("bfloat16")
    x, g = _one(1.1, terms), _one(1.1, terms)
    radii = [vjp(lambda a, to=dtype: store(a, to), (x,))[1](g)[0].radii().item() for dtype in ("", STORAGE)]
    assert radii[0] == 0 < radii[1] == store(g).radii().item()
    assert store(x, STORAGE).radii() == store(x).radii()


def test_flushing_costs_the_smallest_normal() -> None:
    plain = contract("float32")
    flushing = Contract(plain.accumulate, plain.stores, flush=True)
    assert (_one(2.0**-60, flushing) * _one(2.0**-70, flushing)).radii() >= 2.0**-126


def test_repeated_scatter_counts_as_a_sum() -> None:
    from opassay.reference.array import scatter

    x = ball(np.array([1.0, 2.0, 3.0]), contract("float32"))
    y = scatter(x, (np.array([0, 0, 1]),), (3,))
    assert y.centre.tolist() == [3.0, 3.0, 0.0]
    assert y.radii()[0] >= 3 * 2.0**-24
    assert y.radii()[1:].tolist() == [0.0, 0.0]


def test_the_reading_has_every_primitive() -> None:
    assert set(RULES) == PRIMITIVES


def test_ways_that_count_widen_a_ball_to_the_largest_error_among_them() -> None:
    def of(*named: tuple[Any, str], allowed: frozenset[str] = frozenset()) -> Any:
        ways = [Algorithm(lambda x: x * 3.0, ""), *(Algorithm(formula, name) for formula, name in named)]
        terms = dataclasses.replace(contract("float32"), algorithms=allowed)
        return among(ways, _one(1.1, terms)).radii(), vjp(lambda x: among(ways, x), [_one(1.1, terms)])[1](
            _one(1.0, terms)
        )[0].radii()

    def worse(x: Any) -> Any:
        return (x * 3.0 + 1e3 * x) - 1e3 * x

    def inapplicable(x: Any) -> Any:
        raise Inapplicable

    (alone, slope), (wider, wider_slope) = of(), of((worse, ""))
    assert wider > 100 * alone
    assert wider_slope > 100 * slope
    assert of((worse, "named"), (inapplicable, "")) == (alone, slope)
    assert of((worse, "named"), allowed=frozenset({"named"})) == (wider, wider_slope)


def test_exp_far_below_underflow_is_judged() -> None:
    """The exponent's own error is large there, and e^(c + r) is nothing still."""
    terms = contract("float32")
    (y,) = balls(lambda x: np.exp(x * 3.0), [np.array([-1e30, -1e5, -200.0, -1.0])], terms)
    assert np.all(np.isfinite(y.radii()))
    assert np.all(y.radii()[:3] <= 2 * terms.underflow)


def test_a_kept_value_has_no_error_but_its_own() -> None:
    x = ball(np.array([1.0, 2.0]), contract("float32"))
    slope = x * 3.0
    assert np.all(attach(x, slope, always=True).radii() == 0)
    assert np.all(attach(x, slope).radii() > 0)


def test_an_exponent_that_the_format_lacks_has_its_rounding() -> None:
    terms = contract("float32")
    for value in (1e30, 1e-30, 1.5):
        exact = balls(lambda x: np.power(x, -0.25), [np.array([value])], terms)[0].radii()
        rounded, ball = (
            np.float64(np.float32(-0.3)),
            balls(lambda x: np.power(x, -0.3), [np.array([value])], terms)[0],
        )
        assert abs(value**rounded - value**-0.3) <= ball.radii()[0]
        assert ball.radii()[0] / ball.centre[0] > exact[0] / value**-0.25 or value == 1.5


def test_powers_0_and_1_round_nothing_and_are_smooth_at_zero() -> None:
    x = np.array([0.0, 2.0])
    for exponent, value, slope in ((0.0, [1.0, 1.0], [0.0, 0.0]), (1.0, [0.0, 2.0], [1.0, 1.0])):
        power = functools.partial(lambda e, x: np.power(x, e) * 1.0 + 0.0 * x, exponent)
        (exact,), _ = evaluate(lambda x, f=power: f(x), x)
        assert to_float_pair(exact)[0].tolist() == value
        (pulled,), _ = evaluate(lambda x, g, f=power: vjp(f, [x])[1](g), x, np.ones(2))
        assert to_float_pair(pulled)[0].tolist() == slope


def test_a_sum_with_zero_stands_for_a_rounding_that_no_lattice_makes_exact() -> None:
    lattice = contract("float32").on_lattice
    whole = np.array([3.0, -2.0])
    (apart,) = balls(lambda x: x - 1.0, [whole], lattice)
    (by_products,) = balls(lambda x: (x + 0.0) - 1.0, [whole], lattice)
    assert not apart.radii().any()
    assert (by_products.radii() > 0).all()


def test_a_sum_of_terms_that_cancel_is_off_by_u_times_its_partial_sums() -> None:
    """The bound is half of (n - 1) u Σ |x| there, and a legal order reaches it: terms lost to a large partial sum."""
    lost = np.full(4000, 0.499 * 2.0**-11)
    values = np.concatenate([[2.0**12], lost, [-(2.0**12)]])
    (result,) = balls(lambda x: np.sum(x, keepdims=True), [values], contract("float32"))
    in_order = np.cumsum(values.astype(np.float32), dtype=np.float32)[-1]
    off, bound, classic = abs(float(in_order) - np.sum(values)), result.radii()[0], 4001 * 2.0**-24 * 2.0**13
    assert 0.95 * bound < off <= bound < 0.55 * classic
    # Where no terms cancel, the partial sums reach the sum, and nothing is gained.
    (whole,) = balls(lambda x: np.sum(x, keepdims=True), [np.abs(values)], contract("float32"))
    assert whole.radii()[0] > 0.999 * classic
    # No proof says what a closed form of second derivatives adds up, so that keeps the whole bound.
    (second,) = balls(lambda x: np.sum(x, keepdims=True), [values], contract("float32", order=2))
    assert second.radii()[0] > 1.999 * classic


@pytest.mark.parametrize(("name", "low"), [("sigmoid", 0.0), ("tanh", -1.0)])
def test_balls_of_functions_with_two_ends_stay_between_them(name: str, low: float) -> None:
    """An argument that is off by any number has a result; one without a bound may be NaN, and has none."""
    allowed, centre = contract("float32"), np.array([0.5, 3.0, -2.0])
    for size in (1.0, 50.0, 1e30):
        out = RULES[name](allowed, Ball(centre, np.full(3, size), allowed))
        ends = np.maximum(out.centre - low, 1.0 - out.centre)
        assert (out.radii() <= ends * (1 + 2.0**-20)).all()
        reached = RULES[name](allowed, Ball(np.stack([centre - size, centre + size]), None, allowed)).centre
        assert (np.abs(reached - out.centre) <= out.radii() * (1 + 2.0**-20)).all()
    assert np.isinf(RULES[name](allowed, Ball(centre, np.full(3, np.inf), allowed)).radii()).all()
