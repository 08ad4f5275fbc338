"""CALLS at its least effort: ops that remember are refused, and those that do not are verified."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from opassay import Cell, Outcome, Settings, Verdict, run_cell
from opassay.properties.engine.plan import load_op

from .planted_state import calls


def _judged(subject: Callable[..., Any]) -> Verdict:
    op = dataclasses.replace(load_op("layer_norm"), subjects={"planted": subject})
    return run_cell(Cell("layer_norm", "CALLS", "float32", "cpu", "planted"), Settings("brief", simpler=False), op)


@pytest.mark.parametrize("name", calls.FAULTS)
def test_an_op_that_remembers_is_refused(name: str) -> None:
    verdict = _judged(calls.FAULTS[name]())
    print(f"\n{name:40s} {verdict.outcome:8s} {verdict.reason}")
    assert verdict.outcome == Outcome.FAIL, verdict.reason


@pytest.mark.parametrize("name", calls.RIGHT)
def test_an_op_of_its_values_alone_is_verified(name: str) -> None:
    verdict = _judged(calls.RIGHT[name]())
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason
