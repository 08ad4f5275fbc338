"""Derivatives of the norms for rows far from zero: rounding a mean there moves every element of a row by much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.op.declaration import Sample
from opassay.properties.catalog.loading import load_op
from opassay.properties.checks.transforms.nesting import check_jacobians

ROWS = 1000


def _rows(length: int, spread: float) -> Tensor:
    """Rows (ROWS, length) whose elements differ by about `spread`."""
    generator = torch.Generator().manual_seed(1)
    middles = torch.randn(ROWS, 1, generator=generator, dtype=torch.float64)
    return middles + spread * torch.randn(ROWS, length, generator=generator, dtype=torch.float64)


def _layer_norm(rows: Tensor) -> tuple[Any, ...]:
    weight = torch.ones(rows.shape[1], dtype=rows.dtype)
    return rows, [rows.shape[1]], weight, weight, 1e-3


def _group_norm(rows: Tensor) -> tuple[Any, ...]:
    count, length = rows.shape
    weight = torch.ones(count, dtype=rows.dtype)
    return rows.reshape(1, count, length), weight, weight, 1, count, length, count, 1e-3


def _batch_norm(rows: Tensor) -> tuple[Any, ...]:
    weight = torch.ones(len(rows), dtype=rows.dtype)
    return rows.t().contiguous(), weight, weight, weight.clone(), weight.clone(), True, 0.1, 1e-3


NORMS: dict[str, Callable[[Tensor], tuple[Any, ...]]] = {
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "native_batch_norm": _batch_norm,
}


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("word", [("vjp", "vjp"), ("jvp", "vjp"), ("vjp", "jvp"), ("vjp", "vjp", "vjp")], ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_higher_derivatives_take_no_share_of_a_rounded_mean(name: str, word: tuple[str, ...]) -> None:
    arguments = NORMS[name]
    judge = Judge(load_op(name), "opassay", contract("float64"))
    for spread in (1.0, 1e-2):
        judge.hold(Sample(arguments(_rows(2, spread))), word, exactly=False)
    assert judge.tally.judged > ROWS


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("offset", [0.0, 2e5])
@pytest.mark.parametrize("seed", range(4))
def test_jacobians_of_a_backward_op_in_each_of_its_arguments(offset: float, seed: int) -> None:
    """A derivative in the cotangent alone reads the statistics as one in the input does."""
    generator = torch.Generator().manual_seed(seed)
    cotangent, x = (torch.randn(5, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    x = x + offset
    mean, rstd = x.mean(0), (x.var(0, correction=0) + 1e-5).rsqrt()
    weight = torch.ones(3, dtype=x.dtype)
    args = (cotangent, x, weight, None, None, mean, rstd, True, 1e-5, (True, True, True))
    judge = Judge(load_op("native_batch_norm_backward"), "opassay", contract("float64"))
    check_jacobians(judge, Sample(args, seed))
    assert judge.tally.judged
