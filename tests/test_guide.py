"""The guides' code runs as it stands, and its output is what they show."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

import pytest

import opassay
from opassay.properties import names
from opassay.properties.catalog import CATALOG
from opassay.reports.cli.main import main

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[1] / "docs"
GUIDE = DOCS / "custom_functions.md"


def _without_numbers(text: str) -> str:
    """Digits differ from one maths library to the next, and so does what a map shows."""
    text = re.sub(r"^ {13}[.1-9#]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"-?0x[0-9a-f.]+p[-+]?\d+|-?\d+(\.\d+)?(e[-+]?\d+)?", "#", text)


def test_the_guide_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {"__name__": "guide"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{GUIDE.name}, block {number}", "exec"), names)
    printed = capsys.readouterr().out
    (view,) = re.findall(r"```\n(Careless.*?)\n```", text, re.DOTALL)
    assert _without_numbers(view) in _without_numbers(printed)
    assert re.search(r"^WORD float64 verified", printed, re.MULTILINE)
    assert re.search(r"^VMAP float32 verified", printed, re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "blocks"),
    [
        ("ranks.md", 1),
        ("devices.md", 6),
        ("own_op.md", 4),
        ("verify_kernel.md", 4),
        ("residuals.md", 1),
        ("equal_bits.md", 1),
        ("questions.md", 1),
    ],
)
def test_a_page_shows_what_its_programs_print(page: str, blocks: int, capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    text = re.sub(r"<!-- not run[^\n]*-->\n```python\n.*?```\n", "", text, flags=re.DOTALL)
    programs = re.findall(r"```python\n(.*?)```\n(?:\n```\n(.*?)```)?", text, re.DOTALL)
    assert len(programs) == blocks
    names: dict[str, Any] = {"__name__": "guide"}
    for number, (program, view) in enumerate(programs):
        exec(compile(program, f"{page}, block {number}", "exec"), names)
        assert capsys.readouterr().out.split() == view.split(), "but for where lines are wrapped"


def test_the_page_on_judging_kernels_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = "judge_your_kernel.md"
    text = (DOCS / page).read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```\n(?:\n```\n([^$]*?)```)?", text, re.DOTALL)
    assert len(programs) == 5
    names: dict[str, Any] = {"__name__": "guide"}
    monkeypatch.chdir(tmp_path)
    for number, (program, view) in enumerate(programs):
        if file := re.match(r"# (\w+\.py)\n", program):
            (tmp_path / file[1]).write_text(program)
            continue
        file_name = f"{page}, block {number}"
        # A card names the candidate as the line of the assertion has it.
        linecache.cache[file_name] = (len(program), None, program.splitlines(keepends=True), file_name)
        exec(compile(program, file_name, "exec"), names)
        assert _without_numbers(capsys.readouterr().out).strip() == _without_numbers(view).strip()
    commands = re.findall(r"```\n\$ opassay (.*?)\n(.*?)```", text, re.DOTALL)
    assert [command.split()[0] for command, _ in commands] == ["judge", "tolerances"]
    for command, view in commands:
        assert main(command.split()) == 1
        assert _without_numbers(capsys.readouterr().out).strip() == _without_numbers(view).strip()


def test_the_page_on_suites_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DOCS / "suites.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name, content in re.findall(r"`([\w.]+)`:\n\n```json\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(content)
    commands = re.findall(r"```\n\$ opassay (.*?)\n(.*?)```", text, re.DOTALL)
    assert len(commands) == 2
    for command, view in commands:
        assert main(command.split()) == 1
        assert _without_numbers(capsys.readouterr().out).split() == _without_numbers(view).split()


def test_the_declaration_of_an_own_op_is_short_and_imports_nothing_private() -> None:
    text = (DOCS / "own_op.md").read_text(encoding="utf-8")
    (declaration,) = re.findall(r"<!-- declaration: begin -->\n```python\n(.*?)```", text, re.DOTALL)
    assert len([line for line in declaration.splitlines() if line.strip()]) <= 30
    imported = re.findall(r"^(?:import|from) (\S+)(?: as \w+| import (.*))?$", text, re.MULTILINE)
    assert {module for module, _ in imported} == {"numpy", "torch", "opassay"}
    assert {name for _, names in imported for name in filter(None, names.split(", "))} <= set(dir(opassay))


def test_the_commands_of_the_page_on_devices_name_ops_and_worlds_that_exist() -> None:
    text = (DOCS / "devices.md").read_text(encoding="utf-8")
    assert set(re.findall(r"--op (\w+)", text)) <= set(CATALOG)
    assert set(re.findall(r"--fabric (\w+)", text)) == set(names.FABRICS)
    assert set(re.findall(r"--comm (\w+)", text)) == set(names.COMMS)
