"""Kernels that draw: right ones are accepted whatever they draw, biased ones are rejected, and say by how much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opassay
from tests.choices.chooser import Chooser, Kernel, normal
from tests.choices.drawers import DRAWERS, dropout
from tests.traced_once import traced_once

#: Where what a draw may give is asked, and how often it does.
SOME = ["FWD:given", "SPECIAL:zeros", "SPECIAL:nan", "VJP:grad", "LIKELY"]


def _cases(right: bool) -> Iterator[Any]:
    for drawer in DRAWERS:
        kernels = {"itself": drawer.spec, **drawer.right} if right else drawer.wrong
        for number, (name, kernel) in enumerate(kernels.items()):
            slow = number > 1
            yield pytest.param(drawer, kernel, id=f"{drawer.name}: {name}", marks=pytest.mark.slow if slow else ())


@pytest.mark.one_fast_in(7)
@pytest.mark.parametrize(("drawer", "kernel"), list(_cases(right=True)))
def test_a_right_kernel_that_draws_is_accepted(drawer: Chooser, kernel: Kernel) -> None:
    judgement = opassay.judge(kernel, traced_once(drawer.spec), drawer.inputs(torch.float32), questions=SOME, seed=0)
    assert judgement.verdict == "accepted", str(judgement)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("drawer", "kernel"), list(_cases(right=True)))
def test_a_right_kernel_that_draws_is_accepted_everywhere(drawer: Chooser, kernel: Kernel, dtype: torch.dtype) -> None:
    judgement = opassay.judge(kernel, traced_once(drawer.spec), drawer.inputs(dtype), seed=0)
    assert judgement.verdict == "accepted", str(judgement)


@pytest.mark.one_fast_in(12)
@pytest.mark.parametrize(("drawer", "kernel"), list(_cases(right=False)))
def test_a_biased_kernel_is_rejected(drawer: Chooser, kernel: Kernel) -> None:
    judgement = opassay.judge(
        kernel, traced_once(drawer.spec), drawer.inputs(torch.float32), questions=["FWD:given", "LIKELY"], seed=0
    )
    assert judgement.verdict == "rejected", str(judgement)


def test_a_bias_is_told_with_the_share_that_is_right() -> None:
    kernel = DRAWERS[0].wrong["share of 0.35"]
    judgement = opassay.judge(kernel, dropout, (normal(8, 16),), questions=["LIKELY"], seed=0)
    (cause,) = judgement.causes
    assert cause.wrong is not None
    mean = next(line for line in cause.wrong.lines if line.startswith("mean"))
    numbers = [float(word.rstrip(",")) for word in mean.split() if word.rstrip(",").replace(".", "").isdigit()]
    assert abs(numbers[0] - 0.65) < 0.01
    assert abs(numbers[-1] - 0.70) < 0.01
    assert any("all together have a risk of 1e-09" in line for line in cause.wrong.lines)


@pytest.mark.parametrize("right", [True, False])
def test_gradients_of_dropout_are_those_of_its_own_mask(right: bool) -> None:
    class Dropping(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Tensor) -> Tensor:
            mask = torch.rand(x.shape) >= 0.3
            context.save_for_backward(mask if right else torch.rand(x.shape) >= 0.3)
            return torch.where(mask, x / 0.7, 0.0)

        @staticmethod
        def backward(context: Any, *gradients: Tensor) -> Tensor:
            (mask,), (g,) = context.saved_tensors, gradients
            return torch.where(mask, g / 0.7, 0.0)

    kernel = lambda x: Dropping.apply(x)  # type: ignore[no-untyped-call]  # noqa: E731
    judgement = opassay.judge(kernel, dropout, (normal(8, 16),), questions=["FWD:given", "VJP:grad"], seed=0)
    assert judgement.verdict == ("accepted" if right else "rejected"), str(judgement)
    assert right or [cause.question for cause in judgement.causes] == ["VJP:grad"]


class _OfMask(torch.autograd.Function):
    """Dropout of its own; `mask_of` gives the mask of the backward from mask and output."""

    mask_of: Any = staticmethod(lambda mask, out: mask)

    @classmethod
    def forward(cls, context: Any, x: Tensor) -> Tensor:
        mask = torch.rand(x.shape) >= 0.3
        out = torch.where(mask, x / 0.7, 0.0).to(x.dtype)
        context.save_for_backward(mask, out)
        return out

    @classmethod
    def backward(cls, context: Any, *gradients: Tensor) -> Tensor:
        mask = cls.mask_of(*context.saved_tensors)
        return torch.where(mask, gradients[0] / 0.7, 0.0).to(gradients[0].dtype)


class _OfAnotherMask(_OfMask):
    mask_of = staticmethod(lambda mask, out: torch.rand(mask.shape) >= 0.3)


class _OfOutput(_OfMask):
    mask_of = staticmethod(lambda mask, out: out != 0)


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("function", "causes"), [(_OfMask, []), (_OfAnotherMask, ["VJP:grad"]), (_OfOutput, ["LIKELY"])]
)
def test_gradients_of_dropout_behind_a_relu_are_judged(function: Any, causes: list[str], dtype: torch.dtype) -> None:
    """At a zero the output does not show whether it was dropped, and how often its gradient is zero does."""
    x = torch.relu(normal(8, 16)).to(dtype)
    judgement = opassay.judge(
        lambda x: function.apply(x), dropout, (x,), questions=["FWD:given", "VJP:grad", "LIKELY"], seed=0
    )
    assert [cause.question for cause in judgement.causes] == causes, str(judgement)


@pytest.mark.one_fast_in(7)
@pytest.mark.parametrize(
    ("spec", "output", "right"),
    [
        (lambda x: torch.bernoulli(x), torch.ones(2, 3), True),
        (lambda x: torch.bernoulli(x), torch.full((2, 3), 0.5), False),
        (lambda x: torch.randint(2, 5, (3,)), torch.tensor([2, 4, 3]), True),
        (lambda x: torch.randint(2, 5, (3,)), torch.tensor([2, 5, 3]), False),
        (lambda x: torch.randperm(3) + 0 * x.sum().long(), torch.tensor([2, 0, 1]), True),
        (lambda x: torch.multinomial(x, 2), torch.tensor([[1, 2], [2, 0]]), True),
        (lambda x: torch.multinomial(x, 2), torch.tensor([[1, 1], [2, 0]]), False),
        (lambda x: torch.multinomial(x, 2), torch.tensor([[1, 2], [1, 0]]), False),
        (lambda x: x + torch.rand(x.shape), torch.full((2, 3), 1.0), True),
        (lambda x: x + torch.rand(x.shape), torch.full((2, 3), 2.5), False),
        (lambda x: torch.floor(x * 4 + torch.rand(x.shape)), torch.full((2, 3), 2.0), True),
        (lambda x: torch.floor(x * 4 + torch.rand(x.shape)), torch.full((2, 3), 2.5), False),
        (lambda x: x + torch.randn(x.shape), torch.full((2, 3), -9.0), True),
        (lambda x: x + torch.randn_like(x), torch.full((2, 3), 11.0), False),
        (lambda x: torch.normal(x, 0.25), torch.full((2, 3), 3.5), False),
        (lambda x: torch.normal(2.0, x), torch.full((2, 3), 6.5), True),
        (lambda x: torch.empty_like(x).normal_(1.0, 0.1), torch.full((2, 3), torch.nan), False),
        (lambda x: torch.empty_like(x).exponential_(), torch.full((2, 3), 40.0), True),
        (lambda x: torch.empty_like(x).exponential_(), torch.full((2, 3), -0.01), False),
        (lambda x: torch.empty_like(x).exponential_(2.0), torch.full((2, 3), torch.inf), False),
        (lambda x: torch.empty_like(x).log_normal_(), torch.full((2, 3), -1.0), False),
        (lambda x: torch.empty_like(x).log_normal_(0.0, 1.0), torch.full((2, 3), 3.0), True),
        (lambda x: torch.randint(0, 3, (2, 3)).to(x.dtype) * 2, torch.full((2, 3), 4.0), True),
        (lambda x: torch.randint(0, 3, (2, 3)).to(x.dtype) * 2, torch.full((2, 3), 3.0), False),
    ],
)
def test_what_a_draw_may_give(spec: Any, output: Tensor, right: bool) -> None:
    x = torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.0, 0.5]]) if "multinomial" in spec.__code__.co_names else None
    x = torch.full((2, 3), 0.5) if x is None else x
    judged = opassay.judge(lambda _: output.clone(), spec, (x,), questions=["FWD:given"])
    assert (judged.verdict != "rejected") == right, str(judged)
    for ask in (lambda: opassay.bound(spec, x), lambda: opassay.assert_conforms(output, spec, x)):
        with pytest.raises(opassay.SpecError, match=r"random numbers.*use `opassay\.judge`"):
            ask()


class _Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.noise = nn.Buffer(torch.zeros(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        self.noise.copy_(torch.rand_like(x))
        return x * 3


@pytest.mark.parametrize(
    "spec",
    [
        _Noisy(),  # what is drawn goes into a buffer, and an output is compared
        lambda x: (torch.rand_like(x), x * 3)[1],
        lambda x: nn.functional.dropout(x, 0.0) * 3,
        lambda x: nn.functional.dropout(x, 0.5, training=False) * 3,
    ],
)
def test_one_output_is_held_where_no_draw_decides_it(spec: Any) -> None:
    x = normal(2, 3)
    opassay.assert_conforms(x + x + x, spec, x)
    with pytest.raises(AssertionError):
        opassay.assert_conforms(x * 3.001, spec, x)


def test_a_module_that_drops_is_judged_in_training_and_in_evaluation() -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5)).train()
    x = normal(5, 6)
    assert opassay.judge(module, module, (x,), questions=["FWD:given", "LIKELY"], seed=0).verdict == "accepted"
    module.eval()
    assert opassay.judge(module, module, (x,), questions=["FWD:given", "LIKELY"], seed=0).verdict == "accepted"
