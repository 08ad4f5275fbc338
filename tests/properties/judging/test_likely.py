"""What is within its bound and not likely is suspect, which is no verdict; sums that begin with a bias are accepted."""

from __future__ import annotations

import functools
import json
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from opassay.properties.judging.judgement import Ruling
from opassay.properties.judging.judging import judge
from opassay.properties.judging.questions import Standing

QUESTIONS = ("GIVEN", "GRAD", "LIKELY")


def _layers(x: Tensor, *weights: Tensor) -> Tensor:
    for weight in weights:
        x = torch.relu(x @ weight) * 1.25
    return x


def _drawn(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.randn(shape, generator=generator) / shape[0] ** 0.5 for shape in shapes)


_OPERANDS = _drawn((8, 32), *[(32, 32)] * 6)


class _OtherGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * 1.00003


def test_a_right_candidate_is_not_suspect() -> None:
    found = judge(_layers, _layers, _OPERANDS, questions=QUESTIONS)
    assert found.findings[-1].standing is Standing.HELD, str(found)
    assert not found.suspicions


def test_an_error_within_the_bound_is_suspect_and_accepted() -> None:
    found = judge(lambda *args: _layers(*args) * (1 + 3e-5), _layers, _OPERANDS, questions=("GIVEN", "LIKELY"))
    assert found.verdict is Ruling.ACCEPTED, str(found)
    assert [each.question for each in found.suspicions] == ["LIKELY"]
    (told,) = json.loads(found.as_json())["suspect"]
    assert "standard deviations of rounding" in told
    assert "no proof" in str(found)


def test_a_gradient_within_the_bound_is_suspect() -> None:
    def candidate(*args: Tensor) -> Tensor:
        scaled: Any = _OtherGradient
        found: Tensor = scaled.apply(_layers(*args))
        return found

    found = judge(candidate, _layers, _OPERANDS, questions=QUESTIONS)
    assert found.verdict is Ruling.ACCEPTED, str(found)
    assert "gradient" in found.suspicions[0].text


def _from_the_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A convolution of each channel alone, whose sums begin with the bias."""
    count = x.shape[-1] - weight.shape[-1] + 1
    taps = (x[:, :, k : k + count] * weight[:, 0, k, None] for k in range(weight.shape[-1]))
    return functools.reduce(torch.add, taps, bias[:, None].expand(x.shape[0], -1, count))


def test_sums_may_begin_with_the_bias() -> None:
    def convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.conv1d(x, weight, bias, groups=4)

    x, weight, bias = _drawn((2, 4, 20), (4, 1, 5), (4,))
    # Small terms after a large first one lose as many roundings of it as there are.
    small = (x * 2.0**-20, weight, bias)
    assert judge(_from_the_bias, convolution, small, questions=["GIVEN"]).verdict is Ruling.ACCEPTED

    def linear_from_the_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functools.reduce(torch.add, (x[:, k, None] * weight[:, k] for k in range(x.shape[1])), bias)

    x, weight, bias = _drawn((6, 40), (10, 40), (10,))
    small = (x * 2.0**-20, weight, bias)
    assert judge(linear_from_the_bias, F.linear, small, questions=["GIVEN"]).verdict is Ruling.ACCEPTED
