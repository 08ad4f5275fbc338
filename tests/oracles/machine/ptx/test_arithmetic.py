"""Every arithmetic instruction that kernels here compile to, against exact arithmetic, element by element."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import gmpy2
import mpmath
import numpy as np
import pytest
import torch

from opassay.oracles.machine.ptx import hardware
from opassay.oracles.machine.ptx.approximations import BOUNDS
from tests.oracles.machine.ptx.exactly import (
    CONTEXTS,
    decode,
    encode,
    extreme,
    flushed,
    into,
    operands,
    quotient,
    rounded,
    whole,
)  # fmt: skip
from tests.oracles.machine.ptx.running import at, compute, entry, run

SEED = 90
Row = tuple[tuple[str, ...], str, Callable[..., Any]]


def _choose(a: Any, b: Any, truth: bool) -> Any:
    return a if truth else b


def _directed(name: str, rounding: Any, kind: str = "f32") -> Callable[..., float]:
    """An operation of MPFR, rounded in one direction."""

    def result(*numbers: float) -> float:
        with gmpy2.context(CONTEXTS[kind], round=rounding) as context:
            return float(getattr(context, name)(*map(gmpy2.mpfr, numbers)))

    return result


def _floats() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("div", 2), ("sqrt", 1), ("fma", 3)):
        for kind in ("f32", "f64"):
            rows[f"{name}.rn.{kind}"] = (kind,) * count, kind, rounded(name, kind)
        rows[f"{name}.rn.ftz.f32"] = ("f32",) * count, "f32", rounded(name, "f32", ftz=True)
    for name, half in itertools.product(("add", "sub"), ("f16", "bf16")):
        rows[f"{name}.rn.{half}"] = (half, half), half, rounded(name, half)
        rows[f"{name}.rn.f32.{half}"] = (half, "f32"), "f32", rounded(name, "f32")
    for half in ("f16", "bf16"):
        rows[f"fma.rn.{half}"] = (half,) * 3, half, rounded("fma", half)
        rows[f"mul.rn.{half}"] = (half, half), half, rounded("mul", half)
    for kind in ("f32", "f64"):
        rows[f"copysign.{kind}"] = (kind, kind), kind, lambda a, b: math.copysign(b, a)
    for kind in ("f32", "f64"):
        rows[f"max.{kind}"] = (kind, kind), kind, extreme(True)
        rows[f"min.{kind}"] = (kind, kind), kind, extreme(False)
        rows[f"abs.{kind}"] = (kind,), kind, abs
        rows[f"neg.{kind}"] = (kind,), kind, operator.neg
        rows[f"selp.{kind}"] = (kind, kind, "pred"), kind, _choose
    for how, rounding in (("rm", gmpy2.RoundDown), ("rp", gmpy2.RoundUp), ("rz", gmpy2.RoundToZero)):
        for name, count in (("fma", 3), ("add", 2), ("sub", 2), ("mul", 2)):
            rows[f"{name}.{how}.f32"] = ("f32",) * count, "f32", _directed(name, rounding)
    rows["cvt.sat.f32.f32"] = ("f32",), "f32", lambda x: min(x, 1.0) if x > 0 else 0.0
    rows["abs.ftz.f32"] = ("f32",), "f32", lambda a: abs(flushed(a))
    rows["abs.bf16"] = ("bf16",), "bf16", abs
    return rows


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda a, b: a == a and b == b and compare(a, b)


def _unordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda a, b: a != a or b != b or compare(a, b)


def _comparisons() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        compare = getattr(operator, name)
        for kind in ("f32", "f64", "f16", "bf16"):
            rows[f"setp.{name}.{kind}"] = (kind, kind), "pred", _ordered(compare)
            rows[f"setp.{name}u.{kind}"] = (kind, kind), "pred", _unordered(compare)
        for kind in ("s32", "u32", "s64"):
            rows[f"setp.{name}.{kind}"] = (kind, kind), "pred", compare
    rows["setp.num.f32"] = ("f32", "f32"), "pred", lambda a, b: a == a and b == b
    rows["setp.nan.f32"] = ("f32", "f32"), "pred", lambda a, b: a != a or b != b
    rows["setp.lt.ftz.f32"] = ("f32", "f32"), "pred", lambda a, b: flushed(a) < flushed(b)
    rows["setp.lt.and.s32"] = ("s32", "s32", "pred"), "pred", lambda a, b, truth: a < b and truth
    return rows


def _integers() -> dict[str, Row]:
    binary: dict[str, Callable[..., Any]] = {
        "add": operator.add,
        "sub": operator.sub,
        "mul.lo": operator.mul,
        "max": max,
        "min": min,
    }
    rows: dict[str, Row] = {}
    for kind in ("s16", "u16", "s32", "u32", "s64", "u64"):
        size = int(kind[1:])
        for name, function in binary.items():
            rows[f"{name}.{kind}"] = (kind, kind), kind, function
        rows[f"div.{kind}"] = (kind, kind), kind, lambda a, b: quotient(a, b) if b else -1
        rows[f"rem.{kind}"] = (kind, kind), kind, lambda a, b: a - quotient(a, b) * b if b else a + b - b
        rows[f"mad.lo.{kind}"] = (kind,) * 3, kind, lambda a, b, c: a * b + c
        rows[f"shr.{kind}"] = (kind, "u32"), kind, lambda a, by: a >> by if by < 1 << 12 else -1 if a < 0 else 0
        rows[f"mul.hi.{kind}"] = (kind, kind), kind, lambda a, b, size=size: a * b >> size
        rows[f"mad.hi.{kind}"] = (kind,) * 3, kind, lambda a, b, c, size=size: (a * b >> size) + c
        if size < 64:
            wide = f"{kind[0]}{2 * size}"
            rows[f"mul.wide.{kind}"] = (kind, kind), wide, operator.mul
            rows[f"mad.wide.{kind}"] = (kind, kind, wide), wide, lambda a, b, c: a * b + c
    for kind in ("b16", "b32", "b64", "pred"):
        for name, function in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
            rows[f"{name}.{kind}"] = (kind, kind), kind, function
        rows[f"not.{kind}"] = (kind,), kind, operator.not_ if kind == "pred" else operator.invert
    for kind in ("b16", "b32", "b64"):
        rows[f"shl.{kind}"] = (kind, "u32"), kind, lambda a, by: a << by if by < 64 else 0
        rows[f"selp.{kind}"] = (kind, kind, "pred"), kind, _choose
    for kind in ("s16", "s32", "s64"):
        rows[f"neg.{kind}"] = (kind,), kind, operator.neg
        rows[f"abs.{kind}"] = (kind,), kind, abs
    rows["max.relu.s32"] = ("s32", "s32"), "s32", lambda a, b: max(a, b, 0)
    for kind in ("u32", "s32", "u64", "s64"):
        rows[f"bfe.{kind}"] = (kind, "u32", "u32"), kind, _field(kind)
    for size in (32, 64):
        rows[f"popc.b{size}"] = (f"b{size}",), "u32", int.bit_count
        rows[f"clz.b{size}"] = (f"b{size}",), "u32", lambda a, size=size: size - a.bit_length()
        rows[f"brev.b{size}"] = (f"b{size}",), f"b{size}", lambda a, size=size: int(f"{a:0{size}b}"[::-1], 2)
        rows[f"bfi.b{size}"] = (f"b{size}",) * 2 + ("u32", "u32"), f"b{size}", _inserted(size)
    for how, end in itertools.product("lr", ("wrap", "clamp")):
        rows[f"shf.{how}.{end}.b32"] = ("b32",) * 3, "b32", _funnel(how, end)
    rows["prmt.b32"] = ("b32",) * 3, "b32", _permuted
    return rows


def _field(kind: str) -> Callable[[int, int, int], int]:
    """Bit by bit, as the ISA's pseudo code has it."""
    size = int(kind[1:])

    def result(a: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        bit = [a >> number & 1 for number in range(size)]
        sign = 0 if kind[0] == "u" or not length else bit[min(position + length - 1, size - 1)]
        inside = range(position, min(position + length, size))
        return sum(
            (bit[position + number] if position + number in inside else sign) << number for number in range(size)
        )

    return result


def _inserted(size: int) -> Callable[[int, int, int, int], int]:
    """Bit by bit, as the ISA's pseudo code has it."""

    def result(a: int, b: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        for number in range(length):
            if position + number < size and number < size:
                b = b & ~(1 << position + number) | (a >> number & 1) << position + number
        return b

    return result


def _funnel(how: str, end: str) -> Callable[[int, int, int], int]:
    def result(low: int, high: int, by: int) -> int:
        by = by & 31 if end == "wrap" else min(by, 32)
        both = high << 32 | low
        return both << by >> 32 if how == "l" else both >> by

    return result


def _permuted(a: int, b: int, selector: int) -> int:
    pool = (a | b << 32).to_bytes(8, "little")
    digits = [selector >> 4 * number & 15 for number in range(4)]
    return int.from_bytes(bytes((255 if pool[d & 7] >> 7 else 0) if d & 8 else pool[d & 7] for d in digits), "little")


def _conversions() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for half in ("f16", "bf16"):
        rows[f"cvt.rn.{half}.f32"] = ("f32",), half, rounded("plus", half)
        rows[f"cvt.rz.{half}.f32"] = ("f32",), half, _directed("plus", gmpy2.RoundToZero, half)
        rows[f"cvt.f32.{half}"] = (half,), "f32", float
    rows["cvt.f64.f32"], rows["cvt.rn.f32.f64"] = (("f32",), "f64", float), (("f64",), "f32", rounded("plus", "f32"))
    for to, source in itertools.product(("f32", "f64"), ("s32", "u32", "s64")):
        rows[f"cvt.rn.{to}.{source}"] = (source,), to, rounded("plus", to)
    for how, source in itertools.product("nzmp", ("f32", "f64")):
        rows[f"cvt.r{how}i.{source}.{source}"] = (source,), source, functools.partial(whole, how)
        for to in ("s32", "s64", "u32"):
            rows[f"cvt.r{how}i.{to}.{source}"] = (source,), to, functools.partial(_to_integer, how, to, source)
    rows["cvt.rna.tf32.f32"] = ("f32",), "f32", _to_tf32
    rows["cvt.rmi.ftz.f32.f32"] = ("f32",), "f32", lambda x: whole("m", flushed(x))
    for to, source in itertools.product(("u16", "u32", "u64", "s64", "s32"), ("u16", "u32", "u64", "s32")):
        rows[f"cvt.{to}.{source}"] = (source,), to, int
    return rows


def _to_tf32(x: float) -> float:
    """The nearest number with 11 digits, of two the larger."""
    if not math.isfinite(x) or x == 0:
        return x
    unit = math.ldexp(1.0, max(math.frexp(x)[1], -125) - 11)
    value = math.copysign(math.floor(abs(x) / unit + 0.5) * unit, x)
    return math.copysign(math.inf, x) if abs(value) > 3.4e38 else value


def _to_integer(how: str, to: str, source: str, x: float) -> int:
    return into(to, whole(how, x), source)


TABLE = _floats() | _comparisons() | _integers() | _conversions()


@pytest.mark.one_fast_in(17)
@pytest.mark.parametrize("opcode", TABLE)
def test_an_instruction_gives_the_exact_result(opcode: str) -> None:
    kinds, result, function = TABLE[opcode]
    print("seed", SEED)
    columns = operands(kinds, 300, SEED)
    computed = compute(opcode, columns, kinds, result)
    wrong = []
    for number, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        expected = encode(function(*map(decode, row, kinds)), result)
        bits_there = int(computed[number])
        if bits_there != expected and not (expected is None and math.isnan(decode(bits_there, result))):
            wrong.append((list(map(hex, row)), hex(bits_there), expected and hex(expected)))
    assert wrong == []


@pytest.mark.parametrize("opcode", ["add.rn.f32", "fma.rn.f32", "div.rn.f32", "max.f32"])
def test_a_nan_of_float32_is_the_canonical_one(opcode: str) -> None:
    kinds = ("f32",) * (3 if opcode.startswith("fma") else 2)
    assert compute(opcode, [np.array([0xFFC00001], np.uint32)] * len(kinds), kinds, "f32").tolist() == [0x7FFFFFFF]


@pytest.mark.parametrize(
    ("opcode", "single"),
    [
        ("add.rn.f32x2", "f32"), ("mul.rn.f32x2", "f32"), ("add.rn.bf16x2", "bf16"), ("fma.rn.bf16x2", "bf16"),
        ("sub.rn.f16x2", "f16"),
    ],
)  # fmt: skip
def test_a_packed_instruction_is_the_single_one_twice(opcode: str, single: str) -> None:
    count = 3 if opcode.startswith("fma") else 2
    columns = operands((single,) * count, 300, SEED)
    low, high = ([np.roll(column, turn) for column in columns] for turn in (0, 7))
    whole_type = "b64" if single == "f32" else "b32"
    shift = 32 if single == "f32" else 16
    together = [a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(shift) for a, b in zip(low, high, strict=True)]
    packed = compute(opcode, [each.astype(f"u{shift // 4}") for each in together], (whole_type,) * count, whole_type)
    alone = [compute(opcode.replace("x2", ""), each, (single,) * count, single) for each in (low, high)]
    assert (packed & ((1 << shift) - 1)).tolist() == alone[0].tolist()
    assert (packed >> shift).tolist() == alone[1].tolist()


@pytest.mark.parametrize("half", ["f16", "bf16"])
@pytest.mark.parametrize("how", ["lt", "geu"])
def test_a_comparison_of_pairs_is_that_of_either_half(how: str, half: str) -> None:
    a, b = operands((half, half), 200, SEED)
    turned = [np.roll(column, 7) for column in (a, b)]
    words = [low.astype(np.uint32) | high.astype(np.uint32) << 16 for low, high in zip((a, b), turned, strict=True)]
    size = len(a) // 32 * 32
    body = "mad.lo.s32 %t, %c, 32, %t;\n" + "".join(
        at(number, 4) + f"ld.global.b32 %r{number}, [%rd60];\n" for number in range(2)
    )
    body += f"setp.{how}.{half}x2 %p1|%p2, %r0, %r1;\nselp.b32 %r2, 1, 0, %p1;\nselp.b32 %r3, 1, 0, %p2;\n"
    body += at(2, 8) + "st.global.b32 [%rd60], %r2;\nst.global.b32 [%rd60+4], %r3;"
    out = torch.zeros(size, 2, dtype=torch.int32)
    run(entry(body, 3), [*(torch.from_numpy(word[:size].view(np.int32)) for word in words), out], blocks=size // 32)
    for column, sources in zip(out.numpy().T, ((a, b), turned), strict=True):
        assert column.tolist() == compute(f"setp.{how}.{half}", sources, (half, half), "pred")[:size].tolist()


def test_a_pair_of_halves_has_its_first_source_above() -> None:
    columns = [np.array([encode(value, "f32")], np.uint32) for value in (1.0, -2.0)]
    assert compute("cvt.rn.bf16x2.f32", columns, ("f32", "f32"), "b32").tolist() == [0x3F80C000]
    assert compute("cvt.rn.f16x2.f32", columns, ("f32", "f32"), "b32").tolist() == [0x3C00C000]


_EXACT = {
    "ex2": lambda x: mpmath.mpf(2) ** x, "lg2": lambda x: mpmath.log(x, 2), "rcp": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x), "sqrt": mpmath.sqrt, "sin": mpmath.sin, "cos": mpmath.cos,
    "tanh": mpmath.tanh,
}  # fmt: skip


def _arguments(name: str) -> Any:
    rng = np.random.default_rng((SEED, len(name)))
    x = rng.uniform(-4.0, 4.0, 200) if name in ("sin", "cos", "tanh") else rng.uniform(-120.0, 120.0, 200)
    if name not in ("ex2", "sin", "cos", "tanh"):
        x = np.exp2(x)
    return x.astype(np.float32)


@pytest.mark.parametrize("name", _EXACT)
def test_an_approximation_is_within_its_bound_and_reaches_the_ends(name: str) -> None:
    print("seed", SEED)
    x = _arguments(name)
    exact = [_EXACT[name](mpmath.mpf(float(each))) for each in x]
    distance = BOUNDS[name].distance(np.array([float(each) for each in exact]))
    opcode = f"{name}.approx.f32"
    for machine in (hardware.NEAREST, *hardware.ENDS):
        y = compute(opcode, [x.view(np.uint32)], ("f32",), "f32", on=machine).view(np.float32)
        error = np.array([float(mpmath.mpf(float(each)) - true) for each, true in zip(y, exact, strict=True)])
        assert (np.abs(error) <= distance).all()
        if machine.approximation == "nearest":
            spacing = np.spacing(np.abs(y)).astype(np.float64)
            assert (np.abs(error) <= spacing / 2).all()
            continue
        # What is left to the end is less than one spacing of float32.
        assert (np.abs(error) >= distance - np.spacing(np.abs(y))).mean() > 0.95
        signs = {"up": {1.0}, "down": {-1.0}, "mixed": {1.0, -1.0}}[machine.approximation]
        assert set(np.sign(error[distance > np.spacing(np.abs(y))])) <= signs


_HARDWARES = (*hardware.ENDS, hardware.TRUNCATING, hardware.APART)


def _of_every_exponent(kind: str) -> Any:
    """Numbers of both signs with each exponent of a format, subnormal ones, infinities and NaN."""
    mantissa, exponents = {"f32": (23, 256), "f64": (52, 2048)}[kind]
    rows = [np.arange(exponents, dtype=np.uint64) << np.uint64(mantissa)]
    rows += [rows[0] + np.uint64(part) for part in (1, 1 << mantissa - 1, (1 << mantissa) - 1)]
    bits = np.concatenate([*rows, *(row | np.uint64(exponents << mantissa) for row in rows)])
    return bits.astype(np.uint32 if kind == "f32" else np.uint64)


@pytest.mark.parametrize("machine", _HARDWARES, ids=str)
@pytest.mark.parametrize("opcode", [*(f"{name}.approx.f32" for name in _EXACT), "ex2.approx.ftz.f32", "div.full.f32",
                                    "div.approx.f32", "rcp.approx.ftz.f64"])  # fmt: skip
def test_an_approximation_is_nan_where_the_nearest_number_is_and_nowhere_else(opcode: str, machine: Any) -> None:
    kind = opcode[-3:]
    operands = [_of_every_exponent(kind)]
    if opcode.startswith("div"):
        x = operands[0]
        operands = [np.tile(x, 8), np.concatenate([np.roll(x, 251 * step + 3) for step in range(8)])]
    if opcode.startswith(("ex2", "tanh")):  # most exponents are of numbers whose result is 0, 1 or infinite
        operands = [np.concatenate([operands[0], np.linspace(-160.0, 160.0, 1281, dtype=np.float32).view(np.uint32)])]
    results = [
        compute(opcode, operands, (kind,) * len(operands), kind, on=each).view({"f32": "f4", "f64": "f8"}[kind])
        for each in (hardware.NEAREST, machine)
    ]
    assert np.array_equal(*map(np.isnan, results))


def test_quotients_by_powers_of_two_are_exact_and_others_are_not() -> None:
    a = np.random.default_rng(SEED).standard_normal(64).astype(np.float32)
    for by, is_exact in ((np.float32(16.0), True), (np.float32(-0.125), True), (np.float32(3.0), False)):
        for machine in hardware.ENDS:
            operands = [a.view(np.uint32), np.full(64, by).view(np.uint32)]
            y = compute("div.full.f32", operands, ("f32", "f32"), "f32", on=machine).view(np.float32)
            assert np.array_equal(y, a / by) == is_exact
    for machine in hardware.ENDS:
        y = compute("rcp.approx.f32", [np.full(1, 8.0, np.float32).view(np.uint32)], ("f32",), "f32", on=machine)
        assert float(y.view(np.float32)[0]) == 0.125


def test_powers_of_two_are_exact_and_equal_arguments_give_equal_results() -> None:
    x = np.repeat(np.array([-3.0, 0.0, 5.0, 0.3, 0.7], np.float32), 3)
    for machine in hardware.ENDS:
        y = compute("ex2.approx.ftz.f32", [x.view(np.uint32)], ("f32",), "f32", on=machine).view(np.float32)
        assert y[:9].tolist() == [0.125] * 3 + [1.0] * 3 + [32.0] * 3
        assert len(set(y[9:12])) == len(set(y[12:])) == 1


def test_approximations_flush_where_the_instruction_says_so() -> None:
    tiny = np.array([2.0**-140], np.float32)
    assert compute(
        "ex2.approx.ftz.f32", [np.array([-130.0], np.float32).view(np.uint32)], ("f32",), "f32"
    ).tolist() == [0]
    assert compute("rcp.approx.ftz.f32", [tiny.view(np.uint32)], ("f32",), "f32").tolist() == [encode(math.inf, "f32")]
    assert compute("sqrt.approx.f32", [tiny.view(np.uint32)], ("f32",), "f32").tolist() == [encode(2.0**-70, "f32")]


def test_the_gross_reciprocal_has_no_lower_word() -> None:
    x = np.array([3.0, 0.1, -7e200, math.inf, 0.0])
    for machine in (hardware.NEAREST, *hardware.ENDS):
        y = compute("rcp.approx.ftz.f64", [x.view(np.uint64)], ("f64",), "f64", on=machine)
        assert (y & np.uint64(0xFFFFFFFF)).tolist() == [0] * 5
        with np.errstate(divide="ignore"):
            assert (np.abs(y.view(np.float64)[:3] * x[:3] - 1) < 2.0**-18).all()
        assert y.view(np.float64)[3:].tolist() == [0.0, math.inf]
