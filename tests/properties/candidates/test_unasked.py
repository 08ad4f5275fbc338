"""What no call changed is said: a candidate that ignores it is right at all calls, and so its verdict counts little."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.properties.candidates.judgement import Judgement, Ruling
from opassay.properties.candidates.judging import judge

GENERATOR = torch.Generator().manual_seed(11)
FEW = ("FWD:given", "FWD:seeds", "FWD:signs", "FWD:offset")


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def masked(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, x * 2, x * 3)


def without_the_mask(x: Tensor, mask: Tensor) -> Tensor:
    return x * 2


def scaled(x: Tensor, scale: float) -> Tensor:
    return x * scale


def picked(x: Tensor, rows: Tensor) -> Tensor:
    return x[rows] * 2


def with_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    return x * 2 if bias is None else x * 2 + bias


@pytest.mark.parametrize(
    ("spec", "argument", "words"),
    [
        (masked, torch.ones(4, 6, dtype=torch.bool), "never changed: mask (all True)"),
        (masked, torch.zeros(4, 6, dtype=torch.bool), "never changed: mask (all False)"),
        (picked, torch.zeros(5, dtype=torch.int64), "never changed: rows (all 0)"),
        (scaled, 1.0, "never changed: scale (1.0)"),
        (scaled, 0, "never changed: scale (0)"),
        (scaled, True, "never changed: scale (True)"),
        (with_bias, None, "never changed: bias (None)"),
    ],
)
def test_an_argument_that_hides_a_candidate_ignoring_it_makes_a_verdict_weak(
    spec: Any, argument: Any, words: str
) -> None:
    judgement = judge(spec, spec, (_normal(4, 6), argument), questions=FEW)
    assert judgement.verdict is Ruling.WEAK, str(judgement)
    assert any(each.startswith(words) for each in judgement.weaknesses)


def test_a_mask_that_is_all_true_is_asked_with_others() -> None:
    inputs = (_normal(4, 6), torch.ones(4, 6, dtype=torch.bool))
    assert judge(masked, masked, inputs).verdict is Ruling.ACCEPTED
    judgement = judge(without_the_mask, masked, inputs)
    assert {each.question for each in judgement.causes} <= {"VJP:grad", "SIZE:sizes"} != set()
    assert judgement.verdict is Ruling.REJECTED, str(judgement)


@pytest.mark.parametrize(
    ("spec", "argument"),
    [(masked, torch.arange(24).reshape(4, 6) % 2 == 0), (picked, torch.tensor([3, 0, 1])), (scaled, 2.5)],
)
def test_other_arguments_leave_a_verdict_as_it_is(spec: Any, argument: Any) -> None:
    assert judge(spec, spec, (_normal(4, 6), argument), questions=FEW).verdict is Ruling.ACCEPTED


def test_a_mask_that_inputs_draw_by_a_seed_is_not_named() -> None:
    def inputs(seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(4, 6, generator=generator), torch.full((4, 6), seed % 2 == 0)

    seeds = [judge(masked, masked, inputs, questions=("FWD:given", "FWD:seeds"), seed=seed) for seed in range(6)]
    assert Ruling.ACCEPTED in {each.verdict for each in seeds}
    assert judge(without_the_mask, masked, inputs, questions=FEW, seed=1).verdict is Ruling.REJECTED


def test_a_number_that_had_one_value_is_named_at_the_given_inputs() -> None:
    reply = json.loads(judge(scaled, scaled, (_normal(4, 6), 2.5), questions=FEW).as_json())
    assert reply["left_out"] == {"FWD:given": "scale=2.5 in all calls"}


def refuses_all_else(x: Tensor) -> Tensor:
    if x.shape != (4, 6) or not x.is_contiguous() or x.storage_offset() or x.requires_grad:
        raise NotImplementedError(f"got shape {tuple(x.shape)}, need a dense 4 x 6 without gradients")
    return x * 2


def refuses_strides(x: Tensor) -> Tensor:
    if not x.is_contiguous():
        raise NotImplementedError("need contiguous rows")
    return x * 2


def doubled(x: Tensor) -> Tensor:
    return x * 2


def test_refusals_are_left_out_by_name_and_from_two_on_a_weakness() -> None:
    judgement = judge(refuses_all_else, doubled, (_normal(4, 6),))
    assert judgement.verdict is Ruling.WEAK
    assert judgement.weaknesses == (
        "the candidate refuses LAYOUT:strides, LAYOUT:align, VJP:grad, SIZE:sizes: it was judged at the given sizes and"
        " layouts alone",
    )
    left_out = json.loads(judgement.as_json())["left_out"]
    assert {"LAYOUT:strides", "LAYOUT:align", "VJP:grad", "SIZE:sizes"} <= left_out.keys()
    assert all("raised NotImplementedError: got shape" in text for text in left_out.values())


def test_one_refusal_is_left_out_and_no_weakness() -> None:
    judgement = judge(refuses_strides, doubled, (_normal(4, 6),))
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    assert "LAYOUT:strides" in json.loads(judgement.as_json())["left_out"]


def of_single_elements(x: Tensor, bias: Tensor) -> Tensor:
    """A group norm whose groups have one element each: x - mean(x) is 0 but for rounding."""
    return torch.nn.functional.group_norm(x, x.shape[1], None, bias)


def the_bias_alone(x: Tensor, bias: Tensor) -> Tensor:
    return torch.zeros_like(x) + bias


def test_an_input_that_no_output_depends_on_is_named() -> None:
    inputs = (_normal(8, 6), _normal(6))
    judgement = judge(the_bias_alone, of_single_elements, inputs, questions=FEW)
    assert judgement.verdict is Ruling.WEAK, str(judgement)
    assert judgement.weaknesses == ("no output depends on x",)


def test_an_input_that_the_spec_writes_over_needs_no_influence() -> None:
    def into(x: Tensor, out: Tensor) -> Tensor:
        return out.copy_(x * 2)

    judgement: Judgement = judge(into, into, (_normal(4, 6), _normal(4, 6)), questions=FEW)
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)


def test_given_inputs_that_are_nan_everywhere_make_a_verdict_weak() -> None:
    judgement = judge(doubled, doubled, (_normal(4, 6) * torch.nan,), questions=("FWD:given", "FWD:seeds"))
    assert judgement.verdict is Ruling.WEAK
    assert "all elements of x are NaN in the given inputs" in judgement.weaknesses


def test_gradients_that_a_candidate_has_not_and_what_is_known_of_inputs_stand_in_the_line() -> None:
    def turn(x: Tensor, cos: Tensor) -> Tensor:
        return torch.cat([x[..., :4] * cos, x[..., 4:] * cos], -1)

    operands = (_normal(6, 8), torch.rand(6, 4, generator=GENERATOR))
    line = json.loads(judge(lambda *xs: turn(*xs).detach(), turn, operands).as_json())
    assert line["left_out"]["VJP:grad"] == "the candidate's outputs require no gradient"
    assert line["domain"][0] == "x.0 = cos.0, from 0"
    assert "cos: positive in every draw, perhaps by chance" in line["domain"]
