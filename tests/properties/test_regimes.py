"""Regimes of inputs and results in which few samples lie: faults there, and that samples reach them.

Faults of one option, of two together, of a dim from the end and of a narrower result are in `test_declared_values`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from opassay import Cell, Op, Outcome, Settings, run_cell
from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.properties.catalog.loading import load_op
from opassay.properties.checks.special import special_values
from opassay.properties.picking import drafting, edges

Tensor = torch.Tensor
Faulty = Callable[..., Any]


def plant(name: str, faulty: Callable[[Callable[..., Any]], Faulty]) -> Op:
    """The op with a subject "faulty", made of the right one, which is "right"."""
    declared = load_op(name)
    right = declared.subjects["opassay"]
    op: Op = dataclasses.replace(declared, subjects={"faulty": faulty(right), "right": right})
    return op


def with_digits(tensor: Tensor, digits: int) -> Tensor:
    """Values rounded to so many binary digits, ties to even."""
    mantissa, exponent = torch.frexp(tensor.double())
    return torch.ldexp(torch.round(mantissa * 2.0**digits), exponent - digits).to(tensor.dtype)


def rounded_twice(right: Callable[..., Any]) -> Faulty:
    """Half types are computed in float32, rounded to 19 digits, and then to the half type."""

    def faulty(x: Tensor, dim: int, dtype: Any) -> Any:
        if x.dtype.itemsize > 2 or dtype is not None:
            return right(x, dim, dtype)
        return with_digits(right(x.float(), dim, None), 19).to(x.dtype)

    return faulty


def wrong_where(which: Callable[..., bool]) -> Callable[[Callable[..., Any]], Faulty]:
    """Twice of what is right, and 1 of what is not finite, where `which` holds of the arguments."""

    def of(right: Callable[..., Any]) -> Faulty:
        def faulty(*args: Any) -> Any:
            result = right(*args)
            if not which(*args):
                return result
            return torch.where(torch.isfinite(result), 2 * result, 1.0)

        return faulty

    return of


def flushed(right: Callable[..., Any]) -> Faulty:
    """Results below the normal range are zero."""

    def faulty(*args: Any) -> Any:
        y = right(*args)
        return torch.where(y.abs() < torch.finfo(y.dtype).tiny, y * 0, y)

    return faulty


def has(value: float, at: int) -> Callable[..., bool]:
    return lambda *args: isinstance(args[at], Tensor) and bool((args[at] == value).any())


#: op, what is planted, property, dtype, profile
FAULTS: dict[str, tuple[str, Callable[..., Faulty], str, str, str]] = {
    "rounded twice": ("softmax", rounded_twice, "FWD", "bfloat16", "commit"),
    "minus infinity in a weight": ("layer_norm", wrong_where(has(-math.inf, 2)), "SPECIAL", "float32", "commit"),
    "infinity in a bias": ("layer_norm", wrong_where(has(math.inf, 3)), "SPECIAL", "float32", "commit"),
    "minus infinity in a logit": ("log_softmax", wrong_where(has(-math.inf, 0)), "FWD", "float32", "brief"),
    "infinity in a running mean": ("batch_norm", wrong_where(
        lambda x, m, v, w, b, training, *_: not training and bool(torch.isinf(m).any())
    ), "SPECIAL", "float32", "commit"),
    "results below the normal range": ("softmax", flushed, "FWD", "float16", "brief"),
    "results of a wider dtype": ("softmax", wrong_where(
        lambda x, dim, to: to is torch.float32
    ), "FWD", "bfloat16", "brief"),
    "a dim from the end": ("softmax", wrong_where(lambda x, dim, to: dim == -2), "FWD", "float64", "brief"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_regime_is_refused(name: str) -> None:
    op_name, fault, code, dtype, profile = FAULTS[name]
    op = plant(op_name, fault)
    verdict = run_cell(Cell(op_name, code, dtype, "cpu", "faulty"), Settings(profile, simpler=False), op)
    assert verdict.outcome == Outcome.FAIL, verdict.reason
    right = run_cell(Cell(op_name, code, dtype, "cpu", "right"), Settings("brief"), op)
    assert right.outcome == Outcome.VERIFIED, right.reason


def test_the_filling_that_comes_closest_is_closer_than_any_other() -> None:
    op = load_op("softmax")
    judge = Judge(op, "opassay", contract("bfloat16", "cpu"))
    assert edges.rounds_once_more(judge)
    assert not edges.rounds_once_more(Judge(op, "opassay", contract("float32", "cpu")))
    draft = next(
        one.draft
        for one in drafting.drafts(op, "bfloat16", "ordinary", 0).first(40)
        if ("dtype", "None") in one.draft.values and math.prod(one.draft.extents.values()) > 16
    )
    results = [edges.closest(judge, draft.sample(seed)) for seed in range(edges.FILLINGS)]
    assert 0 < min(results) < 0.02
    assert min(results) < np.median(results) / 4


def test_three_samples_in_turn_have_every_special_value_in_every_argument() -> None:
    every = special_values(torch.zeros(1, dtype=torch.float16))
    assert len(every) == 9
    for at in range(4):
        positions = {(3 * (turn + at) + j) % 9 for turn in (5, 6, 7) for j in range(3)}
        assert positions == set(range(9))
