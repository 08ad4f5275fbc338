"""NEEDS at its least effort: gradients that depend on which others are asked for are refused."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opassay import Cell, Outcome, Settings, Verdict, run_cell
from opassay.oracles.op.declaration import Sample
from opassay.properties.catalog.loading import load_op
from opassay.properties.engine.cells import judge_sample

from .planted_state import needs


def _judge(subject: Callable[..., Any], name: str = "layer_norm") -> Verdict:
    op = dataclasses.replace(load_op(name), subjects={"planted": subject})
    return run_cell(Cell(name, "NEEDS", "float32", "cpu", "planted"), Settings("brief", simpler=False), op)


@pytest.mark.one_fast_in(2)
@pytest.mark.parametrize("name", needs.FAULTS)
def test_gradients_that_depend_on_others_are_refused(name: str) -> None:
    verdict = _judge(needs.FAULTS[name])
    print(f"\n{name:40s} {verdict.outcome:8s} {verdict.reason}")
    assert verdict.outcome == Outcome.FAIL, verdict.reason


@pytest.mark.parametrize("name", needs.RIGHT)
def test_gradients_that_do_not_are_verified(name: str) -> None:
    verdict = _judge(needs.RIGHT[name])
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason


def test_an_output_that_is_differentiated_alone_must_reach_the_inputs() -> None:
    """A backward that loses the cotangent of one output where that of another one is missing."""
    verdict = _judge(needs.scale_lost_without_the_mean, "native_layer_norm")
    assert verdict.outcome == Outcome.FAIL, verdict.reason
    assert re.search(r"cotangents of (out\[0\], )?out\[2\] of 3 outputs", verdict.reason), verdict.reason


def test_a_tangent_must_have_the_dtype_of_its_output() -> None:
    verdict = _judge(needs.half_tangent_without_that_of_the_input, "native_layer_norm")
    assert verdict.outcome == Outcome.FAIL, verdict.reason
    assert "has dtype float16, need float32" in verdict.reason


def test_a_tangent_that_is_missing_beside_one_that_overflows_is_verified() -> None:
    """The weight's gradient does not depend on the weight; a tangent of zero of the input makes NaN of it here."""
    mean, invstd = torch.tensor([-6.0438e19]), torch.tensor([1.5094e-20])
    x = torch.tensor([[3.1653e19], [-1.2143e20], [-9.1534e19]])
    grad_out = torch.tensor([[-0.1933], [0.7826], [-1.3553]])
    args = (x, grad_out, torch.tensor([1.2151]), mean, torch.tensor([1e30]), mean, invstd, 1e-5, torch.empty(0).byte())
    verdict = judge_sample(Cell("cudnn_batch_norm_backward", "NEEDS", "float32", "cpu", "opassay"), Sample(args))
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason
