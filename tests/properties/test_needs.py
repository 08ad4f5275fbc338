"""NEEDS at its least effort: gradients that depend on which others are asked for are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from opassay import Cell, Outcome, Settings, Verdict, run_cell
from opassay.properties.engine.plan import load_op

from .planted_state import needs


def _judged(subject: Callable[..., Any]) -> Verdict:
    op = dataclasses.replace(load_op("layer_norm"), subjects={"planted": subject})
    return run_cell(Cell("layer_norm", "NEEDS", "float32", "cpu", "planted"), Settings("brief", simpler=False), op)


@pytest.mark.parametrize("name", needs.FAULTS)
def test_gradients_that_depend_on_others_are_refused(name: str) -> None:
    verdict = _judged(needs.FAULTS[name])
    print(f"\n{name:40s} {verdict.outcome:8s} {verdict.reason}")
    assert verdict.outcome == Outcome.FAIL, verdict.reason


@pytest.mark.parametrize("name", needs.RIGHT)
def test_gradients_that_do_not_are_verified(name: str) -> None:
    verdict = _judged(needs.RIGHT[name])
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason
