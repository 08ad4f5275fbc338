"""The corpus: its programs say what a reader must know, its claims can fail, and a few of them are run."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from corpus import __main__ as command
from corpus.bug import KNOWN, REFUSED, Bug, attempt, same, state
from corpus.page import RESULTS, pages
from corpus.programs import Program, programs
from corpus.running import CLAIMED, ERROR, FIXED, NOT_RUN, PRESENT, run_program
from corpus.seen import Claim, Gap, assess

PROGRAMS = {each.name: each for each in programs()}
BUGS = {name: each for name, each in PROGRAMS.items() if not each.found_here}
MOST_LINES = 30
X = torch.tensor([0.5, -2.0])


def test_there_are_enough_bugs_and_none_bears_the_name_of_another() -> None:
    assert len(BUGS) >= 40
    assert len(PROGRAMS) == len(programs())


def test_a_program_is_short_and_says_how_the_bug_is_known_to_be_one() -> None:
    texts = {name: each.path.read_text(encoding="utf-8") for name, each in BUGS.items()}
    assert [name for name, text in texts.items() if len(text.splitlines()) > MOST_LINES] == []
    assert [name for name, each in BUGS.items() if "Proof: " not in each.text] == []
    assert [name for name, text in texts.items() if not re.search(r'Bug\(\s*"[\w-]+/[\w.-]+#\d+"', text)] == []


def test_the_page_is_made_of_the_programs_and_of_results_that_hold() -> None:
    """`python -m corpus --seen --write` makes it anew."""
    results = {each["name"]: each for each in json.loads(RESULTS.read_text(encoding="utf-8"))}
    assert set(results) == set(BUGS)
    assert [name for name, each in results.items() if each["seen"]["holds"] is not True] == []
    assert {path: path.read_text(encoding="utf-8") for path in pages()} == pages()


# -------------------------------------------------------------------------------------------- a few of the programs


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize(
    "module",
    [
        "corpus.gradients.elu_negative_alpha",  # fixed, by gradients
        "corpus.gradients.norm_at_zero",  # a gap
        "corpus.gradients.scatter_reduce_short_index",  # open upstream
        "corpus.memory.conv_of_strided_weight",  # by strides
        "corpus.reductions.logcumsumexp_of_nothing",  # by infinities
    ],
)
def test_a_claim_holds_here(module: str) -> None:
    importlib.import_module(module)
    code, line = state(KNOWN[module])
    holding = KNOWN[module].sight.holds(code)
    assert holding.holds, (line, holding.text)


# ------------------------------------------------------------------------------------------------- claims can fail


def _claim(actual: Any = None, fault: Any = None, right: Any = None) -> Claim:
    return assess("FWD:given", torch.exp, (X,), actual, fault, right)


def _wrong(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x) * 1.01


@pytest.mark.parametrize(
    ("claim", "code", "holds"),
    [  # None: it is not shown
        (_claim(torch.exp, _wrong), FIXED, True),
        (_claim(_wrong, right=torch.exp), PRESENT, True),
        (_claim(fault=_wrong, right=torch.exp), NOT_RUN, True),
        (_claim(torch.exp, torch.exp), FIXED, False),  # the planted fault is not seen
        (_claim(torch.exp, right=torch.exp), PRESENT, False),  # the present one is not
        (_claim(_wrong, _wrong), FIXED, False),  # what is said to be fixed is refused
        (_claim(fault=_wrong, right=_wrong), FIXED, False),  # everything is refused
        (_claim(_wrong), PRESENT, None),  # nothing shows that a right one is accepted
        (_claim(_wrong, right=torch.exp), FIXED, False),
        (_claim(torch.exp, right=torch.exp), FIXED, None),  # the bug is gone, and nothing is planted
        (Gap("", _claim(fault=torch.exp, right=torch.exp)), FIXED, True),
        (Gap("", _claim(fault=_wrong, right=torch.exp)), FIXED, False),  # a gap that has closed
    ],
)
def test_a_claim_needs_a_refusal_of_the_fault_and_of_nothing_else(
    claim: Claim | Gap, code: int, holds: bool | None
) -> None:
    assert claim.holds(code).holds is holds


def test_a_program_is_run_in_a_process_of_its_own() -> None:
    results = PROGRAMS["median_with_nan"].result(sight=False)
    assert (results["state"], results["thread"]) == ("fixed", "pytorch/pytorch#45084")


def test_a_function_that_raises_has_not_shown_the_fault() -> None:
    def fail(x: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError(x)

    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        _claim(torch.exp, fail).holds(FIXED)


# ------------------------------------------------------------------------------------------------ states of a bug


@pytest.mark.parametrize(
    ("observed", "expected", "equal"),
    [
        (torch.tensor([1.0, float("nan")]), [1.0, float("nan")], True),
        (torch.tensor([1.0001]), [1.0], True),
        (torch.tensor([1.001]), [1.0], False),
        (torch.tensor([1.001], dtype=torch.bfloat16), [1.0], True),
        (torch.tensor([0.0]), [1e-30], False),
        (torch.tensor([float("inf")]), [float("-inf")], False),
        (torch.ones(2), [1.0], False),
        ((torch.ones(1), 2.0), ([1.0], 2), True),
        (1, True, False),
        (REFUSED, REFUSED, True),
        (torch.ones(1), REFUSED, False),
    ],
)
def test_numbers_are_right_by_half_of_their_digits_and_all_else_exactly(
    observed: Any, expected: Any, equal: bool
) -> None:
    assert same(observed, expected) is equal


def test_a_bug_is_present_fixed_or_not_run() -> None:
    claim = _claim(torch.exp, _wrong)
    assert state(Bug("a/b#1", "", lambda: 1.0, 1.0, claim))[0] == FIXED
    assert state(Bug("a/b#1", "", lambda: 2.0, lambda: 1.0, claim))[0] == PRESENT
    assert state(Bug("a/b#1", "", lambda: 1.0, 1.0, claim, "no-such-library")) == (
        NOT_RUN,
        "no-such-library is not installed",
    )
    assert state(Bug("a/b#1", "", lambda: 1.0, 1.0, claim, needs=("no_such_feature",)))[0] == NOT_RUN
    assert attempt(torch.ones(2).expand(3, 2).cos_) == REFUSED


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (f"print('{CLAIMED}'); raise SystemExit(1)", "present"),
        (f"print('{CLAIMED}'); raise SystemExit(0)", "fixed"),
        ("raise SystemExit(2)", "not run"),
        ("raise ValueError('the program is at fault')", ERROR),
        ("raise SystemExit(0)", ERROR),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", ERROR),
    ],
)
def test_a_program_that_broke_is_an_error_and_no_bug(tmp_path: Path, text: str, outcome: str) -> None:
    (tmp_path / "planted.py").write_text(text)
    assert run_program([str(tmp_path / "planted.py")], CLAIMED, 60)[0] == outcome


# ------------------------------------------------------------------------------------------------------ the command


def _results(monkeypatch: pytest.MonkeyPatch, *changes: dict[str, Any]) -> None:
    def result(program: Program, sight: bool) -> dict[str, Any]:
        return next(each for each in changes if each["name"] == program.name)

    monkeypatch.setattr(Program, "result", result)
    monkeypatch.setattr(
        command, "programs", lambda: [Program(each["name"], "", "a title", "", Path()) for each in changes]
    )


def _result(name: str, outcome: str, **sight: Any) -> dict[str, Any]:
    return {"name": name, "state": outcome, "package": "torch", "version": "2", "observation": "why", "seen": sight}


def test_a_present_bug_is_no_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _results(
        monkeypatch, _result("one", "present", by="FWD:given", holds=True), _result("two", "not run", gap="because")
    )
    assert command.main([]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^present +one +torch 2 +FWD:given$", out, re.MULTILINE)
    assert "gap: because" in out
    assert out.endswith("2 programs: 1 not run, 1 present\n")


@pytest.mark.parametrize(
    "bad", [_result("one", ERROR), _result("one", "fixed", by="FWD:given", holds=False, said="planted accepted")]
)
def test_a_program_that_broke_and_a_claim_that_does_not_hold_are_failures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bad: dict[str, Any]
) -> None:
    _results(monkeypatch, bad)
    assert command.main(["--json", "-"]) == 3
    assert json.loads(capsys.readouterr().out) == [bad]


def test_a_name_that_no_program_has_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["no_such_bug"]) == 2
    assert "no_such_bug" in capsys.readouterr().err
    assert command.main(["--list"]) == 0
    assert "torch_ndtr" in capsys.readouterr().out
