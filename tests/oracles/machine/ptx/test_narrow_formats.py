"""Halves and floats of 8 bits against exact arithmetic: conversions, extremes, and what is packed in one register."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import gmpy2
import numpy as np
import pytest

from tests.oracles.machine.ptx.exactly import CONTEXTS, decode, encode, extreme, flushed, operands, whole
from tests.oracles.machine.ptx.running import compute

#: By format: its bits of the fraction, the bias of exponents, and the largest finite bits.
_FORMATS = {"e4m3": (3, 7, 0x7E), "e5m2": (2, 15, 0x7B)}


def _low_number(name: str, bits: int) -> float:
    """The number of 8 bits, as the ISA describes the formats in 5.2.3."""
    digits, bias, most = _FORMATS[name]
    sign, exponent, fraction = bits >> 7, bits >> digits & (127 >> digits), bits & ((1 << digits) - 1)
    if bits & 127 > most:
        return math.nan if name == "e4m3" or fraction else math.copysign(math.inf, 0.5 - sign)
    value = math.ldexp(fraction, 1 - bias - digits) if not exponent else math.ldexp(
        (1 << digits) + fraction, exponent - bias - digits
    )  # fmt: skip
    return -value if sign else value


def _low_bits(name: str, x: float) -> int:
    """Those of the nearest finite number, of two the one whose last bit is 0; 0x7f of a NaN."""
    if math.isnan(x):
        return 0x7F
    most = _low_number(name, _FORMATS[name][2])
    size = Fraction(min(abs(x), most))
    best = min(range(_FORMATS[name][2] + 1), key=lambda b: (abs(Fraction(_low_number(name, b)) - size), b & 1))
    return best | (0x80 if math.copysign(1.0, x) < 0 else 0)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("name", _FORMATS)
def test_two_numbers_become_eight_bits_each(name: str, relu: bool) -> None:
    every = [_low_number(name, bits) for bits in range(256)]
    finite = sorted({x for x in every if math.isfinite(x)})
    middles = [(a + b) / 2 for a, b in itertools.pairwise(finite)]
    beside = [math.nextafter(np.float32(x), to) for x in middles for to in (-math.inf, math.inf)]
    numbers = np.array([*every, *middles, *beside, 447, 449, 463, 464, 465, 1e6, 61440, 7e4, 1e38, -0.0], np.float32)
    high, low = (each.view(np.uint32) for each in (numbers, np.roll(numbers, 5)))
    opcode = f"cvt.rn.satfinite.{'relu.' * relu}{name}x2.f32"
    pairs = compute(opcode, [high, low], ("f32", "f32"), "b16")

    def expected(x: float) -> int:
        return 0 if relu and x <= 0 else _low_bits(name, x)

    assert [int(pair) >> 8 for pair in pairs] == [expected(float(x)) for x in high.view(np.float32)]
    assert [int(pair) & 255 for pair in pairs] == [expected(float(x)) for x in low.view(np.float32)]
    with np.errstate(over="ignore"):
        halves = numbers.astype(np.float16)
    words = halves.view(np.uint16).astype(np.uint32) | np.roll(halves, 3).view(np.uint16).astype(np.uint32) << 16
    pairs = compute(opcode.replace(".f32", ".f16x2"), [words], ("b32",), "b16")
    assert [int(pair) & 255 for pair in pairs] == [expected(float(x)) for x in halves]
    assert [int(pair) >> 8 for pair in pairs] == [expected(float(x)) for x in np.roll(halves, 3)]


@pytest.mark.parametrize("name", _FORMATS)
def test_eight_bits_become_halves(name: str) -> None:
    pairs = np.arange(256, dtype=np.uint16) | (np.arange(256, dtype=np.uint16)[::-1] << 8)
    for relu in ("", "relu."):
        words = compute(f"cvt.rn.{relu}f16x2.{name}x2", [pairs], ("b16",), "b32")
        for number, word in enumerate(words):
            for bits, half in ((number, int(word) & 0xFFFF), (255 - number, int(word) >> 16)):
                value = _low_number(name, bits)
                there = 0.0 if relu and value <= 0 else value
                assert half == (0x7FFF if math.isnan(there) else encode(there, "f16"))


def _by_mpfr(half: str) -> Callable[[Any], float]:
    def result(x: Any) -> float:
        number = gmpy2.mpfr(x, 80)
        return float(CONTEXTS[half].plus(number))

    return result


_DIRECTIONS = {"rz": gmpy2.RoundToZero, "rm": gmpy2.RoundDown, "rp": gmpy2.RoundUp}


def _in_direction(half: str, rounding: Any, x: Any) -> float:
    number = gmpy2.mpfr(x, 80)  # made within the context it would be rounded to its digits already
    with gmpy2.context(CONTEXTS[half], round=rounding) as context:
        return float(context.plus(number))


def _not_negative(half: str, x: float) -> float:
    return 0.0 if x <= 0 else _by_mpfr(half)(x)


def _clamped(half: str, x: float) -> float:
    most = {"f16": 65504.0, "bf16": float(np.uint32(0x7F7F0000).view(np.float32))}[half]
    return x if math.isnan(x) else _by_mpfr(half)(max(-most, min(most, x)))


def _into(kind: str, how: str, x: float) -> int:
    value, size = whole(how, x), int(kind[1:])
    least, most = (-(1 << size - 1), (1 << size - 1) - 1) if kind[0] == "s" else (0, (1 << size) - 1)
    if math.isnan(value):
        return 0 if size < 64 else 1 << 63
    return int(max(min(value, most), least)) if math.isfinite(value) else most if value > 0 else least


def _within_one(x: float) -> float:
    return min(x, 1.0) if x > 0 else 0.0


def _conversions() -> dict[str, tuple[str, str, Callable[[Any], Any]]]:
    rows: dict[str, tuple[str, str, Callable[[Any], Any]]] = {}
    for half in ("f16", "bf16"):
        for kind in ("u8", "s8", "s16", "u16", "s32", "u32", "s64", "u64", "f64"):
            rows[f"cvt.rn.{half}.{kind}"] = kind, half, _by_mpfr(half)
        for kind, how in itertools.product(("s16", "u16", "s32", "u32", "s64", "u64"), "nzmp"):
            rows[f"cvt.r{how}i.{kind}.{half}"] = half, kind, functools.partial(_into, kind, how)
        rows[f"cvt.f64.{half}"] = half, "f64", float
        rows[f"cvt.rmi.{half}.{half}"] = half, half, functools.partial(whole, "m")
        rows[f"cvt.rn.relu.{half}.f32"] = "f32", half, functools.partial(_not_negative, half)
        rows[f"cvt.rn.satfinite.{half}.f32"] = "f32", half, functools.partial(_clamped, half)
        rows[f"neg.{half}"] = half, half, lambda x: -x
    for half, (how, rounding) in itertools.product(("f16", "bf16"), _DIRECTIONS.items()):
        for kind in ("f32", "s32", "u64"):
            rows[f"cvt.{how}.{half}.{kind}"] = kind, half, functools.partial(_in_direction, half, rounding)
    for kind in ("f32", "f64"):
        rows[f"cvt.sat.{kind}.{kind}"] = kind, kind, _within_one
    rows["cvt.ftz.f32.f32"] = "f32", "f32", flushed
    rows["cvt.ftz.sat.f32.f32"] = "f32", "f32", lambda x: _within_one(flushed(x))
    rows["cvt.rpi.ftz.sat.f32.f32"] = "f32", "f32", lambda x: _within_one(whole("p", flushed(x)))
    rows["cvt.rn.bf16.f16"] = "f16", "bf16", _by_mpfr("bf16")
    rows["cvt.rn.f16.bf16"] = "bf16", "f16", _by_mpfr("f16")
    return rows


CONVERSIONS = _conversions()


def _require_equal(opcode: str, columns: list[Any], kinds: tuple[str, ...], result: str, expected: Any) -> None:
    """Require the bits of exact results; a NaN is the canonical one, but where the sign alone changes."""
    computed = compute(opcode, columns, kinds, result)
    canonical = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}.get(result)
    wrong = []
    for row, there in zip(zip(*(column.tolist() for column in columns), strict=True), computed, strict=True):
        bits = encode(expected(*map(decode, row, kinds)), result)
        if bits is None and (canonical is None or opcode.startswith("neg") or "rmi" in opcode):
            right = math.isnan(decode(int(there), result))
        else:
            right = int(there) == (canonical if bits is None else bits)
        if not right:
            wrong.append((list(map(hex, row)), hex(int(there)), bits and hex(bits)))
    assert wrong == []


@pytest.mark.one_fast_in(7)
@pytest.mark.parametrize("opcode", CONVERSIONS)
def test_a_conversion_gives_the_exact_result(opcode: str) -> None:
    kind, result, function = CONVERSIONS[opcode]
    columns = operands((kind,), 400, 90)
    if kind in ("s64", "u64"):  # integers whose last bits decide about a tie far above
        ties = np.array([(2**k + (2**k >> 8)) + more for k in range(20, 62) for more in (-1, 0, 1)], np.uint64)
        columns = [np.concatenate([columns[0], ties])]
    if kind == "f64":
        ties = np.array([x * (1 + s * 2.0**-40) for x in (1 + 2.0**-11, 1 + 2.0**-8, 2.0**-25) for s in (-1, 0, 1)])
        columns = [np.concatenate([columns[0], ties.view(np.uint64)])]
    _require_equal(opcode, columns, (kind,), result, function)


def _signed_extreme(larger: bool, strict: bool) -> Callable[..., float]:
    def result(*numbers: float) -> float:
        if any(map(math.isnan, numbers)) and (strict or all(map(math.isnan, numbers))):
            return math.nan
        sign = math.prod(math.copysign(1.0, x) for x in numbers)
        return math.copysign(functools.reduce(extreme(larger), map(abs, numbers)), sign)

    return result


def _strict(larger: bool) -> Callable[..., float]:
    def result(*numbers: float) -> float:
        return math.nan if any(map(math.isnan, numbers)) else functools.reduce(extreme(larger), numbers)

    return result


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_an_extreme_of_each_form(name: str, kind: str) -> None:
    larger = name == "max"
    # The sign of a NaN operand counts nowhere: its magnitude alone is left out.
    for form, function in (
        ("", extreme(larger)), ("NaN.", _strict(larger)),
        ("xorsign.abs.", _signed_extreme(larger, False)), ("NaN.xorsign.abs.", _signed_extreme(larger, True)),
    ):  # fmt: skip
        _require_equal(f"{name}.{form}{kind}", operands((kind, kind), 300, 91), (kind, kind), kind, function)


def test_three_operands_are_two_and_one() -> None:
    for form, function in (("", extreme(True)), ("abs.", lambda a, b: extreme(True)(abs(a), abs(b)))):
        kinds = ("f32",) * 3
        _require_equal(
            f"max.{form}f32", operands(kinds, 300, 92), kinds, "f32", lambda *a, f=function: functools.reduce(f, a)
        )


@pytest.mark.parametrize(
    ("opcode", "single"),
    [("max.f16x2", "f16"), ("min.NaN.bf16x2", "bf16"), ("min.xorsign.abs.bf16x2", "bf16"), ("max.s16x2", "s16"),
     ("min.u16x2", "u16"), ("max.relu.s16x2", "s16"), ("neg.f16x2", "f16")],
)  # fmt: skip
def test_a_pair_is_each_of_its_halves(opcode: str, single: str) -> None:
    count = 1 if opcode.startswith("neg") else 2
    columns = operands((single,) * count, 300, 93)
    turned = [np.roll(column, 7) for column in columns]
    words = [low.astype(np.uint32) | high.astype(np.uint32) << 16 for low, high in zip(columns, turned, strict=True)]
    packed = compute(opcode, words, ("b32",) * count, "b32")
    for shift, sources in ((0, columns), (16, turned)):
        if "relu" in opcode:
            alone = [max(decode(int(a), "s16"), decode(int(b), "s16"), 0) for a, b in zip(*sources, strict=True)]
        else:
            alone = compute(opcode.replace("x2", ""), sources, (single,) * count, single).tolist()
        assert ((packed >> shift) & 0xFFFF).tolist() == alone


@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_a_product_of_halves_is_added_to_float32_with_one_rounding(half: str) -> None:
    kinds = (half, half, "f32")

    def expected(a: float, b: float, c: float) -> float:
        return float(CONTEXTS["f32"].fma(*map(gmpy2.mpfr, (a, b, c))))

    _require_equal(f"fma.rn.f32.{half}", operands(kinds, 400, 94), kinds, "f32", expected)


@pytest.mark.parametrize("half", ["f16", "bf16"])
@pytest.mark.parametrize("end", ["sat", "relu"])
def test_results_are_held_between_ends(half: str, end: str) -> None:
    def hold(x: float) -> float:
        if end == "relu":
            return x if math.isnan(x) else x if x > 0 else 0.0
        return min(x, 1.0) if x > 0 else 0.0

    def expected(*numbers: float) -> float:
        return hold(float(CONTEXTS[half].fma(*map(gmpy2.mpfr, numbers))))

    if (half, end) != ("bf16", "sat"):
        kinds: tuple[str, ...] = (half,) * 3
        _require_equal(f"fma.rn.{end}.{half}", operands(kinds, 300, 96), kinds, half, expected)
    if end == "sat":
        for name, kind in itertools.product(("add", "mul"), ("f32", half)):
            kinds = (kind,) * 2

            def of_two(*numbers: float, name: str = name, kind: str = kind) -> float:
                return hold(float(getattr(CONTEXTS[kind], name)(*map(gmpy2.mpfr, numbers))))

            _require_equal(f"{name}.sat.{kind}", operands(kinds, 300, 97), kinds, kind, of_two)


@pytest.mark.parametrize(("into", "kind"), [("f16", "f16"), ("bf16", "bf16"), ("u32", "f32"), ("f32", "f32"),
                                            ("u32", "f16")])  # fmt: skip
def test_a_comparison_whose_truth_is_a_number(into: str, kind: str) -> None:
    yes = 1.0 if into[0] != "u" else 0xFFFFFFFF
    _require_equal(f"set.ltu.{into}.{kind}", operands((kind, kind), 300, 98), (kind, kind), into,
                   lambda a, b: yes if not a >= b else 0)  # fmt: skip


def test_a_pair_of_truths_has_its_ones_in_each_half() -> None:
    a, b = np.array([0x3C003C00, 0x40003C00], np.uint32), np.array([0x3C004000, 0x40003C00], np.uint32)
    assert compute("set.eq.u32.f16x2", [a, b], ("b32", "b32"), "b32").tolist() == [0xFFFF0000, 0xFFFFFFFF]
    assert compute("set.eq.f16x2.f16x2", [a, b], ("b32", "b32"), "b32").tolist() == [0x3C000000, 0x3C003C00]


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_the_highest_bit_that_is_not_the_sign(kind: str) -> None:
    """As the pseudo code of 9.7.1.19 has it, bit by bit."""
    size = int(kind[1:])
    for shifts in (False, True):

        def expected(a: int, shifts: bool = shifts) -> int:
            value = ~a if a < 0 else a
            for position in range(size - 1, -1, -1):
                if value >> position & 1:
                    return size - 1 - position if shifts else position
            return 0xFFFFFFFF

        opcode = f"bfind.{'shiftamt.' * shifts}{kind}"
        _require_equal(opcode, operands((kind,), 300, 95), (kind,), "u32", expected)
