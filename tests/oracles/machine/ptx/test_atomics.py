"""Atomic operations, votes, local memory, carries, and blocks of several dims, against Python's integers."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
import torch

from opassay.oracles.machine.ptx import hardware
from opassay.oracles.machine.ptx.account import ACCOUNT
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Violation
from tests.oracles.machine.ptx.running import at, entry, run

MACHINES = [hardware.NEAREST, hardware.APART]
_INDEX = "mad.lo.s32 %r40, %c, 64, %t;\n"
_PUT = at(1, 4, "%r40") + "st.global.b32 [%rd60], %r1;"


def _run(body: str, cells: torch.Tensor, on: hardware.Hardware = hardware.NEAREST, outside: str = "") -> list[int]:
    """%r1 of two blocks of 64 threads; `cells` are at %rd0, and are written."""
    y = torch.zeros(128, dtype=torch.int32)
    run(entry(_INDEX + body + "\n" + _PUT, 2, "", outside), [cells, y], blocks=2, warps=2, on=on)
    return [int(number) for number in y]


def _signed(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


_CHANGES: dict[str, Callable[[int, int], int]] = {
    "add.u32": lambda a, b: a + b, "add.s32": lambda a, b: a + b, "min.u32": min, "max.u32": max,
    "min.s32": lambda a, b: min(_signed(a), _signed(b)), "max.s32": lambda a, b: max(_signed(a), _signed(b)),
    "and.b32": lambda a, b: a & b, "or.b32": lambda a, b: a | b, "xor.b32": lambda a, b: a ^ b,
    "inc.u32": lambda a, b: 0 if a >= b else a + 1, "dec.u32": lambda a, b: b if a == 0 or a > b else a - 1,
    "exch.b32": lambda a, b: b,
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("opcode", _CHANGES)
def test_every_thread_finds_what_another_one_left(opcode: str, space: str, machine: hardware.Hardware) -> None:
    """Three cells are changed by all threads: what they found is a chain from the first value to the last."""
    step = f"""
    rem.u32 %r2, %t, 3;
    mul.lo.u32 %r3, %r40, 2654435761;
    {"mad.wide.u32 %rd9, %r2, 4, %rd0;" if space == "global" else "mov.u32 %r9, cells; mad.lo.u32 %r9, %r2, 4, %r9;"}
    atom.{space}.{opcode} %r1, [{"%rd9" if space == "global" else "%r9"}], %r3;
    """
    first = "mov.u32 %r9, cells;\nst.shared.v4.b32 [%r9], {12345, 12345, 12345, 12345};\nbar.sync 0;\n"
    cells = torch.full((3,), 12345, dtype=torch.int32)
    results = _run((first if space == "shared" else "") + step, cells, machine, ".shared .align 16 .b8 cells[16];\n")
    for block, cell in [
        (block, cell) for block in ([(0, 1)] if space == "global" else [(0,), (1,)]) for cell in range(3)
    ]:
        threads = [64 * number + thread for number in block for thread in range(cell, 64, 3)]
        order = threads if machine is hardware.NEAREST else sorted(
            threads, key=lambda n: (-(n // 32), n)
        )  # fmt: skip
        value, cells_before = 12345, sorted(results[n] for n in threads)
        chain = []
        for number in order:
            chain.append(_signed(value))
            value = _CHANGES[opcode](value, number * 2654435761 % 2**32) % 2**32
        assert cells_before == sorted(chain)
        if space == "global":
            assert int(cells[cell]) == _signed(value)


def test_a_value_is_exchanged_where_it_is_as_expected() -> None:
    body = "atom.global.cas.b32 %r1, [%rd0], %t, 7;"
    cells = torch.zeros(1, dtype=torch.int32)
    # Thread 0 puts 7 there, thread 7 puts 7 in the place of 7.
    assert _run(body, cells) == [0] + [7] * 127
    assert int(cells[0]) == 7


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_sums_of_floats_are_rounded_one_after_the_other_and_told(machine: hardware.Hardware) -> None:
    ACCOUNT.unordered.clear()
    body = f"cvt.rn.f32.u32 %r2, %r40;\nadd.rn.f32 %r2, %r2, 0f{struct.pack('>f', 2.0**24).hex()};\nmov.b32 %r1, 0;\n"
    cells = torch.zeros(1)
    _run(body + "red.global.gpu.relaxed.add.f32 [%rd0], %r2;", cells.view(torch.int32), machine)
    numbers = [torch.tensor(2.0**24) + thread for thread in range(128)]
    order = range(128) if machine is hardware.NEAREST else sorted(range(128), key=lambda n: (-(n // 32), n))
    total = torch.zeros(())
    for thread in order:
        total += numbers[thread]
    assert float(cells[0]) == float(total)
    assert ACCOUNT.unordered == {"kernel"}


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_what_is_no_atomic_operation_races_with_one(machine: hardware.Hardware) -> None:
    reads = "atom.global.add.u32 %r1, [%rd0], 1;\nld.global.b32 %r1, [%rd0];"
    writes = "setp.eq.u32 %p1, %t, 5;\n@%p1 st.global.b32 [%rd0], %t;\natom.global.add.u32 %r1, [%rd0], 1;"
    # One warp after the other, each block has performed an operation before it reads: that may have been its turn.
    for body in (reads, writes) if machine is hardware.NEAREST else (writes,):
        with pytest.raises(Violation) as error:
            _run(body, torch.zeros(1, dtype=torch.int32), machine)
        assert error.value.code is Code.RACE
    with pytest.raises(Violation) as error:
        _run("atom.global.add.u32 %r1, [%rd0+4], 1;", torch.zeros(1, dtype=torch.int32), machine)
    assert error.value.code is Code.OUT_OF_BOUNDS


_LOCKED = """
mov.b32 %r1, 0;
setp.ne.u32 %p1, %t, 0;
@%p1 bra $end;
TAKE
ld.global.b32 %r2, [%rd0+4];
add.s32 %r2, %r2, 3;
st.global.b32 [%rd0+4], %r2;
FENCE
atom.globalRELEASE.exch.b32 %r3, [%rd0], 0;
$end:
"""
_TAKE = "$again:\natom.global.cas.b32 %r3, [%rd0], 0, 1;\nsetp.ne.b32 %p2, %r3, 0;\n@%p2 bra $again;"


def _locked(take: str = _TAKE, fence: str = "membar.gl;", release: str = "") -> str:
    return _LOCKED.replace("TAKE", take).replace("FENCE", fence).replace("RELEASE", release)


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_a_lock_orders_blocks_and_nobody_waits_for_ever(machine: hardware.Hardware) -> None:
    libcu = _locked(fence="").replace("atom.global.exch.b32", "atom.exch.release.gpu.b32")
    for lock in (_locked(), _locked(fence="fence.acq_rel.gpu;"), _locked(fence="", release=".gpu.release"), libcu):
        cells = torch.zeros(2, dtype=torch.int32)
        _run(lock, cells, machine)
        assert cells.tolist() == [0, 6]
    for lock in (
        _locked(take=""),
        _locked(fence=""),
        _locked(fence="membar.cta;"),
        _locked(release=".gpu.acquire", fence=""),
        _locked(release=".cta.release", fence=""),
    ):
        with pytest.raises(Violation) as error:
            _run(lock, torch.zeros(2, dtype=torch.int32), machine)
        assert error.value.code is Code.RACE


_FLAG = """
mov.b32 %r1, 9;
setp.ne.u32 %p1, %t, 0;
@%p1 bra $end;
setp.ne.u32 %p2, %c, 0;
@%p2 bra $other;
st.global.b32 [%rd0+4], 7;
FENCE
st.volatile.global.b32 [%rd0], 1;
bra $end;
$other:
ld.volatile.global.b32 %r2, [%rd0];
setp.eq.u32 %p3, %r2, 0;
@%p3 bra $other;
ld.global.b32 %r1, [%rd0+4];
$end:
"""


def test_a_flag_says_nothing_of_what_was_written_before_it_without_a_fence() -> None:
    for fence in ("membar.gl;", "fence.sc.sys;"):
        results = _run(_FLAG.replace("FENCE", fence), torch.zeros(2, dtype=torch.int32))
        assert results[64] == 7
    for fence in ("", "membar.cta;"):
        with pytest.raises(Violation) as error:
            _run(_FLAG.replace("FENCE", fence), torch.zeros(2, dtype=torch.int32))
        assert error.value.code is Code.RACE
    # A fence before the data is none between the data and the flag.
    early = _FLAG.replace("FENCE", "").replace("st.global.b32 [%rd0+4]", "membar.gl;\nst.global.b32 [%rd0+4]")
    with pytest.raises(Violation):
        _run(early, torch.zeros(2, dtype=torch.int32))


@pytest.mark.parametrize(("kind", "dtype"), [("f16", torch.float16), ("bf16", torch.bfloat16)])
@pytest.mark.parametrize("shape", ["", "x2", "v2", "v4", "v8", "v2x2", "v4x2"])
def test_sums_of_halves_are_halves(kind: str, dtype: torch.dtype, shape: str) -> None:
    """One thread adds numbers to others, alone, in pairs, and in rows of several registers."""
    count = int(shape[1]) if shape.startswith("v") else 1
    wide = shape.endswith("x2")
    old = torch.arange(1, 17).to(dtype)
    new = (torch.arange(1, 17) / 8).to(dtype)
    width, numbers = (32, count * 2) if wide else (16, count)
    words = new.view(torch.int32 if wide else torch.int16).tolist()
    names = [f"%x{number}" for number in range(count)]
    vector = (lambda each: f"{{{', '.join(each)}}}") if shape.startswith("v") else (lambda each: each[0])
    body = "".join(f"mov.b{width} {name}, {word};\n" for name, word in zip(names, words, strict=False))
    row = f"{shape[:2]}." if shape.startswith("v") else ""
    body += "setp.ne.u32 %p1, %t, 0;\n@%p1 bra $end;\n"
    targets = [f"%z{number}" for number in range(count)]
    body += f"atom.global.add.noftz.{row}{kind}{'x2' * wide} {vector(targets)}, [%rd0], {vector(names)};\n"
    body += "".join(at(1, width // 8, str(i)) + f"st.global.b{width} [%rd60], {t};\n" for i, t in enumerate(targets))
    cells, before = old.clone(), torch.zeros(16, dtype=dtype)
    registers = f".reg .b{width} %x<8>;\n.reg .b{width} %z<8>;\n"
    run(entry(body + "$end:", 2, registers), [cells, before])
    assert cells.tolist() == [*(old + new)[:numbers].tolist(), *old[numbers:].tolist()]
    assert before.tolist() == [*old[:numbers].tolist(), *[0.0] * (16 - numbers)]


def test_the_last_block_reads_what_all_have_written() -> None:
    """As a sum of partial sums is made in one launch: a fence, a counter, and the block that comes last."""
    body = """
    mov.b32 %r1, 0;
    mad.wide.u32 %rd9, %c, 4, %rd0;
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra $end;
    add.u32 %r2, %c, 10;
    st.global.b32 [%rd9+4], %r2;
    membar.gl;
    atom.global.add.u32 %r3, [%rd0], 1;
    setp.ne.u32 %p2, %r3, 1;
    @%p2 bra $end;
    ld.global.b32 %r4, [%rd0+4];
    ld.global.b32 %r5, [%rd0+8];
    add.s32 %r1, %r4, %r5;
    $end:
    """
    assert sorted(_run(body, torch.zeros(3, dtype=torch.int32)))[-2:] == [0, 21]
    late = body.replace("st.global.b32 [%rd9+4], %r2;", "").replace(
        "$end:", "$end:\n@!%p1 st.global.b32 [%rd9+4], %r2;"
    )
    with pytest.raises(Violation):  # the counter comes before what it counts
        _run(late, torch.zeros(3, dtype=torch.int32))


def test_votes_and_matches() -> None:
    cells = torch.zeros(1, dtype=torch.int32)
    even = "and.b32 %r2, %t, 1;\nsetp.eq.u32 %p1, %r2, 0;\n"
    ballot = sum(1 << lane for lane in range(0, 32, 2))
    assert set(_run(even + "vote.sync.ballot.b32 %r1, %p1, -1;", cells)) == {_signed(ballot)}
    for how, expected in (("any", 1), ("all", 0), ("uni", 0)):
        body = even + f"vote.sync.{how}.pred %p2, %p1, -1;\nselp.b32 %r1, 1, 0, %p2;"
        assert set(_run(body, cells)) == {expected}
    body = "and.b32 %r2, %t, 3;\nmatch.any.sync.b32 %r1, %r2, -1;"
    masks = [_signed(sum(1 << lane for lane in range(32) if lane % 4 == thread % 4)) for thread in range(128)]
    assert _run(body, cells) == masks
    for source, expected in (("7", -1), ("%t", 0)):
        body = f"mov.b32 %r2, {source};\nmatch.all.sync.b32 %r1|%p2, %r2, -1;\n@!%p2 xor.b32 %r1, %r1, 0;"
        assert set(_run(body, cells)) == {expected}
    body = even + "mov.b32 %r1, -5;\n@!%p1 bra $end;\nactivemask.b32 %r1;\n$end:"
    assert _run(body, cells) == [_signed(ballot), -5] * 64


def test_a_shuffle_says_whether_its_source_was_inside() -> None:
    body = "shfl.sync.down.b32 %r2|%p1, %t, 5, 31, -1;\nselp.b32 %r1, 1, 0, %p1;"
    assert _run(body, torch.zeros(1, dtype=torch.int32)) == [int(thread % 32 < 27) for thread in range(128)]


def test_local_memory_is_of_one_thread_and_constants_are_of_all() -> None:
    body = """
    .local .align 4 .b8 depot[32];
    mov.u64 %rd9, depot;
    and.b32 %r2, %t, 7;
    mad.wide.u32 %rd10, %r2, 4, %rd9;
    st.local.b32 [%rd10], %t;
    cvta.local.u64 %rd11, %rd10;
    ld.b32 %r3, [%rd11];
    mov.u64 %rd12, table;
    mad.wide.u32 %rd12, %r2, 4, %rd12;
    ld.global.nc.b32 %r4, [%rd12];
    ld.const.b32 %r5, [other+4];
    mad.lo.s32 %r1, %r4, %r3, %r5;
    """
    outside = ".global .align 4 .b32 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n"
    outside += ".const .align 4 .b8 other[8] = {0, 0, 0, 0, 5, 1};\n"
    cells = torch.zeros(1, dtype=torch.int32)
    assert _run(body, cells, outside=outside) == [thread % 64 * (thread % 8 + 1) + 261 for thread in range(128)]
    for old, code in (("depot[32]", Code.OUT_OF_BOUNDS), ("table[8]", Code.OUT_OF_BOUNDS)):
        smaller = old.replace("32", "16").replace("8", "4")
        with pytest.raises(Violation) as error:
            _run(body.replace(old, smaller), cells, outside=outside.replace(old, smaller).replace(", 5, 6, 7, 8", ""))
        assert error.value.code is code
    with pytest.raises(Violation) as error:
        _run(body.replace("st.local.b32 [%rd10], %t;", ""), cells, outside=outside)
    assert error.value.code is Code.UNDEFINED


def test_carries_make_sums_and_products_of_64_bits() -> None:
    a, b, c = 0xFEDCBA9876543210, 0x123456789ABCDEF, 0xFFFFFFFFFFFFFFFF
    words = [half for number in (a, b, c) for half in (number & 0xFFFFFFFF, number >> 32)]
    names = [f"%r{10 + i}" for i in range(6)]
    body = "\n".join(f"mov.b32 {name}, {word};" for name, word in zip(names, words, strict=True))
    body += """
    add.cc.u32 %r20, %r10, %r14;\naddc.u32 %r21, %r11, %r15;
    sub.cc.u32 %r22, %r12, %r10;\nsubc.u32 %r23, %r13, %r11;
    mad.lo.cc.u32 %r24, %r10, %r12, %r14;\nmadc.hi.u32 %r25, %r10, %r12, %r15;
    """
    expected = [a + c, b - a, (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF) + c]
    for i, number in enumerate(expected):
        for j, word in enumerate((number % 2**32, (number >> 32) % 2**32)):
            results = _run(body + f"mov.b32 %r1, %r{20 + 2 * i + j};", torch.zeros(1, dtype=torch.int32))
            assert set(results) == {_signed(word)}


@pytest.mark.parametrize("table", [0x00, 0x3C, 0x96, 0xE8, 0xCA, 0xFF])
def test_a_table_of_three_bits(table: int) -> None:
    a, b, c = 0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA
    body = f"mov.b32 %r2, {a};\nmov.b32 %r3, {b};\nmov.b32 %r4, {c};\nlop3.b32 %r1, %r2, %r3, %r4, {table};"
    expected = sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32))
    assert set(_run(body, torch.zeros(1, dtype=torch.int32))) == {_signed(expected)}


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_blocks_and_grids_have_three_dims(machine: hardware.Hardware) -> None:
    """A block of 5 x 3 x 2 threads has 30, and two lanes of its warp are none of it."""
    names = ["%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%ntid.x", "%ntid.y", "%nctaid.x"]
    body = "".join(f"mov.u32 %r{i + 2}, {name};\n" for i, name in enumerate(names))
    body += """
    mad.lo.u32 %r20, %r4, %r9, %r3;\nmad.lo.u32 %r20, %r20, %r8, %r2;
    mad.lo.u32 %r21, %r7, 3, %r6;\nmad.lo.u32 %r21, %r21, %r10, %r5;
    mad.lo.u32 %r22, %r21, 30, %r20;
    bar.sync 0;
    """
    y = torch.full((360,), -1, dtype=torch.int32)
    run(
        entry(body + at(0, 4, "%r22") + "st.global.b32 [%rd60], %r22;", 1),
        [y],
        grid=(2, 3, 2),
        block=(5, 3, 2),
        on=machine,
    )
    assert y.tolist() == list(range(360))


_IN_PLACE = """
setp.lt.u32 %p1, %t, 32;
and.b32 %r2, %t, 31;
mad.lo.u32 %r2, %c, 32, %r2;
mad.wide.u32 %rd9, %r2, 4, %rd0;
LOADED
add.s32 %r1, %r3, 1;
@%p1 st.global.b32 [%rd9], %r1;
USED
"""


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_what_others_load_of_an_element_may_be_dead(machine: hardware.Hardware) -> None:
    """Both warps load an element, and one stores it, as a compiler does it; what the other one loaded must be dead."""
    body = _IN_PLACE.replace("LOADED", "ld.global.b32 %r3, [%rd9];")
    cells = torch.arange(64, dtype=torch.int32)
    _run(body.replace("USED", "mov.b32 %r1, 0;"), cells, machine)
    assert cells.tolist() == list(range(1, 65))
    with pytest.raises(Violation) as error:
        _run(body.replace("USED", ""), torch.arange(64, dtype=torch.int32), machine)
    assert error.value.code is Code.RACE


#: How halves are changed: the modifiers, and the registers; single ones by sums alone.
_VECTORS = {"v4.{}": "{%h1, %h2, %h3, %h4}", "v2.{}x2": "{%r1, %r2}", "{}": "%h"}
_REDUCED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add, "max": torch.maximum, "min": torch.minimum,
}  # fmt: skip
_OF_HALVES = [(verb, way) for verb in _REDUCED for way in _VECTORS if verb == "add" or way != "{}"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("verb", "way"), _OF_HALVES)
def test_halves_are_changed_element_by_element(verb: str, way: str, dtype: torch.dtype) -> None:
    """Every thread of a warp changes the four cells by numbers of its own; sums are rounded one after the other."""
    values = torch.randn(32, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    cells = values.new_tensor([0.3, -2.0, 0.0, 1.5])
    loads = at(1, 8) + "ld.global.v4.b16 {%h1, %h2, %h3, %h4}, [%rd60];\nld.global.v2.b32 {%r1, %r2}, [%rd60];\n"
    opcode = f"red.relaxed.gpu.global.{verb}.noftz.{way.format('bf16' if dtype is torch.bfloat16 else 'f16')}"
    registers = [f"%h{n}" for n in range(1, 5)] if way == "{}" else [_VECTORS[way]]
    changes = "\n".join(f"{opcode} [%rd0+{2 * place}], {each};" for place, each in enumerate(registers))
    expected = cells.clone()
    for row in values:
        expected = _REDUCED[verb](expected, row)
    run(entry(loads + changes, 2, ".reg .b16 %h<8>;"), [cells.view(torch.int16), values.view(torch.int16)])
    assert torch.equal(cells, expected)
