"""Settings in pyproject.toml count as the command line's own words, and a mistake in them is refused with its place."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from opassay.reports.cli.commands import COMMANDS, cli
from opassay.reports.cli.main import main
from opassay.reports.cli.project.settings import defaults, read_settings
from tests.reports.test_cli import OP

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(name="settle")
def _settle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes pyproject.toml into the current folder, which is an empty one."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> None:
        (tmp_path / "pyproject.toml").write_text(text)

    return write


def _listed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[str], str]:
    """The keys of the cells that `opassay list` shows, and what it says besides."""
    assert main([*words]) == 0
    output = capsys.readouterr()
    return [line.split()[1] for line in output.out.splitlines()], output.err


def test_settings_are_defaults_and_the_command_line_wins(
    settle: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    settle('[tool.opassay.list]\nop = ["softmax", "trace"]\nproperty = ["FWD"]\ndtype = ["float32"]\n')
    cells, output = _listed(capsys, "list")
    assert cells == ["softmax::FWD[float32-cpu-opassay]", "trace::FWD[float32-cpu-opassay]"]
    assert "settings of list from" in output
    assert "pyproject.toml, unless an option says otherwise: op, property, dtype" in output
    for words in (("list", "trace"), ("list", "--op=trace")):
        assert _listed(capsys, *words)[0] == ["trace::FWD[float32-cpu-opassay]"]
    assert _listed(capsys, "list", "trace", "--dtype=float16")[0] == ["trace::FWD[float16-cpu-opassay]"]
    assert len(_listed(capsys, "--no-settings", "list", "trace", "--dtype=float16")[0]) > 10


def test_settings_are_found_from_a_folder_below_and_not_above_the_repository(
    settle: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settle('[tool.opassay.list]\nop = ["trace"]\nproperty = ["FWD"]\n')
    below = tmp_path / "package"
    below.mkdir()
    (below / "pyproject.toml").write_text("[project]\nname = 'other'\n")  # has nothing to say of opassay
    monkeypatch.chdir(below)
    assert len(_listed(capsys, "list")[0]) == 4
    (below / ".git").mkdir()
    assert len(_listed(capsys, "list", "trace")[0]) > 10
    assert len(_listed(capsys, "--settings", "../pyproject.toml", "list")[0]) == 4


def test_a_run_takes_profile_flags_and_paths(settle: Callable[[str], None], opassay: Call, tmp_path: Path) -> None:
    settle(
        '[tool.opassay.run]\nprofile = "dev"\nworkers = 0\nseed = 3\n'
        'report-dir = "out"\nexit-zero = true\nmaxfail = 1\n'
        '[tool.opassay.gate]\nknown = "known.json"\n'
    )
    done = opassay("run", OP, "--dtype=float32", "--property=FWD", "--property=VJP", "--property=VMAP")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "profile dev, seed 3; 3 cells, 1 worker at this terminal" in done.stdout
    assert (tmp_path / "out/run.json").exists()
    assert "1 not run" in done.stdout  # VMAP, after one failure
    assert done.stderr.count("\n") == 1
    done = opassay("run", OP, "--dtype=float32", "--property=FWD", "--profile=brief", "--report-dir=other")
    assert "profile brief, seed 3" in done.stdout
    assert (tmp_path / "other/run.json").exists()


def test_a_path_is_meant_from_where_the_file_stands(
    settle: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settle('[tool.opassay.gate]\nknown = "known.json"\n[tool.opassay.gate.show]\nknown = "accepted.json"\n')
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    (tmp_path / "accepted.json").write_text("{")
    assert main(["gate", "show"]) == 2
    assert "accepted.json: " in capsys.readouterr().err


def test_the_example_of_the_page_is_taken(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/settings.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "pyproject.toml"
    path.write_text(example)
    result = read_settings(path, COMMANDS)
    assert result is not None
    context = click.Context(cli)
    for name in result.tables:
        command = cli.get_command(context, name)
        assert command is not None
        assert defaults(result, name, command, context)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.opassay.rnu]\n", "[tool.opassay]: got 'rnu' (did you mean 'run'?), need the name of a command"),
        ("[tool.opassay]\nrun = 3\n", "[tool.opassay.run]: got 3, need a table of options"),
        ("[tool]\nopassay = 3\n", "[tool.opassay]: got 3, need a table"),
        ('[tool.opassay.list]\nprofle = "dev"\n', "[tool.opassay.list]: got 'profle', need one of op, property,"),
        ('[tool.opassay.list]\ndytpe = ["float32"]\n', "got 'dytpe' (did you mean 'dtype'?), need one of"),
        ('[tool.opassay.list]\nop = "trace"\n', "[tool.opassay.list]: op: got 'trace', need a list"),
        ("[tool.opassay.list]\nop = [true]\n", "op: got True, need a text or a number"),
        ('[tool.opassay.list]\njson = "yes"\n', "json: got 'yes', need true or false"),
        ('[tool.opassay.replay]\nop = ["mine:OP"]\n', "[tool.opassay.replay]: replay takes no settings"),
        ("[tool.opassay", "pyproject.toml: "),
        ("[tool.opassay.list]\nhelp = true\n", "got 'help'"),
    ],
)
def test_a_mistake_is_refused_with_its_place(
    settle: Callable[[str], None], text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settle(text)
    assert main(["list", "trace"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ('[tool.opassay.run]\nprofile = "breif"\n', ["run", "trace"], "profile: 'breif' is not one of 'brief', "),
        ("[tool.opassay.run]\nseed = 1.5\n", ["run", "trace"], "seed: '1.5' is not a valid int"),
        ("[tool.opassay.run]\ntimeout = 0.0\n", ["run", "trace"], "timeout: 0.0 is not in the range"),
        ('[tool.opassay.gate.shwo]\nknown = "a"\n', ["gate", "show"], "(did you mean 'show'?)"),
        ("[tool.opassay.gate]\nshow = 1\n", ["gate", "show"], "[tool.opassay.gate]: got 'show'"),
    ],
)
def test_a_value_that_an_option_does_not_take_is_refused(
    settle: Callable[[str], None], text: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settle(text)
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnu"], "No such command 'rnu' (did you mean 'run'?)."),
        (["zzz"], "No such command 'zzz'."),
        (["gate", "shwo"], "No such command 'shwo' (did you mean 'show'?)."),
        (["run", "--profile", "Breif"], "(did you mean 'brief'?)"),
        (["run", "--comm", "gluo"], "(did you mean 'gloo'?)"),
        (["run", "--profle", "brief"], "--profile"),
        (["run", "sotfmax"], "got op='sotfmax' (did you mean 'softmax'?), need one of"),
        (["run", "softmax", "--property", "FDW"], "(did you mean 'FWD'?)"),
        (["--bogus"], "No such option"),
    ],
)
def test_what_is_nearly_right_is_told(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "typed", "at", "code", "message"),
    [
        ("bash_source", "", "0", 0, "complete -o nosort -F _opassay_completion opassay"),
        ("bash_complete", "opassay report his", "2", 0, "plain,history\n"),
        ("bash_complete", "opassay run --prof", "2", 0, "plain,--profile\n"),
        ("bash_complete", "opassay run --profile br", "3", 0, "plain,brief\n"),
        ("nonsense", "", "0", 2, ""),
    ],
)
def test_a_shell_is_told_what_could_follow_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    word: str, typed: str, at: str, code: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("_OPASSAY_COMPLETE", word)
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", at)
    assert main([]) == code
    output = capfd.readouterr()
    assert message in output.out
    assert output.err == ""
