"""Sums of losses of logits: FWD:nearone asks them where every term is small; a large term would hide lost digits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from opassay.properties.candidates.judging import judge


def _tail(x: Tensor) -> Tensor:
    return torch.log1p(torch.exp(-x.abs()))


def _lossy_tail(x: Tensor) -> Tensor:
    """No digit of it is right where exp(−|x|) is below half an ulp of 1."""
    return torch.log(1 + torch.exp(-x.abs()))


#: Spec, the same by a tail, and how many inputs there are.
SUMS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], int]] = {
    "cross entropy": (
        F.binary_cross_entropy_with_logits, lambda tail, x, y: (x.clamp(min=0) - x * y + tail(x)).mean(), 2
    ),
    "softplus": (lambda x: F.softplus(x).sum(), lambda tail, x: (x.clamp(min=0) + tail(x)).sum(), 1),
    "log sigmoid": (lambda x: F.logsigmoid(x).mean(), lambda tail, x: (x.clamp(max=0) - tail(x)).mean(), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_of_logarithms_that_lose_digits_is_refused(name: str) -> None:
    spec, text, count = SUMS[name]
    torch.manual_seed(0)
    inputs = (torch.randn(6, 8), (torch.rand(6, 8) < 0.5).float())[:count]
    wrong = judge(lambda *args: text(_lossy_tail, *args), spec, inputs, questions=["FWD:given", "FWD:nearone"], seed=0)
    assert [cause.question for cause in wrong.causes] == ["FWD:nearone"]
    codes = ["FWD:given", "FWD:nearone", "FWD:small", "FWD:offset", "FWD:wide", "VJP:grad", "LIKELY"]
    right = judge(lambda *args: text(_tail, *args), spec, inputs, questions=codes, seed=0)
    assert right.verdict.value == "accepted"
