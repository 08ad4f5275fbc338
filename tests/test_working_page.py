"""The page on working on opassay: its program runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = "docs/working_on_opassay.md"


def test_the_program_on_one_cell_runs(capsys: pytest.CaptureFixture[str]) -> None:
    programs = re.findall(r"```python\n(.*?)```", (ROOT / PAGE).read_text(encoding="utf-8"), re.DOTALL)
    program = next(text for text in programs if "run_cell" in text)
    exec(compile(program, PAGE, "exec"), {})
    assert capsys.readouterr().out.startswith("verified held on ")
