"""Two runs compared: each kind of change is found, no other is, and the page is safe with hostile names."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from opassay.oracles.verdicts.verdict import Code, Failure, Outcome, Verdict
from opassay.reports import record
from opassay.reports.cli.commands import cli
from opassay.reports.over_time.comparison import Comparison, Kind, compare, exit_reasons
from opassay.reports.over_time.pages import comparison_page
from opassay.reports.record import Run
from tests.reports.conftest import HOSTILE, failed, make_run, verdict

PASSING = verdict("VJP")
RAISED = verdict("VJP", Outcome.FAIL, Code.RAISED, judged=0)
WEAK = verdict("VJP", Outcome.WEAK, Code.FEW_SAMPLES)
OUTSIDE = verdict("VJP", Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, judged=0)
CRASHED = verdict("VJP", Outcome.CRASH, Code.CRASHED, judged=0)
LEFT_OUT = verdict("VJP", Outcome.NOT_RUN, Code.DESELECTED, judged=0)


def _compared(before: Verdict, now: Verdict) -> Comparison:
    return compare(make_run(verdict(), before), make_run(verdict(), now))


@pytest.mark.parametrize(
    ("before", "now", "kind", "code", "message"),
    [
        (PASSING, failed(), Kind.NEW, 1, "was verified, is fail OA101"),
        (OUTSIDE, failed(), Kind.NEW, 1, "was unsupported"),
        (LEFT_OUT, failed(), Kind.NEW, 1, "was not asked"),
        (RAISED, failed(), Kind.NEW, 1, "failed with OA105, fails with OA101"),
        (failed(), failed(ratio=8.0), Kind.WORSE, 1, "error/bound 3.9 -> 8"),
        (failed(), failed(ratio=math.inf), Kind.WORSE, 1, "3.9 -> ∞"),
        (failed(ratio=8.0), failed(), Kind.BETTER, 0, "8 -> 3.9"),
        (PASSING, verdict("VJP", ratio=0.9), Kind.WORSE, 1, "inside the bound, error/bound 0.5 -> 0.9"),
        (verdict("VJP", ratio=0.0), PASSING, Kind.WORSE, 1, "0 -> 0.5"),
        (PASSING, verdict("VJP", judged=40), Kind.WORSE, 1, "40 elements judged, 100 before"),
        (PASSING, WEAK, Kind.WORSE, 1, "was verified, is weak"),
        (WEAK, PASSING, Kind.BETTER, 0, "was weak"),
        (OUTSIDE, PASSING, Kind.BETTER, 0, "was unsupported, is verified"),
        (PASSING, OUTSIDE, Kind.LOST, 1, "is unsupported OA304"),
        (failed(), OUTSIDE, Kind.LOST, 1, "was fail"),
        (PASSING, CRASHED, Kind.LOST, 4, "is crash"),
        (failed(), PASSING, Kind.FIXED, 0, "was fail OA101, is verified: worse than its bound"),
    ],
)
def test_each_change_is_told(before: Verdict, now: Verdict, kind: Kind, code: int, message: str) -> None:
    (change,) = _compared(before, now).changes
    assert (change.kind, change.cell, change.code) == (kind, PASSING.cell.key, code)
    assert message in change.text


@pytest.mark.parametrize(
    ("before", "now"),
    [
        *((item, item) for item in (PASSING, failed(), RAISED, WEAK, OUTSIDE, CRASHED)),
        (PASSING, verdict("VJP", ratio=0.7)),  # less than half as large again
        (failed(), failed(ratio=5.0)),
        (failed(ratio=math.inf), failed(ratio=math.inf)),
        (OUTSIDE, CRASHED),
    ],
)
def test_nothing_else_is_a_change(before: Verdict, now: Verdict) -> None:
    result = _compared(before, now)
    assert (result.changes, result.differences, exit_reasons(result)) == ((), (), [])


def test_of_other_inputs_an_error_inside_the_bound_is_told_and_blocks_nothing() -> None:
    before, now = make_run(PASSING), replace(make_run(verdict("VJP", ratio=0.9, judged=30)), seed=7, max_examples=3)
    comparison = compare(before, now)
    assert comparison.other_inputs == ("seed", "max_examples")
    assert [(change.kind, change.code) for change in comparison.changes] == [(Kind.WORSE, 0)]
    assert [change.code for change in compare(before, replace(make_run(failed()), seed=7)).changes] == [1]


def test_cells_of_one_record_alone_are_counted_and_a_selection_is_no_loss() -> None:
    comparison = compare(make_run(verdict(), PASSING), make_run(verdict(), LEFT_OUT, verdict("JVP")))
    assert (comparison.both, comparison.added, comparison.absent, comparison.changes) == (1, 1, (PASSING.cell.key,), ())
    assert [code for code, _ in exit_reasons(comparison)] == [4]
    assert exit_reasons(comparison, partial=True) == []
    assert [code for code, _ in exit_reasons(compare(make_run(PASSING), make_run(verdict())), partial=True)] == [5]


def _timed(*seconds: float) -> Run:
    items = [verdict(f"P{number}").with_seconds(value) for number, value in enumerate(seconds)]
    return make_run(*items)


def test_a_slower_cell_is_told_and_a_slower_machine_is_not() -> None:
    before = _timed(2.0, 2.0, 2.0, 2.0, 0.01)
    comparison = compare(before, _timed(2.1, 2.0, 7.0, 2.0, 0.9))
    assert [(change.kind, change.text, change.code) for change in comparison.changes] == [
        (Kind.SLOWER, "2.00 s -> 7.00 s", 0)
    ]
    slow = compare(before, _timed(8.0, 8.0, 8.0, 8.0, 0.04))
    assert (slow.changes, slow.pace) == ((), 4.0)
    assert [(time.op, time.before, time.now) for time in slow.times] == [("softmax", 8.01, 32.04)]
    outlier = compare(before, _timed(8.0, 8.0, 8.0, 20.0, 0.04)).changes
    assert [change.text for change in outlier] == ["2.00 s -> 20.00 s"]


def test_other_versions_settings_and_machines_are_told_once() -> None:
    before = replace(make_run(PASSING), commit="a" * 40, settings={"workers": "1"})
    environment = {"opassay": "0.2.0", "torch": "2.14.0", "platform": "Linux 6 x86_64", "gpu": "one"}
    now = replace(before, version="0.2.0", dirty=True, settings={"workers": "2"}, environment=environment)
    results = {item.name: (item.before, item.now) for item in compare(before, now).differences}
    assert results == {
        "opassay": ("0.1.0", "0.2.0"),
        "commit": ("a" * 12, "a" * 12 + " and changes"),
        "workers": ("1", "2"),
        "torch": ("2.13.0", "2.14.0"),
        "gpu": ("", "one"),
    }


def test_the_page_shows_everything_and_no_name_breaks_out() -> None:
    hostile = verdict("VJP", op=HOSTILE)
    bad = replace(hostile, outcome=Outcome.FAIL, code=Code.VALUE, failure=Failure(Code.VALUE, HOSTILE, "", "12-34"))
    before = make_run(verdict(), hostile, failed("JVP"), verdict("ORD2"))
    now = make_run(verdict(), bad, verdict("JVP"))
    page = comparison_page(compare(before, now), before, now)
    for text in ("1 new", "1 fixed", "1 not asked any more", "softmax::JVP[float32-cpu-opassay]", "replay 12-34"):
        assert text in page
    assert "<h1>\n1 cell is new, worse or lost</h1>" in page
    assert "<img" not in page
    assert "<script" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page


@pytest.fixture(name="called")
def _call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """The command on records `a.json`, which holds, and `b.json`, in which a cell fails; its code and output."""
    record.save(tmp_path / "a.json", make_run(verdict(), PASSING))
    record.save(tmp_path / "b.json", make_run(verdict(), failed()))
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["report", "compare", *words], standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        return done.return_value, done.output

    return call


def test_the_command_says_what_is_new_and_ends_with_1(called: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    code, output = called("a.json", "b.json", "--html", "page.html")
    assert code == 1
    assert "✕ new     softmax::VJP[float32-cpu-opassay]  was verified, is fail OA101" in output
    assert "compare: FAIL (exit 1), 1 new; 2 cells in both" in output
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert called("a.json", "b.json", "--exit-zero")[0] == 0
    code, output = called("b.json", "a.json")
    assert code == 0
    assert "compare: ok (exit 0), 1 fixed; 2 cells in both" in output
    assert "nothing has changed" in called("a.json", "a.json")[1]


def test_a_file_of_the_user_is_not_overwritten(called: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    with pytest.raises(Exception, match="is no report page that opassay wrote"):
        called("a.json", "b.json", "--html", "mine.html")
    assert (tmp_path / "mine.html").read_text() == "<p>mine</p>"


def test_the_folder_of_a_report_stands_for_its_record(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(record.encode(make_run(verdict())))
    for words in (["report", "compare", str(tmp_path), str(tmp_path)], ["report", "causes", str(tmp_path)]):
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output
    (tmp_path / "run.json").unlink()
    assert "no such file" in str(CliRunner().invoke(cli, ["report", "causes", str(tmp_path)]).exception)
