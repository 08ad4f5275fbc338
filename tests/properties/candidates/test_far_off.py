"""Variances of one pass are rejected whatever is drawn, and those of two passes, shifted or updated, never are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import opassay


def _one_pass(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt((x * x).mean(-1, keepdim=True) - mean * mean + 1e-5)


def _two_passes(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)


def _updated(x: Tensor) -> Tensor:
    """Welford's method."""
    mean, moment = torch.zeros_like(x[..., :1]), torch.zeros_like(x[..., :1])
    for i in range(x.shape[-1]):
        step = x[..., i : i + 1] - mean
        mean = mean + step / (i + 1)
        moment = moment + step * (x[..., i : i + 1] - mean)
    return (x - mean) * torch.rsqrt(moment / x.shape[-1] + 1e-5)


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _variance(x: Tensor) -> Tensor:
    return x.var(-1, correction=0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("kernel", "spec", "right"),
    [
        (_one_pass, _norm, False), (_two_passes, _norm, True), (_updated, _norm, True), (_one_pass, _two_passes, False),
        (lambda x: (x * x).mean(-1) - x.mean(-1) ** 2, _variance, False),
        (lambda x: (x - x.mean(-1, keepdim=True)).square().mean(-1), _variance, True),
    ],
    ids=["one pass", "two passes", "updated", "one pass by the text", "variance by squares", "variance"],
)  # fmt: skip
def test_one_pass_is_rejected_at_every_draw(
    kernel: Callable[..., Tensor], spec: Callable[..., Tensor], right: bool, seed: int
) -> None:
    inputs = (torch.randn(4, 24, generator=torch.Generator().manual_seed(seed)),)
    judgement = opassay.judge(kernel, spec, inputs, questions=["FWD:given", "FWD:offset"], seed=seed)
    assert judgement.verdict == ("accepted" if right else "rejected"), str(judgement)
