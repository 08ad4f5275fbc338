"""Norms and standard deviations where they are zero, or small enough that rounding decides whether they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from opassay.oracles.bound.rounding import Ball
from opassay.oracles.bound.terms import terms
from opassay.oracles.specs.storage import format_of
from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.specification import specification

Function = Callable[..., Tensor]


def _length(x: Tensor) -> Tensor:
    return x.square().sum(-1, keepdim=True).sqrt()


def _deviation(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True).sqrt()


#: Spec, a right kernel, and one without the guard of the divisor.
GUARDED: dict[str, tuple[Function, Function, Function]] = {
    "normalize": (
        lambda x: F.normalize(x, dim=-1), lambda x: x / _length(x).clamp(min=1e-12), lambda x: x / _length(x)
    ),
    "standardize": (
        lambda x: x / (x.std(-1, correction=0, keepdim=True) + 1e-3), lambda x: x / (_deviation(x) + 1e-3),
        lambda x: x / _deviation(x),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_kernel_without_the_guard_of_its_divisor_is_refused_at_zeros(name: str, dtype: torch.dtype) -> None:
    spec, right, wrong = GUARDED[name]
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    codes = ["SPECIAL:zeros", "FWD:small", "DATA:integers"]
    judged = judge(lambda x: wrong(x.float()).to(dtype), spec, (x,), questions=codes, seed=0)
    assert "SPECIAL:zeros" in [cause.question for cause in judged.causes]
    accepted = judge(lambda x: right(x.float()).to(dtype), spec, (x,), questions=codes, seed=0)
    assert accepted.verdict.value == "accepted", accepted.causes


@pytest.mark.parametrize("scale", [0.0, 1e-23, 1.0])
def test_a_length_is_bounded_by_its_own_size(scale: float) -> None:
    rows = scale * torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    specs: list[Function] = [lambda x: x.norm(dim=-1), lambda x: x.std(-1), lambda x: torch.cdist(x, x)]
    for spec in specs:
        ball = specification(spec).read(CallArguments.of((rows,)), {}, terms("strict"))[0]
        assert isinstance(ball, Ball)
        assert ball.half_widths(format_of(torch.float32)).max() <= 1e-5 * scale + 1e-20
