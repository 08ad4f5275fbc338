"""What a compiler says of a load, that some bytes are not used, and of a launch, how much memory its blocks share."""

from __future__ import annotations

import pytest
import torch

from opassay.oracles.machine.ptx import hardware
from opassay.oracles.machine.ptx.plain_text import simplify
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Violation
from tests.oracles.machine.ptx.running import at, entry, run

_TILE = ".shared .align 16 .b8 tile[64];\n"
#: The first thread stores to the second and fourth part; all load the row of four, of which the first and third count.
_STORE = "setp.eq.s32 %p1, %t, 0;\n@%p1 st.shared.b32 [tile+4], 3;\n@%p1 st.shared.b32 [tile+12], 4;\n"
_BEFORE = "setp.eq.s32 %p1, %t, 0;\n@%p1 st.shared.b32 [tile], 5;\n@%p1 st.shared.b32 [tile+8], 6;\nbar.sync 0;\n"
_LOAD = "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [tile];\n"
_SUM = "add.s32 %r5, %r1, %r3;\n" + at(0, 4) + "st.global.b32 [%rd60], %r5;\n"


def _result(mask: str, load: str = _LOAD, order: str = "together") -> int | Code:
    """What all threads give, or what is wrong."""
    pragma = f'.pragma "used_bytes_mask {mask}";\n' if mask else ""
    y = torch.zeros(64, dtype=torch.int32)
    try:
        run(
            entry(_BEFORE + pragma + load + _STORE + _SUM, 2, "", _TILE),
            [y],
            warps=2,
            on=hardware.Hardware(order=order),
        )
    except Violation as error:
        return error.code
    assert (y == y[0]).all()
    return int(y[0])


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_another_thread_may_write_what_is_not_used_and_nothing_else(order: str) -> None:
    assert _result("3855", order=order) == 11
    assert _result("0xf0f", order=order) == 11
    for wrong in ("", "65535", "4095", "0xff0f"):  # of which a part that is written belongs to the load
        assert _result(wrong, order=order) is Code.RACE, wrong


def test_the_whole_row_is_aligned_all_the_same() -> None:
    assert _result("3855", _LOAD.replace("[tile]", "[tile+4]")) is Code.MISALIGNED


def test_lines_stay_and_other_loads_are_as_they_were() -> None:
    loads = "@!%p1 ld.global.v2.b64 {%rd1,\n %rd2}, [%rd0];\nld.global.v2.u32 {%r1, %r2}, [%rd0];"
    text = f'.pragma "used_bytes_mask 15";\n{loads}'
    assert simplify(text) == text.replace(" %rd2", " _")
    assert simplify(text.replace("global", "param")) == text.replace("global", "param")
    assert simplify("a; // b\n/* c\n */ d;") == "a; \n\n d;"


def test_the_size_of_dynamic_shared_memory_is_that_of_the_launch() -> None:
    y = torch.zeros(32, dtype=torch.int32)
    body = "mov.u32 %r1, %dynamic_smem_size;\n" + at(0, 4) + "st.global.b32 [%rd60], %r1;\n"
    run(entry(body, 1), [y], shared=1040)
    assert (y == 1040).all()
