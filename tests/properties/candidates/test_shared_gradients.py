"""Gradients of what rows share: of equal rows in a declared order they have equal bits, and of runs and threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import opassay
from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.candidates.judgement import Judgement

Rule = Callable[[Tensor, Tensor], Tensor]


def product_of(rule: Rule) -> Callable[..., Any]:
    """x @ w whose gradient of w a rule computes, of x and the cotangents."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return (x[:, :, None] * w).double().sum(1).float()

        @staticmethod
        def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            return (cotangents[0][:, None, :] * w).double().sum(2).float(), rule(x, cotangents[0])

    function: Callable[..., Any] = Product.apply
    return function


def _in_turn(x: Tensor, g: Tensor) -> Tensor:
    total = torch.zeros(x.shape[1], g.shape[1])
    for row, weights in zip(x, g, strict=True):
        total = total + row[:, None] * weights
    return total


def _in_blocks(x: Tensor, g: Tensor, size: int = 8) -> Tensor:
    total = torch.zeros(x.shape[1], g.shape[1])
    for rows, weights in zip(x.split(size), g.split(size), strict=True):
        total = total + _in_turn(rows, weights)
    return total


def _in_four(x: Tensor, g: Tensor) -> Tensor:
    return _in_blocks(x, g, max(1, -(-len(x) // 4)))


_CALLS: Iterator[int] = itertools.count()


def _by_atomics(x: Tensor, g: Tensor) -> Tensor:
    first = next(_CALLS) % len(x)
    return _in_turn(x.roll(first, 0), g.roll(first, 0))


def _by_threads(x: Tensor, g: Tensor) -> Tensor:
    return _in_blocks(x, g, -(-len(x) // torch.get_num_threads()))


def _sorted(x: Tensor, g: Tensor) -> Tensor:
    products = (x[:, :, None] * g[:, None, :]).sort(0)[0]
    return torch.stack(list(itertools.accumulate(products)))[-1]


def _judge(rule: Rule, word: str, *, with_spec: bool = True) -> Judgement:
    generator = torch.Generator().manual_seed(7)
    operands = torch.randn(5, 12, generator=generator), torch.randn(12, 3, generator=generator)
    spec, questions = (torch.matmul, ["FWD:given"]) if with_spec else (None, [])
    return opassay.judge(product_of(rule), spec, operands, invariant=[word], questions=questions, seed=3)


@pytest.mark.parametrize("with_spec", [True, False], ids=["by a spec", "alone"])
@pytest.mark.parametrize(
    ("rule", "word"),
    [
        (_in_four, "shared"),
        (_by_atomics, "shared"),
        (_by_atomics, "runs"),
        (_by_threads, "threads"),
        (_in_blocks, "shared=any"),
        (_in_blocks, "shared=single"),
    ],
)
def test_a_gradient_in_another_order_is_found(rule: Rule, word: str, with_spec: bool) -> None:
    judgement = _judge(rule, word, with_spec=with_spec)
    (cause,) = judgement.causes
    assert cause.question == f"INV:{word.partition('=')[0]}"
    assert cause.wrong is not None
    assert "gradient of " in cause.wrong.title
    assert "by another order of a sum" in str(cause.wrong)


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        (_in_turn, "shared=single"),
        (_in_blocks, "shared"),
        (_in_blocks, "threads"),
        pytest.param(_sorted, "shared=any", marks=pytest.mark.slow),
    ],
)
def test_a_gradient_in_its_order_is_accepted(rule: Rule, word: str) -> None:
    judgement = _judge(rule, word)
    assert judgement.verdict == "accepted", str(judgement)
    assert judgement.findings[-1].judged


@pytest.mark.slow
def test_nobody_is_asked_for_an_order_who_declares_none() -> None:
    assert _judge(_in_four, "all").verdict == "accepted"


def test_what_gives_no_gradients_is_not_asked() -> None:
    x, w = torch.ones(5, 12), torch.ones(12, 3)
    judgement = opassay.judge(torch.no_grad()(torch.matmul), None, (x, w), invariant=["shared"], seed=0)
    (finding,) = judgement.findings
    assert finding.outcome is Outcome.UNSUPPORTED
    assert "gives no gradients of what has rows" in finding.text
