"""SPECIAL finds special values that are lost on the way."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from opassay.properties.checks.special import check_special_values, special_values
from tests.oracles.planted_ops import (
    ALL,
    Subject,
    custom,
    declared,
    judge,
    right_backward,
    right_jvp,
    sample,
    scaled,
    violation,
)


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


def _without_special_cotangents(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return right_backward(torch.where(g.isfinite(), g, 0.0), x, w)


def _without_nan_in_cotangents(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return right_backward(torch.where(g.isnan(), 0.0, g), x, w)


def _masked_by_a_product(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Elements are picked by factors of 0 and 1, and 0 times an infinity is NaN."""
    return right_backward(g @ torch.eye(g.shape[-1]), x, w)


def _clamped_tangents(x: Tensor, w: Tensor, t_x: Tensor, t_w: Tensor) -> Tensor:
    return right_jvp(x, w, t_x.nan_to_num(nan=math.nan), t_w)


DIRECTED: dict[str, tuple[Subject, str]] = {
    "cotangents that are not finite are zero": (custom(backward=_without_special_cotangents), "direction 0"),
    "a cotangent of NaN is zero": (custom(backward=_without_nan_in_cotangents), "direction 0"),
    "a mask that multiplies": (custom(backward=_masked_by_a_product), "direction 0"),
    "infinite tangents clamped": (custom(jvp=_clamped_tangents), "jvp (eager) with a special value"),
    "tangents of the weight's NaN lost": (
        custom(jvp=lambda x, w, t_x, t_w: right_jvp(x, w, t_x, t_w.nan_to_num(0.0, math.inf, -math.inf))),
        "direction 1",
    ),
}  # fmt: skip


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("name", DIRECTED)
def test_a_planted_fault_in_directions_is_found_in_nine_samples(name: str) -> None:
    subject, text = DIRECTED[name]
    every = [violation(check_special_values, declared(subject), sample(seed)) for seed in range(9)]
    results = [each for each in every if each is not None]
    assert {each.code.name for each in results} == {"SPECIAL"}
    assert text in results[0].title


def test_all_special_values_reach_every_direction_in_nine_samples() -> None:
    names: dict[str, set[str]] = {"g": set(), "t_x": set(), "t_w": set()}

    def note(name: str, t: Tensor) -> Tensor:
        names[name] |= {str(v) for v in t.flatten().tolist() if str(v) in values}
        return t

    values = {str(v) for v in special_values(torch.empty(0))}
    subject = custom(
        backward=lambda g, x, w: right_backward(note("g", g), x, w),
        jvp=lambda x, w, t_x, t_w: right_jvp(x, w, note("t_x", t_x), note("t_w", t_w)),
    )
    for seed in range(9):
        judge(check_special_values, declared(subject), sample(seed))
    assert names == dict.fromkeys(names, values)


FAULTS: dict[str, tuple[Subject, str]] = {
    "NaN turned into 0": (_without_nan, "SPECIAL"),
    "infinity clamped": (custom(forward=_clamped), "SPECIAL"),
    "NaN where an infinity is": (lambda x, w: (x * w) + (x - x), "SPECIAL"),
    "subnormal results flushed": (_flushed, "VALUE"),
    "infinite gradients replaced": (custom(backward=_without_infinite_gradients), "SPECIAL"),
}


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    subject, code = FAULTS[name]
    # Each sample has some of the special values; so many samples miss one with a probability below 1e-3.
    every = (violation(check_special_values, declared(subject), sample(seed)) for seed in range(20))
    assert code in {result.code.name for result in every if result is not None}


@pytest.mark.one_fast_in(7)
@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("lead", [(), (1,), (4,), (0,)])
def test_the_right_op_passes(dtype: str, lead: tuple[int, ...]) -> None:
    judgement = judge(check_special_values, declared(scaled), sample(1, dtype, lead), dtype)
    assert judgement.judged > 10 * judgement.not_judged


@pytest.mark.parametrize("dtype", ALL)
def test_special_values_are_values_of_the_format(dtype: str) -> None:
    values = special_values(torch.empty(0, dtype=getattr(torch, dtype)))
    special = torch.tensor(values, dtype=torch.float64)
    stored = special.to(getattr(torch, dtype)).double()
    assert torch.equal(stored.nan_to_num(7.0), special.nan_to_num(7.0))
    assert stored.isnan().sum() == 1
    assert stored.isinf().sum() == 2
