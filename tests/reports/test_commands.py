"""The commands are few, a group has a usual one, and earlier names do their work and say the line in their place."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from opassay.reports import record
from opassay.reports.cli.commands import COMMANDS, EARLIER, MOVED
from opassay.reports.cli.lazy import Branch, help_lines
from opassay.reports.cli.main import main
from opassay.reports.cli.run import run_command
from workshop.commands.group import COMMANDS as WORKSHOP

from .conftest import failed, make_run, verdict

#: Command, of a group its words, as `opassay --help` and the help of groups list them.
EVERY = [
    words
    for name, row in COMMANDS.items()
    if name in help_lines(COMMANDS)
    for words in ([(name,), *((name, last) for last in row.table)] if isinstance(row, Branch) else [(name,)])
]
#: An earlier line, the line in its place, and its exit code.
LINES = [
    (("findings", "run.json"), "report causes", 0),
    (("accuracy", "run.json"), "report accuracy", 0),
    (("compare", "good.json", "run.json"), "report compare", 1),
    (("history", "."), "report history", 0),
    (("merge", "run.json", "-o", "all.json"), "report merge", 1),
    (("recover", "none"), "report recover", 2),
    (("schema", "known"), "report schema", 0),
    (("baseline", "show"), "gate", 0),
    (("baseline", "update", "run.json"), "gate", 0),
    (("baseline", "prune", "run.json"), "gate", 0),
    (
        ("baseline", "accept", "run.json", "*", "--reason=r", "--issue=#1", "--owner=o", "--expires=2026-08-01"),
        "gate",
        0,
    ),
    (("plugins",), "list --plugins", 0),
]


@pytest.fixture(name="records")
def _records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a record that has a failure and one that has none."""
    (tmp_path / ".git").mkdir()  # settings of folders above are not looked for
    monkeypatch.chdir(tmp_path)
    record.save(tmp_path / "run.json", make_run(verdict(), failed()))
    record.save(tmp_path / "good.json", make_run(verdict(), verdict("VJP")))
    return tmp_path


def _answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a line."""
    code = main([*words])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_the_commands_are_few_and_their_help_fits_a_glance(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _answer(capsys, "--help")
    assert code == 0
    lines = out.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == list(help_lines(COMMANDS))
    assert len(lines) <= 14
    assert len(out.splitlines()) <= 40
    assert not any(name in EARLIER for name in help_lines(COMMANDS))


@pytest.mark.parametrize("name", MOVED)
def test_a_command_of_the_makers_is_named_with_its_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _answer(capsys, name, "exp", "--dtype", "float16")
    assert (code, out) == (2, "")
    assert err.endswith(f"{name} is no command of opassay any more; in a checkout of opassay: {MOVED[name]}\n")
    assert name in WORKSHOP


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_has_help_at_its_place(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _answer(capsys, *words, "-h")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: opassay {' '.join(words)} [OPTIONS]")
    assert len(out.splitlines()) > 4


@pytest.mark.parametrize("name", [name for name, row in COMMANDS.items() if isinstance(row, Branch)])
def test_a_group_lists_its_commands_and_takes_no_empty_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    row = COMMANDS[name]
    assert isinstance(row, Branch)
    _, out, _ = _answer(capsys, name, "--help")
    assert [line.split()[0] for line in out.partition("Commands:\n")[2].splitlines()] == list(row.table)
    assert f"Where no command is named, {row.usual} is meant." in out
    code, out, err = _answer(capsys, name)
    assert (code, out) == (2, "")
    assert f"need a record of a run, or one of {', '.join(row.table)}" in err


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        (("gate", "run.json"), ("gate", "check", "run.json")),
        (("gate", "--partial", "good.json"), ("gate", "check", "--partial", "good.json")),
        (("gate", "none.json"), ("gate", "check", "none.json")),
        (("report", "run.json"), ("report", "html", "run.json")),
        (("report", "--junit", "x.xml", "run.json"), ("report", "html", "--junit", "x.xml", "run.json")),
        (("report", "run.json", "--bogus"), ("report", "html", "run.json", "--bogus")),
    ],
)
@pytest.mark.usefixtures("records")
def test_a_line_that_names_no_command_of_a_group_means_the_usual_one(
    words: tuple[str, ...], whole: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _answer(capsys, *words) == _answer(capsys, *whole)


def test_a_record_may_be_named_nearly_as_a_command(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = _answer(capsys, "gate", "shwo")
    assert code == 2
    assert "No such command 'shwo' (did you mean 'show'?)." in err
    (records / "good.json").rename(records / "shwo")
    assert _answer(capsys, "gate", "shwo")[0] == 0


@pytest.mark.parametrize(("words", "now", "code"), LINES)
@pytest.mark.usefixtures("records")
def test_an_earlier_name_does_its_work_and_says_the_line_in_its_place(
    words: tuple[str, ...], now: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *rest = words
    new = _answer(capsys, *now.split(), *rest)
    assert new[0] == code, new
    # What the new line has written is there already, so that two commands say the same only where it is written again.
    new = _answer(capsys, *now.split(), *rest)
    old = _answer(capsys, *words)
    assert old[:2] == new[:2]
    assert old[2] == f"`opassay {name}` is `opassay {now}` now\n{new[2]}"


def test_every_earlier_name_is_tried() -> None:
    assert {words[0] for words, *_ in LINES} == set(EARLIER)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "'m:F(m:s)' --dtype float64 --dtype float32 --profile brief"),
        (("--reference", "m:r", "--dtype=float16", "-n", "0"), "'m:F(m:s,m:r)' --dtype=float16 -n 0 --profile brief"),
    ],
)
def test_verify_function_runs_the_line_that_it_prints(
    words: tuple[str, ...], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[dict[str, object]] = []

    def take(host: object, /, **options: object) -> int:
        lines.append(options)
        return 4

    monkeypatch.setattr(run_command, "callback", click.pass_obj(take))
    code, _, err = _answer(capsys, "verify-function", "m:F", "--samples", "m:s", *words)
    assert code == 4
    assert err == f"`opassay verify-function` is `opassay run --op {line}` now\n"
    assert _answer(capsys, "run", "--op", *line.replace("'", "").split())[0] == 4
    assert lines[0] == lines[1]


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("report.causes", ("report", "causes", "run.json"), ""),
        ("findings", ("report", "causes", "run.json"), "[tool.opassay.findings] is [tool.opassay.report.causes] now"),
        ("findings", ("findings", "run.json"), "[tool.opassay.findings] is [tool.opassay.report.causes] now"),
    ],
)
def test_a_table_counts_under_its_name_and_under_the_earlier_one(
    text: str, words: tuple[str, ...], message: str, records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (records / "pyproject.toml").write_text(f'[tool.opassay.{text}]\nout = "pages"\n')
    code, _, err = _answer(capsys, *words)
    assert code == 0
    assert (records / "pages/index.md").exists()
    assert message in err
    assert err.count("] now") == bool(message)
    assert "settings of report from" in err
    assert err.endswith("unless an option says otherwise: causes.out\n")


def test_options_in_the_table_of_a_group_are_those_of_its_usual_command(
    records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[tool.opassay.report]\noutput = "a.html"\njunit = "a.xml"\n[tool.opassay.report.html]\njunit = "b.xml"\n'
    (records / "pyproject.toml").write_text(text)
    assert _answer(capsys, "report", "run.json")[0] == 0
    assert {path.name for path in records.iterdir()} >= {"a.html", "b.xml"}
    assert not (records / "a.xml").exists()


def test_a_table_under_both_names_is_refused(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '[tool.opassay.baseline.show]\nknown = "a"\n[tool.opassay.gate.show]\nknown = "b"\n'
    (records / "pyproject.toml").write_text(text)
    code, _, err = _answer(capsys, "gate", "show")
    assert code == 2
    assert "[tool.opassay.baseline]: is [tool.opassay.gate] now, which is there, too" in err


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("causes", "(did you mean 'report causes'?)"),
        ("findngs", "(did you mean 'report causes'?)"),
        ("baselin", "(did you mean 'gate'?)"),
        ("histroy", "(did you mean 'report history'?)"),
        ("udpate", "(did you mean 'gate update'?)"),
    ],
)
def test_a_word_that_is_near_to_a_command_anywhere_is_told_its_line(
    word: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = _answer(capsys, word)
    assert code == 2
    assert message in err


def test_commands_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert "report causes, a command" in _answer(capsys, "explain", "causes")[1]
    assert _answer(capsys, "explain", "report", "causes")[1] == _answer(capsys, "explain", "causes")[1]
    assert "`opassay report causes` now" in _answer(capsys, "explain", "findings")[1]
    assert re.search(r"\ncommands\n  judge  ", _answer(capsys, "explain")[1])


def test_list_shows_ops_first_and_cells_where_something_is_selected(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = _answer(capsys, "list")
    head, *names, last = out.splitlines()
    assert re.fullmatch(r"\d+ ops:", head)
    assert "softmax" in ", ".join(names).replace(",", " ").split()
    assert "::" not in out
    number = re.match(r"(\d+) cells: `opassay list OP` shows those of one op, `opassay list --cells` all", last)
    assert number is not None
    assert err == ""
    _, out, err = _answer(capsys, "list", "--cells")
    assert len(out.splitlines()) == int(number[1])
    assert "the filters removed 0" in err
    for words in (("trace",), ("--op=trace",), ("-k", "trace"), ("--property=FWD",), ("--shard=1/300",)):
        assert all("::" in line for line in _answer(capsys, "list", *words)[1].splitlines())


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("opassay report ca", "plain,causes\n"),
        ("opassay report run.json --ju", "plain,--junit\n"),
        ("opassay baseline sh", "plain,show\n"),
        ("opassay findings --o", "plain,--out\n"),
    ],
)
def test_a_shell_completes_groups_and_earlier_names_and_is_told_nothing_else(
    typed: str, message: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_OPASSAY_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    monkeypatch.setenv("COMP_WORDS", typed)
    assert main([]) == 0
    output = capfd.readouterr()
    assert (output.out, output.err) == (message, "")
