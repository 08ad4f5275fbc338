"""SPECIAL finds special values that are lost on the way."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from opassay.oracles.checks.special import special_values, specials

from ..planted_ops import ALL, Subject, custom, declared, judged, right_backward, sample, scaled, violation


def _without_nan(x: Tensor, w: Tensor) -> Tensor:
    return torch.nan_to_num(x * w, nan=0.0, posinf=math.inf, neginf=-math.inf)


def _clamped(x: Tensor, w: Tensor) -> Tensor:
    largest = torch.finfo(x.dtype).max
    return (x * w).clamp(-largest, largest)


def _flushed(x: Tensor, w: Tensor) -> Tensor:
    y = x * w
    return torch.where(y.abs() < torch.finfo(y.dtype).tiny, 0.0, y)


def _without_infinite_gradients(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    d_x, d_w = right_backward(g, x, w)
    return d_x, d_w.nan_to_num()


FAULTS: dict[str, tuple[Subject, str]] = {
    "NaN turned into 0": (_without_nan, "SPECIAL"),
    "infinity clamped": (custom(forward=_clamped), "SPECIAL"),
    "NaN where an infinity is": (lambda x, w: (x * w) + (x - x), "SPECIAL"),
    "subnormal results flushed": (_flushed, "VALUE"),
    "infinite gradients replaced": (custom(backward=_without_infinite_gradients), "SPECIAL"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    subject, code = FAULTS[name]
    # Each sample has some of the special values; so many samples miss one with a probability below 1e-3.
    every = (violation(specials, declared(subject), sample(seed)) for seed in range(20))
    assert code in {found.code.name for found in every if found is not None}


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("lead", [(), (1,), (4,), (0,)])
def test_the_right_op_passes(dtype: str, lead: tuple[int, ...]) -> None:
    found = judged(specials, declared(scaled), sample(1, dtype, lead), dtype)
    assert found.judged > 10 * found.not_judged


@pytest.mark.parametrize("dtype", ALL)
def test_special_values_are_values_of_the_format(dtype: str) -> None:
    values = special_values(torch.empty(0, dtype=getattr(torch, dtype)))
    planted = torch.tensor(values, dtype=torch.float64)
    held = planted.to(getattr(torch, dtype)).double()
    assert torch.equal(held.nan_to_num(7.0), planted.nan_to_num(7.0))
    assert held.isnan().sum() == 1
    assert held.isinf().sum() == 2
