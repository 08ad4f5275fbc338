"""Mutants of PTX: what is changed, what a change that nobody sees is called, and a campaign."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opassay.oracles.machine.ptx.listing import read_entry
from tests.oracles.machine.ptx.running import entry
from workshop.mutation.ptx_campaign import PtxFate, fate_of
from workshop.mutation.ptx_changes import KINDS, PtxMutant, disturb, mutants_of

_TEXT = entry(
    """mov.b32 %r2, 7;
setp.lt.s32 %p1, %t, %r2;
@%p1 ld.global.b32 %r3, [%rd0+8];
add.rn.f32 %r4, %r3, 0f3F800000;
sub.rn.ftz.f32 %r5, %r4, %r3;
bar.sync 0;
shfl.sync.bfly.b32 %r6, %r5, 16, 31, -1;
@%p1 st.global.b32 [%rd0], %r6;""",
    1,
)


def _mutants() -> list[PtxMutant]:
    listing = read_entry(_TEXT)
    return mutants_of("softmax", "digest", _TEXT, listing, set(range(len(listing.blocks))))


#: Of each kind the changes of the text above, of the lines behind its head.
CHANGES = {
    "barrier dropped": {""},
    "predicate dropped": {"ld.global.b32 %r3, [%rd0+8];", "st.global.b32 [%rd0], %r6;"},
    "comparison off by one": {"setp.le.s32 %p1, %t, %r2;"},
    "ftz": {"add.rn.ftz.f32 %r4, %r3, 0f3F800000;", "sub.rn.f32 %r5, %r4, %r3;"},
    "operands swapped": {"setp.lt.s32 %p1, %r2, %t;", "sub.rn.ftz.f32 %r5, %r3, %r4;"},
    "rounding": {"add.rz.f32 %r4, %r3, 0f3F800000;", "sub.rz.ftz.f32 %r5, %r4, %r3;"},
    "shuffle distance": {"shfl.sync.bfly.b32 %r6, %r5, 8, 31, -1;"},
    "address": {"@%p1 ld.global.b32 %r3, [%rd0+12];", "@%p1 st.global.b32 [%rd0+4], %r6;"},
    "constant": {"mov.b32 %r2, 8;", "add.rn.f32 %r4, %r3, 0f3F900000;"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_changes_what_it_says(kind: str) -> None:
    assert {mutant.new for mutant in _mutants() if mutant.kind == kind} == CHANGES[kind]


def test_an_integer_that_stands_for_a_number_of_float32_becomes_another_number() -> None:
    text = entry(
        """mov.b32 %r6, 0;
mov.u32 %r2, %r6;
add.s32 %r3, %t, 1065353216;
add.s32 %r4, %t, 1065353216;
mul.rn.f32 %r5, %r2, %r3;""",
        1,
    )
    listing = read_entry(text)
    mutants = mutants_of("softmax", "digest", text, listing, set(range(len(listing.blocks))))
    assert {mutant.new for mutant in mutants if mutant.kind == "constant"} == {
        "mov.b32 %r6, 1065353216;", "add.s32 %r3, %t, 1066401792;", "add.s32 %r4, %t, 1065353217;"
    }  # fmt: skip


def test_a_mutant_changes_one_line_of_the_text_and_has_a_name_of_its_own() -> None:
    mutants = _mutants()
    assert len({mutant.key for mutant in mutants}) == len(mutants) == sum(map(len, CHANGES.values()))
    for mutant in mutants:
        pairs = zip(_TEXT.splitlines(), mutant.text_of(_TEXT).splitlines(), strict=True)
        assert [(old, new) for old, new in pairs if old != new] == [(mutant.old, mutant.new)]


def test_only_blocks_that_were_executed_have_mutants() -> None:
    listing = read_entry(_TEXT)
    last = len(listing.blocks) - 1
    kinds = {mutant.kind for mutant in mutants_of("softmax", "digest", _TEXT, listing, {last})}
    assert kinds == {"predicate dropped", "shuffle distance", "address"}


def test_what_an_instruction_gives_is_disturbed_to_see_whether_a_result_hangs_on_it() -> None:
    listing, by_kind = read_entry(_TEXT), {mutant.kind: mutant for mutant in _mutants()}
    comparison, store = by_kind["comparison off by one"], by_kind["address"]
    assert disturb(by_kind["barrier dropped"], listing) is None
    assert getattr(disturb(comparison, listing), "new", "").splitlines()[1:] == ["not.pred %p1, %p1;"]
    assert getattr(disturb(store, listing), "new", None) == ""
    (line,) = getattr(disturb(by_kind["rounding"], listing), "new", "").splitlines()[1:]
    assert line.startswith("xor.b32 %r5, %r5, ")


def _fate(kind: str, outcome: str = "survived", **answer: Any) -> PtxFate:
    mutant = next(each for each in _mutants() if each.kind == kind)
    results = {"acts": True, "live": True, "differs": False, "by": "FWD", "code": "OA101", "how": "fail"}
    return fate_of(mutant, {**results, "outcome": outcome, "asked": 1, "of": 2, "seconds": 0.5, **answer})


def test_what_becomes_of_a_mutant() -> None:
    assert _fate("ftz", "killed").outcome == "killed"
    assert _fate("ftz", differs=True).outcome == "survived"
    assert _fate("rounding", differs=True).outcome == "allowed"
    assert _fate("ftz").outcome == "equivalent"
    assert _fate("ftz").why
    assert _fate("ftz", acts=False).outcome == _fate("ftz", live=False).outcome == "without effect"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_a_campaign_on_trace_kills_what_acts(tmp_path: Path) -> None:
    into = tmp_path / "mutants.json"
    words = ["ptx-mutants", "--op", "trace", "--dtype", "float32", "--most", "1", "--json", str(into)]
    command = [sys.executable, "-W", "ignore", "-m", "workshop", *words]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = [each["outcome"] for each in json.loads(into.read_text())["mutants"]]
    assert "killed" in outcomes
    assert "survived" not in outcomes
