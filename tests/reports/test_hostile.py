"""Text and files of strangers: read in linear time, refused when they contradict themselves, shown clean and short."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from opassay.oracles.verdicts.verdict import (
    MAX_CASE,
    MAX_TEXT,
    Cell,
    Code,
    Failure,
    Outcome,
    Verdict,
    Worst,
    failure_text,
    shorten,
)
from opassay.reports import record
from opassay.reports.accuracy import accuracy, markdown_table
from opassay.reports.cli.commands import cli
from opassay.reports.cli.host import Host, Stop
from opassay.reports.cli.summary import print_summary, step_summary
from opassay.reports.exporting import to_xml
from opassay.reports.gate import Files, find_regressions, finding_line
from opassay.reports.page.html import render
from opassay.reports.progress import make_console
from opassay.reports.record import RecordError, Run, decode, encode
from opassay.reports.store import files
from opassay.reports.store.files import JUNIT, PAGE, RECORD, require_replaceable, write_output
from opassay.reports.text import short_hex, verdict_line, wrap_lines
from tests.reports.conftest import failed, make_run, verdict

LONG = 65_000
PATTERNS = (
    "0",
    "0x1.0",
    ".0",
    "0p",
    "\x1b[",
    "\x1b[0;",
    "\x1b]",
    "\x1b[ ",
    " ",
    "\t",
    "\n",
    " \n",
    "a ",
    "\\",
    "<",
    "&#",
    "\u202e",
    "p0.",
)


def _everything(run: Run) -> str:
    """All that a reader is given of a run."""
    stream = io.StringIO()
    print_summary(make_console(stream), run)
    parts = [render(run), to_xml(run).decode(), stream.getvalue(), step_summary(run)]
    parts += [failure_text(item) + verdict_line(item) + wrap_lines(failure_text(item), 80) for item in run.verdicts]
    parts += [finding_line(result) for result in find_regressions(run, Files())]
    return "".join([*parts, markdown_table(accuracy(run.verdicts))])


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_text_of_any_kind_is_rendered_in_linear_time(pattern: str) -> None:
    text = (pattern * LONG)[:LONG]
    worst = Worst(text, text, text, text, 4.0, 4.0)
    item = replace(
        failed(),
        cell=Cell(*[(pattern * 500)[:500] + name for name in "abcde"]),
        reason=text,
        title=text,
        failure=Failure(Code.VALUE, text, text, text, text, text),
        measure=replace(failed().measure, worst=worst),
        changed=(text,) * 3,
    )
    run = replace(make_run(item), notes=(text,), exit_reasons=(text,), environment={"cpu": text, "torch": text})
    start = time.process_time()
    _everything(run)
    _everything(decode(encode(run)))
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("text", "view"),
    [
        ("0x1.8000000000000p+1", "0x1.8p+1"),
        ("0x1.0000000000000p+10", "0x1p+10"),
        ("-0x0.0p+0", "-0x0p+0"),
        ("0x0p+0", "0x0p+0"),
        ("0x1.00", "0x1"),
        ("no float.00p0", "no float.00p0"),
        ("nan", "nan"),
        ("\x1b[31m0x1.10p-3", "0x1.1p-3"),
    ],
)
def test_zeros_at_the_end_of_a_float_are_left_out(text: str, view: str) -> None:
    assert short_hex(text) == view


def test_a_record_at_its_limits_is_written_read_and_rendered_in_seconds() -> None:
    run = replace(
        make_run(verdict()),
        notes=("n" * 900,) * 100_000,
        exit_reasons=("r" * 900,) * 5000,
        command=("w" * 900,) * 5000,
        environment={f"name {i}": "v" * 900 for i in range(5000)},
        settings={f"name {i}": "v" * 900 for i in range(5000)},
    )
    start = time.process_time()
    back = decode(encode(run))
    _everything(back)
    assert time.process_time() - start < 4
    assert (len(back.notes), back.notes[-1]) == (1000, "and 99001 more notes")
    assert (len(back.exit_reasons), len(back.command), len(back.environment), len(back.settings)) == (
        100,
        1000,
        256,
        256,
    )


# ------------------------------------------------------------------------------------- records refused


def _changed(change: Callable[[Any], object]) -> bytes:
    data = json.loads(encode(make_run(verdict(), failed())))
    change(data)
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["verdicts"].pop(), "plan_digest does not match the cells"),
        (lambda d: d["verdicts"][0]["cell"].update(op="other"), "plan_digest does not match the cells"),
        (lambda d: d.update(plan_digest="x"), "plan_digest does not match the cells"),
        (lambda d: d["verdicts"][0]["measure"].update(max_ratio="0x1p+9999"), "max_ratio=0x1p"),
        (lambda d: d["verdicts"][0]["measure"].update(ulp_p99="-0x1p+9999"), "ulp_p99=-0x1p"),
        (lambda d: d["verdicts"][0]["measure"]["worst"].update(ulp="0x1p+9999"), "ulp=0x1p"),
        (lambda d: d["verdicts"][0]["measure"].update(max_ulp="-0x1p+1"), "need 0 or more"),
        (lambda d: d["verdicts"][0]["measure"].update(max_ratio="-inf"), "need 0 or more"),
        (lambda d: d["verdicts"][0].update(seconds="0x1p+9999"), "seconds"),
        (lambda d: d["verdicts"][0].update(seconds="nan"), "need seconds"),
        (lambda d: d["verdicts"][0].update(seconds="-0x1p+0"), "seconds"),
        (lambda d: d["verdicts"][0].update(timing=[["op", "inf"]]), "need seconds"),
        (lambda d: d["verdicts"][0]["measure"].update(max_ratio="nan"), "is verified with max_ratio=nan"),
        (lambda d: d["verdicts"][0].update(timing=[["op", "0x1p+0"]] * 100), "timing"),
        (lambda d: d.update(max_examples=-1), "max_examples"),
        (lambda d: d.update(notes=["x"] * 1001), "notes"),
        (lambda d: d.update(notes=["x" * 3000]), "notes"),
        (lambda d: d.update(command=["x"] * 1001), "command"),
        (lambda d: d["exit"].update(reasons=["x"] * 101), "reasons"),
        (lambda d: d["exit"].update(code=-1), "code"),
        (lambda d: d.update(environment={f"{i}": "" for i in range(257)}), "environment"),
        (lambda d: d.update(settings={f"{i}": "" for i in range(257)}), "settings"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(change: Callable[[Any], object], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        decode(_changed(change))


def test_a_failure_may_be_of_any_size() -> None:
    assert (
        decode(_changed(lambda d: d["verdicts"][1]["measure"].update(max_ratio="nan"))).verdicts[1].cell.property
        == "VJP"
    )


# ----------------------------------------------------------------------------------- files left alone


def _ours() -> dict[str, bytes]:
    run = make_run(verdict(), failed())
    return {RECORD: encode(run), PAGE: render(run).encode(), JUNIT: to_xml(run)}


@pytest.mark.parametrize("kind", [RECORD, PAGE, JUNIT])
def test_only_our_own_kind_of_file_is_replaced(tmp_path: Path, kind: str) -> None:
    ours, path = _ours(), tmp_path / "x"
    others = [content for name, content in ours.items() if name != kind]
    for foreign in (
        b"mine",
        b"{}",
        b'{"tool": "opassay"}',
        b"<!doctype html><title>mine</title>",
        b"<testsuites/>",
        *others,
    ):
        path.write_bytes(foreign)
        with pytest.raises(RecordError, match=f"is no {kind} that opassay wrote"):
            write_output(path, kind, b"new")
        assert path.read_bytes() == foreign
    for mine in (b"", ours[kind]):
        path.write_bytes(mine)
        write_output(path, kind, b"new")
        assert path.read_bytes() == b"new"
    write_output(tmp_path / "new/folder/x", kind, b"new")


@pytest.mark.parametrize("kind", [RECORD, PAGE, JUNIT])
def test_a_hostile_file_is_looked_at_in_linear_time(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    for begin in (b"", b"{", b"<!doctype html>", b"<testsuites", b"<?xml", b'{"schema": '):
        for filler in (b" ", b"<", b"0", b"\xe2\x80\x93 opassay", b' name="'):
            path.write_bytes(begin + filler * (2**17 // len(filler)))
            start = time.process_time()
            with pytest.raises(RecordError):
                require_replaceable(path, kind)
            assert time.process_time() - start < 1


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("target")])
def test_what_is_no_regular_file_is_never_renamed_over(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "x")
    for kind in (RECORD, PAGE, JUNIT):
        with pytest.raises(RecordError, match=r"is a (folder|special file|symbolic link); need a regular file"):
            write_output(tmp_path / "x", kind, b"new")
    with pytest.raises(RecordError, match="need a regular file"):
        files.write_atomically(tmp_path / "x", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def _call(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, words, standalone_mode=False, obj=Host())
    if isinstance(done.exception, Stop):
        return done.exception.code, str(done.exception)
    if done.exception is not None:
        raise done.exception
    return int(done.return_value or 0), done.output


@pytest.mark.parametrize(
    ("words", "mine"),
    [
        (("report", "run.json", "-o", "mine"), "mine"),
        (("report", "run.json", "-o", "x.html", "--junit", "mine"), "mine"),
        (("report", "merge", "run.json", "-o", "mine"), "mine"),
        (("gate", "run.json", "--report"), "report.html"),
        (("report", "run.json"), "report.html"),
        (("gate", "update", "run.json", "--budget", "mine"), "mine"),
    ],
)
def test_commands_leave_files_of_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], mine: str
) -> None:
    monkeypatch.chdir(tmp_path)
    record.save(tmp_path / "run.json", make_run(verdict()))
    (tmp_path / mine).write_text("mine")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert _call(*words)[0] == 2
    assert (tmp_path / mine).read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    (tmp_path / mine).unlink()
    assert _call(*words)[0] == 0
    assert _call(*words)[0] == 0  # its own files it may replace


def test_standard_output_is_not_renamed_over() -> None:
    with pytest.raises(RecordError, match="/dev/stdout"):
        write_output(Path("/dev/stdout"), PAGE, b"")


# ------------------------------------------------------------------------------------------ clean and short

BAD_SIGNS = ("\x1b", "\x07", "\u202e", "\u2066", "\u061c", "\x9b", "\x00", "\U000e0041")
NASTY = "a\x1b]0;owned\x07b\u202ec\u2066d\u061ce\x9bf\x00g\U000e0041h"


def test_no_command_passes_terminal_codes_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cell = Cell(*[f"{NASTY}{i}" for i in range(5)])
    ok = replace(verdict(), cell=cell)
    bad = Verdict(
        replace(cell, property=NASTY), Outcome.FAIL, Code.VALUE, NASTY, failed().measure,
        Failure(Code.VALUE, NASTY, NASTY, NASTY, NASTY, NASTY),
    )  # fmt: skip
    run = replace(make_run(ok, bad), notes=(NASTY,), exit_reasons=(NASTY,), environment={NASTY: NASTY, "cpu": NASTY})
    record.save(tmp_path / "run.json", run)
    accepted = ("--reason=" + NASTY, "--issue=#1", "--owner=me", "--expires=2026-03-02")
    commands = [
        ("report", "accuracy", "run.json"), ("gate", "run.json"), ("report", "merge", "run.json", "-o", "all.json"),
        ("gate", "update", "run.json"), ("gate", "accept", "run.json", "*", *accepted), ("gate", "show"),
        ("gate", "run.json", "--report"), ("report", "run.json"), ("gate", "prune", "run.json"),
        ("gate", f"{NASTY}.json"), ("list", NASTY), ("explain", NASTY), ("report", "schema",), ("list", "--plugins",),
    ]  # fmt: skip
    for words in commands:
        code, output = _call(*(word.replace("\x00", "") for word in words))  # no argument can hold that one
        if code == 2:  # a sentence; `main` prints it like this
            output = "\n".join(shorten(output))
        assert output
        assert not [sign for sign in BAD_SIGNS if sign in output], words
    text = _everything(run)
    assert not [sign for sign in BAD_SIGNS if sign in text]


def test_a_table_cannot_be_forged_by_a_name() -> None:
    item = replace(verdict(), cell=replace(verdict().cell, op="x`|y\nz", dtype="f|\n32"))
    rows = markdown_table(accuracy([item])).splitlines()
    assert len(rows) == 3
    assert "`x'\\|y z`" in rows[2]


@pytest.mark.slow
def test_a_message_of_megabytes_is_cut_and_says_so() -> None:
    huge = "word " * 10_000_000
    start = time.process_time()
    huge.split()
    once = time.process_time() - start  # what it takes to go through the whole of it
    for title in ("raised ValueError", huge):
        item = replace(failed(), reason=huge, failure=Failure(Code.RAISED, title, huge, "id"))
        start = time.process_time()
        text = failure_text(item)
        assert len(text) < 5000
        assert "[cut; the whole has 50000" in text
        assert "  replay     opassay replay id" in text
        assert len(verdict_line(item)) < 1000
        run = make_run(item)
        assert len(to_xml(run)) < 3 * MAX_TEXT
        assert len(render(run)) < 3 * MAX_TEXT + len(render(make_run(failed())))
        stream = io.StringIO()
        print_summary(make_console(stream), run)
        assert len(stream.getvalue() + step_summary(run)) < 5000
        # Each report may look at the message a few times, and at no beginning of it again and again.
        assert time.process_time() - start < 60 * once


def test_lines_are_cut_too_and_short_messages_are_whole() -> None:
    item = replace(
        failed(), failure=Failure(Code.VALUE, "title", "title\n" + "\n".join(f"line {i}" for i in range(500)))
    )
    lines = failure_text(item).splitlines()
    assert [line[:9] for line in lines[42:]] == ["  judged ", "  usually", 9 * " ", "  explain"]
    assert lines[41].startswith("  [cut; the whole has ")
    assert lines[41].endswith(" in 501 lines]")
    assert "[cut" not in failure_text(failed())
    whole = failure_text(item, lines=MAX_CASE, characters=MAX_CASE)
    assert whole.splitlines()[-5] == "  line 499"
