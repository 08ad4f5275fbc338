"""Rows with masked elements have bounds in every dtype and contract, whatever the mask is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import opassay
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball, balls

from ..spec_judging import draw

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
CONTRACTS = ("torch", "fast_math")
SIZE = 12
ALLOWED = torch.ones(SIZE, SIZE, dtype=torch.bool).tril()
MASKS = {"-inf": -np.inf, "least": None, "-1e9": -1e9}

#: How a mask comes into scores: (scores, number) -> masked scores.
MASKED: dict[str, Callable[[Tensor, float], Tensor]] = {
    "masked_fill": lambda s, number: s.masked_fill(~ALLOWED, number),
    "where": lambda s, number: torch.where(ALLOWED, s, number),
    "added": lambda s, number: s + torch.zeros(SIZE, SIZE, dtype=s.dtype).masked_fill(~ALLOWED, number),
}
#: What is computed of masked rows.
ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda s: torch.softmax(s, -1),
    "logsumexp": lambda s: torch.logsumexp(s, -1),
    "amax": lambda s: s.amax(-1) * 1.5,
    "maximum": lambda s: torch.maximum(s, torch.full_like(s, -3.0)) * 1.5,
    "exp": torch.exp,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "max_pool": lambda s: functional.max_pool1d(s * 1.5, SIZE),
    "relu": lambda s: torch.relu(s) * 1.5,
}


def _number(mask: str, dtype: torch.dtype) -> float:
    number = MASKS[mask]
    return torch.finfo(dtype).min if number is None else float(number)


def _bounds(spec: Callable[..., Tensor], terms: str, *tensors: Tensor) -> Tensor:
    bound = opassay.bound(spec, *tensors, contract=terms)
    assert isinstance(bound, opassay.Bound)
    return bound.radius


@pytest.mark.one_fast_in(13)
@pytest.mark.parametrize("terms", CONTRACTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", MASKS)
def test_masked_rows_have_bounds(mask: str, dtype: torch.dtype, terms: str) -> None:
    number = _number(mask, dtype)
    if not np.isinf(number) and abs(number) > torch.finfo(dtype).max:
        number = torch.finfo(dtype).min
    (x,) = draw((SIZE, SIZE), dtype=dtype)
    for way in MASKED.values():
        for rows in ROWS.values():
            radius = _bounds(lambda x, way=way, rows=rows: rows(way(x * 2.0, number)), terms, x)
            assert bool(torch.isfinite(radius).all())


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", MASKS)
def test_a_mask_that_is_an_argument_leaves_bounds(mask: str, dtype: torch.dtype) -> None:
    number = max(_number(mask, dtype), -np.inf if mask == "-inf" else torch.finfo(dtype).min)
    q, k, v = draw((2, SIZE, 8), (2, SIZE, 8), (2, SIZE, 8), dtype=dtype)
    bias = torch.zeros(SIZE, SIZE, dtype=dtype).masked_fill(~ALLOWED, number)
    attention = functional.scaled_dot_product_attention
    for terms in CONTRACTS:
        radius = _bounds(lambda q, k, v, m: attention(q, k, v, attn_mask=m), terms, q, k, v, bias)
        assert bool(torch.isfinite(radius).all())


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", MASKS)
def test_a_mask_that_is_added_to_products_leaves_bounds(mask: str, dtype: torch.dtype) -> None:
    number = max(_number(mask, dtype), -np.inf if mask == "-inf" else torch.finfo(dtype).min)
    q, k = draw((SIZE, 8), (SIZE, 8), dtype=dtype)
    bias = torch.zeros(SIZE, SIZE, dtype=dtype).masked_fill(~ALLOWED, number)
    for terms in ("strict", *CONTRACTS):
        for scale in (1.0, 0.3):
            radius = _bounds(lambda q, k, m, s=scale: torch.softmax(q @ k.T * s + m, -1), terms, q, k, bias)
            assert bool(torch.isfinite(radius).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_constant_in_masked_rows_is_refused(dtype: torch.dtype) -> None:
    q, k, v = draw((2, SIZE, 8), (2, SIZE, 8), (2, SIZE, 8), dtype=dtype)

    def spec(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    opassay.assert_conforms(spec(q, k, v), spec, q, k, v)
    wrong = spec(q, k, v)
    wrong[..., :-1, :] = 7.0
    with pytest.raises(AssertionError):
        opassay.assert_conforms(wrong, spec, q, k, v)


def _ball(values: Any) -> Ball:
    (ball,) = balls(lambda x: x * 1.0, [np.asarray(values)], contract("float32"))
    assert isinstance(ball, Ball)
    return ball


def test_what_lies_beyond_keeps_its_sign_and_a_least_magnitude() -> None:
    ball = _ball([-3e38, 3e38, 1.0])
    assert np.isinf(ball.radii()[:2]).all()
    low, high = ball.ends()
    assert low[0] == -np.inf
    assert -3e38 <= high[0] < -2e38
    assert high[1] == np.inf
    assert 2e38 < low[1] <= 3e38


def test_two_elements_beyond_of_one_sign_have_no_known_difference() -> None:
    def difference(x: Any) -> Any:
        scores = x * 1.0
        return np.exp(scores[:1] - scores[1:])

    (ball,) = balls(difference, [np.array([-3e38, -3e38])], contract("float32"))
    assert not np.isfinite(ball.radii()).any()
