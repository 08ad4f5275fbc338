"""The largest score of a row is one number for all of it: what its error leaves in shares, and in what follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import opassay
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball, ball

from .spec_judging import draw

ROWS, LENGTH, WIDTH = 3, 12, 5
#: How far scores may be off, from roundings to what half types leave of long sums, and how near results must come.
RADII = {1e-6: 0.8, 1e-2: 0.75, 0.2: 0.14}


def _largest(x: Any) -> Any:
    return np.max(x, axis=-1, keepdims=True)


def _shares(x: Any) -> Any:
    powers = np.exp(x - _largest(x))
    return powers / np.sum(powers, axis=-1, keepdims=True)


def _log_sum(x: Any) -> Any:
    largest = _largest(x)
    return largest + np.log(np.sum(np.exp(x - largest), axis=-1, keepdims=True))


def _less_log_of_sum(x: Any) -> Any:
    apart = x - _largest(x)
    return apart - np.log(np.sum(np.exp(apart), axis=-1, keepdims=True))


def _moved(x: Any, v: Any) -> Any:
    return np.matmul(np.reshape(_shares(np.reshape(x, (1, 1, ROWS, LENGTH))), (1, ROWS, LENGTH)), v)


def _masked(x: Any, v: Any) -> Any:
    return np.matmul(_shares(np.where(np.tril(np.ones((ROWS, LENGTH), dtype=bool), 4), x, -np.inf)), v)


def _causal(x: Tensor) -> Tensor:
    return x.masked_fill(~torch.ones(ROWS, LENGTH, dtype=torch.bool).tril(4), -torch.inf)


#: A text, and the same function of scores without errors.
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[Tensor, Tensor], Tensor]]] = {
    "shares": (lambda x, v: _shares(x), lambda x, v: x.softmax(-1)),
    "log sum": (lambda x, v: _log_sum(x), lambda x, v: x.logsumexp(-1, keepdim=True)),
    "log shares": (lambda x, v: x - _log_sum(x), lambda x, v: x.log_softmax(-1)),
    "log shares of what is apart": (lambda x, v: _less_log_of_sum(x), lambda x, v: x.log_softmax(-1)),
    "mean": (lambda x, v: np.matmul(_shares(x), v), lambda x, v: x.softmax(-1) @ v),
    "moved": (_moved, lambda x, v: (x.softmax(-1) @ v)[None]),
    "masked": (_masked, lambda x, v: _causal(x).softmax(-1) @ v),
}


def _inexact(values: Any, radius: float) -> Ball:
    return Ball(values, np.full(values.shape, radius), contract("float64"))


def _farthest(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, v: Tensor, radius: float, place: int) -> Any:
    """The results where all scores are off by the radius, towards larger results at one place."""
    moved = x
    for _ in range(3):
        leaf = moved.clone().requires_grad_()
        (slope,) = torch.autograd.grad(function(leaf, v).reshape(-1)[place], leaf)
        moved = x + radius * slope.sign()
    return function(moved, v).numpy()


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_of_scores_within_their_balls_is_in_the_ball(name: str, radius: float) -> None:
    text, function = FUNCTIONS[name]
    largest = 0.0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, v = rng.standard_normal((ROWS, LENGTH)) * (1, 4)[seed % 2], rng.standard_normal((LENGTH, WIDTH))
        with np.errstate(all="ignore"):
            result = text(_inexact(x, radius), ball(v, contract("float64")))
        scores, values = map(torch.from_numpy, (x, v))
        size = np.broadcast_to(result.radii(), result.shape)
        assert np.isfinite(size).all()
        ends = [_farthest(function, scores, values, radius, place) for place in range(0, size.size, 7)]
        anywhere = [
            function(scores + radius * torch.from_numpy(2 * rng.random(x.shape) - 1), values).numpy() for _ in range(9)
        ]
        for end in ends + anywhere:
            reached = np.abs(end - np.asarray(result.centre, dtype=np.float64))
            assert (reached <= size).all()
            largest = max(largest, float((reached / size).max()))
    assert largest > (RADII[radius] if "log" not in name else 0.95 if radius < 0.1 else 0.45)


def test_two_largest_scores_of_one_row_do_not_cancel() -> None:
    """A kernel may not divide by the sum of exponentials whose shift is another one."""
    x = np.array([[0.0, 1.0, 2.0]])
    scores, others = _inexact(x, 1e-3), _inexact(x, 1e-3)
    powers, of_others = (np.exp(scores - _largest(shift)) for shift in (scores, others))
    apart: Any = powers / np.sum(of_others, axis=-1, keepdims=True)
    together: Any = _shares(scores)
    assert (apart.radii() > 3.9e-3 * apart.centre).all()
    assert (together.radii() < 2.1e-3 * together.centre).all()


def test_a_sum_of_which_a_part_has_no_shift_has_the_error_of_that_part() -> None:
    """With a logit of 0 beside the row, log(1 + Σ exp(x − m)) + m is no function of the row: m counts in it."""
    x = np.array([[0.0, 1.0, 2.0]])
    for radius in (1e-3, 0.2):
        scores = _inexact(x, radius)
        largest: Any = _largest(scores)
        result: Any = largest + np.log(np.sum(np.exp(scores - largest), axis=-1, keepdims=True) + 1.0)
        for off in np.ndindex(3, 3, 3):
            moved = x + radius * (np.array(off) - 1)
            for shift in (x.max() - radius, x.max(), x.max() + radius):
                end = shift + np.log(np.exp(moved - shift).sum() + 1.0)
                assert abs(end - float(result.centre[0, 0])) <= float(result.radii()[0, 0])


def test_shares_of_another_shift_are_refused() -> None:
    q, k, v = draw((4, 64), (16, 64), (16, 8))

    def spec(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.T
        powers = torch.exp(scores - scores.amax(-1, keepdim=True))
        return (powers / powers.sum(-1, keepdim=True)) @ v

    bound = opassay.bound(spec, q, k, v)
    assert isinstance(bound, opassay.Bound)
    size = float((bound.half_width / bound.centre.abs()).median())
    opassay.assert_conforms(spec(q, k, v), spec, q, k, v)
    with pytest.raises(AssertionError):
        opassay.assert_conforms(spec(q, k, v) * (1 + 1.5 * size), spec, q, k, v)
