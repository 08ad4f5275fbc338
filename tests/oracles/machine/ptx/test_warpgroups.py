"""wgmma: where factors lie in shared memory, what sums are, and when memory may be written again."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from opassay.oracles.machine.ptx import hardware
from opassay.oracles.machine.ptx.executable import Kernel
from opassay.oracles.machine.ptx.tensor_cores import add_products
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Unsupported, Violation
from tests.oracles.machine.ptx.running import entry, run
from tests.oracles.machine.ptx.test_tensor_cores import _BITS, _SUMS, _WIDTHS

#: Units of 16 bytes in a row of a swizzle, and the bits of a descriptor that name it.
_SWIZZLES = {1: 0, 8: 1, 4: 2, 2: 3}
_DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
_COLUMNS = 24
#: Where B begins, behind A.
_SECOND = 16384


def _lay_out(matrix: Any, kind: str, units: int, transposed: bool, at: int) -> tuple[Any, int]:
    """The bytes of shared memory that have a matrix (rows, depth), and its descriptor.

    By CUTLASS's canonical layouts, in units of 16 bytes: of ((8, m), 2) : ((W, stride), 1 or leading), and of
    ((W, m), (8, k)) : ((1, leading), (W, stride)), or without a swizzle ((1, m), (8, k)) : ((-, stride), (1, leading)).
    """
    width, (rows, depth) = _WIDTHS[kind], matrix.shape
    per_unit = 16 // width
    if transposed:
        strips = -(-rows // (per_unit * units))
        far, near = depth * units, 8 * units  # from one strip of W units to the next, and from eight rows of K
        leading, stride = (near, far) if units == 1 else (far, near)
        assert strips * far * 16 <= _SECOND
    else:
        leading, stride = (128, 8) if units == 1 else (1, 8 * units)
        if units == 1:
            leading = rows // 8 * 8 + 8
    image = np.zeros(2 * _SECOND, np.uint8)
    for r, k in itertools.product(range(rows), range(depth)):
        if not transposed:
            unit, byte = divmod(k * width, 16)
            place = r % 8 * units + r // 8 * stride + unit * (leading if units == 1 else 1)
        else:
            unit, byte = divmod(r * width, 16)
            if units == 1:
                place = unit * stride + k % 8 + k // 8 * leading
            else:
                place = unit % units + unit // units * leading + k % 8 * units + k // 8 * stride
        address = at + 16 * place + byte
        address ^= ((address >> 7) & (units - 1)) << 4
        bits = _BITS[kind](matrix[r, k])
        image[address : address + width] = list(bits.to_bytes(width, "little"))
    return image, at >> 4 | leading << 16 | stride << 32 | _SWIZZLES[units] << 62


_COPY = """
mov.b32 %r0, %t;
$copy:
shl.b32 %r1, %r0, 2;
cvt.u64.u32 %rd5, %r1;
add.u64 %rd6, %rd0, %rd5;
ld.global.b32 %r2, [%rd6];
st.shared.b32 [%r1], %r2;
add.s32 %r0, %r0, 128;
setp.lt.s32 %p1, %r0, 8192;
@%p1 bra $copy;
fence.proxy.async.shared::cta;
"""
_TILES = ".shared .align 128 .b8 tiles[32768];\n"


def _program(product: str, count: int, *, barrier: str = "bar.sync 0;", behind: str = "") -> str:
    """A kernel that copies 32768 bytes to shared memory, multiplies, and stores `count` registers of each thread."""
    names = [f"%d{i}" for i in range(count)]
    body = f"{_COPY}{barrier}\nmad.wide.u32 %rd9, %t, 4, %rd1;\n"
    body += "".join(f"ld.global.b32 {name}, [%rd9+{512 * i}];\n" for i, name in enumerate(names))
    body += "setp.eq.s32 %p2, %t, %t;\nsetp.ne.s32 %p3, %t, %t;\nwgmma.fence.sync.aligned;\n"
    body += product.replace("SUMS", "{" + ", ".join(names) + "}")
    body += "wgmma.commit_group.sync.aligned;\n" + (behind or "wgmma.wait_group.sync.aligned 0;\n")
    body += "".join(f"st.global.b32 [%rd9+{512 * i}], {name};\n" for i, name in enumerate(names))
    return entry(body, 2, "".join(f".reg .b32 {name};\n" for name in names), _TILES)


def _multiplied(
    kinds: tuple[str, str, str], a: Any, b: Any, c: Any, forms: list[tuple[int, bool]], flags: str = "%p2, 1, 1",
    on: Any = hardware.NEAREST, text: str = "",
) -> Any:  # fmt: skip
    """D of A (64, depth), B (columns, depth) and C, each factor in its form (units, transposed)."""
    of_a, of_b, of_d = kinds
    first, left = _lay_out(a, of_a, forms[0][0], forms[0][1], 0)
    second, right = _lay_out(b, of_b, forms[1][0], forms[1][1], _SECOND)
    of_c = np.dtype(_SUMS[of_d])
    count = 64 * len(b) * of_c.itemsize // 4 // 128
    places = np.zeros((count * 4 // of_c.itemsize, 128, 2), int)
    for number, thread in itertools.product(range(len(places)), range(128)):
        lane = thread % 32
        row = 16 * (thread // 32) + lane // 4 + 8 * (number // 2 % 2)
        places[number, thread] = row, 8 * (number // 4) + 2 * (lane % 4) + number % 2
    filled = c[places[..., 0], places[..., 1]].astype(of_c)
    if of_c.itemsize == 2:
        filled = np.stack([filled[::2], filled[1::2]], -1)
    registers = torch.from_numpy(np.ascontiguousarray(filled).view(np.int32).reshape(count, 128).copy())
    shape = f"m64n{len(b)}k{a.shape[1]}.{of_d}.{of_a}.{of_b}"
    product = f"wgmma.mma_async.sync.aligned.{shape} SUMS, {left}, {right}, {flags};\n"
    run(text or _program(product, count),
        [torch.from_numpy(first | second), registers], warps=4, on=on)  # fmt: skip
    there = registers.numpy().view(of_c)
    if of_c.itemsize == 2:
        there = there.reshape(count, 128, 2).transpose(0, 2, 1).reshape(2 * count, 128)
    d = np.zeros((64, len(b)), of_c)
    d[places[..., 0], places[..., 1]] = there
    return d


def _draw(kinds: tuple[str, str, str], columns: int = _COLUMNS) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(len(kinds[0]))
    low = [0 if kind[0] == "u" else -5 for kind in kinds]
    depth = _DEPTHS[kinds[0]]
    return rng.integers(low[0], 6, (64, depth)), rng.integers(low[1], 6, (columns, depth)), rng.integers(
        -200, 200, (64, columns)
    )  # fmt: skip


@pytest.mark.one_fast_in(6)
@pytest.mark.parametrize("units", _SWIZZLES)
@pytest.mark.parametrize(
    "kinds",
    [("f16", "f16", "f32"), ("bf16", "bf16", "f32"), ("tf32", "tf32", "f32"), ("e4m3", "e5m2", "f32"),
     ("s8", "s8", "s32"), ("u8", "s8", "s32"), ("f16", "f16", "f16")],
)  # fmt: skip
def test_products_of_integers_are_exact_wherever_factors_lie(kinds: tuple[str, str, str], units: int) -> None:
    a, b, c = _draw(kinds)
    flags = "%p2" if kinds[2] == "s32" else "%p2, 1, 1"
    exact = a @ b.T + c
    assert np.array_equal(_multiplied(kinds, a, b, c, [(units, False)] * 2, flags), exact)
    if _WIDTHS[kinds[0]] == 2:
        for across in itertools.product((False, True), repeat=2):
            flags = f"%p2, 1, 1, {int(across[0])}, {int(across[1])}"
            forms = [(units, across[0]), (units, across[1])]
            assert np.array_equal(_multiplied(kinds, a, b, c, forms, flags), exact)


def test_a_descriptor_with_another_swizzle_gives_another_product() -> None:
    kinds = "f16", "f16", "f32"
    a, b, c = _draw(kinds)
    for forms in ([(8, False), (4, False)], [(1, False), (2, False)]):
        exact = a @ b.T + c
        assert np.array_equal(_multiplied(kinds, a, b, c, forms), exact)
        (_, left), (_, right) = (_lay_out(m, "f16", 2, False, at) for m, at in ((a, 0), (b, _SECOND)))
        wrong = f"wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16 SUMS, {left}, {right}, %p2, 1, 1;\n"
        assert not np.array_equal(_multiplied(kinds, a, b, c, forms, text=_program(wrong, 12)), exact)


def test_signs_and_what_is_not_added_to() -> None:
    kinds = "f16", "f16", "f32"
    a, b, c = _draw(kinds)
    forms = [(8, False), (8, False)]
    assert np.array_equal(_multiplied(kinds, a, b, c, forms, "%p2, -1, 1"), c - a @ b.T)
    assert np.array_equal(_multiplied(kinds, a, b, c, forms, "%p2, -1, -1"), c + a @ b.T)
    assert np.array_equal(_multiplied(kinds, a, b, np.full(c.shape, np.nan), forms, "%p3, 1, 1"), a @ b.T)


def test_integers_saturate_where_they_are_to() -> None:
    a, b, c = np.full((64, 32), 127), np.full((8, 32), 127), np.full((64, 8), 2**31 - 1)
    kinds = "s8", "s8", "s32"
    assert (_multiplied(kinds, a, b, c, [(2, False)] * 2, "%p2") < 0).all()
    text = _program("wgmma.mma_async.sync.aligned.m64n8k32.satfinite.s32.s8.s8 SUMS, LEFT, RIGHT, %p2;\n", 4)
    (_, left), (_, right) = (_lay_out(m, "s8", 2, False, at) for m, at in ((a, 0), (b, _SECOND)))
    text = text.replace("LEFT", str(left)).replace("RIGHT", str(right))
    assert (_multiplied(kinds, a, b, c, [(2, False)] * 2, "%p2", text=text) == 2**31 - 1).all()


def test_a_in_registers_is_the_fragment_of_each_warp() -> None:
    """A is 1 where column equals row modulo 16: D has the columns of B over and over."""
    b = np.random.default_rng(3).integers(-9, 10, (8, 16))
    image, right = _lay_out(b, "f16", 2, False, _SECOND)
    one = int.from_bytes(np.float16(1).tobytes(), "little")
    body = "shr.u32 %r5, %t, 2;\nand.b32 %r5, %r5, 7;\nand.b32 %r6, %t, 3;\nshl.b32 %r6, %r6, 1;\n"
    for number in range(4):  # registers hold columns 2 m and 2 m + 1 of rows g and g + 8, then 8 columns on
        body += f"mov.b32 %r{10 + number}, 0;\n"
        for more in range(2):
            # a[g + 8 (number % 2), 2 m + more + 8 (number // 2)] is 1 on the diagonal
            if number % 2 == number // 2:
                body += f"add.s32 %r7, %r6, {more};\nsetp.eq.s32 %p4, %r7, %r5;\n"
                body += f"@%p4 mov.b32 %r{10 + number}, {one << 16 * more};\n"
    product = body + (
        f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 SUMS, {{%r10, %r11, %r12, %r13}}, {right}, %p2, 1, 1, 0;\n"
    )
    registers = torch.zeros(4, 128, dtype=torch.int32)
    run(_program(product, 4), [torch.from_numpy(image), registers], warps=4)
    d = registers.numpy().view(np.float32)
    for number, thread in itertools.product(range(4), range(128)):
        row, column = thread % 32 // 4 + 8 * (number // 2), 2 * (thread % 4) + number % 2
        assert d[number, thread] == b[column, row]


_FORMS = [(8, False), (8, False)]
_WAIT = "wgmma.wait_group.sync.aligned 0;\n"
_OVERWRITE = "mov.b32 %r20, {at};\nmad.lo.s32 %r20, %t, 4, %r20;\nst.shared.b32 [%r20], %t;\n"


def _code(behind: str, barrier: str = "bar.sync 0;", order: str = "together") -> Code | None:
    kinds = "f16", "f16", "f32"
    a, b, c = _draw(kinds)
    (_, left), (_, right) = (_lay_out(m, "f16", 8, False, at) for m, at in ((a, 0), (b, _SECOND)))
    product = f"wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16 SUMS, {left}, {right}, %p2, 1, 1;\n"
    text = _program(product, 12, barrier=barrier, behind=behind)
    try:
        _multiplied(kinds, a, b, c, _FORMS, text=text, on=hardware.Hardware(order=order))
    except Violation as error:
        return error.code
    return None


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_memory_that_is_multiplied_is_written_after_the_wait_and_a_barrier(order: str) -> None:
    for at in (0, _SECOND):
        write = _OVERWRITE.format(at=at)
        assert _code(_WAIT + "bar.sync 0;\n" + write, order=order) is None
        assert _code(write + _WAIT, order=order) is Code.RACE
        assert _code("bar.sync 0;\n" + write + _WAIT, order=order) is Code.RACE
        assert _code(_WAIT + write, order=order) is Code.RACE
        assert _code("wgmma.wait_group.sync.aligned 1;\nbar.sync 0;\n" + write + _WAIT, order=order) is Code.RACE
    assert _code(_WAIT, barrier="", order=order) is Code.RACE


def test_all_four_warps_of_a_group_come() -> None:
    body = "setp.lt.s32 %p1, %t, 96;\n@%p1 bra $on;\nret;\n$on:\nwgmma.fence.sync.aligned;\n"
    body += "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r1, %r2, %r3, %r4}, 4611686293305294848, "
    body += "4611686293305294848, %p1, 1, 1, 0, 0;"
    with pytest.raises(Violation, match="all four warps") as error:
        run(entry(body, 0, outside=_TILES), [], warps=4)
    assert error.value.code is Code.DIVERGENT


@pytest.mark.parametrize(
    ("product", "words"),
    [
        ("m64n8k16.f32.f16.f16 {%r1, %r2, %r3}, %rd1, %rd2, %p1, 1, 1", "the operands"),
        ("m64n8k16.f32.f16.bf16 {%r1, %r2, %r3, %r4}, %rd1, %rd2, %p1, 1, 1", "not known|the operands"),
        ("m64n8k16.f32.f16.f16 {%r1, %r2, %r3, %r4}, %rd1, %rd2, %p1, %r1, 1", "the operands"),
        ("sp.m64n8k32.f32.f16.f16 {%r1, %r2, %r3, %r4}, %rd1, %rd2, %r5, 0, %p1, 1, 1", "not known"),
    ],
)
def test_other_products_are_refused_by_name(product: str, words: str) -> None:
    with pytest.raises(Unsupported, match=rf"wgmma\.mma_async.*{words}"):
        Kernel(entry(f"wgmma.mma_async.sync.aligned.{product};", 0))


def test_a_base_offset_is_refused() -> None:
    product = f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 SUMS, {1 << 49}, 0, %p2, 1, 1;\n"
    tensors = [torch.zeros(32768, dtype=torch.uint8), torch.zeros(4, 128, dtype=torch.int32)]
    with pytest.raises(Unsupported, match="a base offset"):
        run(_program(product, 4), tensors, warps=4)


def test_sums_of_eight_bits_are_cut_off_as_an_h100_cuts_them() -> None:
    """Addends behind 13 bits after the leading one of the largest, and their sum likewise (docs/h100.md)."""
    rng = np.random.default_rng(5)
    a, b = (rng.integers(1, 16, shape) * 2.0 ** rng.integers(-4, 4, shape) for shape in ((1, 16, 32), (1, 32, 8)))
    c = (rng.standard_normal((1, 16, 8)) * 100).astype(np.float32)
    with hardware.on(hardware.TRUNCATING):
        sums = add_products(a, b, c, 13)[0]
    differs = 0
    for i, j in itertools.product(range(16), range(8)):
        addends = [Fraction(x) * Fraction(y) for x, y in zip(a[0, i], b[0, :, j], strict=True)]
        exponents = [int(np.frexp(x)[1] + np.frexp(y)[1] - 2) for x, y in zip(a[0, i], b[0, :, j], strict=True)]
        top = max(*exponents, int(np.frexp(c[0, i, j])[1]) - 1)
        unit = Fraction(2) ** (top - 13)
        total = sum((unit * int(each / unit) for each in [*addends, Fraction(float(c[0, i, j]))]), Fraction(0))
        last = Fraction(2) ** (int(np.frexp(float(total))[1]) - 1 - 13)
        assert Fraction(float(sums[i, j])) == last * int(total / last)
        differs += sums[i, j] != np.float32(float(sum(addends) + Fraction(float(c[0, i, j]))))
    assert differs > 60
