"""The four formats: bits, one rounding, ulp, neighbours; exhaustive for the half types."""

from __future__ import annotations

import itertools
import math
import struct
from fractions import Fraction

import numpy as np
import pytest
import torch
from mpmath.libmp import (
    finf,
    fnan,
    fninf,
    from_float,
    from_man_exp,
    from_rational,
    fzero,
    mpf_neg,
    to_float,
    to_rational,
)

from opassay.reference import formats
from opassay.reference.formats import BFLOAT16, BINARY16, BINARY32, BINARY64, FORMATS, Format, Raw

from .bit_patterns import float64_to_bits, from_bits, neighbours, to_bits, ulp

HALVES = [BFLOAT16, BINARY16]
ALL = list(FORMATS.values())
SEED = 20260731


def _value(raw: Raw) -> Fraction:
    return Fraction(*to_rational(raw))


def _raw(value: Fraction) -> Raw:
    """A dyadic fraction as an exact raw number."""
    exponent = value.denominator.bit_length() - 1
    assert value.denominator == 1 << exponent
    raw: Raw = from_man_exp(value.numerator, -exponent)
    return raw


def _random_values(fmt: Format, count: int) -> np.ndarray:
    """float64 values of every magnitude that matters to the format, and some that round to nothing or to infinity."""
    rng = np.random.default_rng(SEED)
    exponents = rng.integers(fmt.exponent_min - fmt.precision - 3, fmt.exponent_max + 3, count)
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(rng.uniform(-2, 2, count), exponents))


def _special_values(fmt: Format) -> np.ndarray:
    tiny, normal, large = fmt.smallest_subnormal, fmt.smallest_normal, fmt.max
    values = [0.0, tiny, normal, normal - tiny, large, 1.0, 1.0 + 2 * fmt.unit_roundoff, math.inf]
    return np.array([sign * value for value in values for sign in (1, -1)] + [math.nan])


def _torch_dtype(fmt: Format) -> torch.dtype:
    dtype = getattr(torch, fmt.name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def _same(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Equal as bits, except that every NaN equals every NaN."""
    return np.asarray((left.view(np.uint64) == right.view(np.uint64)) | (np.isnan(left) & np.isnan(right)))


@pytest.mark.parametrize("fmt", ALL, ids=lambda fmt: fmt.name)
def test_constants_are_those_of_torch(fmt: Format) -> None:
    info = torch.finfo(_torch_dtype(fmt))
    assert (fmt.bits, 2 * fmt.unit_roundoff, fmt.max) == (info.bits, info.eps, info.max)
    assert fmt.smallest_normal == info.smallest_normal
    assert fmt.smallest_subnormal == math.ldexp(info.smallest_normal, 1 - fmt.precision) > 0
    assert FORMATS[fmt.name] is fmt


def test_eta_is_half_the_smallest_subnormal_where_that_is_a_float() -> None:
    assert [fmt.eta for fmt in (BINARY16, BFLOAT16, BINARY32)] == [2.0**-25, 2.0**-134, 2.0**-150]
    assert BINARY64.eta == BINARY64.smallest_subnormal == 2.0**-1074


@pytest.mark.parametrize("fmt", HALVES, ids=lambda fmt: fmt.name)
def test_every_half_pattern_keeps_its_bits(fmt: Format) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16)
    values = formats.bits_to_float64(fmt, patterns)
    by_torch = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(_torch_dtype(fmt)).double().numpy()
    assert _same(values, by_torch).all()
    finite = ~np.isnan(values)
    assert (float64_to_bits(fmt, values)[finite] == patterns[finite]).all()
    assert np.isnan(formats.bits_to_float64(fmt, float64_to_bits(fmt, values))[~finite]).all()
    assert _same(formats.round_array(fmt, values), values).all()
    for pattern in range(1 << 16):
        raw = from_bits(fmt, pattern)
        if raw == fnan:
            assert not finite[pattern]
            continue
        assert to_float(raw) == values[pattern]
        assert to_bits(fmt, raw) == (0 if raw == fzero else pattern)
        assert formats.round_to(fmt, raw) == raw


@pytest.mark.parametrize("fmt", HALVES, ids=lambda fmt: fmt.name)
def test_every_half_midpoint_rounds_to_even_and_its_sides_to_their_side(fmt: Format) -> None:
    patterns = np.arange(to_bits(fmt, finf) + 1, dtype=np.uint16)
    ends = formats.bits_to_float64(fmt, patterns)
    ends[-1] = math.ldexp(1.0, fmt.exponent_max + 1)  # infinity rounds as if it were the next value
    middle = (ends[:-1] + ends[1:]) / 2
    even = patterns[:-1] + (patterns[:-1] & 1)
    for sites, expected in (
        (middle, even),
        (np.nextafter(middle, 0), patterns[:-1]),
        (np.nextafter(middle, math.inf), patterns[1:]),
    ):
        for sign in (1, -1):
            signed = np.asarray(np.copysign(sites, sign))
            nearest = formats.bits_to_float64(fmt, expected) * sign
            assert _same(formats.round_array(fmt, signed), nearest).all()
            by_raw = [to_float(formats.round_to(fmt, from_float(site))) for site in signed.tolist()]
            assert by_raw == nearest.tolist()


@pytest.mark.parametrize("fmt", ALL, ids=lambda fmt: fmt.name)
def test_a_midpoint_with_a_far_away_bit_is_no_tie(fmt: Format) -> None:
    """The bit is beyond float64's own reach: a detour through float64 would drop it and see a tie."""
    far = Fraction(1, 1 << 3000)
    below, above = Fraction(1), 1 + Fraction(2) ** (1 - fmt.precision)
    half_tiny = Fraction(2) ** (fmt.exponent_min - fmt.precision)
    for low, middle, high in (
        (below, (below + above) / 2, above),  # tie to even: down
        (Fraction(0), half_tiny, 2 * half_tiny),  # tie to even: down, at the edge of underflow
        (2 * half_tiny, 3 * half_tiny, 4 * half_tiny),  # tie to even: up
    ):
        assert _value(formats.round_to(fmt, _raw(middle + far))) == high
        assert _value(formats.round_to(fmt, _raw(middle - far))) == low
        assert _value(formats.round_to(fmt, _raw(-middle - far))) == -high
        assert _value(formats.round_to(fmt, _raw(middle))) in (low, high)


@pytest.mark.parametrize("fmt", [BINARY32, BFLOAT16, BINARY16], ids=lambda fmt: fmt.name)
def test_rounding_through_float64_or_float32_first_would_be_wrong(fmt: Format) -> None:
    u = Fraction(2) ** -fmt.precision
    exact = 1 + u + Fraction(1, 1 << 60)  # just above the middle of 1 and its successor
    twice = formats.round_to(fmt, formats.round_to(BINARY64, _raw(exact)))
    assert _value(formats.round_to(fmt, _raw(exact))) == 1 + 2 * u
    assert _value(twice) == 1
    if fmt in HALVES:  # the same trap for arrays, one level down
        value = np.array([float(1 + u + Fraction(1, 1 << 40))])
        assert formats.round_array(fmt, value) == float(1 + 2 * u)
        assert formats.round_array(fmt, formats.round_array(BINARY32, value)) == 1.0


def test_overflow_begins_half_an_ulp_above_the_largest() -> None:
    for fmt in ALL:
        largest = Fraction(fmt.max)
        edge = largest + Fraction(2) ** (fmt.exponent_max - fmt.precision)
        assert formats.round_to(fmt, _raw(edge)) == finf
        assert formats.round_to(fmt, _raw(-edge)) == fninf
        assert _value(formats.round_to(fmt, _raw(edge - Fraction(1, 1 << 2000)))) == largest
        assert formats.round_to(fmt, from_man_exp(1, 10**12)) == finf
        assert formats.round_to(fmt, from_man_exp(-1, -(10**12))) == fzero


@pytest.mark.parametrize("fmt", ALL, ids=lambda fmt: fmt.name)
def test_scalar_array_and_hardware_roundings_agree(fmt: Format) -> None:
    values = np.concatenate([_special_values(fmt), _random_values(fmt, 4000)])
    rounded = formats.round_array(fmt, values)
    by_raw = np.array([to_float(formats.round_to(fmt, from_float(value))) for value in values.tolist()])
    assert _same(rounded, np.copysign(by_raw, values)).all()
    if fmt != BFLOAT16:
        with np.errstate(over="ignore"):
            assert _same(rounded, values.astype(fmt.name).astype(np.float64)).all()
    if fmt == BINARY32:  # torch takes float64 to the half types by way of float32: two roundings, so only this one
        assert _same(rounded, torch.from_numpy(values).float().double().numpy()).all()


@pytest.mark.parametrize("fmt", HALVES, ids=lambda fmt: fmt.name)
def test_torch_rounds_float32_to_the_halves_as_we_do(fmt: Format) -> None:
    with np.errstate(over="ignore"):
        values = _random_values(fmt, 100_000).astype(np.float32)
    by_torch = torch.from_numpy(values).to(_torch_dtype(fmt)).double().numpy()
    assert _same(formats.round_array(fmt, values), by_torch).all()


@pytest.mark.parametrize(("fmt", "code"), [(BINARY64, "dQ"), (BINARY32, "fI"), (BINARY16, "eH")])
def test_bits_are_those_of_the_machine(fmt: Format, code: str) -> None:
    values = np.concatenate([_special_values(fmt), formats.round_array(fmt, _random_values(fmt, 2000))])
    patterns = float64_to_bits(fmt, values)
    assert _same(formats.bits_to_float64(fmt, patterns), values).all()
    for value, pattern in zip(values.tolist(), patterns.tolist(), strict=True):
        if math.isnan(value):
            continue
        assert struct.unpack("<" + code[1], struct.pack("<" + code[0], value)) == (pattern,)
        assert to_float(from_bits(fmt, pattern)) == value
        assert value == 0 or to_bits(fmt, from_float(value)) == pattern


@pytest.mark.parametrize("fmt", ALL, ids=lambda fmt: fmt.name)
def test_ulp_follows_its_definition(fmt: Format) -> None:
    tiny = fmt.smallest_subnormal
    top = math.ldexp(1.0, fmt.exponent_max - fmt.precision + 1)
    for value, unit in (
        (1.0, 2 * fmt.unit_roundoff),
        (math.nextafter(1.0, 0), fmt.unit_roundoff),
        (-3.0, 4 * fmt.unit_roundoff),
        (0.0, tiny),
        (tiny, tiny),
        (fmt.smallest_normal, tiny),
        (2 * fmt.smallest_normal, 2 * tiny),
        (fmt.max, top),
        (math.inf, top),
    ):
        assert ulp(fmt, from_float(value)) == unit
        assert formats.ulp_array(fmt, value) == unit
    assert math.isnan(ulp(fmt, fnan))
    values = np.concatenate([_special_values(fmt), _random_values(fmt, 2000)])
    by_raw = np.array([ulp(fmt, from_float(value)) for value in values.tolist()])
    assert _same(formats.ulp_array(fmt, values), by_raw).all()


def test_ulp_of_binary64_is_that_of_python() -> None:
    for value in _random_values(BINARY64, 2000).tolist():
        if math.isfinite(value):
            assert ulp(BINARY64, from_float(value)) == math.ulp(value)


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("fmt", HALVES, ids=lambda fmt: fmt.name)
def test_neighbours_of_every_half_and_of_every_middle(fmt: Format) -> None:
    infinity = to_bits(fmt, finf)
    ladder = [from_bits(fmt, bits) for bits in range(infinity + 1)]
    ladder = [mpf_neg(raw) for raw in ladder[:0:-1]] + ladder
    for below, raw, above in zip(ladder, ladder[1:], ladder[2:], strict=False):
        assert neighbours(fmt, raw) == (below, above)
    for below, above in itertools.pairwise(ladder[1:-1]):
        assert neighbours(fmt, _raw((_value(below) + _value(above)) / 2)) == (below, above)
    assert neighbours(fmt, finf) == (ladder[-2], finf)
    assert neighbours(fmt, fninf) == (fninf, ladder[1])
    assert neighbours(fmt, fnan) == (fnan, fnan)


def test_neighbours_of_binary32_enclose_a_third() -> None:
    third: Raw = from_rational(1, 3, 200, "n")
    below, above = neighbours(BINARY32, third)
    assert _value(above) - _value(below) == Fraction(ulp(BINARY32, third))
    assert _value(below) < _value(third) < _value(above)


def test_arrays_keep_their_shape_and_strides_do_not_matter() -> None:
    values = _random_values(BINARY16, 60).reshape(3, 4, 5)
    for fmt in ALL:
        turned = formats.round_array(fmt, values.transpose(2, 0, 1)[::2])
        assert turned.shape == (3, 3, 4)
        assert _same(turned.copy(), formats.round_array(fmt, values).transpose(2, 0, 1)[::2].copy()).all()
        for shape in ((), (0,), (2, 0)):
            empty = np.ones(shape)
            bits = float64_to_bits(fmt, empty)
            assert formats.bits_to_float64(fmt, bits).shape == formats.ulp_array(fmt, empty).shape == shape
            assert formats.round_array(fmt, empty).shape == bits.shape == shape
    result = np.ones(3)
    assert not np.shares_memory(formats.round_array(BINARY64, result), result)


@pytest.mark.parametrize("fmt", ALL, ids=lambda fmt: fmt.name)
def test_what_the_format_does_not_hold_has_no_bits(fmt: Format) -> None:
    with pytest.raises(ValueError, match=rf"bits of a {fmt.name}: .* round it first"):
        to_bits(fmt, _raw(1 + Fraction(1, 1 << 60)))
    with pytest.raises(ValueError, match=r"need 0 <= bits < 2\*\*"):
        from_bits(fmt, 1 << fmt.bits)
    if fmt != BINARY64:
        with pytest.raises(ValueError, match=r"got 0x1\.0000000000001p"):
            float64_to_bits(fmt, [1.0, math.nextafter(1.0, 2)])
