"""The README is short, its programs and its command do what it shows, and what it links to is there."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch

import opassay
from opassay.reports.cli.main import main

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
PROGRAMS: list[str] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def _program(part: str) -> str:
    (result,) = (program for program in PROGRAMS if part in program)
    return result


def _run(program: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(program, "README.md", "exec"), names)
    return names


def _without_numbers(line: str) -> str:
    """Digits and columns differ from one maths library to the next."""
    return " ".join(re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "#", line).split())


def _in_order(text: list[str], words: list[str]) -> list[str]:
    """The lines of `text` that do not come in `words`, in this order."""
    rest = iter(map(_without_numbers, words))
    return [line for line in text if _without_numbers(line) not in rest]


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_it_names_the_two_commands_of_a_checkout() -> None:
    for environment in ("assay", "test"):
        assert f"\npython -m pip install tox && python -m tox run -e {environment}\n" in README


def test_the_first_command_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = _program("# mine.py")
    (tmp_path / "mine.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    ((command, text),) = re.findall(r"```\n\$ opassay (judge .*?)\n(.*?)```", README, re.DOTALL)
    assert main(command.split()) == 1
    wanted = [line for line in text.splitlines() if line != "..."]
    assert _in_order(wanted, capsys.readouterr().out.splitlines()) == []
    refusals = wanted[-1].removeprefix("rejected: ").split(", ")
    mended = _run(program.replace("torch.exp(x)", "torch.exp(x - x.amax(-1, keepdim=True))"))
    judgement = opassay.judge(mended["kernel"], mended["reference"], mended["inputs"](), questions=refusals)
    assert judgement.verdict == "accepted"


def test_lines_in_another_order_are_not_what_is_shown() -> None:
    assert _in_order(["a 1", "b 2"], ["a 7", "", "b 8"]) == []
    assert _in_order(["a 1", "b 2"], ["b 8", "a 7"]) == ["b 2"]


def test_the_library_example_prints_what_is_shown() -> None:
    program = _program("hessians")
    ((text),) = re.findall(re.escape(program) + r"```\n\n```\n(.*?)```", README, re.DOTALL)
    with redirect_stdout(io.StringIO()) as stream:
        _run(program)
    assert stream.getvalue() == text


def test_the_example_in_pytest_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(_program("# mine.py"))
    monkeypatch.syspath_prepend(tmp_path)
    torch.manual_seed(0)
    _run(_program("assert_conforms"))["test_kernel"]()
