"""Operands masked by -inf: runs of it are drawn where they are masks to the spec, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import opassay
from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.inputs import WAYS
from opassay.properties.candidates.masks import axes_of, mask_runs

_INF = torch.inf


def _stream(x: Tensor, guard: bool, size: int = 8, initial: float = -_INF) -> tuple[Tensor, Tensor]:
    """The largest element of each row and the sum of the exponentials beside it, kept over blocks of a row."""
    most, total = torch.full_like(x[..., :1], initial), torch.zeros_like(x[..., :1])
    for block in x.split(size, -1):
        larger = torch.maximum(most, block.amax(-1, keepdim=True))
        base = torch.where(larger == -_INF, 0.0, larger) if guard else larger
        total = total * torch.exp(most - base) + torch.exp(block - base).sum(-1, keepdim=True)
        most = larger
    return most, total


def _softmax(x: Tensor, **how: Any) -> Tensor:
    most, total = _stream(x, **how)
    return torch.exp(x - most) / total


def _lse(x: Tensor, **how: Any) -> Tensor:
    most, total = _stream(x, **how)
    return (most + torch.log(total)).squeeze(-1)


def _resets(x: Tensor) -> Tensor:
    """Forgets what it has added where a later block is masked whole."""
    most, total = torch.full_like(x[..., :1], -_INF), torch.zeros_like(x[..., :1])
    for block in x.split(8, -1):
        top = block.amax(-1, keepdim=True)
        larger = torch.maximum(most, top)
        part = torch.exp(block - torch.where(larger == -_INF, 0.0, larger)).sum(-1, keepdim=True)
        keep = torch.where(torch.isinf(most) | torch.isinf(top), 0.0, torch.exp(most - larger))
        most, total = larger, total * keep + part
    return torch.exp(x - most) / total


def _attend(s: Tensor, bias: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(s + bias, -1) @ v


def _attend_by_blocks(guard: bool) -> Callable[..., Tensor]:
    return lambda s, bias, v: _softmax(s + bias, guard=guard, size=4) @ v


def _by_truth(s: Tensor, keep: Tensor) -> Tensor:
    return torch.softmax(s.masked_fill(~keep, -_INF), -1)


def _by_number(s: Tensor, keep: Tensor) -> Tensor:
    return torch.softmax(s.masked_fill(keep == 0, -_INF), -1)


def _later(s: Tensor) -> Tensor:
    return torch.ones(s.shape[-2:], dtype=torch.bool).triu(1)


def _causal(s: Tensor, bias: Tensor) -> Tensor:
    return torch.softmax((s + bias).masked_fill(_later(s), -_INF), -1)


def _of_masks(name: str, guard: bool) -> Callable[..., Tensor]:
    masks: dict[str, Callable[..., Tensor]] = {
        "truth": lambda s, keep: s.masked_fill(~keep, -_INF), "number": lambda s, keep: s.masked_fill(keep == 0, -_INF),
        "causal": lambda s, bias: (s + bias).masked_fill(_later(s), -_INF),
    }  # fmt: skip
    return lambda s, mask: _softmax(masks[name](s, mask), guard=guard, size=4)


def _draw(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(5)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


_CASES: dict[str, tuple[Any, Any, bool, tuple[tuple[int, ...], ...]]] = {
    "softmax": (lambda x: torch.softmax(x, -1), lambda x: _softmax(x, guard=True), True, ((6, 40),)),
    "softmax from -1e30": (
        lambda x: torch.softmax(x, -1), lambda x: _softmax(x, guard=False, initial=-1e30), True, ((6, 40),)
    ),
    "softmax without guard": (lambda x: torch.softmax(x, -1), lambda x: _softmax(x, guard=False), False, ((6, 40),)),
    "one row": (lambda x: torch.softmax(x, -1), lambda x: _softmax(x, guard=False), False, ((40,),)),
    "along the first axis": (
        lambda x: torch.softmax(x, 0), lambda x: _softmax(x.mT, guard=False).mT, False, ((40, 3),)
    ),
    "later blocks": (lambda x: torch.softmax(x, -1), _resets, False, ((6, 40),)),
    "lse": (lambda x: torch.logsumexp(x, -1), lambda x: _lse(x, guard=True), True, ((5, 40),)),
    "lse without guard": (lambda x: torch.logsumexp(x, -1), lambda x: _lse(x, guard=False), False, ((5, 40),)),
    "bias": (_attend, _attend_by_blocks(True), True, ((6, 12), (6, 12), (12, 3))),
    "bias without guard": (_attend, _attend_by_blocks(False), False, ((6, 12), (6, 12), (12, 3))),
    "largest from 0": (lambda x: x.amax(-1), lambda x: x.clamp(min=-1e4).amax(-1), True, ((5, 9),)),
    "largest eight": (lambda x: x.topk(8).values, lambda x: x.sort(descending=True).values[:, :8], True, ((5, 12),)),
    "gate": (
        lambda x, h, w: (u := (x @ w).sigmoid()) * h + (1 - u) * x[:, :4],
        lambda x, h, w: x[:, :4] + (x @ w).sigmoid() * (h - x[:, :4]), True, ((3, 5), (3, 4), (5, 4)),
    ),
    "product": (lambda a, b: a @ b, lambda a, b: (b.mT @ a.mT).mT, True, ((4, 6), (6, 5))),
}  # fmt: skip


@pytest.mark.parametrize("name", _CASES)
def test_runs_of_infinities_tell_a_kept_sum_from_one_that_is_not(name: str) -> None:
    spec, kernel, right, shapes = _CASES[name]
    judgement = opassay.judge(kernel, spec, _draw(*shapes), questions=["FWD:given", "SPECIAL:inf"], seed=1)
    assert judgement.verdict == ("accepted" if right else "rejected"), str(judgement)
    if not right:
        assert [cause.question for cause in judgement.causes] == ["SPECIAL:inf"]
        assert "is -inf but for a stretch of each line of axis" in str(judgement)
        allowed = opassay.judge(kernel, spec, _draw(*shapes), contract="torch+spread", questions=["SPECIAL:inf"])
        assert allowed.verdict == "accepted", str(allowed)


@pytest.mark.parametrize("shape", [(1, 7), (7,), (3, 5), (2, 3, 4), (2, 2)])
def test_each_line_keeps_a_stretch_and_the_first_lines_an_end(shape: tuple[int, ...]) -> None:
    arguments = CallArguments.of(_draw(shape))
    for axis in axes_of(arguments.tensors[0]):
        for seed in range(20):
            (masked,) = mask_runs(arguments, 0, axis, np.random.default_rng(seed)).tensors
            stays = masked.isfinite().movedim(axis, -1).reshape(-1, shape[axis]).int()
            assert (stays.sum(-1) > 0).all()
            assert ((stays.diff().abs().sum(-1) + stays[:, 0] + stays[:, -1]) == 2).all(), "one stretch in each line"
            assert stays[0].tolist() == [0] * (shape[axis] - 1) + [1]
            assert len(stays) == 1 or stays[1].tolist() == [1] + [0] * (shape[axis] - 1)
            assert torch.equal(masked[masked.isfinite()], arguments.tensors[0][masked.isfinite()])


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_draws_between_the_numbers_of_a_mask_are_no_nans() -> None:
    mask = torch.where(torch.arange(40) % 3 == 0, -_INF, torch.randn(8, 40, generator=torch.Generator().manual_seed(0)))
    values = WAYS["FWD:seeds"](mask, np.random.default_rng(2))
    assert not np.isnan(values).any()
    assert 0.2 < np.isneginf(values).mean() < 0.5
    assert values[np.isfinite(values)].max() <= mask.max().item()


@pytest.mark.parametrize("guard", [True, False])
@pytest.mark.parametrize(
    ("name", "spec", "mask"),
    [
        ("truth", _by_truth, torch.rand(6, 24, generator=torch.Generator().manual_seed(1)) < 0.7),
        ("number", _by_number, (torch.rand(6, 24, generator=torch.Generator().manual_seed(2)) < 0.7).long()),
        ("causal", _causal, torch.randn(24, 24, generator=torch.Generator().manual_seed(3))),
        ("causal", _causal, torch.zeros(24, 24).masked_fill(torch.ones(24, 24, dtype=torch.bool).triu(5), -_INF)),
    ],
    ids=["truth values", "0 and 1", "causal", "with masks already"],
)
def test_other_masks_are_masked_by_runs(name: str, spec: Any, mask: Tensor, guard: bool) -> None:
    scores = torch.randn(len(mask), 24, generator=torch.Generator().manual_seed(4))
    judgement = opassay.judge(_of_masks(name, guard), spec, (scores, mask), questions=["FWD:given", "SPECIAL:inf"])
    assert judgement.verdict == ("accepted" if guard else "rejected"), str(judgement)
