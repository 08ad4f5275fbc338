"""PURE, LAYOUT and SAVE at their least effort: writes that change nothing, views that are written, what is hidden."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from opassay import Cell, Outcome, Settings, Verdict, run_cell
from opassay.oracles.process import WatchedTensor, watches
from opassay.properties.catalog.loading import load_op

from .planted_state import writes


def _judge(name: str, code: str, subject: object) -> Verdict:
    op = dataclasses.replace(load_op(name), subjects={"planted": subject})
    return run_cell(Cell(name, code, "float32", "cpu", "planted"), Settings("brief", simpler=False), op)


@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize("name", writes.FAULTS)
def test_a_write_or_a_hidden_tensor_is_refused(name: str) -> None:
    verdict = _judge(*writes.FAULTS[name])
    print(f"\n{name:40s} {verdict.outcome:8s} {verdict.reason}")
    assert verdict.outcome == Outcome.FAIL, verdict.reason


@pytest.mark.parametrize(("name", "code"), sorted({(name, code) for name, code, _ in writes.FAULTS.values()}))
def test_the_production_op_is_verified(name: str, code: str) -> None:
    verdict = _judge(name, code, load_op(name).subjects["opassay"])
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason


def test_watched_memory_tells_a_write_from_a_read() -> None:
    assert watches(), "this system does not tell writes, so that a write of the same value passes PURE"
    watched = WatchedTensor(torch.full((3000,), float("nan"), dtype=torch.float16))
    assert watched.tensor.isnan().all()
    assert not watched.is_written()
    watched.tensor[2999] = float("nan")
    assert watched.is_written()
