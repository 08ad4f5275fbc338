"""A product and sum rounded once: against exact fractions, at numbers where a second rounding would show."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from mpmath import libmp

from opassay.oracles.machine.fused import fma
from opassay.reference.formats import FORMATS, round_to

SEED = 5


def _draw(dtype: str, count: int) -> list[npt.NDArray[Any]]:
    """Operands of all sizes; every other sum nearly cancels, and some lie half an ulp from a number of the format."""
    print("seed", SEED)
    rng = np.random.default_rng(SEED)
    reach = 60 if dtype == "float32" else 500
    x, y = ((rng.standard_normal(count) * np.exp2(rng.integers(-reach, reach, count))).astype(dtype) for _ in range(2))
    with np.errstate(all="ignore"):
        near = (-(x * y) * rng.choice([1.0, 1.0 + 2.0**-20, 2.0**24, 2.0**-25, 2.0**53], count)).astype(dtype)
    z = np.where(np.arange(count) % 2, near, rng.standard_normal(count).astype(dtype)).astype(dtype)
    return [x, y, z]


def _exactly(dtype: str, x: float, y: float, z: float) -> float:
    value = Fraction(x) * Fraction(y) + Fraction(z)
    raw = libmp.from_man_exp(value.numerator, 1 - value.denominator.bit_length())  # the denominator is a power of two
    return float(libmp.to_float(round_to(FORMATS[dtype], raw)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_is_the_exact_value_rounded_once(dtype: str) -> None:
    operands = _draw(dtype, 4000)
    with np.errstate(all="ignore"):
        twice = operands[0] * operands[1] + operands[2]
    result = fma(*operands)
    assert result.dtype == np.dtype(dtype)
    finite = np.isfinite(operands[2])
    exact = [_exactly(dtype, *map(float, each)) for each in np.stack(operands, 1)[finite]]
    assert result[finite].astype(np.float64).tolist() == exact
    assert int((twice[finite] != result[finite]).sum()) > 100, "no sum here would tell two roundings from one"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_not_finite_and_what_is_subnormal(dtype: str) -> None:
    least = float(np.finfo(dtype).smallest_subnormal)
    largest = float(np.finfo(dtype).max)
    rows = [
        (np.inf, 1.0, -np.inf, np.nan), (np.inf, 0.0, 1.0, np.nan), (np.inf, 2.0, 1.0, np.inf),
        (np.nan, 1.0, 1.0, np.nan), (largest, 2.0, -np.inf, -np.inf), (largest, 2.0, -largest, largest),
        (largest, 2.0, 0.0, np.inf), (least, 0.5, least, 2 * least), (least, 0.5, 0.0, 0.0),
        (-least, 0.5, least, 0.0), (3 * least, 0.5, 0.0, 2 * least),
    ]  # fmt: skip
    x, y, z, expected = np.array(rows, dtype=np.float64).astype(dtype).T
    np.testing.assert_array_equal(fma(x, y, z), expected)


def test_operands_broadcast() -> None:
    row, column = (np.ones(shape, np.float32) for shape in ((3,), (2, 1)))
    assert fma(row, column, np.zeros((2, 3), np.float32)).shape == (2, 3)
