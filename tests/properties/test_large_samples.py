"""Large samples: which are drawn, and that faults which begin at a length are seen.

Run with `-s` to see the table of faults.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from opassay import Cell, Code, Draft, Op, Outcome, Settings, replay_case, run_cell
from opassay.impl import layer_norm
from opassay.oracles import judgement
from opassay.oracles.case import load_case
from opassay.oracles.judgement import Unsupported
from opassay.oracles.questions import QUESTIONS
from opassay.properties import cells, draws
from opassay.properties.catalog import CATALOG
from opassay.properties.plan import load_op

from .planted_sizes import AXES, long_diagonal, many_rows, stops_at

FIRSTS = (73, 129, 1025, 4097)
HOW = {"forward": "FWD", "backward": "VJP"}


@pytest.fixture
def large_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Cells draw their large samples alone, the same as ever, and a failing one is reported as it was found.

    The ordinary samples have 72 elements at most, where the planted faults do not show; shrinking is tested apart.
    """

    def stages(judgement: Any, question: Any, examples: int, draw: Any) -> None:
        choice = draws.Large(judgement, question.large_of(examples), question.most)
        draws._draw_large(judgement, choice, draw)

    monkeypatch.setattr(cells.draws, "stages", stages)
    monkeypatch.setattr(cells.draws, "SHRINKING", 0.0)
    return


def caught_by(op: Op, code: str, dtype: str = "float32") -> str:
    """How a cell of the faulty subject ends, in short."""
    verdict = run_cell(Cell(op.name, code, dtype, "cpu", "faulty"), Settings("commit"), op)
    if verdict.outcome != Outcome.FAIL:
        return f"{verdict.outcome}: {verdict.reason}"
    assert verdict.code in (Code.VALUE, Code.SPECIAL), verdict.reason
    return "caught"


@pytest.mark.usefixtures("large_alone")
@pytest.mark.parametrize("name", AXES)
def test_a_fault_that_begins_at_a_length_is_caught(name: str) -> None:
    missed = []
    for axis in AXES[name].names:
        for how, code in HOW.items():
            found = [caught_by(stops_at(name, axis, first, how), code) for first in FIRSTS]
            print(f"\n{name:16s} {axis:10s} {how:9s} {code}", *(f"{n}: {f}" for n, f in zip(FIRSTS, found, strict=True)))
            missed += [(axis, how, n, f) for n, f in zip(FIRSTS, found, strict=True) if f != "caught"]
    assert not missed


@pytest.mark.usefixtures("large_alone")
def test_a_fault_of_trace_that_begins_at_a_length_is_caught() -> None:
    # A diagonal of 265 elements would take a matrix of more than 70,000, the most that is drawn.
    for first in (73, 129, 257):
        found = {how: caught_by(long_diagonal(first, how), code) for how, code in HOW.items()}
        print(f"\ntrace            diagonal   {first}: {found}")
        assert found == {"forward": "caught", "backward": "caught"}
    for axis, name in enumerate(("rows", "columns")):
        found = {str(first): caught_by(many_rows(axis, first), "FWD") for first in FIRSTS}
        print(f"\ntrace            {name:10s} {found}")
        assert set(found.values()) == {"caught"}
