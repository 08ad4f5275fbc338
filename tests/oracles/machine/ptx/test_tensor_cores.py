"""mma.sync against exact arithmetic: where elements lie, what the sum is, and what its interval holds."""

from __future__ import annotations

import itertools
import math
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from opassay.oracles.bound.contract import TENSOR_SUMS
from opassay.oracles.machine.ptx import hardware
from opassay.oracles.machine.ptx.executable import Kernel
from opassay.oracles.machine.ptx.tensor_cores import add_products
from opassay.oracles.verdicts.violation import Unsupported
from tests.oracles.machine.ptx.running import entry, run

_SHAPES = [
    ("f16", 8, "f32"), ("f16", 16, "f32"), ("bf16", 16, "f32"), ("tf32", 4, "f32"), ("tf32", 8, "f32"),
    ("s8", 16, "s32"), ("u8", 32, "s32"), ("e4m3", 32, "f32"), ("e5m2", 32, "f32"), ("f16", 16, "f16"),
    ("f64", 4, "f64"), ("f64", 8, "f64"), ("f64", 16, "f64"),
]  # fmt: skip
_BITS: dict[str, Any] = {
    "f16": lambda v: int.from_bytes(struct.pack("<e", v), "little"),
    "bf16": lambda v: int.from_bytes(struct.pack("<f", v), "little") >> 16,
    "tf32": lambda v: int.from_bytes(struct.pack("<f", v), "little"),
    "s8": lambda v: int(v) & 255, "u8": lambda v: int(v) & 255,
    "e4m3": lambda v: _low_bits(int(v), 3, 7), "e5m2": lambda v: _low_bits(int(v), 2, 15),
    "f64": lambda v: int.from_bytes(struct.pack("<d", v), "little"),
}  # fmt: skip
_WIDTHS = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1, "e4m3": 1, "e5m2": 1, "f64": 8}


def _low_bits(value: int, digits: int, bias: int) -> int:
    """Those of an integer that is -7 to 7, in a format of 8 bits whose exponents are counted from `bias`."""
    if not value:
        return 0
    exponent = abs(value).bit_length() - 1
    fraction = (abs(value) << digits >> exponent) - (1 << digits)
    return (128 if value < 0 else 0) | exponent + bias << digits | fraction


def _element_of_a(kind: str, lane: int, number: int) -> tuple[int, int]:
    """Row and column of element `number` of a thread, as the ISA's formulas have them (9.7.15.5)."""
    group, member = lane >> 2, lane % 4
    if _WIDTHS[kind] >= 4:
        return group + 8 * (number % 2), member + 4 * (number // 2)
    if _WIDTHS[kind] == 2:
        return group + 8 * (number // 2 % 2), member * 2 + number % 2 + 8 * (number // 4)
    return group + 8 * (number // 4 % 2), member * 4 + number % 4 + 16 * (number // 8)


def _element_of_b(kind: str, lane: int, number: int) -> tuple[int, int]:
    group, member = lane >> 2, lane % 4
    if _WIDTHS[kind] >= 4:
        return member + 4 * number, group
    if _WIDTHS[kind] == 2:
        return member * 2 + number % 2 + 8 * (number // 2), group
    return member * 4 + number % 4 + 16 * (number // 4), group


_SUMS: dict[str, Any] = {"f32": np.float32, "s32": np.int32, "f16": np.float16, "f64": np.float64}


def _multiplied(kind: str, depth: int, into: str, a: Any, b: Any, c: Any, how: str = "") -> Any:
    """D by one mma.sync of a warp, whose registers are filled one element at a time."""
    of_c, rows = np.dtype(_SUMS[into]), len(a)
    width = 8 if into == "f64" else 4  # of a register
    encode = _BITS[kind]
    fragments = []
    for matrix, place, bits, size in (
        (a, _element_of_a if rows == 16 else _element_of_b_transposed, encode, _WIDTHS[kind]),
        (b, _element_of_b, encode, _WIDTHS[kind]),
        (c, _element_of_sum, lambda v: int.from_bytes(np.array(v, of_c).tobytes(), "little"), of_c.itemsize),
    ):
        registers = np.zeros((matrix.size * size // 32 // width, 32), f"u{width}")
        for lane, number in itertools.product(range(32), range(matrix.size // 32)):
            register, at = divmod(number * size, width)
            registers[register, lane] |= registers.dtype.type(bits(matrix[place(kind, lane, number)]) << 8 * at)
        fragments.append(registers)
    names = [[f"%x{i}_{j}" for j in range(len(each))] for i, each in enumerate(fragments)]
    sums = [f"%d{i}" for i in range(len(fragments[2]))]
    declared = "".join(f".reg .b{8 * width} {name};\n" for name in itertools.chain(sums, *names))
    body = f"mad.wide.u32 %rd9, %t, {width}, %rd0;\nmad.wide.u32 %rd10, %t, {width}, %rd1;\n" + "".join(
        f"ld.global.b{8 * width} {name}, [%rd9+{32 * width * i}];\n" for i, name in enumerate(itertools.chain(*names))
    )
    groups = ", ".join("{" + ", ".join(group) + "}" for group in (sums, *names))
    body += f"mma.sync.aligned.m{rows}n8k{depth}.row.col.{how}{into}.{kind}.{kind}.{into} {groups};\n"
    body += "".join(f"st.global.b{8 * width} [%rd10+{32 * width * i}], {name};\n" for i, name in enumerate(sums))
    y = np.zeros_like(fragments[2])
    run(entry(body, 2, declared), [torch.from_numpy(each.view(f"i{width}")) for each in (np.concatenate(fragments), y)],
        on=hardware.current())  # fmt: skip
    d = np.zeros((rows, 8), of_c)
    for lane, number in itertools.product(range(32), range(d.size // 32)):
        register, at = divmod(number * of_c.itemsize, width)
        d[_element_of_sum(kind, lane, number)] = y[register, lane : lane + 1].view(of_c)[at // of_c.itemsize]
    return d


def _element_of_b_transposed(kind: str, lane: int, number: int) -> tuple[int, int]:
    """Of A with eight rows, m8n8k4."""
    return _element_of_b(kind, lane, number)[::-1]


def _element_of_sum(kind: str, lane: int, number: int) -> tuple[int, int]:
    return (lane >> 2) + 8 * (number // 2), lane % 4 * 2 + number % 2


@pytest.mark.parametrize(("kind", "depth", "into"), _SHAPES)
def test_products_of_integers_are_exact_on_every_hardware(kind: str, depth: int, into: str) -> None:
    rng = np.random.default_rng(depth)
    low, rows = 0 if kind == "u8" else -7, 8 if depth == 4 and kind == "f64" else 16
    a, b = rng.integers(low, 8, (rows, depth)), rng.integers(low, 8, (depth, 8))
    c = rng.integers(-1000, 1000, (rows, 8))
    for machine in (hardware.NEAREST, hardware.TRUNCATING, *hardware.ENDS):
        with hardware.on(machine):
            assert np.array_equal(_multiplied(kind, depth, into, a, b, c), a @ b + c)


def test_integers_beyond_the_largest_wrap_around_unless_they_are_to_saturate() -> None:
    a, b = np.full((16, 32), 127), np.full((32, 8), 127)
    c = np.where(np.arange(128).reshape(16, 8) % 2, 2**31 - 1, -(2**31))
    a[3] = -128
    exact = a @ b + c
    assert np.array_equal(_multiplied("s8", 32, "s32", a, b, c), exact.astype(np.int32))
    saturated = _multiplied("s8", 32, "s32", a, b, c, how="satfinite.")
    assert np.array_equal(saturated, np.clip(exact, -(2**31), 2**31 - 1))


def test_products_of_float64_are_added_with_one_rounding_each() -> None:
    rng = np.random.default_rng(4)
    a, b, c = rng.standard_normal((16, 8)), rng.standard_normal((8, 8)), rng.standard_normal((16, 8))
    d = _multiplied("f64", 8, "f64", a, b, c)
    for i, j in itertools.product(range(16), range(8)):
        total = Fraction(c[i, j])
        for k in range(8):
            total = Fraction(float(Fraction(a[i, k]) * Fraction(b[k, j]) + total))
        assert Fraction(d[i, j]) == total


def product_of_registers(kind: str, depth: int, threads: int) -> tuple[str, int]:
    """A module in which warps multiply fragments that lie in memory, one register of all threads after the other.

    Returns:
        The text, and how many registers a thread reads; it writes four sums.
    """
    counts = depth * _WIDTHS[kind] // 8, depth * _WIDTHS[kind] // 16, 4
    names = [f"%r{i}" for i in range(sum(counts))]
    body = "mad.lo.s32 %t, %c, 32, %t;\nmad.wide.u32 %rd9, %t, 4, %rd0;\nmad.wide.u32 %rd10, %t, 4, %rd1;\n"
    body += "".join(f"ld.global.b32 {name}, [%rd9+{4 * threads * i}];\n" for i, name in enumerate(names))
    groups = [["%r50", "%r51", "%r52", "%r53"], names[: counts[0]], names[counts[0] : -4], names[-4:]]
    fragments = ", ".join("{" + ", ".join(group) + "}" for group in groups)
    body += f"mma.sync.aligned.m16n8k{depth}.row.col.f32.{kind}.{kind}.f32 {fragments};\n"
    body += "".join(f"st.global.b32 [%rd10+{4 * threads * i}], %r{50 + i};\n" for i in range(4))
    return entry(body, 2), len(names)


def _draw(seed: int, depth: int = 16) -> tuple[Any, Any, Any]:
    """Matrices of float16 numbers, and an addend, in which addends differ by many binary orders."""
    rng = np.random.default_rng(seed)
    scale = np.exp2(rng.integers(-8, 4, depth))
    a = (rng.standard_normal((1, 16, depth)) * scale).astype(np.float16).astype(np.float64)
    b = rng.standard_normal((1, depth, 8)).astype(np.float16).astype(np.float64)
    return a, b, (rng.standard_normal((1, 16, 8)) * 20).astype(np.float32)


def _addends(a: Any, b: Any, c: Any, i: int, j: int) -> list[Fraction]:
    return [Fraction(float(c[0, i, j]))] + [
        Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[0, i], b[0, :, j], strict=True)
    ]


def _cut(value: Fraction, exponent: int) -> Fraction:
    unit = Fraction(2) ** exponent
    return unit * int(value / unit)


def _exponent(value: Fraction) -> int:
    """Of the leading digit."""
    number = abs(value)
    guess = number.numerator.bit_length() - number.denominator.bit_length()
    return guess if Fraction(2) ** guess <= number else guess - 1


def _on(machine: hardware.Hardware, a: Any, b: Any, c: Any) -> Any:
    with hardware.on(machine):
        return add_products(a, b, c)[0]


@pytest.mark.parametrize("seed", range(3))
def test_the_sum_is_rounded_once_or_cut_off_as_was_measured_and_the_ends_hold_both(seed: int) -> None:
    a, b, c = _draw(seed)
    nearest, cut = _on(hardware.NEAREST, a, b, c), _on(hardware.TRUNCATING, a, b, c)
    up, down, mixed = (_on(machine, a, b, c) for machine in hardware.ENDS)
    differs = 0
    for i in range(16):
        for j in range(8):
            addends = _addends(a, b, c, i, j)
            exact = sum(addends, Fraction(0))
            assert nearest[i, j] == np.float32(float(exact))
            factors = [(a[0, i, k], b[0, k, j]) for k in range(a.shape[2])]
            sums = [sum(math.frexp(each)[1] - 1 for each in pair) for pair in factors if all(pair)]
            top = max(*sums, _exponent(addends[0]) if addends[0] else -400)
            total = sum((_cut(each, top - 25) for each in addends), Fraction(0))
            assert Fraction(float(cut[i, j])) == (_cut(total, _exponent(total) - 23) if total else 0)
            assert down[i, j] <= min(nearest[i, j], cut[i, j]) <= max(nearest[i, j], cut[i, j]) <= up[i, j]
            assert mixed[i, j] in (up[i, j], down[i, j])
            # What the contract of tensor cores allows sums holds the whole interval.
            bound = TENSOR_SUMS * 16 * Fraction(2) ** -24 * sum(map(abs, addends), Fraction(0))
            last = Fraction(float(np.spacing(np.abs(nearest[i, j])))) / 2
            assert max(abs(Fraction(float(end[i, j])) - exact) for end in (up, down, cut)) <= bound + last
            differs += int(cut[i, j] != nearest[i, j])
    assert differs > 20


@pytest.mark.parametrize(("kind", "depth", "into"), [row for row in _SHAPES if row[2] == "f32" and row[0][0] != "e"])
def test_sums_have_the_bits_that_an_h100_gave(kind: str, depth: int, into: str) -> None:
    """Two warps of numbers whose magnitudes differ by twelve binary orders (`benchmarks/gpu/tensor_sums.py`)."""
    record = np.load(Path(__file__).with_name("h100_sums.npz"))[f"{kind}_{depth}"]
    count = len(record) - 4
    text, _ = product_of_registers(kind, depth, record.shape[1])
    out = torch.zeros(4, record.shape[1], dtype=torch.int32)
    run(text, [torch.from_numpy(record[:count].copy()), out], blocks=record.shape[1] // 32, on=hardware.TRUNCATING)
    assert np.array_equal(out.numpy(), record[count:])


def test_infinities_and_nans_go_through() -> None:
    a, b, c = _draw(0)
    a[0, 0, 3], a[0, 1, 2], c[0, 2, 5] = np.inf, np.nan, -np.inf
    for machine in (hardware.NEAREST, hardware.TRUNCATING, *hardware.ENDS):
        result = _on(machine, a, b, c)
        assert np.isinf(result[0]).all()
        assert np.isnan(result[1]).all()
        assert result[2, 5] == -np.inf
        assert np.isfinite(result[3:]).all()


@pytest.mark.parametrize("machine", [hardware.NEAREST, hardware.TRUNCATING, *hardware.ENDS], ids=str)
def test_a_sum_that_overflows_is_no_nan(machine: hardware.Hardware) -> None:
    a, b, c = np.full((1, 16, 8), 2.0**100), np.full((1, 8, 8), 2.0**100), np.zeros((1, 16, 8), np.float32)
    a[0, 3:6] *= -1
    result = _on(machine, a, b, c)
    assert not np.isnan(result).any()
    assert (np.sign(result) == np.where(np.isin(np.arange(16), (3, 4, 5)), -1, 1)[:, None]).all()


def test_tf32_looks_at_eleven_digits() -> None:
    a, b, c = np.full((16, 8), 1 + 2.0**-11 + 2.0**-20), np.ones((8, 8)), np.zeros((16, 8))
    assert (_multiplied("tf32", 8, "f32", a, b, c) == 8.0).all()
    assert (_multiplied("tf32", 8, "f32", a + 2.0**-11, b, c) == 8 + 2.0**-7).all()


def test_what_tensor_memory_is_for_is_refused_with_the_way_out() -> None:
    with pytest.raises(Unsupported, match=r"tcgen05\.wait.*mma.sync for sm_80: set OPASSAY_PTX_ARCH"):
        Kernel(entry("fence.proxy.async.shared::cta;\ntcgen05.wait::ld.sync.aligned;", 0))
