"""The guides' code runs as it stands, and its output is what they show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
GUIDE = DOCS / "custom_functions.md"


def _without_numbers(text: str) -> str:
    """Digits differ from one maths library to the next."""
    return re.sub(r"-?0x[0-9a-f.]+p[-+]?\d+|-?\d+(\.\d+)?(e[-+]?\d+)?", "#", text)


def test_the_guide_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {"__name__": "guide"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{GUIDE.name}, block {number}", "exec"), names)
    printed = capsys.readouterr().out
    (shown,) = re.findall(r"```\n(Careless.*?)\n```", text, re.DOTALL)
    assert _without_numbers(shown) in _without_numbers(printed)
    assert re.search(r"^WORD float64 verified", printed, re.MULTILINE)
    assert re.search(r"^VMAP float32 verified", printed, re.MULTILINE)


def test_the_page_on_ranks_shows_what_its_program_prints(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "ranks.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (shown,) = re.findall(r"```\n(ranks .*?)```", text, re.DOTALL)
    exec(compile(program, "ranks.md", "exec"), {"__name__": "guide"})
    assert capsys.readouterr().out == shown
