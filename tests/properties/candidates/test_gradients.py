"""Of which operands gradients are asked: of what requires them, of what the spec's own backward gives them of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.candidates.judgement import Judgement, Ruling
from opassay.properties.candidates.judging import judge

GENERATOR = torch.Generator().manual_seed(7)


def _normal(*shape: int, needs: bool = False) -> Tensor:
    return torch.randn(shape, generator=GENERATOR).requires_grad_(needs)


def _judge(candidate: Callable[..., Any], spec: Callable[..., Any], *inputs: Any) -> Judgement:
    return judge(candidate, spec, inputs, questions=["FWD:given", "VJP:grad"])


def rotated(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * c - b * s, b * c + a * s], -1)


class _Rotation(torch.autograd.Function):
    """It gives no gradients of cosines and sines."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, c: Tensor, s: Tensor) -> Tensor:
        ctx.save_for_backward(c, s)
        return rotated(x, c, s)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        c, s = ctx.saved_tensors
        return rotated(g, c, -s), None, None


def _rotation(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    result: Tensor = _Rotation.apply(x, c, s)  # type: ignore[no-untyped-call]
    return result


def _wrong_rotation(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    return rotated(x, c, s) + (rotated(x, c, s) - rotated(x, c, s).detach()) * 0.01


def _angles() -> tuple[Tensor, Tensor]:
    angle = torch.rand(5, 4, generator=GENERATOR) * 6
    return angle.cos(), angle.sin()


def test_data_that_requires_no_gradient_is_not_missed() -> None:
    judgement = _judge(_rotation, rotated, _normal(2, 5, 8, needs=True), *_angles())
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    wrong = _judge(_wrong_rotation, rotated, _normal(2, 5, 8, needs=True), *_angles())
    assert [each.question for each in wrong.causes] == ["VJP:grad"], str(wrong)


def test_data_that_the_spec_detaches_is_not_missed_and_must_stay_detached() -> None:
    def detaching(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
        return rotated(x, c.detach(), s.detach())

    assert _judge(_rotation, detaching, _normal(2, 5, 8), *_angles()).verdict is Ruling.ACCEPTED
    assert [each.question for each in _judge(rotated, detaching, _normal(2, 5, 8), *_angles()).causes] == ["VJP:grad"]


def test_a_gradient_that_may_be_owed_is_a_weakness_where_no_input_says_so() -> None:
    judgement = _judge(_rotation, rotated, _normal(2, 5, 8), *_angles())
    assert judgement.verdict is Ruling.WEAK, str(judgement)
    assert [text.partition(";")[0] for text in judgement.weaknesses] == [
        "the candidate gives no gradient of c",
        "the candidate gives no gradient of s",
    ]


def product(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


def _without_weight(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.detach()


def test_a_gradient_that_is_required_and_lost_is_wrong() -> None:
    judgement = _judge(_without_weight, product, _normal(3, 4, needs=True), _normal(4, 5, needs=True))
    (cause,) = judgement.causes
    assert cause.text.startswith("gradient of w (none, so zeros)[")
    assert _judge(_without_weight, product, _normal(3, 4, needs=True), _normal(4, 5)).verdict is Ruling.ACCEPTED


def test_nothing_offered_is_a_weakness_where_inputs_require_gradients() -> None:
    def forward_only(x: Tensor) -> Tensor:
        return x.detach().exp()

    assert _judge(forward_only, torch.exp, _normal(3)).verdict is Ruling.ACCEPTED
    assert "inputs require gradients" in _judge(forward_only, torch.exp, _normal(3, needs=True)).weaknesses[0]


class Layer(torch.nn.Module):
    def __init__(self, frozen: bool, detached: bool = False) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, 5), requires_grad=not frozen)
        self.detached = detached

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.weight.detach() if self.detached else self.weight)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_parameter_is_missed_unless_it_is_frozen(frozen: bool) -> None:
    judgement = _judge(Layer(frozen, detached=True), Layer(frozen), _normal(3, 4))
    assert judgement.verdict is (Ruling.ACCEPTED if frozen else Ruling.REJECTED), str(judgement)


def _written_in_place(x: Tensor, y: Tensor) -> Tensor:
    grown = x.exp()
    result = grown * 2 * y
    grown += 1  # autograd had saved it for the gradient of x
    return result + grown


@pytest.mark.parametrize(
    ("spec", "inputs", "left_out"),
    [
        (functional.batch_norm, (_normal(4, 3), _normal(3), _normal(3).abs() + 0.5), ["input 1", "input 2"]),
        (functional.soft_margin_loss, (_normal(4, 3), _normal(4, 3).sign()), ["input 1"]),
        (_written_in_place, (_normal(4), _normal(4)), ["input 0"]),
    ],
)
def test_what_torch_refuses_is_not_asked_and_said(
    spec: Callable[..., Any], inputs: tuple[Tensor, ...], left_out: list[str]
) -> None:
    def text(*args: Tensor) -> Tensor:
        judgement: Tensor = spec(*args)
        return judgement

    judgement = _judge(spec, text, *inputs)
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    (finding,) = (each for each in judgement.findings if each.question == "VJP:grad")
    assert [part.split(":")[0].removeprefix("none of ") for part in finding.left_out.split("; ")] == left_out
    assert finding.left_out in finding.text


def test_a_spec_without_any_backward_is_not_asked() -> None:
    def spec(x: Tensor) -> Tensor:
        grown = x.exp()
        judgement = grown.square()
        grown += 1
        return judgement

    judgement = _judge(torch.exp, spec, _normal(4))
    assert judgement.findings[-1].outcome is Outcome.UNSUPPORTED
    assert "modified by an inplace operation" in judgement.findings[-1].text


def test_what_is_done_to_small_inputs_alone_shows_in_their_gradients() -> None:
    def log_sum(x: Tensor) -> Tensor:
        return torch.logsumexp(x, -1)

    def flushing(x: Tensor) -> Tensor:
        return log_sum(torch.where(x.abs() < 1e-4, torch.zeros_like(x), x))

    judgement = judge(flushing, log_sum, (_normal(8, 32),))
    assert judgement.causes[0].question == "VJP:grad", str(judgement)
    assert "where      at other inputs" in str(judgement)


def test_a_kernel_that_writes_by_out_offers_no_gradient() -> None:
    def add_into(x: Tensor, y: Tensor, out: Tensor) -> None:
        torch.add(x, y, out=out)

    assert _judge(add_into, torch.add, _normal(4, 8), _normal(4, 8)).verdict is Ruling.ACCEPTED
