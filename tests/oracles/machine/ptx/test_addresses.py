"""Addresses in registers of 32 bits wrap around, as compilers have it, and what lies before a variable is outside."""

from __future__ import annotations

import pytest
import torch

import opassay
from opassay.oracles.verdicts.violation import Violation

_TEXT = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{
 .reg .b32 %r<5>;
 .reg .b64 %rd<5>;
 .shared .align 4 .b8 own[128];
 ld.param.u64 %rd1, [p];
 cvta.to.global.u64 %rd2, %rd1;
 mov.u32 %r1, %tid.x;
 mul.wide.u32 %rd3, %r1, 4;
 add.s64 %rd4, %rd2, %rd3;
 mov.u32 %r2, own;
 shl.b32 %r3, %r1, 2;
 add.s32 %r2, %r2, %r3;
 add.s32 %r2, %r2, -256;
 ld.global.u32 %r4, [%rd4];
 st.shared.u32 [%r2+OFFSET], %r4;
 ld.shared.u32 %r4, [%r2+OFFSET];
 add.s32 %r4, %r4, 1;
 st.global.u32 [%rd4], %r4;
 ret;
}
"""


def test_a_sum_that_comes_back_is_within() -> None:
    x = torch.arange(32, dtype=torch.int32)
    opassay.ptx_kernel(_TEXT.replace("OFFSET", "256"), grid=1, block=32)(x)
    assert torch.equal(x, torch.arange(1, 33, dtype=torch.int32))


@pytest.mark.parametrize(("offset", "place"), [(252, "byte -4 of shared"), (260, "byte 128 of shared")])
def test_what_lies_beside_is_outside(offset: int, place: str) -> None:
    x = torch.zeros(32, dtype=torch.int32)
    with pytest.raises(Violation, match="that is no operand's") as error:
        opassay.ptx_kernel(_TEXT.replace("OFFSET", str(offset)), grid=1, block=32)(x)
    assert place in "\n".join(error.value.message.splitlines())
