"""The page on working on opassay: its program runs, and the files that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("docs/working_on_opassay.md", "ARCHITECTURE.md")
#: Top folders of the repository whose paths the pages name.
_PATH = re.compile(r"`((?:impl|oracles|properties|reference|reports|tests|docs|api|benchmarks)/[\w./]*)`")


def test_the_program_on_one_cell_runs(capsys: pytest.CaptureFixture[str]) -> None:
    programs = re.findall(r"```python\n(.*?)```", (ROOT / PAGES[0]).read_text(encoding="utf-8"), re.DOTALL)
    program = next(text for text in programs if "run_cell" in text)
    exec(compile(program, PAGES[0], "exec"), {})
    assert capsys.readouterr().out.startswith("verified held on ")


@pytest.mark.parametrize("page", PAGES)
def test_paths_that_a_page_names_exist(page: str) -> None:
    found = _PATH.findall((ROOT / page).read_text(encoding="utf-8"))
    assert len(found) > 10
    assert [name for name in found if not (ROOT / name).exists()] == []
