"""The exact reading: agreement of precisions, special values, conversion."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest
from mpmath import libmp, mp

from opassay.reference import normalization
from opassay.reference.exact import (
    PrecisionError,
    agree,
    evaluate,
    exact,
    precision,
    to_float_pair,
)


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
    out, mean, rstd = normalization.native_layer_norm(exact(np.zeros((2, 0))), (0,), None, None, 1e-5)
    assert out.shape == (2, 0)
    assert all(raw == libmp.fnan for raw in (*mean.values.ravel(), *rstd.values.ravel()))


def test_a_float_pair_holds_a_third_to_106_bits() -> None:
    with precision(200):
        third = exact(np.array([1.0])) / 3.0
        high, low = to_float_pair(third)
        left = third - exact(high) - exact(low)
    assert left.values[0][2] + left.values[0][3] < -106


def test_garbage_collection_is_restored() -> None:
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), precision(100):
        raise ZeroDivisionError
    assert gc.isenabled()


def test_layer_norm_agrees_with_an_independent_formula() -> None:
    # Σ(x_i - x_j)² / 2n² is the variance too; mpmath objects, no array protocol.
    rng = np.random.default_rng(0)
    x = rng.standard_normal(6)
    (out,), _ = evaluate(lambda a: normalization.layer_norm(a, (6,), eps=1e-5), x)
    with mp.workprec(400):
        values = [mp.mpf(v) for v in x.tolist()]
        mean = sum(values) / 6
        variance = sum((a - b) ** 2 for a in values for b in values) / 72
        need = [((v - mean) / mp.sqrt(variance + mp.mpf(1e-5)))._mpf_ for v in values]
    assert all(agree(a, b, 300, 1) for a, b in zip(out.values, need, strict=True))
