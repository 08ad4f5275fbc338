"""Threads of one warp that name others by masks, all of them or in groups: votes, matches, reductions, shuffles."""

from __future__ import annotations

import pytest
import torch

from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Violation
from tests.oracles.machine.ptx.running import at, entry, run


def _integers(body: str) -> list[int]:
    """What a warp puts into an int32 for each thread; `%r1` is put there at the end of the body."""
    y = torch.full((32,), -1, dtype=torch.int32)
    run(entry(f"{body}\n{at(0, 4)}st.global.b32 [%rd60], %r1;", 1), [y])
    return [int(number) for number in y]


_HALVES = "setp.lt.u32 %p1, %t, 16;\nselp.b32 %r5, 0xffff, 0xffff0000, %p1;\n"


def test_a_warp_may_be_several_groups() -> None:
    low, high = 0xFFFF, 0xFFFF0000 - 2**32
    assert _integers(_HALVES + "redux.sync.add.s32 %r1, %t, %r5;") == [120] * 16 + [376] * 16
    assert _integers(_HALVES + "shfl.sync.bfly.b32 %r1, %t, 3, 31, %r5;") == [lane ^ 3 for lane in range(32)]
    ballot = "setp.ge.u32 %p2, %t, 12;\nvote.sync.ballot.b32 %r1, %p2, %r5;"
    assert _integers(_HALVES + ballot) == [0xF000] * 16 + [high] * 16
    match = "shr.u32 %r6, %t, 3;\nand.b32 %r6, %r6, 1;\nmatch.any.sync.b32 %r1, %r6, %r5;"
    assert _integers(_HALVES + match) == [0xFF] * 8 + [0xFF00] * 8 + [0xFF0000] * 8 + [0xFF000000 - 2**32] * 8
    same = "min.u32 %r6, %t, 16;\nmatch.all.sync.b32 %r1|%p2, %r6, %r5;"
    assert _integers(_HALVES + same) == [0] * 16 + [high] * 16
    leader = "mov.b32 %r1, 0;\nelect.sync _|%p2, %r5;\n@%p2 mov.b32 %r1, %r5;"
    assert _integers(_HALVES + leader) == [low, *[0] * 15, high, *[0] * 15]


@pytest.mark.parametrize(
    "masks",
    [
        "mov.b32 %r5, %t;",  # threads that are not among those that they name
        "setp.lt.u32 %p1, %t, 16;\nselp.b32 %r5, -1, 0xffff0000, %p1;",  # others name fewer
        _HALVES + "setp.eq.u32 %p2, %t, 31;\n@%p2 exit;",  # one that is named has ended
    ],
)
@pytest.mark.parametrize("step", ["redux.sync.add.s32 %r1, %t, %r5;", "shfl.sync.idx.b32 %r1, %t, 0, 31, %r5;"])
def test_groups_that_do_not_agree_are_divergent(masks: str, step: str) -> None:
    with pytest.raises(Violation, match=r"with the (other )?threads") as error:
        _integers(f"{masks}\n{step}")
    assert error.value.code is Code.DIVERGENT
