"""The machine's steps but for arithmetic: branches, warps, matrices, asynchronous copies, memory, refusals."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.machine.ptx import hardware
from opassay.oracles.machine.ptx.approximations import approximate
from opassay.oracles.op.declaration import Op, Promises, Sample
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Unsupported, Violation
from tests.oracles.machine.ptx.running import at, entry, run

MACHINES = [hardware.NEAREST, hardware.APART]
_PUT = at(0, 4) + "st.global.b32 [%rd60], %r1;"


def _integers(
    body: str, *, blocks: int = 1, warps: int = 1, on: hardware.Hardware = hardware.NEAREST, **text: str
) -> list[int]:
    """What a kernel puts into an int32 for each thread; `%r1` is put there at the end of the body."""
    count = blocks * warps * 32
    y = torch.full((count,), -1, dtype=torch.int32)
    body = f"mov.b32 %r63, %t;\n{body}\nmad.lo.s32 %t, %c, {warps * 32}, %r63;\n{_PUT}"
    run(entry(body, 1, **text), [y], blocks=blocks, warps=warps, on=on)
    return [int(number) for number in y]


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_threads_part_and_come_together(machine: hardware.Hardware) -> None:
    body = """
    mov.b32 %r1, 0;
    and.b32 %r2, %t, 3;
    $loop:
    setp.ge.s32 %p1, %r1, %r2;
    @%p1 bra $after;
    add.s32 %r1, %r1, 1;
    bra.uni $loop;
    $after:
    setp.eq.s32 %p2, %r2, 2;
    @!%p2 bra $end;
    add.s32 %r1, %r1, 100;
    $end:
    shfl.sync.bfly.b32 %r1, %r1, 1, 31, -1;
    """
    numbers = [thread % 4 + 100 * (thread % 4 == 2) for thread in range(64)]
    assert _integers(body, warps=2, on=machine) == [numbers[thread ^ 1] for thread in range(64)]


def test_rows_far_apart_take_no_memory_and_what_is_between_them_is_no_operands() -> None:
    """Two rows of 32 numbers, 2^31 bytes apart: 0x80000000 is negative in 32 bits, and the row before all others."""
    y = torch.empty_strided((2, 32), (2**29, 1), dtype=torch.int32)
    body = "mul.wide.{} %rd1, %c, {};\nadd.s64 %rd0, %rd0, %rd1;\n" + at(0, 4) + "st.global.b32 [%rd60], %t;"
    run(entry(body.format("u32", 2**31), 1), [y], blocks=2)
    assert y.tolist() == [list(range(32))] * 2
    for kind, step, place in (("s32", -(2**31), "before"), ("u32", 2**31 - 2**20, "within")):
        with pytest.raises(Violation, match="no operand's") as fault:
            run(entry(body.format(kind, step), 1), [y], blocks=2)
        assert fault.value.code is Code.OUT_OF_BOUNDS
        assert place in str(fault.value)


def test_a_register_of_an_inner_scope_is_another_one() -> None:
    body = "mov.b32 %r1, 5;\n{\n.reg .b32 %r1;\nmov.b32 %r1, 7;\n{ .reg .pred p; setp.eq.s32 p, %r1, 7; }\n}"
    assert set(_integers(body)) == {5}


@pytest.mark.parametrize(
    ("how", "by", "clamp", "source"),
    [
        ("idx", 5, 31, lambda lane: 5), ("idx", 3, 0x181F, lambda lane: lane // 8 * 8 + 3),
        ("up", 2, 0, lambda lane: lane - 2 if lane >= 2 else lane),
        ("down", 4, 31, lambda lane: lane + 4 if lane + 4 < 32 else lane),
        ("bfly", 16, 31, lambda lane: lane ^ 16),
        ("down", 1, 0x181F, lambda lane: lane + 1 if lane % 8 < 7 else lane),
    ],
)  # fmt: skip
def test_a_shuffle_takes_from_its_source(how: str, by: int, clamp: int, source: object) -> None:
    sources = _integers(f"shfl.sync.{how}.b32 %r1, %t, {by}, {clamp}, -1;")
    assert callable(source)
    assert sources == [source(lane) for lane in range(32)]


def test_a_reduction_of_those_that_are_named() -> None:
    assert set(_integers("redux.sync.max.s32 %r1, %t, -1;")) == {31}
    body = "setp.lt.s32 %p1, %t, 8;\nmov.b32 %r1, -5;\n@%p1 redux.sync.add.s32 %r1, %t, 0xff;"
    assert _integers(body) == [28] * 8 + [-5] * 24
    # The mask is known to those that come alone.
    body = body.replace("@%p1 redux", "@%p1 mov.b32 %r5, 0xff;\n@%p1 redux").replace("%t, 0xff", "%t, %r5")
    assert _integers(body) == [28] * 8 + [-5] * 24


_ROOMS = ".extern .shared .align 16 .b8 room[];\n.shared .align 4 .b8 fixed[132];\n"
_BOTH = """
mov.u32 %r2, fixed;
mov.u32 %r3, room;
sub.u32 %r4, %r3, %r2;
mad.lo.u32 %r5, %t, 4, %r2;
mad.lo.u32 %r6, %t, 4, %r3;
st.shared.b32 [%r5], %t;
st.shared.b32 [%r6+BY], 77;
ld.shared.b32 %r1, [%r5];
mad.lo.u32 %r1, %r4, 1000, %r1;
"""


def test_dynamic_shared_memory_is_behind_what_was_declared_after_it() -> None:
    y = torch.zeros(32, dtype=torch.int32)
    run(entry(_BOTH.replace("BY", "0") + _PUT, 1, outside=_ROOMS), [y], shared=128)
    assert y.tolist() == [144_000 + lane for lane in range(32)]
    with pytest.raises(Violation) as error:
        run(entry(_BOTH.replace("BY", "16") + _PUT, 1, outside=_ROOMS), [y], shared=128)
    assert error.value.code is Code.OUT_OF_BOUNDS


_TILE = ".shared .align 16 .b8 tile[512];\n"


@pytest.mark.parametrize("shape", ["m8n8.x1TRANS", "x1TRANS.m8n8"])
def test_matrices_come_back_as_they_went_and_transposed(shape: str) -> None:
    body = """
    mov.u32 %r2, tile;
    and.b32 %r3, %t, 7;
    mad.lo.s32 %r2, %r3, 16, %r2;
    stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%t};
    bar.sync 0;
    ldmatrix.sync.aligned.SHAPE.shared.b16 {%r1}, [%r2];
    """.replace("SHAPE", shape)
    assert _integers(body.replace("TRANS", ""), outside=_TILE) == list(range(32))
    halves = np.zeros((8, 8), np.uint16)
    for lane in range(32):
        halves[lane // 4, 2 * (lane % 4)] = lane  # the lower half; the upper one is 0
    transposed = [int(halves.T[lane // 4, 2 * (lane % 4)]) | int(halves.T[lane // 4, 2 * (lane % 4) + 1]) << 16
                  for lane in range(32)]  # fmt: skip
    assert _integers(body.replace("TRANS", ".trans"), outside=_TILE) == transposed


_COPY = """
mad.wide.u32 %rd10, %t, 4, %rd1;
mov.u32 %r2, tile;
mad.lo.s32 %r2, %t, 4, %r2;
cp.async.ca.shared.global [%r2], [%rd10], 4, SIZE;
cp.async.commit_group;
WAIT
ld.shared.b32 %r1, [%r2];
"""


def _copied(wait: str, size: str = "4") -> list[int]:
    x, y = torch.arange(32, dtype=torch.int32) + 7, torch.zeros(32, dtype=torch.int32)
    run(entry(_COPY.replace("WAIT", wait).replace("SIZE", size) + _PUT, 2, outside=_TILE), [y, x])
    return [int(number) for number in y]


def test_an_asynchronous_copy_is_there_once_it_was_waited_for() -> None:
    assert _copied("cp.async.wait_group 0;") == list(range(7, 39))
    assert _copied("cp.async.wait_all;", "0") == [0] * 32
    for wait in ("", "cp.async.wait_group 1;"):
        with pytest.raises(Violation) as error:
            _copied(wait)
        assert error.value.code is Code.UNDEFINED
        read = r"first read of such memory: .*ld\.shared.*: thread 0 of block 0 reads byte 0 of shared memory"
        assert re.search(read, str(error.value)), error.value


_REUSE = """
mad.wide.u32 %rd10, %t, 4, %rd1;
mov.u32 %r2, tile;
mad.lo.s32 %r3, %t, 4, %r2;
xor.b32 %r4, %t, 32;
mad.lo.s32 %r4, %r4, 4, %r2;
st.shared.b32 [%r3], %t;
bar.sync 0;
{early}
ld.shared.b32 %r1, [%r4];
{before}
{late}
cp.async.commit_group;
cp.async.wait_group 0;
bar.sync 0;
ld.shared.b32 %r5, [%r4];
add.s32 %r1, %r1, %r5;
"""
_ISSUE = "cp.async.ca.shared.global [%r3], [%rd10], 4, 4;"


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_a_copy_begins_where_it_is_issued(order: str) -> None:
    """Another warp still reads what is overwritten, or reads it before the wait: a race, whatever the order."""
    x, y = torch.arange(64, dtype=torch.int32) + 100, torch.zeros(64, dtype=torch.int32)

    def execute(**parts: str) -> list[int]:
        body = _REUSE.format(**({"early": "", "before": "", "late": ""} | parts)) + _PUT
        run(entry(body, 2, outside=_TILE), [y, x], warps=2, on=hardware.Hardware(order=order))
        return [int(number) for number in y]

    assert execute(before="bar.sync 0;", late=_ISSUE) == [2 * (thread ^ 32) + 100 for thread in range(64)]
    for parts in ({"late": _ISSUE}, {"early": _ISSUE}, {"early": _ISSUE, "before": "bar.sync 0;"}):
        with pytest.raises(Violation) as error:
            execute(**parts)
        assert error.value.code is Code.RACE


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("ld.global.b32 %r1, [%rd0+-4];", Code.OUT_OF_BOUNDS),
        ("mov.b64 %rd9, 0;\nld.global.b32 %r1, [%rd9];", Code.OUT_OF_BOUNDS),
        ("ld.global.b32 %r1, [%rd0];\nmov.b32 %r1, %t;", Code.RACE),  # each block reads what block 0 writes
        ("setp.lt.s32 %p1, %t, 7;\n@%p1 bra $on;\nbar.sync 0;\n$on:\nmov.b32 %r1, 0;", Code.DIVERGENT),
        ("setp.lt.s32 %p1, %t, 7;\n@%p1 ret;\nshfl.sync.bfly.b32 %r1, %t, 1, 31, -1;", Code.DIVERGENT),
    ],
)  # fmt: skip
def test_what_a_gpu_traps_on_is_a_violation(body: str, code: Code, machine: hardware.Hardware) -> None:
    with pytest.raises(Violation) as error:
        _integers(body, blocks=2, on=machine)
    assert error.value.code is code


_JOIN_BEFORE_BRANCH = """
    setp.lt.s32 %p1, %t, 7;
    mov.b32 %r2, 5;
    mov.b32 %r3, 0;
    bra.uni $begin;
    $join:
    shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;
    add.s32 %r3, %r3, 1;
    setp.lt.s32 %p2, %r3, 3;
    @%p2 bra $begin;
    bra.uni $end;
    $begin:
    @%p1 bra $join;
    mov.b32 %r2, 9;
    bra.uni $join;
    $end:
    add.s32 %r1, %r1, %r3;
"""


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_threads_come_together_where_the_text_has_the_join_before_the_branch(machine: hardware.Hardware) -> None:
    """So do loops of Triton with a logarithm in them, for which a few numbers are infinite."""
    assert _integers(_JOIN_BEFORE_BRANCH, on=machine) == [(5 if thread ^ 1 < 7 else 9) + 3 for thread in range(32)]


_EXCHANGE = """
    mov.b32 %r3, buffer;
    mad.lo.s32 %r3, %t, 4, %r3;
    st.shared.b32 [%r3], %t;
    {barrier}
    xor.b32 %r4, %t, {distance};
    mov.b32 %r5, buffer;
    mad.lo.s32 %r5, %r4, 4, %r5;
    ld.shared.b32 %r1, [%r5];
    {barrier}
    st.shared.b32 [%r3], %r1;
"""


def test_a_barrier_of_a_warp_orders_what_its_threads_do_to_memory() -> None:
    body = _EXCHANGE.format(barrier="bar.warp.sync -1;", distance=1)
    outside = ".shared .align 4 .b8 buffer[256];\n"
    assert _integers(body, warps=2, outside=outside) == [thread ^ 1 for thread in range(64)]
    for barrier, distance in (("", 1), ("bar.warp.sync -1;", 32)):
        with pytest.raises(Violation) as error:
            _integers(_EXCHANGE.format(barrier=barrier, distance=distance), warps=2, outside=outside)
        assert error.value.code is Code.RACE


def test_an_undefined_value_that_reaches_no_result_is_none() -> None:
    assert _integers("add.s32 %r2, %r9, 1;\nand.b32 %r2, %r2, 0;\nadd.s32 %r1, %r2, 3;") == [3] * 32


@pytest.mark.parametrize(
    "statement",
    [
        "nanosleep.u32 20;", "prefetch.global.L2 [%rd0];", "prefetchu.L1 [%rd0];", "prefetch.param.tensormap [%rd0];",
        "griddepcontrol.wait;", "griddepcontrol.launch_dependents;",
    ],
)  # fmt: skip
def test_what_concerns_time_alone_changes_nothing(statement: str) -> None:
    assert _integers(f"mov.b32 %r1, 3;\n{statement}") == [3] * 32


@pytest.mark.parametrize(
    "statement",
    [
        "add.rn.f16x4 %r1, %r1, %r1;", "add.sat.s32 %r1, %r1, %r1;", "mad.hi.sat.s32 %r1, %r1, %r1, %r1;",
        "vote.any.pred %p1, %p1;", "atom.global.add.f32 %r1, [%rd0], %r1, %r1;", "atom.global.add.s64 %r1, [%rd0], 1;",
        "ld.global.sys.b32 %r1, [%rd0];", "cvt.rz.f32.f64 %r1, %rd1;",
        "ex2.approx.f16 %r1, %r1;", "setp.lt.s32 %p1|%p2, %r1, %r1;", "mov.b32 %r1, unheard;", "bra $nowhere;",
        "ld.global.v2.b32 %r1, [%rd0];", "add.s32 %r1, %r1;", "shfl.sync.bfly.b32 %r1|%r2|%p1, %r1, 1, 31, -1;",
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_name(statement: str) -> None:
    with pytest.raises(Unsupported) as error:
        _integers("mov.b32 %r1, 0;\n" + statement)
    assert error.value.code is Code.OPCODE
    assert statement.split()[0].rstrip(";") in str(error.value)


def test_a_value_is_held_on_hardware_of_every_end() -> None:
    def subject(x: torch.Tensor) -> torch.Tensor:
        numbers = x.numpy()
        return torch.from_numpy(approximate("div", numbers, 1 / numbers.astype(np.float64)))

    op = Op("reciprocal", lambda x: 1 / x, {"opassay": subject}, samples=lambda dtype, kind: None, differentiable=(),
            promises=Promises(lambda args: (args[0].dtype,)))  # fmt: skip
    sample = Sample((torch.tensor([3.0, 7.0, 11.0]),), 1)
    judge = Judge(op, "opassay", contract("float32"))
    judge.hold(sample)
    judge.hardware = hardware.ENDS
    with pytest.raises(Violation, match="approximations up"):
        judge.hold(sample)


_AT_ONCE = """
mad.wide.u32 %rd10, %t, 4, %rd1;
ld.global.b32 %r2, [%rd10];
mov.u32 %r3, cell;
st.shared.b32 [%r3], %r2;
{barrier}
ld.shared.b32 %r1, [%r3];
"""
_STORE, _FETCH = "st.shared.b32 [%r3], %r2;", "ld.shared.b32 %r1, [%r3];"
_CELL = ".shared .align 4 .b8 cell[4];\n"


def _store_at_once(numbers: torch.Tensor, body: str = _AT_ONCE, barrier: str = "bar.sync 0;") -> torch.Tensor:
    """What each thread finds after all have stored their numbers to one address."""
    y = torch.empty(len(numbers))
    run(entry(body.format(barrier=barrier) + _PUT, 2, outside=_CELL), [y, numbers], warps=len(numbers) // 32,
        on=hardware.current())  # fmt: skip
    return y


@pytest.mark.parametrize("order", hardware.ORDERS)
@pytest.mark.parametrize("warps", [1, 3])
def test_each_of_the_values_stored_at_once_may_be_there(warps: int, order: str) -> None:
    numbers = torch.tensor([0.5, -8.0, 9.0, -0.25] * 8 * warps)
    numbers[5], numbers[38 % len(numbers)] = -9.0, 10.0
    for winner, expected in (("largest", 10.0), ("smallest", -9.0)):
        with hardware.on(hardware.Hardware(order=order, winner=winner)):
            assert _store_at_once(numbers).unique().tolist() == [expected]
    with hardware.on(hardware.Hardware(order=order, winner="any")):
        assert _store_at_once(numbers).unique().numel() == 1


def _code(warps: int, body: str = _AT_ONCE, barrier: str = "bar.sync 0;") -> Code | None:
    try:
        _store_at_once(torch.arange(32.0 * warps), body, barrier)
    except Violation as error:
        return error.code
    return None


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_what_is_stored_at_once_is_read_after_a_barrier_of_all_that_stored(order: str) -> None:
    with hardware.on(hardware.Hardware(order=order)):
        for barrier, codes in (
            ("", [Code.RACE, Code.RACE]), ("bar.warp.sync -1;", [None, Code.RACE]), ("bar.sync 0;", [None, None]),
        ):  # fmt: skip
            assert [_code(warps, barrier=barrier) for warps in (1, 2)] == codes
        # To store once more by another instruction is a race; and so is all of that in global memory.
        again = _AT_ONCE.replace(_STORE, f"{_STORE}\nadd.f32 %r2, %r2, 0f3F800000;\n{_STORE}")
        to_global = _AT_ONCE.replace(_STORE, "st.global.b32 [%rd0], %r2;").replace(_FETCH, "")
        for warps in (1, 2):
            assert _code(warps, again) is _code(warps, to_global) is Code.RACE


@pytest.mark.parametrize("astray", [0.0, 1.0, -1.0])
def test_every_value_that_is_stored_at_once_is_held(astray: float) -> None:
    """Lanes add in one order or another; the sum of one of them may be wrong."""

    def subject(x: torch.Tensor) -> torch.Tensor:
        sums = torch.stack([(x[0] + x[1]) + x[2], x[0] + (x[1] + x[2])]).repeat(16)
        assert sums.unique().numel() == 2
        sums[13] += astray
        return _store_at_once(sums)[:1]

    op = Op("sum", lambda x: np.sum(x, keepdims=True), {"opassay": subject}, samples=lambda dtype, kind: None,
            differentiable=(), promises=Promises(lambda args: (args[0].dtype,)))  # fmt: skip
    judge = Judge(op, "opassay", contract("float32"))
    judge.hardware = hardware.ENDS
    sample = Sample((torch.tensor([1.0, 2.0**-24, 2.0**-24]),), 1)
    if not astray:
        judge.hold(sample)
        return
    with pytest.raises(Violation, match="outside" if astray > 0 else "smallest") as error:
        judge.hold(sample)
    assert error.value.code is Code.VALUE
