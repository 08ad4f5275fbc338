"""The league's page, its data and README's line say one thing, and every red row has a cause that its program shows."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.programs import loaded

LEAGUE = loaded(Path(__file__).resolve().parents[1] / "benchmarks" / "league.py")
contender, page, replays, standing = (
    sys.modules[f"benchmarks.contenders.{name}"] for name in ("contender", "page", "replays", "standing")
)
DATA = json.loads(page.DATA.read_text(encoding="utf-8"))
CAUSES = replays.read_causes()


def test_page_and_readme_are_what_the_command_writes_of_the_data() -> None:
    """`python benchmarks/league.py --log LOG --write` makes all three."""
    assert DATA["causes"] == json.loads(json.dumps([asdict(each) for each in CAUSES]))
    assert page.PAGE.read_text(encoding="utf-8") == page.page_of(DATA)
    assert page.tally(DATA) + "\n" in page.README.read_text(encoding="utf-8")


def test_every_red_row_has_a_cause_and_every_cause_a_red_row() -> None:
    assert page.uncaused(DATA) == []
    red = {(each["library"], each["call"]) for each in DATA["kernels"] if each["verdict"] in page.RED}
    assert [(each.name, call) for each in CAUSES for call in each.calls if (each.library, call) not in red] == []


def test_a_red_row_without_a_cause_is_told() -> None:
    row = {"library": "torch", "call": "no such call", "verdict": "rejected"}
    assert page.uncaused({"kernels": [row, {**row, "verdict": "accepted"}]}) == ["torch no such call"]


def test_the_league_is_large() -> None:
    kernels = set(map(page.key_of, DATA["kernels"]))
    assert len(kernels) == len(DATA["kernels"]) >= 300
    assert len({library for library, *_ in kernels}) >= 8


@pytest.mark.parametrize("cause", [each for each in CAUSES if each.library == "numpy"], ids=lambda each: each.name)
def test_a_cause_is_shown_without_the_framework(cause: Any) -> None:
    assert "opassay" not in cause.program
    # What NumPy's code for vectors is off by was measured with AVX-512; others have other code.
    is_other = torch.backends.cpu.get_cpu_capability() != "AVX512"
    assert replays.run_program(cause)[0] in ("shown", *(["not there"] if is_other else []))


@pytest.mark.parametrize("cause", CAUSES, ids=lambda each: each.name)
def test_a_program_compares_with_what_is_not_ours(cause: Any) -> None:
    assert compile(cause.program, cause.name, "exec")
    assert "opassay" not in cause.program
    assert "SystemExit" in cause.program


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("raise SystemExit(1)", "shown"),
        ("print(1)", "not there"),
        ("1 / 0", "broken"),
        ("import no_such_library", "not run"),
    ],
)
def test_a_replay_tells_a_fault_from_a_program_that_broke(program: str, outcome: str) -> None:
    cause = replays.Cause("planted", "none", (), replays.FAULT, "It was planted.", program=program)
    assert replays.run_program(cause)[0] == outcome


def test_a_table_tells_a_wrong_kernel_from_a_right_one() -> None:
    text = "torch.exp(x) | torch.exp(x)\ntorch.exp(x) * 1.001 | torch.exp(x)"
    right, wrong = contender.read_table("planted", text, {"torch": torch})
    assert standing.judge_contender(right, "1.0")["verdict"] == "accepted"
    record = standing.judge_contender(wrong, "1.0")
    assert (record["verdict"], record["causes"][0]["question"]) == ("rejected", "FWD:given")


def test_the_page_tells_how_many_planted_mistakes_were_refused(tmp_path: Path) -> None:
    fates = [{"mutant": {"family": "f(x) bfloat16"}, "outcome": each} for each in ("killed", "survived", "equivalent")]
    path = tmp_path / "mutants.json"
    path.write_text(json.dumps({"mutants": fates}))
    assert page.fates_of(path) == {"f(x) bfloat16": [1, 1]}


def test_a_half_type_is_a_row_of_its_own_with_what_the_library_says() -> None:
    table = "f(x) | torch.exp(x) | torch | x: may be written; x: contiguous"
    (row,) = contender.read_table("planted", table, {"f": torch.exp})
    half = row.cast("bfloat16", "sm_90")
    assert (half.dtype, half.compiled, half.where) == ("bfloat16", "sm_90", ("x: may be written", "x: contiguous"))
    assert half.arguments[0].dtype is torch.bfloat16
    records = [standing.describe_contender(each, "1.0") for each in (row, half)]
    assert len({page.key_of(each) for each in records}) == 2


def test_a_log_that_was_cut_off_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"library": "torch", "call": "exp"}\n{"library": "to')
    assert LEAGUE.read_log(path) == [{"library": "torch", "call": "exp"}]
    assert LEAGUE.read_log(tmp_path / "none.jsonl") == []


def test_the_last_record_of_a_kernel_counts_and_a_library_without_any_is_not_run() -> None:
    row = {"library": "jax", "call": "f(x)", "verdict": "ended"}
    data = page.data_of(
        [row, {**row, "verdict": "accepted", "day": "2026-11-27"}, {"library": "flax", "not_run": "no"}]
    )
    assert [each["verdict"] for each in data["kernels"]] == ["accepted"]
    assert data["not_run"]["flax"] == "no"
