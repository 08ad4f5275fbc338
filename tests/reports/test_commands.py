"""The commands are few, and a group has a usual one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opassay.reports import record
from opassay.reports.cli.commands import COMMANDS
from opassay.reports.cli.lazy import Branch, help_lines
from opassay.reports.cli.main import main

from .conftest import failed, make_run, verdict

#: Command, of a group its words, as `opassay --help` and the help of groups list them.
EVERY = [
    words
    for name, row in COMMANDS.items()
    for words in ([(name,), *((name, last) for last in row.table)] if isinstance(row, Branch) else [(name,)])
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
    assert len(lines) <= 15
    assert len(out.splitlines()) <= 40


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_has_help_at_its_place(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _answer(capsys, *words, "-h")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: opassay {' '.join(words)} [OPTIONS]")
    assert len(out.splitlines()) > 4


@pytest.mark.parametrize("name", [name for name, row in COMMANDS.items() if isinstance(row, Branch)])
def test_a_group_lists_its_commands_and_takes_no_empty_line(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = COMMANDS[name]
    assert isinstance(row, Branch)
    _, out, _ = _answer(capsys, name, "--help")
    assert [line.split()[0] for line in out.partition("Commands:\n")[2].splitlines()] == list(row.table)
    assert f"Where no command is named, {row.usual} is meant." in out
    monkeypatch.chdir(tmp_path)  # the checkout may have a record of its own
    code, out, err = _answer(capsys, name)
    assert (code, out) == (2, "")
    assert f"need a record of a run, or one of {', '.join(row.table)}\n" in err
    (tmp_path / "opassay-report").mkdir()
    (tmp_path / "opassay-report" / "run.json").touch()
    code, _, err = _answer(capsys, name)
    assert (code, err.splitlines()[-1].endswith("; here is opassay-report")) == (2, True)


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


def test_a_table_of_a_command_in_a_group_counts(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (records / "pyproject.toml").write_text('[tool.opassay.report.causes]\nout = "pages"\n')
    code, _, err = _answer(capsys, "report", "causes", "run.json")
    assert code == 0
    assert (records / "pages/index.md").exists()
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


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("causes", "(did you mean 'report causes'?)"),
        ("compare", "(did you mean 'report compare'?)"),
        ("gat", "(did you mean 'gate'?)"),
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
    text = _answer(capsys, "explain", "report", "causes")[1]
    # The last word of a command may be that of a field, too.
    assert _answer(capsys, "explain", "causes")[1].startswith(text)
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
        ("opassay gate sh", "plain,show\n"),
        ("opassay shwo --o", "\n"),
    ],
)
def test_a_shell_completes_groups_and_is_told_nothing_else(
    typed: str, message: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_OPASSAY_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    monkeypatch.setenv("COMP_WORDS", typed)
    assert main([]) == 0
    output = capfd.readouterr()
    assert (output.out, output.err) == (message, "")
