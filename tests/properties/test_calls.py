"""CALLS at its least effort: ops that remember are refused, and those that do not are verified."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opassay import Cell, Documented, Outcome, Settings, Verdict, run_cell
from opassay.impl import layer_norm
from opassay.properties.catalog import CATALOG
from opassay.properties.catalog.loading import load_op
from opassay.properties.engine import other_ops

from .planted_state import calls


def _judge(subject: Callable[..., Any], documented: Documented | None = None) -> Verdict:
    own = {} if documented is None else {"planted": documented}
    op = dataclasses.replace(load_op("layer_norm"), subjects={"planted": subject}, documented=own)
    return run_cell(Cell("layer_norm", "CALLS", "float32", "cpu", "planted"), Settings("brief", simpler=False), op)


@pytest.mark.one_fast_in(11)
@pytest.mark.parametrize("name", calls.FAULTS)
def test_an_op_that_remembers_is_refused(name: str) -> None:
    verdict = _judge(calls.FAULTS[name]())
    print(f"\n{name:40s} {verdict.outcome:8s} {verdict.reason}")
    assert verdict.outcome == Outcome.FAIL, verdict.reason


@pytest.mark.parametrize("name", calls.RIGHT)
def test_an_op_of_its_values_alone_is_verified(name: str) -> None:
    verdict = _judge(calls.RIGHT[name]())
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason


@pytest.mark.parametrize("unchecked", [True, False])
def test_who_documents_nothing_of_wrong_arguments_gets_none(unchecked: bool) -> None:
    wrong: list[Any] = []

    def subject(x: Any, *args: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            wrong.append(x)
        return layer_norm(x, *args)

    documented = Documented("the manual", not_asked={"ERROR": "nothing is documented"} if unchecked else {})
    assert _judge(subject, documented).outcome == Outcome.VERIFIED
    assert bool(wrong) is not unchecked


def test_the_example_of_a_new_declaration_is_called_between_two_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[torch.Size] = []

    def example(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape)
        return x.exp()

    new = dataclasses.replace(load_op("trace"), name="new").changed(example=example)
    monkeypatch.setitem(CATALOG, "new", "planted_module")
    monkeypatch.setitem(sys.modules, "opassay.properties.catalog.planted_module", types.SimpleNamespace(OPS=(new,)))
    other_ops.calls("float32", "cpu")()
    assert calls == [(4, 4, 6)]
