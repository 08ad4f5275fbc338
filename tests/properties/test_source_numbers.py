"""The same cell draws the same samples, whatever modules are loaded."""

from __future__ import annotations

import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from opassay.properties.source_numbers import not_drawn


def _drawn() -> list[int]:
    found: list[int] = []

    @hypothesis.seed(5)
    @hypothesis.settings(max_examples=300, database=None, phases=[hypothesis.Phase.generate])
    @hypothesis.given(st.integers(0, 2**32 - 1))
    def draw(number: int) -> None:
        found.append(number)

    draw()
    return found


def test_numbers_in_modules_are_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with not_drawn():
        before = _drawn()
    assert 3141592653 not in before
    (tmp_path / "with_numbers.py").write_text("NUMBERS = [3141592653, 2718281828]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("with_numbers")
    try:
        assert 3141592653 in _drawn()  # so it does depend on them, without
        with not_drawn():
            assert _drawn() == before
        assert 3141592653 in _drawn()  # and it is put back
    finally:
        del sys.modules["with_numbers"]
