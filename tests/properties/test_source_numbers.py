"""The same cell draws the same samples, whatever modules are loaded."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis
import pytest
from hypothesis import strategies as st

from opassay.properties.catalog.loading import load_op
from opassay.properties.engine.failure_pattern import Contrast
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


def test_what_is_drawn_to_describe_a_failure_looks_into_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    providers: Any = importlib.import_module("hypothesis.internal.conjecture.providers")
    collect = mock.Mock(return_value=providers.Constants())
    monkeypatch.setattr(providers, "_get_local_constants", collect)
    many: Any = st.lists(st.integers(0, 2**32 - 1), min_size=100)  # of which Hypothesis draws one in 20 from a list
    ask = mock.Mock(return_value=None)
    Contrast().extend(load_op("softmax"), many, ask, 5, 4)
    ask.assert_called()
    collect.assert_not_called()
