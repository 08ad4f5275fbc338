"""Calls with options, with many rows, with long axes and with numbers far below zero, beside the given call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from opassay.properties.candidates.judging import judge

Function = Callable[..., Any]
#: Questions of calls unlike the given one, and of what such calls leave behind.
OF_OTHERS = ("SIZE:sizes", "PURE:left")


def _numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(math.prod(shape)))


def is_wrong(candidate: Function, spec: Function, inputs: tuple[Any, ...], question: str, *others: str) -> bool:
    judged = judge(candidate, spec, inputs, questions=[question, *others], seed=0)
    return question in [cause.question for cause in judged.causes]


def is_right(candidate: Function, spec: Function, inputs: tuple[Any, ...], *questions: str) -> bool:
    return judge(candidate, spec, inputs, questions=questions, seed=0).verdict.value == "accepted"


def _norm(x: Tensor, mean: Tensor, var: Tensor, training: bool = False) -> Tensor:
    return F.batch_norm(x, mean, var, None, None, training)


def _folded(x: Tensor, mean: Tensor, var: Tensor, training: bool = False) -> Tensor:
    if training:
        return F.batch_norm(x, mean, var, None, None, True)
    return (x - mean[:, None]) * torch.rsqrt(var + 1e-5)[:, None]


def test_what_a_spec_writes_by_an_option_may_be_written() -> None:
    inputs = (_numbers(4, 3, 5), _numbers(3), _numbers(3).abs() + 0.5)
    assert is_right(_folded, _norm, inputs, *OF_OTHERS)

    def forgets(x: Tensor, mean: Tensor, var: Tensor, training: bool = False) -> Tensor:
        return _folded(x, mean.clone(), var.clone(), training)

    assert is_wrong(forgets, _norm, inputs, "SIZE:sizes")

    def writes(x: Tensor, mean: Tensor, var: Tensor, training: bool = False) -> Tensor:
        y = _folded(x, mean, var, training)
        mean.add_(float(x.shape[-1] > 5))  # at no given size
        return y

    assert is_wrong(writes, _norm, inputs, "PURE:left", "SIZE:sizes")


def _shuffle(x: Tensor, r: int = 2) -> Tensor:
    b, c, h, w = x.shape
    split = x.reshape(b, c // r**2, r, r, h, w).permute(0, 1, 4, 2, 5, 3)
    return split.reshape(b, c // r**2, h * r, w * r)


def test_a_view_that_an_option_makes_is_no_fault() -> None:
    inputs = (_numbers(2, 4, 3, 3),)

    def spec(x: Tensor, r: int = 2) -> Tensor:
        return F.pixel_shuffle(x, r)

    assert is_right(_shuffle, spec, inputs, *OF_OTHERS)
    assert is_wrong(lambda x, r=2: _shuffle(x, 2), spec, inputs, "SIZE:sizes")


def test_a_number_in_place_of_none_is_another_than_that_for_which_none_stands() -> None:
    def spec(x: Tensor, k: int = 2, stride: int | None = None) -> Tensor:
        return F.avg_pool1d(x, k, k if stride is None else stride)

    def right(x: Tensor, k: int = 2, stride: int | None = None) -> Tensor:
        return x.unfold(-1, k, k if stride is None else stride).mean(-1)

    inputs = (_numbers(2, 3, 8),)
    assert is_right(right, spec, inputs, *OF_OTHERS)
    assert is_wrong(lambda x, k=2, stride=None: right(x, k), spec, inputs, "SIZE:sizes")


def test_a_largest_number_is_searched_from_below_all_numbers() -> None:
    inputs = (_numbers(4, 6),)
    assert is_wrong(lambda x: x.amax(-1).clamp(min=-1e4), lambda x: x.amax(-1), inputs, "FWD:wide")

    def lse(x: Tensor, least: float) -> Tensor:
        largest = x.amax(-1, keepdim=True).clamp(min=least)
        return (x - largest).exp().sum(-1).log() + largest[..., 0]

    assert is_wrong(lambda x: lse(x, 0.0), lambda x: x.logsumexp(-1), inputs, "FWD:wide")
    assert is_right(lambda x: lse(x, -math.inf), lambda x: x.logsumexp(-1), inputs, "FWD:wide", "FWD:offset")


def test_rows_are_many_beside_a_bias_that_is_as_long_by_chance() -> None:
    def spec(x: Tensor, bias: Tensor) -> Tensor:
        return F.relu(x + bias)

    def of_one_grid(x: Tensor, bias: Tensor) -> Tensor:
        y = spec(x, bias)
        y[65_535:] = x[65_535:]
        return y

    inputs = (_numbers(64, 64), _numbers(64))
    assert is_wrong(of_one_grid, spec, inputs, "SIZE:sizes")
    assert is_right(lambda x, bias: (x + bias).clamp(min=0), spec, inputs, *OF_OTHERS)


@pytest.mark.slow
def test_what_a_long_path_loses_is_more_than_the_roundings_of_all() -> None:
    def right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v

    def of_8192_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return right(q, k[:, :8192], v[:, :8192])

    inputs = (_numbers(1, 4, 8), _numbers(1, 16, 8), _numbers(1, 16, 8))
    assert is_wrong(of_8192_keys, F.scaled_dot_product_attention, inputs, "SIZE:sizes")
    assert is_right(right, F.scaled_dot_product_attention, inputs, *OF_OTHERS)


def test_lengths_are_as_long_as_a_longer_axis() -> None:
    def mean(x: Tensor, lengths: Tensor, most: int = 2**30) -> Tensor:
        mask = torch.arange(x.shape[1]) < lengths[:, None]
        return (x * mask[..., None]).sum(1) / lengths.clamp(1, most)[:, None]

    def rows(x: Tensor, lengths: Tensor) -> Tensor:
        return torch.stack([row[:n].sum(0) / max(n, 1) for row, n in zip(x, lengths.tolist(), strict=True)])

    inputs = (_numbers(4, 6, 3), torch.tensor([2, 6, 3, 1]))
    assert is_wrong(lambda x, lengths: mean(x, lengths, 6), lambda x, lengths: mean(x, lengths), inputs, "SIZE:sizes")
    assert is_right(rows, lambda x, lengths: mean(x, lengths), inputs, *OF_OTHERS)


def test_groups_of_packed_numbers_have_any_length() -> None:
    def unpack(q: Tensor) -> Tensor:
        return torch.stack([q & 15, (q >> 4) & 15], -1).flatten(-2)

    def spec(q: Tensor, scales: Tensor) -> Tensor:
        groups = unpack(q).reshape(len(q), scales.shape[1], -1)
        return (groups * scales[..., None]).flatten(1)

    def grouped(q: Tensor, scales: Tensor, length: int = 0) -> Tensor:
        numbers, count = unpack(q), scales.shape[1]
        of = torch.arange(numbers.shape[1]) // (length or numbers.shape[1] // count) % count
        return numbers * scales[:, of]

    inputs = ((torch.arange(32) * 37 % 256).reshape(4, 8), _numbers(4, 2))
    assert is_wrong(lambda q, scales: grouped(q, scales, 8), spec, inputs, "SIZE:sizes")
    assert is_right(grouped, spec, inputs, *OF_OTHERS)
