"""Numbers of one sign in every draw: what is wrong at others alone is suspect, and an exception there a refusal."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import opassay
from opassay.properties.candidates.domain.facts import find_sign, keep_facts

Tensor = torch.Tensor
CODES = ("FWD:given", "FWD:signs", "SPECIAL:zeros", "SIZE:sizes")


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def ask(candidate: Any, spec: Any, *inputs: Tensor, **options: Any) -> Any:
    return opassay.judge(candidate, spec, inputs, questions=CODES, **options)


def quantize(x: Tensor, scale: Tensor) -> Tensor:
    return torch.clamp(torch.round(x / scale), -127, 127) * scale


def quantize_by_ends(x: Tensor, scale: Tensor) -> Tensor:
    """Right where the scale is positive."""
    return torch.minimum(torch.maximum(torch.round(x / scale) * scale, -127 * scale), 127 * scale)


def quantize_too_far(x: Tensor, scale: Tensor) -> Tensor:
    return torch.clamp(torch.round(x / scale), -128, 127) * scale


QUANTIZED = 300 * normal(17, 4), 1 + rand(17, 1)


def test_what_is_right_for_the_signs_of_every_draw_is_suspect_and_not_rejected() -> None:
    judgement = ask(quantize_by_ends, quantize, *QUANTIZED)
    assert judgement.verdict == "suspect", judgement
    cards = [finding.wrong.lines for finding in judgement.suspicions]
    assert cards
    assert all(any("scale positive in every draw" in line for line in lines) for lines in cards)
    declared = ask(quantize_by_ends, quantize, *QUANTIZED, domain={"where": ["scale: in [0.01, inf]"]})
    assert declared.verdict == "accepted", declared


def test_what_is_wrong_within_the_signs_of_every_draw_is_rejected_and_shown_there() -> None:
    judgement = ask(quantize_too_far, quantize, *QUANTIZED)
    assert judgement.verdict == "rejected", judgement
    assert not any("range " in line for finding in judgement.causes for line in finding.wrong.lines)


def test_a_magnitude_beyond_every_draw_is_a_cause() -> None:
    def without_maximum(x: Tensor) -> Tensor:
        powers = x.exp()
        return powers / powers.sum(-1, keepdim=True)

    judgement = opassay.judge(without_maximum, lambda x: x.softmax(-1), (rand(4, 16),), questions=("FWD:offset",))
    assert judgement.verdict == "rejected", judgement


def test_numbers_of_both_signs_have_none() -> None:
    judgement = ask(lambda x: x * 2, lambda x: x.abs() * 2, normal(6, 5))
    assert judgement.verdict == "rejected", judgement
    assert ask(lambda x: x * 2, lambda x: x.abs() * 2, rand(6, 5)).verdict == "suspect"


def test_an_exception_at_numbers_that_no_draw_has_is_a_refusal() -> None:
    def spec(p: Tensor, y: Tensor) -> Tensor:
        return -(y * p.log() + (1 - y) * (1 - p).log()).mean()

    def raises_within(p: Tensor, y: Tensor) -> Tensor:
        if p.max() < 1e-3:
            raise ValueError("small")
        return F.binary_cross_entropy(p, y)

    inputs = rand(5, 7), (normal(5, 7) > 0).float()
    judgement = opassay.judge(F.binary_cross_entropy, spec, inputs, questions=(*CODES, "FWD:small", "VJP:grad"))
    assert judgement.verdict == "accepted", judgement
    assert "between 0 and 1 in every draw" in str(judgement)
    assert opassay.judge(raises_within, spec, inputs, questions=("FWD:small",)).verdict == "rejected"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (rand(5, 7), ("positive", "between 0 and 1")),
        (2 * rand(5, 7), ("positive",)),
        (-rand(5, 7), ("negative",)),
        (normal(5, 7), ()),
        (rand(3), ()),
        (torch.ones(64), ()),
        (rand(5, 7).index_fill(0, torch.tensor([1]), 0.0), ()),
    ],
)
def test_signs_are_those_of_many_unlike_numbers(values: Tensor, words: tuple[str, ...]) -> None:
    assert find_sign([values]) == words


def test_numbers_of_a_sign_are_none_of_another_and_no_zeros() -> None:
    values = torch.tensor([-2.0, 0.0, 3.5, float("nan"), float("-inf")])
    values_of = [torch.tensor(keep_facts((word,), values, values.numpy(), None)) for word in ("positive", "negative")]
    assert torch.equal(
        values_of[0].nan_to_num(nan=7.0), torch.tensor([2.0, 1.0, 3.5, 7.0, float("inf")]).double().nan_to_num()
    )
    assert torch.equal(
        values_of[1].nan_to_num(nan=7.0), torch.tensor([-2.0, -1.0, -3.5, 7.0, float("-inf")]).double().nan_to_num()
    )
    shares = keep_facts(("between 0 and 1",), values, values.numpy(), None)
    assert ((shares > 0) & (shares < 1)).all()
