"""The same cell draws the same samples, whatever modules are loaded."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from opassay.properties.engine.limits import without_source_numbers

NUMBER = 3141592653


def _draw() -> list[int]:
    results: list[int] = []

    @hypothesis.seed(5)
    @hypothesis.settings(max_examples=300, database=None, phases=[hypothesis.Phase.generate])
    @hypothesis.given(st.integers(0, 2**32 - 1))
    def draw(number: int) -> None:
        results.append(number)

    draw()
    return results


def test_numbers_in_modules_are_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    providers: Any = importlib.import_module("hypothesis.internal.conjecture.providers")
    with without_source_numbers():
        before = _draw()
    (tmp_path / "with_numbers.py").write_text(f"NUMBERS = [{NUMBER}, 2718281828]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("with_numbers")
    try:
        assert NUMBER in providers._get_local_constants().integers  # what Hypothesis would draw from
        with without_source_numbers():
            assert NUMBER not in providers._get_local_constants().integers
            assert _draw() == before
        assert NUMBER in providers._get_local_constants().integers  # and it is put back
    finally:
        del sys.modules["with_numbers"]
