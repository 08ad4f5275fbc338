"""The exact reading: agreement of precisions, special values, conversion."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest
from mpmath import libmp, mp

from opassay.reference import array
from opassay.reference.exact import (
    Exact,
    PrecisionError,
    agree,
    evaluate,
    exact,
    precision,
    to_float_pair,
)
from opassay.reference.norms import layer_norm as norms


def test_precision_doubles_until_cancellation_is_resolved() -> None:
    # (1 + 2^-300) - 1 loses 300 bits: 200 bits see zero, 800 see 2^-300
    (y,), bits = evaluate(lambda x: (1.0 + x) - 1.0, np.array([2.0**-300]))
    assert bits >= 400
    assert to_float_pair(y)[0][0] == 2.0**-300


def test_no_agreement_is_an_error() -> None:
    noise = iter(range(10**6))
    with pytest.raises(PrecisionError, match="bits="):
        evaluate(lambda x: x + float(next(noise)), np.array([1.0]))


def test_a_relative_difference_beyond_half_the_bits_is_disagreement() -> None:
    one = libmp.fone
    with precision(300):
        near = libmp.mpf_add(one, libmp.mpf_shift(one, -101), 300, "n")
        far = libmp.mpf_add(one, libmp.mpf_shift(one, -98), 300, "n")
    assert agree(one, near, 200, 1)
    assert not agree(one, far, 200, 1)
    assert agree(libmp.fnan, libmp.fnan, 200, 1)
    assert not agree(libmp.finf, one, 200, 1)
    assert not agree(libmp.fzero, libmp.mpf_shift(one, -300), 200, 1)
    assert agree(libmp.fzero, libmp.mpf_shift(one, -380), 200, 1)


def test_an_exact_zero_agrees_with_its_shrinking_residue() -> None:
    x = np.array([1.0, 2.0, 4.0]) / 7
    (y,), bits = evaluate(lambda a: np.sum(a - np.mean(a)), x)
    assert bits <= 400
    assert abs(to_float_pair(y)[0]) < 1e-100


def test_elements_may_agree_at_precisions_that_do_not_overlap() -> None:
    # 1 - (1 - x) agrees at b and 2b bits where x > 2^(-b/2), which is resolved, and where x < 2^(-7b/4), which is taken
    # for a residue of zero. Each of these x disagrees at other b, and at every b one of them does.
    def formula(x: Exact) -> Exact:
        small: Exact = np.exp(x)
        back: Exact = 1.0 - (1.0 - small)
        return back

    (y,), bits = evaluate(formula, np.array([-300.0, -1200.0, -5000.0, -15000.0]) * math.log(2))
    values = to_float_pair(y)[0]
    assert bits >= 600
    assert 0.99 < values[0] * 2.0**300 < 1.01
    assert np.all(np.abs(values[1:]) < 2.0**-1074)


@pytest.mark.parametrize("x", [-1e300, -1e30, -415.0, -417.0])
def test_log1p_of_the_tiny(x: float) -> None:
    """The sum of 1 and e^x would have as many bits as e^x is small; both sides of where it is no longer formed."""
    with precision(200):
        decay = np.exp(exact(np.array([x])))
        computed, expected = np.log1p(decay), decay - np.square(decay) / 2.0
    difference = libmp.mpf_sub(computed.values[0], expected.values[0])
    assert not difference[1] or difference[2] + difference[3] <= computed.values[0][2] + computed.values[0][3] - 199


@pytest.mark.parametrize("x", [1e300, 3e38, 1e5, 300.0])
def test_log1p_and_sigmoid_of_powers_that_are_huge(x: float) -> None:
    """1 + e^x has as many bits as its exponent says, more than memory holds; log1p and sigmoid round it."""
    with precision(200):
        number = exact(np.array([x]))
        (whole, small), needs = (np.log1p(np.exp(number)), array.sigmoid(-number)), (number, np.exp(-number))
    for got, need in ((whole, needs[0]), (small, needs[1])):
        assert agree(got.values[0], need.values[0], 200, 1)


SPECIAL = [
    (lambda x: 1.0 / x, 0.0, math.inf),
    (lambda x: -1.0 / x, 0.0, -math.inf),
    (lambda x: x / x, 0.0, math.nan),
    (lambda x: np.sqrt(x), -1.0, math.nan),
    (lambda x: np.log(x), 0.0, -math.inf),
    (lambda x: np.log(x), -1.0, math.nan),
    (lambda x: np.log1p(x), -1.0, -math.inf),
    (lambda x: np.expm1(x), -math.inf, -1.0),
    (lambda x: np.exp(x), -math.inf, 0.0),
    (lambda x: np.power(x, -0.5), 0.0, math.inf),
    (lambda x: np.power(x, -0.5), math.inf, 0.0),
    (lambda x: np.power(x, 0.5), -1.0, math.nan),
    (lambda x: x - x, math.inf, math.nan),
    (lambda x: x * 0.0, math.inf, math.nan),
    (lambda x: np.maximum(x, 1.0), math.nan, math.nan),
    (lambda x: np.max(x), math.nan, math.nan),
    (lambda x: np.sum(x), -math.inf, -math.inf),
    (lambda x: np.tanh(x), math.inf, 1.0),
    (lambda x: np.sin(x), math.inf, math.nan),
    (lambda x: np.arcsin(x), 1.5, math.nan),
    (lambda x: np.arccosh(x), 0.5, math.nan),
    (lambda x: np.arctanh(x), -1.0, -math.inf),
    (lambda x: np.arctanh(x), math.nan, math.nan),
    (lambda x: np.exp2(x), -math.inf, 0.0),
    (lambda x: np.exp2(x), 10.0, 1024.0),
    (lambda x: np.log2(x), 2.0**-1074, -1074.0),
    (lambda x: np.log2(x), 0.0, -math.inf),
    (lambda x: np.log10(x), -1.0, math.nan),
    (lambda x: np.log10(x), math.inf, math.inf),
    (lambda x: np.cbrt(x), -27.0, -3.0),
    (lambda x: np.cbrt(x), -math.inf, -math.inf),
    (lambda x: np.cosh(x), -math.inf, math.inf),
    (lambda x: array.erf(x), -math.inf, -1.0),
    (lambda x: array.erfc(x), math.inf, 0.0),
    (lambda x: array.gammaln(x), -3.0, math.inf),
    (lambda x: array.gammaln(x), 0.5, math.log(math.pi) / 2),
    (lambda x: array.polygamma(0, x), 0.0, -math.inf),
    (lambda x: array.polygamma(0, x), -2.0, math.nan),
    (lambda x: array.polygamma(0, x), math.inf, math.inf),
    (lambda x: array.polygamma(1, x), -1.0, math.inf),
    (lambda x: array.polygamma(1, x), 0.5, math.pi**2 / 2),
    (lambda x: array.polygamma(2, x), math.inf, 0.0),
    (lambda x: np.arctan2(x, x), -math.inf, math.atan2(-math.inf, -math.inf)),
    (lambda x: np.arctan2(x, -1.0), 0.0, math.pi),
    (lambda x: np.hypot(x, math.nan), -math.inf, math.inf),
    (lambda x: np.logaddexp(x, x), -math.inf, -math.inf),
    (lambda x: np.logaddexp(x, 0.0), math.inf, math.inf),
    (lambda x: np.fmod(x, 3.0), -7.5, -1.5),
    (lambda x: np.fmod(x, math.inf), -7.5, -7.5),
    (lambda x: np.fmod(x, 0.0), 1.0, math.nan),
    (lambda x: np.float_power(x, 3.0), -math.inf, -math.inf),
    (lambda x: np.float_power(x, -2.0), -math.inf, 0.0),
    (lambda x: np.float_power(x, 0.5), -1.0, math.nan),
    (lambda x: np.float_power(0.5, x), -math.inf, math.inf),
    (lambda x: np.float_power(x, 0.0), math.nan, 1.0),
    (lambda x: np.rint(x), 2.5, 2.0),
    (lambda x: np.trunc(x), -2.5, -2.0),
    (lambda x: np.floor(x), math.inf, math.inf),
    (lambda x: np.sign(x), math.nan, math.nan),
    (lambda x: np.sign(x), -math.inf, -1.0),
]


@pytest.mark.parametrize(("formula", "x", "need"), SPECIAL)
def test_special_values_follow_ieee_754(formula: object, x: float, need: float) -> None:
    got = to_float_pair(formula(exact(np.array([x]))))[0].ravel()[0]  # type: ignore[operator]
    assert got == need or (math.isnan(got) and math.isnan(need))


def test_expm1_and_log1p_keep_their_digits_near_zero() -> None:
    with precision(200):
        for x in (1e-300, -1e-30, 1e-5):
            for f, g in ((np.expm1, mp.expm1), (np.log1p, mp.log1p)):
                with mp.workprec(2400):
                    need = g(mp.mpf(x))._mpf_
                assert agree(f(exact(np.array([x]))).values[0], need, 360, 1)


def test_empty_means_are_nan() -> None:
    out, mean, rstd = norms.native_layer_norm(exact(np.zeros((2, 0))), (0,), None, None, 1e-5)
    assert out.shape == (2, 0)
    assert all(raw == libmp.fnan for raw in (*mean.values.ravel(), *rstd.values.ravel()))


def test_a_float_pair_holds_a_third_to_106_bits() -> None:
    with precision(200):
        third = exact(np.array([1.0])) / 3.0
        high, low = to_float_pair(third)
        remainder = third - exact(high) - exact(low)
    assert remainder.values[0][2] + remainder.values[0][3] < -106


def test_garbage_collection_is_restored() -> None:
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), precision(100):
        raise ZeroDivisionError
    assert gc.isenabled()


def test_layer_norm_agrees_with_an_independent_formula() -> None:
    # Σ(x_i - x_j)² / 2n² is the variance too; mpmath objects, no array protocol.
    rng = np.random.default_rng(0)
    x = rng.standard_normal(6)
    (out,), _ = evaluate(lambda a: norms.layer_norm(a, (6,), eps=1e-5), x)
    with mp.workprec(400):
        values = [mp.mpf(v) for v in x.tolist()]
        mean = sum(values) / 6
        variance = sum((a - b) ** 2 for a in values for b in values) / 72
        need = [((v - mean) / mp.sqrt(variance + mp.mpf(1e-5)))._mpf_ for v in values]
    assert all(agree(a, b, 300, 1) for a, b in zip(out.values, need, strict=True))
