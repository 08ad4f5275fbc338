"""Backward ops of norms are given statistics, which have no error: no evaluation from them leaves the ball."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.reference.algorithms import algorithm_of, algorithms
from opassay.reference.formats import BINARY32, round_array
from opassay.reference.norms.batch_norm import native_batch_norm_backward
from opassay.reference.norms.group_norm import native_group_norm_backward
from opassay.reference.norms.layer_norm import native_layer_norm_backward
from workshop.random_evaluation import Legal, Working

#: Backward ops of given statistics -> their arguments for g, x (N, C, positions), the statistics and the weight.
BACKWARD: dict[Callable[..., Any], Callable[..., tuple[Any, ...]]] = {
    native_layer_norm_backward: lambda g, x, m, r, w: (g, x, (5,), m, r, w[:5], w[:5], (True, True, True)),
    native_group_norm_backward: lambda g, x, m, r, w: (
        g, x, m[:, 0], r[:, 0], w[:4], x.shape[0], 4, 5, 1, (True, True, True)
    ),
    native_batch_norm_backward: lambda g, x, m, r, w: (
        g, x, w[:4], None, None, m[0, :, 0], r[0, :, 0], True, 1e-5, (True, True, True)
    ),
}  # fmt: skip


def _with_given_statistics(seed: int, offset: float) -> list[Any]:
    """g, x, mean, rstd and a weight; the statistics may be any numbers, so they are those of rows."""
    rng = np.random.default_rng(seed)
    x = round_array(BINARY32, rng.standard_normal((3, 4, 5)) + offset)
    mean = round_array(BINARY32, x.mean(-1, keepdims=True))
    r = round_array(BINARY32, 1.0 / np.sqrt(x.var(-1, keepdims=True) + 1e-5))
    return [
        round_array(BINARY32, rng.standard_normal((3, 4, 5))),
        x,
        mean,
        r,
        round_array(BINARY32, rng.standard_normal(5)),
    ]


def _legal(values: list[Any], rng: Any) -> list[Legal]:
    working = Working(contract("float32"), rng)
    return [Legal(working.round(v), working) for v in values]


@pytest.mark.parametrize("op", BACKWARD)
def test_no_algorithm_of_a_backward_op_leaves_the_ball_that_given_statistics_leave(op: Callable[..., Any]) -> None:
    """The sums of g and of g (x − mean) are bounded without any error of the statistics, and the ball is sharp."""
    arguments, largest = BACKWARD[op], 0.0

    def formula(*arrays: Any) -> Any:
        return op(*arguments(*arrays))

    for algorithm in algorithms(op):
        algorithm_of(formula)(lambda *arrays, one=algorithm: one(*arguments(*arrays)))
    for seed in range(20):
        values, rng = _with_given_statistics(seed, 300.0 * (seed % 2)), np.random.default_rng(seed)
        ball = balls(formula, values, contract("float32"))
        for one in (formula, *algorithms(formula)):
            for got, need in zip(one(*_legal(values, rng)), ball, strict=True):
                error, radius = np.abs(got.values - need.centre), need.radii()
                assert (error <= radius).all(), f"seed={seed}"
                largest = max(largest, float((error / radius).max()))
    assert largest > 0.1


@pytest.mark.parametrize("op", BACKWARD)
def test_a_backward_op_has_to_take_the_statistics_that_it_is_given(op: Callable[..., Any]) -> None:
    """One ulp of the mean of data far from zero is more than any rounding of an evaluation that takes it."""
    values, rng = _with_given_statistics(1, 3000.0), np.random.default_rng(1)
    ball = balls(lambda *arrays: op(*BACKWARD[op](*arrays)), values, contract("float32"))
    values[2] = values[2] + 2.0**-12
    computed = op(*BACKWARD[op](*_legal(values, rng)))
    assert (np.abs(computed[1].values - ball[1].centre) > ball[1].radii()).any()
