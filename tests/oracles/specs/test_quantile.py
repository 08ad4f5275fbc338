"""Quantiles of a number q: what stands at a place that is rounded, by whichever way torch has or had of rounding it."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from opassay.oracles.specs import SpecCall
from tests.specs import gradients, values

MODES = ("linear", "lower", "higher", "nearest", "midpoint")
#: Numbers q, and lengths of rows: whole places, halves, those that rounding makes so, and places between.
PLACES = ((0.3, 11), (0.1, 11), (0.3, 6), (0.5, 11), (0.5, 4), (1 / 3, 4), (0.05, 101), (0.37, 9))


def _rows(length: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(3, length, generator=torch.Generator().manual_seed(5)).to(dtype) * 1000


def _at(x: Tensor, place: Fraction | float, mode: str) -> Tensor:
    """What stands at a place of the sorted rows of x (3, n): (3,)."""
    ordered = x.sort(-1).values
    low, high = ordered[:, math.floor(place)], ordered[:, math.ceil(place)]
    nearest = ordered[:, round(place)]
    part = float(place - math.floor(place)) if mode == "linear" else 0.5
    among = torch.lerp(low, high, part)
    return {"lower": low, "higher": high, "nearest": nearest}.get(mode, among)


def _places(q: float, length: int, dtype: torch.dtype) -> list[Fraction | float]:
    """Rounded q and product (torch until 2.13), rounded q alone (from 2.14 on), a product in float64, and neither."""
    stored = torch.tensor(q, dtype=dtype)
    last = length - 1
    return [(stored * last).item(), (stored.double() * last).item(), q * last, Fraction(q) * last]


def _refuse(q: float, x: Tensor, mode: str, answer: Tensor) -> int:
    call = SpecCall.of(lambda x: torch.quantile(x, q, -1, interpolation=mode), x)
    return values(call, str(x.dtype).removeprefix("torch."), [answer]).refusals


@pytest.mark.one_fast_in(23)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("q", "length"), PLACES)
def test_a_place_may_be_rounded(q: float, length: int, mode: str) -> None:
    for dtype in (torch.float32, torch.float64):
        x = _rows(length, dtype)
        for place in _places(q, length, dtype):
            assert _refuse(q, x, mode, _at(x, place, mode)) == 0, (dtype, place)
        assert _refuse(q, x, mode, torch.quantile(x, q, -1, interpolation=mode)) == 0, dtype


@pytest.mark.parametrize("mode", MODES)
def test_derivatives_at_a_place_that_may_be_rounded_are_right(mode: str) -> None:
    call = SpecCall.of(lambda x: torch.quantile(x, 0.3, -1, interpolation=mode), _rows(11))
    result = gradients(call)
    assert result.refusals == 0, result.line()


@pytest.mark.parametrize(
    ("q", "length", "mode", "place"),
    [
        # With n for n - 1.
        (0.3, 11, "linear", 0.3 * 11),
        *((0.37, 9, mode, 0.37 * 9) for mode in ("linear", "higher", "lower", "midpoint")),
        (0.3, 11, "linear", 3 + 2.0**-18),
        (0.3, 11, "linear", 3 - 2.0**-18),
        (0.3, 11, "lower", 1.0),
        (0.3, 11, "higher", 5.0),
        (0.3, 6, "nearest", 0.0),
        # Where nothing is rounded, the place is one, and a half goes to the even one.
        (0.5, 11, "lower", 4.9),
        (0.5, 11, "higher", 5.1),
        (0.5, 11, "midpoint", 5.1),
        (0.5, 4, "nearest", 1.0),
    ],
)
def test_another_place_is_refused(q: float, length: int, mode: str, place: float) -> None:
    x = _rows(length)
    assert _refuse(q, x, mode, _at(x, place, mode)) > 0


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("mode", MODES)
def test_another_interpolation_is_refused(mode: str) -> None:
    x = _rows(9)
    place = 0.37 * 8  # 2.96, to which 3 is nearest and next
    for other in MODES:
        same = mode == other or {mode, other} == {"higher", "nearest"}
        assert (_refuse(0.37, x, mode, _at(x, place, other)) == 0) == same, other
