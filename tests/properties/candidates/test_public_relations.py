"""Three relations, forward and backward, as people of reinforcement learning ask for them: bits, accuracy, parity.

They are those of the contract in RL-Align/RL-Kernel#264: a row has its bits in every batch, is near to what is exact,
and training and serving differ by the order of sums alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import opassay

Rule = Callable[..., Any]


def _reference(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits, -1)


def _forward(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits.double(), -1).float()


def _backward(g: Tensor, logits: Tensor) -> Tensor:
    return (g.double() - torch.softmax(logits.double(), -1) * g.double().sum(-1, keepdim=True)).float()


def kernel_of(forward: Rule = _forward, backward: Rule = _backward) -> Rule:
    """Log-probabilities with a backward of their own."""

    class LogProbabilities(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, logits: Tensor) -> Any:
            ctx.save_for_backward(logits)
            return forward(logits)

        @staticmethod
        def backward(ctx: Any, *cotangents: Tensor) -> Any:
            return backward(cotangents[0], *ctx.saved_tensors)

    kernel: Rule = LogProbabilities.apply
    return kernel


def _by_rows(x: Tensor) -> Tensor:
    """Less a sum that is cut by how many rows there are."""
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    total = sum(part.sum(-1) for part in powers.chunk(2 if len(x) < 32 else 5, -1))
    return x - x.amax(-1, keepdim=True) - torch.as_tensor(total).double().log().float()[:, None]


def _slope_by_rows(g: Tensor, x: Tensor) -> Tensor:
    total = sum(part.sum(-1, keepdim=True) for part in g.chunk(2 if len(x) < 32 else 5, -1))
    return (g.double() - torch.softmax(x.double(), -1) * torch.as_tensor(total)).float()


def _rounded(function: Rule) -> Rule:
    return lambda *args: function(*args).bfloat16().float()


@pytest.mark.parametrize(
    ("fault", "question", "text"),
    [
        (kernel_of(_by_rows), "INV:rows", "out differs"),
        (kernel_of(backward=_slope_by_rows), "INV:rows", "gradient of logits differs"),
        (kernel_of(_rounded(_forward)), "FWD:given", "where the exact value is"),
        (kernel_of(backward=_rounded(_backward)), "VJP:grad", "where the exact value is"),
    ],
    ids=["I forward", "I backward", "A forward", "A backward"],
)
def test_invariance_and_accuracy(fault: Rule, question: str, text: str) -> None:
    logits = (torch.randn(6, 40, generator=torch.Generator().manual_seed(2)),)
    options: dict[str, Any] = {"questions": ["FWD:given", "VJP:grad"], "invariant": ["rows"], "seed": 4}
    wrong = next(
        each for each in opassay.judge(fault, _reference, logits, **options).causes if each.question == question
    )
    assert text in str(wrong.wrong)
    right = opassay.judge(kernel_of(), _reference, logits, **options)
    assert right.verdict == "accepted", str(right)


@pytest.mark.parametrize(
    ("second", "word"),
    [
        (kernel_of(), "equal"),
        (kernel_of(_by_rows), "order"),
        (kernel_of(backward=_slope_by_rows), "order"),
        (kernel_of(_rounded(_forward)), "precision: B"),
        (
            kernel_of(backward=_rounded(_backward)),
            "precision: B is of less precision than the contract torch has: grad",
        ),
        (kernel_of(backward=lambda g, x: _rounded(_backward)(g, x) * 1.0625), "wrong: B at VJP:grad"),
        (kernel_of(backward=lambda g, x: _backward(g, x) * 1.001), "wrong: B at VJP:grad"),
    ],
    ids=["right", "by order", "backward by order", "rounded", "backward rounded", "and scaled", "backward scaled"],
)
def test_parity(second: Rule, word: str) -> None:
    logits = (torch.randn(6, 40, generator=torch.Generator().manual_seed(2)),)
    judgement = opassay.parity(kernel_of(), second, logits, spec=_reference, seed=4)
    assert judgement.difference.startswith(word), judgement.difference
