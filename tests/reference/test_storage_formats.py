"""Formats that numbers are only stored in, against ml_dtypes, gfloat and torch: codes, and a million casts of each.

They differ in numbers that a format has no code for, and in the last binade of a scale, and in nothing else:

- float8_e4m3fn: beyond 448, and of an infinity, torch 2.13 gives 448; ml_dtypes gives NaN.
- float8_e8m0fnu: torch leaves the sign out, and gives the least number, 2^-127, for zero; ml_dtypes gives NaN for both.
  Between 2^-127 and 1.5 * 2^-127 both give 2^-126, which is not the nearest number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest
import torch
from mpmath.libmp import from_float, to_float

from opassay.reference.dtypes import (
    E2M1FN,
    E2M3FN,
    E3M2FN,
    E4M3FN,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0FNU,
    FORMATS,
    STORAGE_FORMATS,
    Format,
    Specials,
    dtype_name,
)
from opassay.reference.formats import Rounding, bits_to_float64, cast_array, round_array, round_to

ALL = list(STORAGE_FORMATS.values())
OF_TORCH = [fmt for fmt in ALL if hasattr(torch, fmt.name)]
CASTS = 1_000_000
OF_GFLOAT = {
    E4M3FN: gfloat.formats.format_info_ocp_e4m3,
    E5M2: gfloat.formats.format_info_ocp_e5m2,
    E3M2FN: gfloat.formats.format_info_ocp_e3m2,
    E2M3FN: gfloat.formats.format_info_ocp_e2m3,
    E2M1FN: gfloat.formats.format_info_ocp_e2m1,
    E8M0FNU: gfloat.formats.format_info_ocp_e8m0,
}
MODES = {
    Rounding.TO_EVEN: gfloat.RoundMode.TiesToEven,
    Rounding.TIES_AWAY: gfloat.RoundMode.TiesToAway,
    Rounding.TO_ZERO: gfloat.RoundMode.TowardZero,
    Rounding.DOWN: gfloat.RoundMode.TowardNegative,
    Rounding.UP: gfloat.RoundMode.TowardPositive,
}
by_name = pytest.mark.parametrize("fmt", ALL, ids=lambda fmt: fmt.name)


def same(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Equal as bits, except that every NaN equals every NaN."""
    return np.asarray((left.view(np.uint64) == right.view(np.uint64)) | (np.isnan(left) & np.isnan(right)))


def values_to_cast(fmt: Format) -> np.ndarray:
    """float32 numbers: random ones, those of the grid, its ties, what is next to both, and beyond."""
    rng = np.random.default_rng(20261126)
    grid = np.unique(bits_to_float64(fmt, np.arange(1 << fmt.bits)))
    grid = grid[np.isfinite(grid)]
    beyond = np.append(grid, [fmt.max * 2, -fmt.max * 2])
    sites = np.concatenate([grid, (beyond[:-1] + beyond[1:]) / 2, [fmt.max * 1.0625, fmt.max * 1.125, 2 * fmt.max]])
    with np.errstate(over="ignore"):
        single = np.concatenate([sites, -sites]).astype(np.float32)
        near = [single, np.nextafter(single, np.float32(np.inf)), np.nextafter(single, np.float32(-np.inf))]
        exponents = rng.integers(fmt.exponent_min - fmt.precision - 3, fmt.exponent_max + 4, CASTS)
        random = np.ldexp(rng.uniform(-2, 2, CASTS), exponents).astype(np.float32)
    strange = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3e38], dtype=np.float32)
    return np.concatenate([*near, strange, random])[:CASTS]


def by_ml_dtypes(fmt: Format, values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(values.astype(getattr(ml_dtypes, fmt.name)), dtype=np.float64)


def by_torch(fmt: Format, values: np.ndarray) -> np.ndarray:
    return np.asarray(torch.from_numpy(values).to(getattr(torch, fmt.name)).double())


def is_in_last_binade(fmt: Format, values: np.ndarray) -> np.ndarray:
    size = np.abs(values)
    return np.asarray((size > fmt.smallest_normal) & (size < 1.5 * fmt.smallest_normal) & (fmt == E8M0FNU))


@by_name
def test_every_code_is_that_of_ml_dtypes(fmt: Format) -> None:
    codes = np.arange(1 << fmt.bits, dtype=np.uint8)
    values = bits_to_float64(fmt, codes)
    assert same(values, codes.view(getattr(ml_dtypes, fmt.name)).astype(np.float64)).all()
    assert same(cast_array(fmt, values), values).all()
    info: Any = ml_dtypes.finfo(getattr(ml_dtypes, fmt.name))  # type: ignore[no-untyped-call]
    assert (fmt.bits, 2 * fmt.unit_roundoff, fmt.max) == (info.bits, float(info.eps), float(info.max))
    least = (float(info.smallest_normal), float(info.smallest_subnormal))
    assert (fmt.smallest_normal, fmt.smallest_subnormal) == least


@pytest.mark.parametrize("fmt", OF_TORCH, ids=lambda fmt: fmt.name)
def test_every_code_is_that_of_torch(fmt: Format) -> None:
    codes = torch.arange(1 << fmt.bits, dtype=torch.uint8)
    assert same(bits_to_float64(fmt, codes.numpy()), codes.view(getattr(torch, fmt.name)).double().numpy()).all()


@by_name
def test_a_million_casts_are_those_of_ml_dtypes(fmt: Format) -> None:
    values = values_to_cast(fmt)
    if fmt.specials is Specials.NONE:
        values = values[
            ~np.isnan(values)
        ]  # It has no code for NaN, and what ml_dtypes gives is 0 in one and -0 in others.
    values = values[~is_in_last_binade(fmt, values)]
    mine = np.where(values > 0, cast_array(fmt, values), np.nan) if fmt == E8M0FNU else cast_array(fmt, values)
    assert same(mine, by_ml_dtypes(fmt, values)).all()


@pytest.mark.parametrize("fmt", OF_TORCH, ids=lambda fmt: fmt.name)
def test_a_million_casts_are_those_of_torch(fmt: Format) -> None:
    values = values_to_cast(fmt)
    values = values[~is_in_last_binade(fmt, values)]
    saturates = fmt == E4M3FN and by_torch(fmt, np.array([1e30], dtype=np.float32))[0] == fmt.max
    assert same(cast_array(replace(fmt, saturates=saturates), values), by_torch(fmt, values)).all()


def test_a_scale_of_the_last_binade_is_rounded_up() -> None:
    values = np.ldexp(np.linspace(1.001, 1.499, 100), -127).astype(np.float32)
    assert (by_torch(E8M0FNU, values) == 2.0**-126).all()
    assert (by_ml_dtypes(E8M0FNU, values) == 2.0**-126).all()
    assert (round_array(E8M0FNU, values) == 2.0**-127).all()


@pytest.mark.parametrize("rounding", list(Rounding), ids=lambda rounding: rounding.name)
@pytest.mark.parametrize("fmt", list(OF_GFLOAT), ids=lambda fmt: fmt.name)
def test_every_rounding_is_that_of_gfloat(fmt: Format, rounding: Rounding) -> None:
    values = values_to_cast(fmt)[:20_000].astype(np.float64)
    if fmt == E8M0FNU:
        values = values[values >= fmt.smallest_normal]
        ties = np.frexp(values)[0] == 0.75  # gfloat calls a power of two even by its code, ml_dtypes and torch go up
        values = values[~ties]
    if fmt.specials is Specials.NONE:
        values = values[~np.isnan(values)]
    theirs = gfloat.round_ndarray(OF_GFLOAT[fmt], values, MODES[rounding], sat=fmt.saturates)
    assert same(cast_array(fmt, values, rounding), np.asarray(theirs)).all()


@pytest.mark.parametrize("fmt", [*ALL, FORMATS["bfloat16"], FORMATS["float16"]], ids=lambda fmt: fmt.name)
def test_down_and_up_are_the_neighbours(fmt: Format) -> None:
    values = values_to_cast(fmt)[-50_000:].astype(np.float64)
    values = values[np.abs(values) <= fmt.max]
    if fmt == E8M0FNU:
        values = values[values >= fmt.smallest_normal]
    grid = np.unique(bits_to_float64(fmt, np.arange(1 << fmt.bits)))
    grid = grid[np.isfinite(grid)]
    down, up = grid[np.searchsorted(grid, values, "right") - 1], grid[np.searchsorted(grid, values, "left")]
    assert (round_array(fmt, values, Rounding.DOWN) == down).all()
    assert (round_array(fmt, values, Rounding.UP) == up).all()
    assert (round_array(fmt, values, Rounding.TO_ZERO) == np.where(values > 0, down, up)).all()
    nearest = round_array(fmt, values)
    assert ((nearest == down) | (nearest == up)).all()
    assert (np.abs(nearest - values) <= np.minimum(values - down, up - values)).all()


@by_name
def test_a_scalar_is_rounded_as_an_array(fmt: Format) -> None:
    values = values_to_cast(fmt)[:6000].astype(np.float64)
    values = values[~np.isnan(values)]
    for each in (fmt, replace(fmt, saturates=True)):
        by_raw = np.array([to_float(round_to(each, from_float(value))) for value in values.tolist()])
        assert (by_raw == round_array(each, values)).all()


@by_name
def test_a_rounding_keeps_the_order(fmt: Format) -> None:
    values = np.sort(values_to_cast(fmt)[:50_000].astype(np.float64))
    values = values[~np.isnan(values)]
    for rounding in Rounding:
        rounded = round_array(fmt, values, rounding)
        assert (rounded[:-1] <= rounded[1:]).all()


def test_what_each_format_lacks() -> None:
    strange = np.array([np.inf, -np.inf, np.nan, -0.0, 1e30])
    need = {
        E4M3FN: [np.nan, np.nan, np.nan, -0.0, np.nan],
        E4M3FNUZ: [np.nan, np.nan, np.nan, 0.0, np.nan],
        E5M2: [np.inf, -np.inf, np.nan, -0.0, np.inf],
        E5M2FNUZ: [np.nan, np.nan, np.nan, 0.0, np.nan],
        E8M0FNU: [np.nan, np.nan, np.nan, 2.0**-127, 2.0**100],
        E3M2FN: [28.0, -28.0, np.nan, -0.0, 28.0],
        E2M3FN: [7.5, -7.5, np.nan, -0.0, 7.5],
        E2M1FN: [6.0, -6.0, np.nan, -0.0, 6.0],
    }
    assert list(need) == [E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, E8M0FNU, E3M2FN, E2M3FN, E2M1FN]
    for fmt, values in need.items():
        assert same(cast_array(fmt, strange), np.array(values)).all(), fmt.name
    saturating = cast_array(replace(E4M3FN, saturates=True), strange)
    assert same(saturating, np.array([448.0, -448.0, np.nan, -0.0, 448.0])).all()


def test_ops_do_not_compute_in_them() -> None:
    assert list(FORMATS) == ["float64", "float32", "bfloat16", "float16"]
    assert not any(fmt.computes for fmt in ALL)
    assert all(fmt.computes for fmt in FORMATS.values())
    assert [dtype_name(short) for short in ("e4m3fn", "e5m2", torch.float8_e8m0fnu)] == [
        "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
    ]  # fmt: skip
