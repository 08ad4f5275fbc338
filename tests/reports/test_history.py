"""The course of many runs: each record is read once, a trend is what the records say, and hostile files do no harm."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from opassay.oracles.verdicts.verdict import Code, Outcome, Verdict
from opassay.reports import record
from opassay.reports.cli.main import main
from opassay.reports.over_time.history import History, open_history, records_in
from opassay.reports.over_time.pages import history_page
from opassay.reports.over_time.trends import Course, Trend, bars, failures_of, runs_of, trends_of
from opassay.reports.record import RecordError, Run
from tests.reports.conftest import HOSTILE, failed, make_run, verdict


def _day(day: int, *verdicts: Verdict, **more: object) -> Run:
    run = make_run(*verdicts, started=f"2026-03-{day:02d}T10:00:00+00:00")
    return replace(run, commit=f"{day:040d}", **more)  # type: ignore[arg-type]


def _trends(folder: Path) -> tuple[list[Trend], History]:
    with open_history(folder / "history.sqlite") as history:
        history.gather(records_in(folder))
        return trends_of(history, runs_of(history)), history


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """Four runs of softmax, of which the last two have a failure, and one record in a folder below."""
    items = (verdict(), verdict("VJP", ratio=0.4))
    for day, run in enumerate((items, items, (verdict(), failed()), (verdict(ratio=0.9), failed(ratio=8.0))), start=1):
        place = tmp_path / ("below" if day == 2 else ".")
        place.mkdir(exist_ok=True)
        record.save(place / f"{5 - day}.json", _day(day, *run))
    return tmp_path


def test_a_trend_is_in_the_order_of_time_and_knows_since_when(folder: Path) -> None:
    (trend,), _ = _trends(folder)
    assert (trend.op, trend.subject, trend.device) == ("softmax", "opassay", "cpu")
    assert [point.state for point in trend.points] == ["held", "held", "failed", "failed"]
    assert [(point.passing, point.failed) for point in trend.points] == [(2, 0), (2, 0), (1, 1), (1, 1)]
    assert [point.ratio for point in trend.points] == [0.5, 0.5, 3.9, 8.0]
    assert [point.seconds for point in trend.points] == [1.5] * 4
    assert trend.since.run.started.startswith("2026-03-03")
    assert (trend.errors, trend.pace) == ("larger", "steady")


def test_wider_dtypes_tell_of_the_error_because_that_of_half_types_is_1(tmp_path: Path) -> None:
    half = verdict("VJP", ratio=1.0)
    half = replace(half, cell=replace(half.cell, dtype="float16"))
    nothing = verdict("JVP", Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, judged=0)
    record.save(tmp_path / "a.json", _day(1, verdict(ratio=0.3), half, nothing))
    record.save(tmp_path / "b.json", _day(2, half))
    record.save(tmp_path / "c.json", _day(3, nothing))
    (trend,), _ = _trends(tmp_path)
    assert [point.ratio for point in trend.points[:2]] == [0.3, 1.0]
    assert math.isnan(trend.last.ratio)
    assert trend.last.state == "not checked"


def _failures(folder: Path, count: int) -> list[Course]:
    with open_history(folder / "history.sqlite") as history:
        history.gather(records_in(folder))
        return failures_of(history, runs_of(history)[:count])


def test_a_failure_knows_since_when_it_fails_and_when_the_cell_held_last(folder: Path) -> None:
    (course,) = _failures(folder, 4)
    assert course.cell == failed().cell
    assert [look.failed for look in course.looks] == [False, False, True, True]
    assert course.sentence == "fails since 2026-03-03 (00000000), in 2 of 4 runs; held last 2026-03-02 (00000000)"
    assert _failures(folder, 2) == _failures(folder, 0) == [], "what holds in the last run is no failure"


def test_the_history_of_a_failure_tells_of_breaks_of_other_codes_and_of_runs_that_did_not_ask(tmp_path: Path) -> None:
    broken, good = failed(), verdict("VJP")
    other = replace(broken, code=Code.RAISED)
    lone, unasked = verdict(), replace(good, outcome=Outcome.UNSUPPORTED, code=Code.NOT_APPLICABLE)
    for day, items in enumerate(((broken,), (good,), (other,), (lone,), (unasked,), (broken, lone)), start=1):
        record.save(tmp_path / f"{day}.json", _day(day, *items))
    (course,) = _failures(tmp_path, 6)
    assert course.sentence == (
        "fails since 2026-03-03 (00000000), in 3 of 4 runs, as OA101, then OA105; held last 2026-03-02 (00000000)"
    )
    (first,) = _failures(tmp_path, 1)
    assert first.sentence == "first seen in this run"


def test_the_pages_tell_the_history_of_failures(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, database = tmp_path / "page.html", tmp_path / "h.sqlite"
    many = tmp_path / "many.html"
    assert main(["report", "history", str(folder), "--database", str(database), "--html", str(many), "--json"]) == 0
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert (failure["cell"], failure["failed"]) == (failed().cell.key, [False, False, True, True])
    assert "<td>fails since 2026-03-03 (00000000), in 2 of 4 runs;" in many.read_text()
    (newest,) = (path for path in folder.glob("*.json") if "2026-03-04" in path.read_text())
    assert main(["report", str(newest), "-o", str(page), "--history", str(database)]) == 0
    assert "<dt>history</dt><dd>fails since 2026-03-03 (00000000), in 2 of 4 runs;" in page.read_text()
    assert main(["report", str(newest), "-o", str(page)]) == 0
    assert "<dt>history</dt>" not in page.read_text()


def test_a_history_that_is_not_there_is_told_and_nothing_is_written(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(folder / "4.json"), "-o", str(page), "--history", str(tmp_path / "none.sqlite")]) == 2
    assert not page.exists()
    assert not (tmp_path / "none.sqlite").exists()


def test_a_record_is_read_once_under_every_name_and_stays_when_its_file_is_gone(folder: Path) -> None:
    path = folder / "history.sqlite"
    with open_history(path) as history:
        first = history.gather(records_in(folder))
        again = history.gather(records_in(folder))
    assert (first.new, first.old, first.refusals) == (4, 0, ())
    assert (again.new, again.old) == (0, 4)
    (folder / "copy.json").write_bytes((folder / "4.json").read_bytes())
    for file in [*folder.glob("[0-9].json"), *folder.glob("below/*")]:
        file.unlink()
    with open_history(path) as history:
        result = history.gather(records_in(folder))
        assert (result.new, result.old) == (0, 1)
        assert len(runs_of(history)) == 4


def test_a_file_that_has_changed_is_read_again(folder: Path) -> None:
    _trends(folder)
    record.save(folder / "4.json", _day(9, verdict()))
    with open_history(folder / "history.sqlite") as history:
        assert history.gather(records_in(folder)).new == 1


def test_broken_records_are_told_and_other_files_are_passed_over(folder: Path) -> None:
    whole = (folder / "4.json").read_bytes()
    (folder / "half.json").write_bytes(whole[: len(whole) // 2])
    (folder / "plan.json").write_text('{"plan_digest": "x"}')
    (folder / ".hidden.json").write_bytes(whole)
    (folder / "link.json").symlink_to(folder / "4.json")
    with open_history(folder / "history.sqlite") as history:
        result = history.gather(records_in(folder))
        assert result.new == 4
        (refusals,) = result.refusals
        assert "half.json: run record: " in refusals
        assert history.gather(records_in(folder)).refusals == (refusals,), "as long as it is there"


@pytest.mark.parametrize("kind", ["text", "other", "newer", "link"])
def test_a_database_of_something_else_is_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "history.sqlite"
    if kind == "text":
        path.write_text("mine, and longer than the head of a database " * 20)
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE mine (a)")
            if kind == "newer":
                connection.execute(f"PRAGMA application_id = {0x6F706173}")
                connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes() if kind != "link" else b""
    with pytest.raises(RecordError, match=r"history\.sqlite: "), open_history(path):
        pass
    assert (path.read_bytes() if kind != "link" else b"") == before


def test_names_of_strangers_do_no_harm(tmp_path: Path) -> None:
    name = HOSTILE + "'; DROP TABLE runs; --"
    record.save(tmp_path / "a.json", _day(1, verdict(op=name), replace(failed(), cell=verdict("VJP", op=name).cell)))
    (trend,), _ = _trends(tmp_path)
    assert (trend.last.passing, trend.last.failed) == (1, 1)
    page = history_page([trend], [point.run for point in trend.points])
    assert not [sign for sign in ("<img", "<script", "\x1b", "\u202e", "\x00") if sign in page]


def test_the_page_draws_every_trend(folder: Path) -> None:
    trends, _ = _trends(folder)
    page = history_page(trends, [point.run for point in trends[0].points])
    assert "1 failed, 1 held" in page
    assert "1 op over 4 runs" in page
    errors, times = map(ET.fromstring, re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert errors.attrib["aria-label"] == "from 0.5 to 8, at most 8"
    assert times.attrib["aria-label"] == "from 1.5 s to 1.5 s, at most 1.5 s"
    polyline = errors.find("polyline")
    assert polyline is not None
    heights = [float(point.split(",")[1]) for point in polyline.attrib["points"].split()]
    assert heights == sorted(heights, reverse=True)
    assert heights[-1] == 4.0, "the largest touches the margin at the top"
    assert len(errors.findall("circle[@class='failed']")) == 3, "two failures, and the last one's mark"


def test_rows_of_bars() -> None:
    assert bars([0.0, 0.5, 1.0, math.nan, math.inf]) == "▁▅█·∞"
    assert bars([0.0, 0.0]) == "▁▁"
    assert bars([]) == ""


def test_the_command_shows_the_course(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = folder / "page.html"
    assert main(["report", "history", str(folder), "--html", str(page)]) == 0
    output = capfd.readouterr().out
    assert "1 failed, 1 held" in output
    assert "2026-03-03 00000000" in output
    assert "▁▁▄█" in output
    assert "4 runs of profile commit" in output
    assert page.read_text().startswith("<!doctype html>")
    assert main(["report", "history", str(folder), "--json", "--last", "2"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert [run["started"][:10] for run in document["runs"]] == ["2026-03-03", "2026-03-04"]
    assert document["ops"][0]["max_ratio"] == [3.9, 8.0]


def test_records_from_elsewhere_are_added_and_other_profiles_are_left_out(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, capfd: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path_factory.mktemp("other") / "run.json"
    record.save(other, _day(20, verdict(), profile="dev"))
    assert main(["report", "history", str(folder), "--add", str(other), "--profile", "commit"]) == 0
    assert "1 left out, older or of other profiles" in capfd.readouterr().out
    assert main(["report", "history", str(folder)]) == 0
    assert "1 run of profile dev" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nowhere"], 2, "nowhere: no such folder"),
        (["."], 5, "no run record"),
        ([".", "--add", "absent.json"], 5, "note: not read: absent.json"),
        ([".", "--database", "mine.txt"], 2, "mine.txt: "),
    ],
)
def test_what_cannot_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    words: list[str], code: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("mine " * 100)
    assert main(["report", "history", *words]) == code
    assert message in capfd.readouterr().err


def test_an_op_that_no_run_has(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run: Callable[..., int] = main
    assert run(["report", "history", str(folder), "--op", "sofmax"]) == 2
    assert "unknown op: got 'sofmax' (did you mean 'softmax'?)" in capfd.readouterr().err
