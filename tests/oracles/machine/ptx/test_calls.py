"""Functions that a kernel calls, what the module has no body of, and names of inner scopes."""

from __future__ import annotations

import re

import pytest
import torch

from opassay.oracles.machine.ptx import hardware
from opassay.oracles.machine.ptx.executable import Kernel
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Unsupported, Violation
from tests.oracles.machine.ptx.running import at, entry, run

_PUT = at(0, 4) + "st.global.b32 [%rd60], %r1;"
#: twice(a) = 2 a, or -1 where a > 40; sums(a, n) = twice(a) + ... + twice(a + n - 1), by way of a structure.
_FUNCTIONS = """
.extern .func (.param .b32 func_retval0) vprintf (.param .b64 vprintf_param_0, .param .b64 vprintf_param_1);
.extern .func __assertfail (.param .b64 p0, .param .b64 p1, .param .b32 p2, .param .b64 p3, .param .b64 p4) .noreturn;
.func (.param .b32 func_retval0) twice(
    .param .b32 twice_param_0
)
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    ld.param.b32 %r1, [twice_param_0];
    st.param.b32 [func_retval0], -1;
    setp.gt.s32 %p1, %r1, 40;
    @%p1 ret;
    shl.b32 %r2, %r1, 1;
    st.param.b32 [func_retval0+0], %r2;
    ret;
}
.func (.param .align 8 .b8 func_retval0[16]) sums(.param .align 8 .b8 sums_param_0[16])
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    ld.param.v2.b32 {%r1, %r2}, [sums_param_0+8];
    mov.b32 %r3, 0;
    bra.uni $test;
$loop:
    { .param .b32 param0;
    .param .b32 retval0;
    st.param.b32 [param0], %r1;
    call.uni (retval0), twice, (param0);
    ld.param.b32 %r5, [retval0]; }
    add.s32 %r3, %r3, %r5;
    add.s32 %r1, %r1, 1;
    sub.s32 %r2, %r2, 1;
$test:
    setp.gt.s32 %p1, %r2, 0;
    @%p1 bra $loop;
    st.param.v2.b32 [func_retval0+8], {%r3, %r1};
    ret;
}
.global .align 1 .b8 words[9] = {120, 32, 60, 32, 50, 46, 53, 0, 0};
"""
_CALL_SUMS = """
    and.b32 %r2, %t, 3;
    setp.ne.b32 %p1, %r2, 3;
    mov.b32 %r1, 7;
    {
    .param .align 8 .b8 param0[16];
    .param .align 8 .b8 retval0[16];
    st.param.v2.b32 [param0+8], {%t, %r2};
    GUARD call (retval0), sums, (param0);
    GUARD ld.param.b32 %r1, [retval0+8];
    }
    shfl.sync.bfly.b32 %r1, %r1, 1, 31, -1;
"""


def _twice(a: int) -> int:
    return -1 if a > 40 else 2 * a


@pytest.mark.parametrize("order", hardware.ORDERS)
@pytest.mark.parametrize("guard", ["", "@%p1"])
def test_threads_call_functions_and_come_together_behind_them(guard: str, order: str) -> None:
    y = torch.full((64,), -9, dtype=torch.int32)
    body = _CALL_SUMS.replace("GUARD", guard) + _PUT
    run(entry(body, 1, outside=_FUNCTIONS), [y], warps=2, on=hardware.Hardware(order=order))
    sums = [sum(map(_twice, range(t, t + t % 4))) if not guard or t % 4 != 3 else 7 for t in range(64)]
    assert y.tolist() == [sums[t ^ 1] for t in range(64)]


def test_what_printf_writes_is_nothing_and_it_gives_zero() -> None:
    body = """
    { .param .b64 param0; .param .b64 param1; .param .b32 retval0;
    mov.b64 %rd5, words;
    st.param.b64 [param0], %rd5;
    st.param.b64 [param1], 0;
    call.uni (retval0), vprintf, (param0, param1);
    ld.param.b32 %r1, [retval0]; }
    """
    y = torch.full((32,), -9, dtype=torch.int32)
    run(entry(body + _PUT, 1, outside=_FUNCTIONS), [y])
    assert y.tolist() == [0] * 32


_ASSERT = """
    setp.lt.s32 %p1, %t, LIMIT;
    @%p1 bra $on;
    { .param .b64 param0; .param .b64 param1; .param .b32 param2; .param .b64 param3; .param .b64 param4;
    mov.b64 %rd5, words;
    st.param.b64 [param0], %rd5;
    st.param.b64 [param1], %rd5;
    st.param.b32 [param2], 34;
    st.param.b64 [param3], %rd5;
    st.param.b64 [param4], 1;
    call.uni __assertfail, (param0, param1, param2, param3, param4); }
    trap;
$on:
    mov.b32 %r1, 5;
"""


def test_an_assertion_that_fails_is_a_fault_with_its_text_and_line() -> None:
    y = torch.zeros(64, dtype=torch.int32)
    run(entry(_ASSERT.replace("LIMIT", "64") + _PUT, 1, outside=_FUNCTIONS), [y], warps=2)
    assert y.tolist() == [5] * 64
    with pytest.raises(Violation, match=r"an assertion fails in thread 37 of block 0: x < 2\.5") as error:
        run(entry(_ASSERT.replace("LIMIT", "37") + _PUT, 1, outside=_FUNCTIONS), [y], warps=2)
    assert error.value.code is Code.RAISED
    assert str(error.value.lines[0]).strip() == "x < 2.5:34: x < 2.5"


def test_a_trap_that_a_thread_comes_to_is_a_fault() -> None:
    body = "mov.b32 %r1, 5;\nsetp.eq.s32 %p1, %t, WHO;\n@%p1 trap;\n" + _PUT
    y = torch.zeros(32, dtype=torch.int32)
    run(entry(body.replace("WHO", "32"), 1), [y])
    with pytest.raises(Violation, match="thread 7 of block 0 ends the launch") as error:
        run(entry(body.replace("WHO", "7"), 1), [y])
    assert error.value.code is Code.RAISED


@pytest.mark.parametrize(
    ("statement", "name"),
    [("call (%r1), malloc, (%r2);", "malloc"), ("call again;", "again"), ("call %rd1, %rd2;", "%rd1")],
)
def test_a_function_without_a_body_and_one_that_calls_itself_are_refused_by_name(statement: str, name: str) -> None:
    again = ".func again() {\ncall again;\nret;\n}\n"
    with pytest.raises(Unsupported, match=f"the function {re.escape(name)}, "):
        Kernel(entry(statement, 0, outside=again))


def test_a_fault_within_a_function_is_found() -> None:
    outside = ".func put(.param .b64 put_param_0) {\n.reg .b64 %a;\nld.param.b64 %a, [put_param_0];\n"
    outside += "st.global.b32 [%a+4], 1;\nret;\n}\n"
    body = "{ .param .b64 param0;\nst.param.b64 [param0], %rd0;\ncall put, (param0); }"
    with pytest.raises(Violation) as error:
        run(entry(body, 1, outside=outside), [torch.zeros(1, dtype=torch.int32)])
    assert error.value.code is Code.OUT_OF_BOUNDS


def test_labels_of_one_name_in_two_scopes_are_two() -> None:
    scope = "{ .reg .pred done;\nwait: add.s32 %r1, %r1, 1;\nsetp.ge.s32 done, %r1, N;\n"
    scope += "@done bra over;\nbra wait;\nover:\n}\n"
    body = "mov.b32 %r1, 0;\n" + scope.replace("N", "5") + "add.s32 %r1, %r1, 10;\n" + scope.replace("N", "40")
    y = torch.zeros(32, dtype=torch.int32)
    run(entry(body + _PUT, 1), [y])
    assert y.tolist() == [40] * 32


def test_a_policy_of_a_cache_changes_nothing_and_a_clock_goes_on() -> None:
    body = """
    createpolicy.fractional.L2::evict_last.b64 %rd5, 1.0;
    mad.wide.u32 %rd6, %t, 4, %rd1;
    mov.u64 %rd7, %clock64;
    ld.global.L1::evict_last.L2::cache_hint.b32 {%r1}, [%rd6+0], %rd5;
    mov.u64 %rd8, %clock64;
    setp.gt.u64 %p1, %rd8, %rd7;
    @!%p1 trap;
    """
    x, y = torch.arange(32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    put = at(0, 4) + "st.global.L1::evict_first.L2::cache_hint.b32 [%rd60], {%r1}, %rd5;"
    run(entry(body + put, 2), [y, x])
    assert torch.equal(x, y)
