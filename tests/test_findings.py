"""The page of findings is made of its programs, and the programs can tell a fault from a right answer."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import mpmath
import pytest
import torch

from tests.programs import loaded

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
VERSIONS = BENCHMARKS.parent / "docs" / "tables" / "versions.txt"


RUNNER = loaded(BENCHMARKS / "findings.py")
PROGRAMS = {program.name: program for program in RUNNER.programs()}


def test_the_page_is_made_of_the_programs() -> None:
    """`python benchmarks/findings.py --write` makes it anew."""
    record = RUNNER.data()
    assert json.loads(RUNNER.DATA.read_text(encoding="utf-8")) == record
    assert RUNNER.PAGE.read_text(encoding="utf-8") == RUNNER.page(record)


def test_the_site_has_a_row_for_each_finding_and_each_kernel() -> None:
    tables = loaded(BENCHMARKS.parent / "docs" / "building" / "tables.py")
    record = RUNNER.data()
    rows = [*tables.rows_of_findings(record)]
    assert [row["name"] for row in rows if row["name"]] == list(PROGRAMS)
    assert len(rows) == len(PROGRAMS) + len(record["far"]["wraps"]) + len(record["losses"])
    league = json.loads((tables.DOCS / "league.json").read_text(encoding="utf-8"))
    red = [row for row in tables.rows_of_league(league) if row["facets"]["verdict"] == "rejected"]
    assert all("<pre>" in row["text"] for row in red), "a red row opens to its cause and the program that shows it"
    hostile = {"kernels": [{"library": "x", "call": "<img src=x>", "verdict": "accepted"}], "causes": [], "how": {}}
    (row,) = tables.rows_of_league(hostile)
    assert "<img" not in row["title"] + row["text"]


def test_there_are_findings_and_all_have_figures() -> None:
    figures = json.loads(RUNNER.FIGURES.read_text(encoding="utf-8"))["figures"]
    assert set(figures) == set(PROGRAMS)
    assert len(PROGRAMS) >= 8


@pytest.mark.parametrize(
    ("torch_version", "triton_version"), [("2.11.0", "3.6.0"), ("2.13.0", "3.7.1"), ("2.15.0", "3.9.0")]
)
def test_the_page_of_versions_counts_what_came_of_dossiers(torch_version: str, triton_version: str) -> None:
    attempts = json.loads((RUNNER.DOSSIERS / "attempts.json").read_text(encoding="utf-8"))
    pairs = {("torch", torch_version), ("triton", triton_version)}
    outcomes = [
        each["outcome"]
        for name, every in attempts.items()
        for each in every
        if (PROGRAMS[name].library, each["version"]) in pairs
    ]
    rows = [row for row in VERSIONS.read_text(encoding="utf-8").splitlines() if row.startswith(f"| {torch_version} |")]
    assert any(f"{outcomes.count('present')} present" in row for row in rows if "dossiers" in row)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_finding_says_what_a_reader_must_know(name: str) -> None:
    program = PROGRAMS[name]
    assert (program.kind in RUNNER.KINDS, program.severity in RUNNER.SEVERITIES) == (True, True)
    assert [
        word for word in ("**Documented**", "**Does it matter?**", "**Upstream**") if word not in program.text
    ] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_figures_are_of_the_version_that_the_program_names(name: str) -> None:
    figures = RUNNER.Figures(**json.loads(RUNNER.FIGURES.read_text(encoding="utf-8"))["figures"][name])
    assert figures.version == PROGRAMS[name].version
    assert datetime.date.fromisoformat(figures.date) >= datetime.date(2026, 11, 1)
    assert "opassay   refused" in figures.text
    assert "(mpmath)" in figures.text


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("print('  opassay   refused'); raise SystemExit(1)", "present"),
        ("print('  opassay   accepted')", "fixed"),
        ("print('nothing is installed'); raise SystemExit(2)", "not run"),
        ("print('  opassay   refused'); raise SystemExit(3)", "disagreed"),
        ("raise ValueError('the library has another signature')", "error"),
    ],
)
def test_the_runner_tells_a_fault_from_a_program_that_broke(tmp_path: Path, text: str, outcome: str) -> None:
    (tmp_path / "planted.py").write_text(text)
    assert RUNNER.outcome(tmp_path / "planted.py")[0] == outcome


def test_a_library_that_is_not_installed_is_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    proof = loaded(BENCHMARKS / "findings" / "proof.py")
    assert proof.tell("no-such-library", "1.0", lambda: None) == proof.NOT_RUN
    assert "is not installed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("off", "exact_off", "outcome"),
    [(0.0, 0.0, "FIXED"), (1e-4, 0.0, "PRESENT"), (float("nan"), 0.0, "PRESENT"), (0.0, 1e-4, "DISAGREED")],
)
def test_a_proof_is_judged_by_mpmath_and_by_the_bound(off: float, exact_off: float, outcome: str) -> None:
    module = loaded(BENCHMARKS / "findings" / "proof.py")
    x = torch.tensor([0.5, 2.0])
    exact = [mpmath.exp(value) + exact_off for value in module.numbers(x)]
    proof = module.Proof("planted", torch.exp(x) + off, exact, torch.exp, (x,))
    code, lines = module._judge(proof)
    assert code == getattr(module, outcome)
    assert any("(mpmath)" in line for line in lines)
