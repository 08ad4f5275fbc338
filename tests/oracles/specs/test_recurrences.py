"""A linear recurrence that is written as a loop may be computed as a scan, along any tree."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import opassay
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.oracles.specs import traced
from opassay.reference.derivative import vjp

from ..spec_judging import draw

Scan = Callable[[Tensor, Tensor], Tensor]
MANY = 600


def _loop(a: Tensor, b: Tensor) -> Tensor:
    h, states = b[0], [b[0]]
    for t in range(1, b.shape[0]):
        h = a[t] * h + b[t]
        states.append(h)
    return torch.stack(states)


def _doubling(a: Tensor, b: Tensor) -> Tensor:
    """W. D. Hillis, G. L. Steele, Data parallel algorithms, 1986."""
    step = 1
    while step < b.shape[0]:
        b = torch.cat([b[:step], b[step:] + a[step:] * b[:-step]])
        a = torch.cat([a[:step], a[step:] * a[:-step]])
        step *= 2
    return b


def _chunked(a: Tensor, b: Tensor, size: int = 4, carried: Callable[[Tensor, Tensor], Tensor] = torch.mul) -> Tensor:
    """Every chunk from zero on, to which comes what `carried` makes of the product of factors and the state before."""
    states, h = [], torch.zeros_like(b[0])
    for factors, addends in zip(a.split(size), b.split(size), strict=True):
        inner, product = torch.zeros_like(h), torch.ones_like(h)
        for one, two in zip(factors, addends, strict=True):
            inner, product = one * inner + two, product * one
            states.append(inner + carried(product, h))
        h = states[-1]
    return torch.stack(states)


def _written_out(a: Tensor, b: Tensor) -> Tensor:
    """Every state as the sum of its terms, the newest first."""
    states = []
    for t in range(b.shape[0]):
        weight, total = torch.ones_like(b[0]), b[t]
        for j in range(t, 0, -1):
            weight = weight * a[j]
            total = total + weight * b[j - 1]
        states.append(total)
    return torch.stack(states)


def _along_a_tree(a: Tensor, b: Tensor, seed: int) -> Tensor:
    """Every state along a tree of its own, which is drawn."""
    draw = random.Random(seed)

    def pair(first: int, end: int) -> tuple[Tensor, Tensor]:
        if end - first == 1:
            return a[first], b[first]
        middle = draw.randrange(first + 1, end)
        (one, left), (two, right) = pair(first, middle), pair(middle, end)
        return two * one, two * left + right

    return torch.stack([pair(0, t + 1)[1] for t in range(b.shape[0])])


RIGHT: dict[str, Scan] = {
    "loop": _loop,
    "doubling": _doubling,
    "chunks of 4": _chunked,
    "chunks of 8": lambda a, b: _chunked(a, b, 8),
    "written out": _written_out,
    "tree": lambda a, b: _along_a_tree(a, b, 1),
    "another tree": lambda a, b: _along_a_tree(a, b, 2),
}

WRONG: dict[str, Scan] = {
    "carry lost": lambda a, b: _chunked(a, b, carried=lambda product, h: torch.zeros_like(h)),
    "carry unscaled": lambda a, b: _chunked(a, b, carried=lambda product, h: h),
    "carry unscaled in the last chunk": lambda a, b: torch.cat(
        [_loop(a, b)[:-4], _chunked(a, b, carried=lambda product, h: h)[-4:]]
    ),
    "one step late": lambda a, b: _loop(torch.cat([a[:1], a[:-1]]), b),
    "squared": lambda a, b: _loop(a * a, b),
    "carry off by 2^-14": lambda a, b: _chunked(a, b, carried=lambda product, h: product * h * (1 + 2.0**-14)),
    "state in bfloat16": lambda a, b: _chunked(a, b, carried=lambda product, h: product * h.bfloat16().float()),
    "product in bfloat16": lambda a, b: _chunked(a, b, carried=lambda product, h: product.bfloat16().float() * h),
}


def _operands(steps: int, kind: str) -> tuple[Tensor, Tensor]:
    a, b = draw((steps, MANY), (steps, MANY), seed=steps)
    return {"gates": torch.sigmoid(a), "any": a, "near 1": 1 - torch.sigmoid(a) / 64}[kind], b


@pytest.mark.one_fast_in(17)
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("kind", ["gates", "any", "near 1"])
@pytest.mark.parametrize("steps", [3, 8, 16])
def test_scans_are_accepted(name: str, kind: str, steps: int) -> None:
    a, b = _operands(steps, kind)
    opassay.assert_conforms(RIGHT[name](a, b), _loop, a, b)


@pytest.mark.one_fast_in(2)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_scans_are_refused(name: str) -> None:
    a, b = _operands(16, "gates")
    with pytest.raises(AssertionError):
        opassay.assert_conforms(WRONG[name](a, b), _loop, a, b)


def _outside(scan: Scan, a: Tensor, b: Tensor) -> int:
    """How many elements of the gradients that autograd takes of a scan are outside the loop's own."""
    (cotangent,) = draw(tuple(b.shape), seed=5)
    formula = traced(_loop, a, b)
    operands = [x.double().numpy() for x in (a, b, cotangent)]
    need = balls(lambda *x: vjp(formula, x[:-1])[1](x[-1]), operands, contract("float32"))
    leaves = [x.clone().requires_grad_() for x in (a, b)]
    got = torch.autograd.grad(scan(*leaves), leaves, cotangent)
    widths = [ball.radii() + np.abs(ball.centre) * 2.0**-24 for ball in need]
    return sum(
        int((np.abs(x.double().numpy() - ball.centre) > width).sum())
        for x, ball, width in zip(got, need, widths, strict=True)
    )


@pytest.mark.one_fast_in(11)
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("kind", ["gates", "any", "near 1"])
@pytest.mark.parametrize("steps", [4, 16])
def test_gradients_of_scans_are_accepted(name: str, kind: str, steps: int) -> None:
    assert _outside(RIGHT[name], *_operands(steps, kind)) == 0


@pytest.mark.one_fast_in(2)
@pytest.mark.parametrize("name", WRONG)
def test_gradients_of_wrong_scans_are_refused(name: str) -> None:
    assert _outside(WRONG[name], *_operands(16, "gates")) > MANY // 4


def _states(a: Tensor, b: Tensor) -> Tensor:
    """States (batch, width) of factors (batch, time)."""
    h = torch.zeros_like(b[:, 0])
    states = []
    for t in range(b.shape[1]):
        h = a[:, t, None] * h + b[:, t]
        states.append(h)
    return torch.stack(states, 1)


def test_a_factor_may_have_fewer_elements_than_its_state() -> None:
    a, b = draw((50, 8), (50, 8, 12))
    a = torch.sigmoid(a)
    scanned = _doubling(a.T[:, :, None].expand(8, 50, 12), b.transpose(0, 1)).transpose(0, 1)
    opassay.assert_conforms(scanned, _states, a, b)


@pytest.mark.slow
def test_a_state_may_be_a_single_number() -> None:
    for seed in range(40):
        a, b = draw((8,), (8,), seed=seed)
        opassay.assert_conforms(_doubling(a, b), _loop, a, b)


def _returns(rewards: Tensor) -> Tensor:
    total, result = torch.zeros_like(rewards[0]), []
    for reward in rewards.unbind(0)[::-1]:
        total = reward + 0.95 * total
        result.append(total)
    return torch.stack(result[::-1])


def _added(terms: list[Tensor]) -> Tensor:
    return functools.reduce(torch.add, terms)


def _weighted(rewards: Tensor, late: int = 0) -> Tensor:
    count = rewards.shape[0]
    return torch.stack([_added([0.95 ** (j + late) * rewards[i + j] for j in range(count - i)]) for i in range(count)])


def test_returns_by_weights_are_accepted() -> None:
    (rewards,) = draw((14, MANY))
    opassay.assert_conforms(_weighted(rewards), _returns, rewards)
    with pytest.raises(AssertionError):
        opassay.assert_conforms(_weighted(rewards, 1), _returns, rewards)


def _advantages(deltas: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """Of rewards and of values now and next, whose difference is one unit at each step."""
    total, result = torch.zeros_like(v[0]), []
    for t in range(v.shape[0] - 1, -1, -1):
        total = (deltas[t] + 0.99 * w[t] - v[t]) + 0.9 * total
        result.append(total)
    return torch.stack(result)


def test_an_addend_may_be_a_sum() -> None:
    r, v, w = draw((16, MANY), (16, MANY), (16, MANY))
    b = (r + 0.99 * w - v).flip(0)
    opassay.assert_conforms(_doubling(torch.full_like(b, 0.9), b), _advantages, r, v, w)


def _half_width(spec: Callable[..., Any], *operands: Tensor) -> float:
    bound = opassay.bound(spec, *operands)
    assert isinstance(bound, opassay.Bound)
    return float(bound.half_width.max())


def test_a_difference_is_one_term() -> None:
    """However large what is subtracted: nobody may multiply x and the mean before they are subtracted."""
    x, w, b = draw((200,), (200,), (200,))
    x = x.clamp(-2, 2) + 1024
    mean = torch.full_like(x, 1024)
    wide = 2.0**-24 * float(((x - mean) * w).abs().max() * 8 + b.abs().max() * 4)
    assert _half_width(lambda x, m, w, b: ((x - m) * w) * w + b, x, mean, w, b) < wide * float(w.abs().max())


def test_a_polynomial_keeps_its_order() -> None:
    """(x - 1)^3, written out by Horner's rule: close to x = 1 every step is small."""
    x = torch.tensor([1 + 2.0**-10, 1 - 2.0**-10])
    assert _half_width(lambda x: ((x - 3.0) * x + 3.0) * x - 1.0, x) < 6.5 * 2.0**-24
