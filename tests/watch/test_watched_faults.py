"""The model of `benchmarks/watched_faults.py`: its parts are right, and each fault changes its loss or a gradient."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from opassay import assert_conforms

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")
    faults = importlib.import_module("watched.faults")
    model = importlib.import_module("watched.faults.model")
    regions = importlib.import_module("watched.faults.regions")

WRONG = [(part, wrong) for part, each in (faults.FAULTS | faults.BLOCK_FAULTS).items() for wrong in each]


def _bits(part: str = "", wrong: Callable[..., Any] | None = None) -> list[torch.Tensor]:
    """The loss and the gradients of a step, with a part replaced in one call."""
    module, tokens, labels = faults.build()
    layer = faults.OUTSIDE if part.startswith(("entropy", "embed")) else faults.LARGE_SCORES
    with faults.PLAN.planting(part, wrong or regions.RIGHT.get(part), layer):
        loss = module(tokens, labels)
        loss.backward()
    return [loss.detach(), *(parameter.grad for parameter in module.parameters())]


def test_faults_are_many_and_of_different_names() -> None:
    names = [wrong.__name__ for _, wrong in WRONG]
    assert len(names) == len(set(names)) >= 60


def test_every_fault_changes_the_loss_or_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "LAYERS", faults.LARGE_SCORES + 1)
    right = _bits()
    same = [
        wrong.__name__
        for part, wrong in WRONG
        if all(torch.equal(a, b) for a, b in zip(_bits(part, wrong), right, strict=True))
    ]
    assert same == []


def test_the_right_parts_conform_to_their_specs() -> None:
    torch.manual_seed(0)
    a, b, table = torch.randn(2, 5, 8), torch.randn(2, 5, 8), torch.randn(9, 8)
    logits, labels = torch.randn(6, 9), torch.tensor([0, 3, regions.IGNORED, 8, 1, 1])
    q, k, v = torch.randn(3, 2, 4, model.TOKENS, 16).unbind(0)
    attention = regions.Attention(4, model.TOKENS)
    cos, sin = model.angles()
    assert_conforms(regions.norm(a, b[0, 0], 1e-5)[0], lambda x, w: model.norm_spec(x, w, 1e-5), a, b[0, 0])
    assert_conforms(regions.gate(a, b), model.gate_spec, a, b)
    assert_conforms(regions.rotate(q, cos, sin), model.rotate_spec, q, cos, sin)
    assert_conforms(attention(q, k, v), lambda *qkv: model.attention_spec(attention, *qkv), q, k, v)
    assert_conforms(regions.project(a, table, table[:, 0]), model.project_spec, a, table, table[:, 0])
    assert_conforms(regions.entropy(logits, labels)[0], model.entropy_spec, logits, labels)
    assert_conforms(regions.embed(table, labels[:2]), model.embed_spec, table, labels[:2])
