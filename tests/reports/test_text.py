"""Words: explanations of every code, and text that nothing can be misled by."""

from __future__ import annotations

import io
import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from opassay.oracles.verdicts.explanations import explanation_of, outcomes_page
from opassay.oracles.verdicts.verdict import Cell, Code, Failure, Outcome
from opassay.reports import exit_codes, text
from opassay.reports.cli.summary import print_summary, step_summary
from opassay.reports.explain import TEXTS, explain
from opassay.reports.exporting import to_xml
from opassay.reports.merge import merge
from opassay.reports.progress import make_console
from opassay.reports.record import RecordError
from tests.reports.conftest import HOSTILE, failed, make_run, verdict


def test_every_code_and_outcome_is_explained() -> None:
    assert set(outcomes_page().sections) == set(Code)
    assert set(TEXTS["outcomes"]) == set(Outcome) == set(text.GLYPHS)
    for code in Code:
        result = explanation_of(code)
        assert result.title
        assert result.meaning.endswith(".")
        assert result.look_at.endswith(".")
        assert code in explain(code)


def test_no_explanation_advises_to_loosen_a_check() -> None:
    words = " ".join(explain(code).lower() for code in Code)
    assert not [word for word in ("loosen", "disable the", "increase the tolerance", "ignore this") if word in words]


def test_signs_differ() -> None:
    assert len(set(text.GLYPHS.values())) == len(Outcome)


@pytest.mark.parametrize(
    ("value", "view"),
    [(math.nan, "–"), (math.inf, "∞"), (-math.inf, "−∞"), (0.0, "0"), (0.12345, "0.123"), (1.44e7, "1.44e7")],
)
def test_numbers(value: float, view: str) -> None:
    assert text.number(value) == view


@pytest.mark.parametrize(
    ("seconds", "view"), [(0.34, "340 ms"), (12.34, "12.3 s"), (843, "14 m 03 s"), (7500, "2 h 05 m")]
)
def test_durations(seconds: float, view: str) -> None:
    assert text.duration(seconds) == view


def test_a_failure_says_all_in_one_text() -> None:
    result = text.failure_text(failed())
    *lines, explained = result.splitlines()
    assert explained == "  explain    opassay explain OA101"
    usual = [line[13:] for line in lines[6:]]
    assert (lines[6][:13], " ".join(usual)) == ("  usually    ", explanation_of(Code.VALUE).look_at)
    assert lines[:6] == [
        "softmax::VJP[float32-cpu-opassay]: fail, OA101",
        "  worse than its bound",
        "  line 1",
        "  line 2",
        "  judged     100 elements in 8 samples (3 not judged)",
        f"  replay     opassay replay {failed().cell.id}-0001",
    ]


def test_a_verdict_is_one_line() -> None:
    assert text.verdict_line(verdict()) == (
        "■ softmax::FWD[float32-cpu-opassay]  verified  OA100  largest error 0.5 u of the scale, error/bound 0.5"
    )
    hostile = replace(failed(), failure=Failure(Code.VALUE, HOSTILE + "\nsecond line", ""))
    assert "\n" not in text.verdict_line(hostile)


def test_the_command_that_replays_names_an_op_of_a_module() -> None:
    theirs = failed()
    theirs = replace(theirs, cell=replace(theirs.cell, op="my module:OP"))
    case = theirs.failure.case_id if theirs.failure else ""
    assert f"opassay replay {case} --op 'my module:OP'" in text.failure_text(theirs)
    assert "--op" not in text.failure_text(failed())


def test_an_op_whose_first_sample_failed_has_its_error_in_the_summary() -> None:
    worst = replace(failed(), measure=replace(failed().measure, judged=0, max_ratio=4.5e12))
    assert worst.measure.worst is not None
    stream = io.StringIO()
    print_summary(make_console(stream), replace(make_run(verdict(), worst), exit_code=1))
    assert "4.5e12" in stream.getvalue()


def test_each_subject_has_its_own_line() -> None:
    skipped = verdict("ORD3", Outcome.UNSUPPORTED, Code.DTYPE_OUTSIDE, judged=0)
    theirs = [replace(item, cell=replace(item.cell, subject="torch")) for item in (failed(), failed("JVP"), verdict())]
    lines = [result.line for result in text.standings([verdict(), skipped, *theirs])]
    assert lines == ["opassay: 1 verified; 1 unsupported", "torch: 2 of 3 cells failed; 1 verified"]


@pytest.mark.parametrize(
    ("outcomes", "line", "tone"),
    [
        ((Outcome.VERIFIED, Outcome.VERIFIED), "opassay: all 2 verified", "good"),
        ((Outcome.VERIFIED, Outcome.WEAK), "opassay: all 2 held, 1 of them weakly", "good"),
        ((Outcome.VERIFIED, Outcome.UNSTABLE), "opassay: 1 of 2 cells failed; 1 verified, 1 unstable", "poor"),
        ((Outcome.VERIFIED, Outcome.CRASH), "opassay: 1 of 2 not decided; 1 verified, 1 crash", "open"),
        ((Outcome.VERIFIED, Outcome.ERROR), "opassay: 1 of 2 not decided; 1 verified, 1 error", "open"),
        ((Outcome.VERIFIED, Outcome.NOT_RUN), "opassay: 1 of 2 not decided; 1 verified, 1 not run", "open"),
        ((Outcome.UNSUPPORTED,), "opassay: nothing checked; 1 unsupported", "open"),
    ],
)
def test_nothing_is_called_verified_that_is_not(outcomes: tuple[Outcome, ...], line: str, tone: str) -> None:
    items = [verdict(f"P{i}", outcome, Code.INTERRUPTED) for i, outcome in enumerate(outcomes)]
    assert [(result.line, result.tone) for result in text.standings(items)] == [(line, tone)]


def test_complaints_are_one_per_property() -> None:
    other = replace(failed(), cell=replace(failed().cell, dtype="float16"))
    crashed = verdict("JVP", Outcome.CRASH, Code.CRASHED)
    groups = text.complaints([verdict(), crashed, failed(), other])
    assert [[item.cell.key for item in group] for group in groups] == [
        [failed().cell.key, other.cell.key],
        [crashed.cell.key],
    ]


def test_long_lines_are_wrapped_whole_words_stay() -> None:
    word = "0x" + "f" * 100
    view = text.wrap_lines(f"  got {'word ' * 20}{word}\n\nlast", 60)
    assert all(len(line) <= 60 or line.strip() == word for line in view.splitlines())
    assert view.split() == f"got {'word ' * 20}{word} last".split()
    assert view.splitlines()[1].startswith("      word")
    assert view.splitlines()[-2:] == ["", "last"]


def test_a_summary_lists_ten_failures() -> None:
    items = [replace(failed(f"P{i}"), cell=Cell(f"op{i}", "VJP", "float32", "cpu", "opassay")) for i in range(13)]
    stream = io.StringIO()
    print_summary(make_console(stream), replace(make_run(verdict(), *items), exit_code=1))
    lines = stream.getvalue().splitlines()
    assert sum(line.startswith("✕ inaccurate: op") for line in lines) == 10
    assert "… and 3 causes more in the report" in lines
    assert "opassay: 13 of 14 cells failed; 1 verified" in lines
    assert all(len(line) <= 120 for line in lines)
    assert "opassay: 13 of 14 cells failed" in step_summary(make_run(verdict(), *items)).replace("\\", "")


def test_github_commands_cannot_be_injected() -> None:
    line = text.github_command("error", "a::b,c\nd", "100 %\n::warning::x\r")
    assert line == "::error title=a%3A%3Ab%2Cc d::100 %25%0A::warning::x"


def test_markdown_is_shown_as_it_stands() -> None:
    view = text.markdown("<b>@team [x](http://y) `z` | *w*")
    assert not [sign for sign in ("<b>", "@team", "http://", "[x](") if sign in view]


def test_junit_holds_any_text() -> None:
    failure = Failure(Code.VALUE, HOSTILE, HOSTILE)
    item = replace(failed(), cell=Cell(HOSTILE, "FWD", "float32", "cpu", "opassay"), failure=failure)
    skipped = verdict("ORD2", Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, judged=0, reason=HOSTILE + "\ufffe\x0c")
    crashed = verdict("JVP", Outcome.CRASH, Code.CRASHED, judged=0)
    root = ET.fromstring(to_xml(make_run(item, skipped, crashed, verdict())))
    assert [suite.get("tests") for suite in root.iter("testsuite")] == ["1", "3"]
    assert [len(list(root.iter(tag))) for tag in ("failure", "error", "skipped")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("codes", "exit_code"),
    [([], 0), ([5], 5), ([5, 4], 4), ([4, 1], 1), ([1, 2], 2), ([2, 3], 3), ([3, 130, 1], 130)],
)
def test_the_most_urgent_reason_is_the_exit_code(codes: list[int], exit_code: int) -> None:
    assert exit_codes.most_urgent((code, "") for code in codes) == exit_code


def test_reasons_of_a_run() -> None:
    def codes(*items: Outcome) -> list[int]:
        verdicts = [verdict(f"P{i}", outcome, Code.NO_DEVICE) for i, outcome in enumerate(items)]
        return [code for code, _ in exit_codes.run_reasons(verdicts)]

    assert codes(Outcome.VERIFIED, Outcome.WEAK, Outcome.UNSUPPORTED) == []
    assert codes(Outcome.VERIFIED, Outcome.FAIL, Outcome.ERROR, Outcome.CRASH) == [1, 3, 4]
    assert codes(Outcome.UNSUPPORTED) == [5]
    assert codes() == [5]
    assert codes(Outcome.NOT_RUN, Outcome.VERIFIED) == [4]
    assert codes(Outcome.NOT_RUN, Outcome.UNSUPPORTED) == [4, 5]
    assert exit_codes.most_urgent([(1, ""), (4, "")], exit_zero=True) == 0


def test_merge_takes_the_worse_verdict_and_what_ran() -> None:
    there = verdict("VJP", Outcome.NOT_RUN, Code.DESELECTED, judged=0, reason="in another shard")
    absent = verdict("JVP", Outcome.NOT_RUN, Code.DESELECTED, judged=0, reason="in another shard")
    one, two = make_run(verdict(), there, absent), make_run(replace(verdict(), outcome=Outcome.FAIL), failed(), absent)
    merged = merge([one, two])
    assert [item.outcome for item in merged.verdicts] == [Outcome.FAIL, Outcome.FAIL, Outcome.NOT_RUN]
    assert merged.verdicts[2].code is Code.INTERRUPTED
    assert merged.exit_code == 1
    assert len(merged.notes) == 1
    assert merge([make_run(verdict(), failed())]).verdicts == (verdict(), failed())


@pytest.mark.parametrize("change", [{"plan_digest": "x"}, {"commit": "x"}, {"seed": 9}, {"version": "1.0"}])
def test_merge_refuses_what_does_not_belong_together(change: dict[str, object]) -> None:
    run = make_run(verdict())
    with pytest.raises(RecordError, match="merge"):
        merge([run, replace(run, **change)])  # type: ignore[arg-type]
    with pytest.raises(RecordError):
        merge([])


def test_a_verdict_is_a_line_where_it_holds_and_a_card_where_it_does_not() -> None:
    passing, wrong = verdict(), failed("VJP")
    assert str(passing).startswith(f"{passing.cell.key}: verified, OA100: ")
    assert "\n" not in str(passing)
    assert repr([passing]) == f"[<Verdict {passing.cell.key}: verified, OA100>]"
    assert str(wrong) == text.failure_text(wrong)
    assert repr(wrong) == f"<Verdict {wrong.cell.key}: fail, {wrong.code}>"
    assert (passing.holds, wrong.holds) == (True, False)


def test_a_notebook_gets_the_same_as_html_and_no_markup_of_a_subject() -> None:
    passing, wrong = verdict(), failed("VJP")
    assert passing._repr_html_().startswith(f"<div>✓ <code>{passing.cell.key}</code> verified, OA100: ")
    page = ET.fromstring(wrong._repr_html_())
    assert {node.tag for node in page.iter()} == {"div", "code", "pre"}
    assert HOSTILE not in wrong._repr_html_()
    assert "".join(page.itertext()).startswith(f"✕ {wrong.cell.key} fail, {wrong.code}")
