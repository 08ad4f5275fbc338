"""Numbers up to the ends of a format: squares overflow there, or vanish, where what they stand for does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.properties.candidates.judgement import Judgement
from opassay.properties.candidates.judging import judge

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _judge(candidate: Callable[..., Tensor], spec: Callable[..., Tensor], dtype: torch.dtype, count: int) -> Judgement:
    generator = torch.Generator().manual_seed(5)
    inputs = [torch.randn(8, 16, generator=generator).to(dtype) for _ in range(count)]
    return judge(candidate, spec, inputs, questions=["FWD:given", "FWD:wide", "VJP:grad"], seed=0)


def _by_squares(a: Tensor, b: Tensor) -> Tensor:
    return torch.sqrt(a * a + b * b)


def _by_the_larger(a: Tensor, b: Tensor) -> Tensor:
    x, y = a.float(), b.float()
    top, least = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    return (top * torch.sqrt(1 + torch.where(top > 0, least / top, 0.0) ** 2)).to(a.dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_squares_that_overflow_are_refused(dtype: torch.dtype) -> None:
    judgement = _judge(_by_squares, torch.hypot, dtype, 2)
    assert "FWD:wide" in [cause.question for cause in judgement.causes], judgement


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_length_by_the_larger_side_is_accepted(dtype: torch.dtype) -> None:
    assert not _judge(_by_the_larger, torch.hypot, dtype, 2).causes


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_squares_that_the_spec_makes_as_well_are_accepted(dtype: torch.dtype) -> None:
    def spec(x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)

    def candidate(x: Tensor) -> Tensor:
        wide = x.float()
        return (wide / torch.sqrt((wide * wide).sum(-1, keepdim=True) / x.shape[-1] + 1e-6)).to(x.dtype)

    assert not _judge(candidate, spec, dtype, 1).causes


class _LengthWithSquares(torch.autograd.Function):
    """The length of two sides, whose gradient alone is by squares."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return torch.hypot(a, b)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        a, b = ctx.saved_tensors
        length = torch.sqrt(a * a + b * b)
        return g * a / length, g * b / length


def test_a_gradient_whose_squares_vanish_is_refused() -> None:
    judgement = _judge(_LengthWithSquares.apply, torch.hypot, torch.float32, 2)
    assert [cause.question for cause in judgement.causes] == ["VJP:grad"], judgement


def _total(x: Tensor) -> Tensor:
    return torch.logsumexp(x, -1)


def _total_in_parts(x: Tensor) -> Tensor:
    most, total = x[:, 0], torch.ones_like(x[:, 0])
    for part in x[:, 1:].split(16, -1):
        larger = torch.maximum(most, part.amax(-1))
        total = total * torch.exp(most - larger) + torch.exp(part - larger[:, None]).sum(-1)
        most = larger
    return most + torch.log(total)


def test_gradients_that_lose_digits_at_numbers_below_1_are_accepted() -> None:
    x = torch.randn(8, 200, generator=torch.Generator().manual_seed(5))
    assert not judge(_total_in_parts, _total, [x], questions=["FWD:given", "VJP:grad"], seed=0).causes
