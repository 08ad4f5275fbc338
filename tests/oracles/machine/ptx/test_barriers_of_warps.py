"""Barriers at which some warps of a block wait for each other, and others arrive."""

from __future__ import annotations

import pytest

from opassay.oracles.machine.ptx import hardware
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Violation
from tests.oracles.machine.ptx.test_steps import _integers

_GROUPS = """
    mov.b32 %r3, buffer;
    mad.lo.s32 %r5, %t, 4, %r3;
    xor.b32 %r4, %t, 32;
    mad.lo.s32 %r4, %r4, 4, %r3;
    setp.lt.s32 %p1, %t, 64;
    setp.lt.s32 %p2, %t, 32;
    @!%p1 bra $second;
    {first}
    bra.uni $end;
    $second:
    st.shared.b32 [%r5], %t;
    bar.sync 2, {second};
    ld.shared.b32 %r1, [%r4];
    $end:
"""
_BOTH = "st.shared.b32 [%r5], %t;\nbarrier.sync 1, 64;\nld.shared.b32 %r1, [%r4];"
_ONE_WAY = """
    mov.b32 %r1, 7;
    @!%p2 bra $wait;
    st.shared.b32 [%r5], %t;
    {bar}
    bra.uni $end;
    $wait:
    bar.sync 1, 64;
    ld.shared.b32 %r1, [%r4];
"""


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_some_warps_wait_for_each_other_at_a_barrier_of_their_own(order: str) -> None:
    def execute(first: str, second: int = 64) -> list[int]:
        body = _GROUPS.format(first=first, second=second)
        outside = ".shared .align 4 .b8 buffer[512];\n"
        return _integers(body, warps=4, on=hardware.Hardware(order=order), outside=outside)

    assert execute(_BOTH) == [thread ^ 32 for thread in range(128)]
    one_way = execute(_ONE_WAY.format(bar="bar.arrive 1, 64;"))
    assert one_way == [7] * 32 + list(range(32)) + [thread ^ 32 for thread in range(64, 128)]
    for first, second, code in (
        (_BOTH, 32, Code.DIVERGENT if order == "together" else Code.RACE), (_BOTH, 96, Code.DIVERGENT),
        (_ONE_WAY.format(bar=""), 64, Code.DIVERGENT),
    ):  # fmt: skip
        with pytest.raises(Violation) as error:
            execute(first, second)
        assert error.value.code is code
