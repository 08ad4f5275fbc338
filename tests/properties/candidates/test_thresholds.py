"""FWD:ties puts what a spec rounds, casts or compares on thresholds: what differs there is rejected, by it alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import opassay

ROUND = torch.round


def _away(x: Tensor) -> Tensor:
    """Rounded to integers, halves away from zero."""
    return torch.sign(x) * torch.floor(x.abs() + 0.5)


def _rows(x: Tensor, rounding: Callable[..., Tensor] = ROUND) -> Any:
    s = x.abs().amax(-1, keepdim=True) / 127
    return rounding(x / s).clamp(-127, 127).to(torch.int8), s


def _whole(x: Tensor, rounding: Callable[..., Tensor] = ROUND) -> Tensor:
    return rounding(x / (x.abs().amax() / 127)).to(torch.int8)


def _groups(x: Tensor, rounding: Callable[..., Tensor] = ROUND) -> Tensor:
    x = x.unflatten(-1, (-1, 8))
    return rounding(x / (x.abs().amax(-1, keepdim=True) / 7)).clamp(-8, 7)


def _between_ends(x: Tensor, rounding: Callable[..., Tensor] = ROUND) -> Tensor:
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return rounding((x - low) / ((high - low) / 15)).clamp(0, 15).to(torch.uint8)


def _given_scale(x: Tensor, s: Tensor, rounding: Callable[..., Tensor] = ROUND) -> Tensor:
    return rounding(x / s).clamp(-128, 127) * s


def _sixteenths(x: Tensor, rounding: Callable[..., Tensor] = ROUND) -> Tensor:
    return rounding(x * 16).clamp(-128, 127).to(torch.int8)


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


QUANTISED = (_rows, _whole, _groups, _between_ends, _given_scale, _sixteenths)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spec", QUANTISED)
def test_halves_away_from_zero_are_rejected_under_any_scale(spec: Any, dtype: torch.dtype) -> None:
    operands = tuple(t.to(dtype) for t in ((_x(8, 32), _x(8, 1).abs() + 0.1) if spec is _given_scale else (_x(8, 32),)))
    wrong = opassay.judge(lambda *xs: spec(*xs, rounding=_away), spec, operands, questions=["FWD:ties"])
    assert [cause.question for cause in wrong.causes] == ["FWD:ties"]
    assert opassay.judge(spec, spec, operands, questions=["FWD:ties"]).verdict == "accepted"


RIGHT: dict[str, Callable[[Tensor], Tensor]] = {
    "by the reciprocal of the scale": lambda x: x * (1 / (x.abs().amax(-1, keepdim=True) / 127)),
    "by one factor": lambda x: x * (127 / x.abs().amax(-1, keepdim=True)),
    "divided first": lambda x: x / x.abs().amax(-1, keepdim=True) * 127,
    "multiplied first": lambda x: x * 127 / x.abs().amax(-1, keepdim=True),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", RIGHT)
def test_every_order_of_a_quotient_is_accepted_at_ties(name: str, dtype: torch.dtype) -> None:
    def candidate(x: Tensor) -> Any:
        return ROUND(RIGHT[name](x)).clamp(-127, 127).to(torch.int8), x.abs().amax(-1, keepdim=True) / 127

    judgement = opassay.judge(candidate, _rows, (_x(8, 32).to(dtype),), questions=["FWD:ties"])
    assert judgement.verdict == "accepted", str(judgement)


def _lion(g: Tensor, m: Tensor) -> Any:
    return torch.sign(0.9 * m + 0.1 * g), 0.99 * m + 0.01 * g


def _lion_after(g: Tensor, m: Tensor) -> Any:
    later = 0.99 * m + 0.01 * g
    return torch.sign(0.9 * later + 0.1 * g), later


DECIDING: dict[str, tuple[Any, Any, Any, int]] = {
    "sign": (_lion, _lion_after, lambda g, m: (torch.sign(torch.lerp(g, m, 0.9)), m + (g - m) * 0.01), 2),
    "at least": (
        lambda x: torch.where(x >= 0.5, x, -x),
        lambda x: torch.where(x > 0.5, x, -x),
        lambda x: torch.where(x < 0.5, -x, x),
        1,
    ),
    "of a product": (
        lambda x, y: torch.where((x * y).abs() > 0.3, x, 0.0),
        lambda x, y: torch.where((x * y).abs() > 0.3003, x, 0.0),
        lambda x, y: torch.where(x.abs() * y.abs() > 0.3, x, 0.0),
        2,
    ),
    "exponent, up": (
        lambda x: torch.ceil(torch.log2(x.abs() / 448)).int(),
        lambda x: torch.frexp(x / 448)[1],
        lambda x: torch.frexp(x / 448)[1] - (torch.frexp(x / 448)[0].abs() == 0.5).int(),
        1,
    ),
    "exponent, down": (
        lambda x: torch.floor(torch.log2(x.abs())).int(),
        lambda x: torch.ceil(torch.log2(x.abs())).int() - 1,
        lambda x: torch.frexp(x)[1] - 1,
        1,
    ),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", DECIDING)
def test_what_decides_otherwise_next_to_a_threshold_is_rejected(name: str, seed: int) -> None:
    spec, wrong, right, count = DECIDING[name]
    operands = tuple(_x(count, 64))
    questions = ["FWD:ties"]
    assert opassay.judge(wrong, spec, operands, questions=questions, seed=seed).verdict == "rejected"
    judgement = opassay.judge(right, spec, operands, questions=questions, seed=seed)
    assert judgement.verdict == "accepted", str(judgement)


def test_labels_stay_labels_where_a_threshold_lies_between_them() -> None:
    def spec(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(y > 0.5, torch.sigmoid(x), torch.sigmoid(-x))

    labels = (_x(8, 16) > 0).float()
    labels_of_calls: list[Tensor] = []

    def candidate(x: Tensor, y: Tensor) -> Tensor:
        labels_of_calls.append(y)
        return spec(x, y)

    assert opassay.judge(candidate, spec, (_x(8, 16), labels), questions=["FWD:ties"]).verdict == "accepted"
    assert labels_of_calls
