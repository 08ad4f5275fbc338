"""Structures as parameters, and kernels of any PTX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import opassay
from opassay.oracles.machine.ptx.parameters import lay_out
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Unsupported, Violation

#: y[i] = x[i] * factor + step for i < n: (x, n, factor) and (y, step) are structures.
_TEXT = """
.version 8.7
.target sm_90
.address_size 64
.visible .entry other(.param .u64 p) { ret; }
.visible .entry scale(
    .param .align 8 .b8 scale_param_0[24],
    .param .align 8 .b8 scale_param_1[16]
)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    .reg .b64 %fd<9>;
    ld.param.b64 %rd1, [scale_param_0];
    ld.param.b32 %r1, [scale_param_0+8];
    ld.param.f64 %fd1, [scale_param_0+16];
    ld.param.v2.b32 {%r2, %r3}, [scale_param_1];
    mov.b64 %rd2, {%r2, %r3};
    ld.param.s16 %r4, [scale_param_1+8];
    mov.u32 %r5, %tid.x;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 ret;
    mad.wide.u32 %rd3, %r5, 8, %rd1;
    mad.wide.u32 %rd4, %r5, 8, %rd2;
    ld.global.f64 %fd2, [%rd3];
    cvt.rn.f64.s32 %fd3, %r4;
    fma.rn.f64 %fd4, %fd2, %fd1, %fd3;
    st.global.f64 [%rd4], %fd4;
    ret;
}
"""


def _scale(**launch: Any) -> Any:
    return opassay.ptx_kernel(_TEXT, "scale", **{"grid": 1, "block": 64, **launch})


def test_members_of_structures_are_laid_out_as_the_kernel_loads_them() -> None:
    x, y = torch.arange(50, dtype=torch.float64), torch.zeros(50, dtype=torch.float64)
    _scale()((x, 40, 0.5), (y, 7))
    assert y.tolist() == [i * 0.5 + 7 if i < 40 else 0.0 for i in range(50)]
    pointer_alone = _scale(block=lambda x, y: (32,))
    pointer_alone((x[10:], np.int32(3), np.float64(2.0)), (y[1:], np.int16(-1)))
    assert y[:5].tolist() == [7.0, 19.0, 21.0, 23.0, 9.0]


def test_what_lies_behind_a_tensor_of_a_structure_is_no_operands() -> None:
    x, y = torch.zeros(50, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)
    with pytest.raises(Violation, match=r"argument 1, byte 0") as error:
        _scale()((x, 50, 0.5), (y, 7))
    assert error.value.code is Code.OUT_OF_BOUNDS


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (((1, 2, 3.0), "y"), TypeError, "argument 1: got a str, need one for a parameter of type struct: a tuple of"),
        ((b"12345678", (1, 2)), ValueError, "argument 0: got 8 bytes, need 24"),
        (((1, 2, 3.0, 4, 5.0, 6, 7, 8), (1, 2)), ValueError, "argument 0: got members of .* bytes, need at most 24"),
        (((1, "2", 3.0), (1, 2)), TypeError, "argument 0: got a str, need a tensor or a number"),
        (((torch.zeros(1, device="meta"), 2, 3.0), (1, 2)), ValueError, "argument 0, byte 0: got a tensor on meta"),
    ],
)
def test_what_is_no_structure_is_refused_in_words(arguments: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=rf"scale: {words}"):
        _scale()(*arguments)


def test_bytes_are_taken_as_they_are() -> None:
    assert lay_out(bytes(range(16)), 16, {}).packed(lambda tensor: 0) == bytes(range(16))
    there = lay_out((1, torch.zeros(1), 2.5), 24, {16: 4}).packed(lambda tensor: 0x1122334455667788)
    assert there.hex() == "0100000000000000" + "8877665544332211" + "0000204000000000"


def test_a_kernel_is_found_by_its_name_and_another_is_refused() -> None:
    assert opassay.ptx_kernel(_TEXT, grid=1, block=32).__name__ == "other"
    with pytest.raises(ValueError, match=r"no \.entry third"):
        opassay.ptx_kernel(_TEXT, "third", grid=1, block=32)
    with pytest.raises(Unsupported, match=r"pmevent"):
        opassay.ptx_kernel(_TEXT.replace("@%p1 ret;", "pmevent 7;"), "scale", grid=1, block=32)


def test_a_function_of_such_a_kernel_is_judged() -> None:
    scale = _scale()

    def candidate(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape, dtype=x.dtype)
        scale((x.contiguous(), x.numel(), 0.5), (y, 7))
        return y

    def judge(spec: Any) -> str:
        x = torch.arange(40, dtype=torch.float64)
        return str(opassay.judge(candidate, spec, (x,), questions=("FWD:given",)).verdict)

    assert "accepted" in judge(lambda x: x * 0.5 + 7).lower()
    assert "rejected" in judge(lambda x: x * 0.5 + 8).lower()


def _choosing(behind: str = "") -> Any:
    """y[i] is the first number for threads of even numbers, and the second for others."""
    lines = f"""
    mov.b64 %rd1, chosen_param_1;
    mov.b64 %rd2, chosen_param_2;
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 1;
    setp.eq.s32 %p1, %r2, 0;
    selp.b64 %rd3, %rd1, %rd2, %p1;
    ld.param.b32 %r3, [%rd3{behind}];
    ld.param.b64 %rd4, [chosen_param_0];
    mad.wide.u32 %rd5, %r1, 4, %rd4;
    st.global.b32 [%rd5], %r3;"""
    head = "(.param .u64 chosen_param_0, .param .u32 chosen_param_1, .param .u32 chosen_param_2)"
    registers = ".reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<9>;"
    text = f".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry chosen{head} {{ {registers} {lines} ret; }}"
    return opassay.ptx_kernel(text, "chosen", grid=1, block=32)


def test_each_thread_loads_the_parameter_whose_address_it_has_chosen() -> None:
    y = torch.zeros(32, dtype=torch.int32)
    _choosing()(y, 5, 7)
    assert y.tolist() == [5, 7] * 16


def test_an_address_behind_a_parameter_is_none() -> None:
    with pytest.raises(Violation, match="of the parameters are of none") as error:
        _choosing("+4")(torch.zeros(32, dtype=torch.int32), 5, 7)
    assert error.value.code is Code.OUT_OF_BOUNDS
