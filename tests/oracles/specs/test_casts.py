"""Casts to integers and truth values, and what is computed of them: torch's own is accepted, a planted fault is not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import opassay
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball, balls
from opassay.oracles.specs import traced
from opassay.oracles.specs.integers import of_integers
from opassay.reference.whole import Whole, unbounded
from tests.traced_once import traced_once

from ..spec_judging import read

Spec = Callable[..., Any]
QUESTIONS = ("FWD:given", "FWD:seeds", "FWD:signs", "VJP:grad")


def normal(*shapes: tuple[int, ...], scale: float = 1.0) -> Callable[[int], tuple[Tensor, ...]]:
    def inputs(seed: int) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        return tuple(scale * torch.randn(shape, generator=generator) for shape in shapes)

    return inputs


def stepped(*shapes: tuple[int, ...]) -> Callable[[int], tuple[Tensor, ...]]:
    """Whole numbers, zeros of either sign among them."""
    return lambda seed: tuple(torch.round(x) for x in normal(*shapes)(seed))


def between(low: float, high: float, *shapes: tuple[int, ...]) -> Callable[[int], tuple[Tensor, ...]]:
    def inputs(seed: int) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        return tuple(low + (high - low) * torch.rand(shape, generator=generator) for shape in shapes)

    return inputs


def quantised(x: Tensor, whole: Spec = torch.round, factor: float = 1.0) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return whole(x / scale).clamp(-128, 127).to(torch.int8), scale * factor


def restored(x: Tensor, whole: Spec = torch.round) -> Tensor:
    values, scale = quantised(x, whole)
    return values.float() * scale


def multiplied(x: Tensor, w: Tensor, whole: Spec = torch.round) -> Tensor:
    values, scale = quantised(x, whole)
    rights, their = quantised(w.T)
    return (values.int() @ rights.int().T).float() * scale * their.T


def packed(x: Tensor, first: int = 0) -> Tensor:
    values = torch.round(x * 7).clamp(-8, 7).to(torch.int32)
    return (values[:, first::2] & 15) | ((values[:, 1 - first :: 2] & 15) << 4)


def masked(q: Tensor, k: Tensor, diagonal: int = 1) -> Tensor:
    mask = torch.triu(torch.ones(8, 8), diagonal=diagonal).bool()
    return (q @ k.T).masked_fill(mask, float("-inf")).softmax(-1)


def truths(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return torch.logical_and(x, y), torch.logical_or(x, y), torch.logical_xor(x, y), torch.logical_not(x)


def looked_up(table: Tensor, x: Tensor, whole: Spec = torch.floor) -> Tensor:
    return functional.embedding(whole(x * 7).long(), table)


Inputs = Callable[[int], tuple[Tensor, ...]]
CASES: dict[str, tuple[Spec, list[Spec], Inputs]] = {
    "int, float": (lambda x: x.int().float() * 2, [lambda x: x * 2, lambda x: x.round() * 2], normal((4, 8), scale=5)),
    "int": (lambda x: x.int(), [lambda x: x.round().int(), lambda x: x.int() + 1], normal((4, 8), scale=5)),
    "int of a quotient": (lambda x: (x / 3).long(), [lambda x: (x / 3).floor().long()], normal((4, 8), scale=9)),
    "bool": (lambda x: x.bool(), [lambda x: x > 0, lambda x: x.int() > 0], stepped((4, 8))),
    "uint8": (lambda x: (x * 255).to(torch.uint8), [lambda x: (x * 255).round().to(torch.uint8)], between(0, 1, (32,))),
    "compared": (lambda x: x.int() > 1, [lambda x: x > 1], normal((4, 8), scale=3)),
    "mask of ones": (masked, [lambda q, k: masked(q, k, 2)], normal((8, 4), (8, 4))),
    "quantised": (
        quantised,
        [lambda x: quantised(x, torch.trunc), lambda x: quantised(x, factor=1.001), lambda x: quantised(x * 1.01)],
        normal((4, 16)),
    ),
    "restored": (restored, [lambda x: restored(x, torch.trunc), lambda x: x], normal((4, 16))),
    "multiplied": (multiplied, [lambda x, w: multiplied(x, w, torch.trunc)], normal((4, 16), (16, 5))),
    "packed": (packed, [lambda x: packed(x, 1), lambda x: packed(x) + 1], between(-1, 1, (4, 8))),
    "index": (lambda t, x: t[x.long()], [lambda t, x: t[x.round().long()]], between(0, 6, (8, 3), (5,))),
    "embedding": (looked_up, [lambda t, x: looked_up(t, x, torch.ceil)], between(0, 1, (8, 3), (5,))),
    "gather": (
        lambda x, y: y.gather(1, x.argmax(1, keepdim=True)),
        [lambda x, y: y.gather(1, x.argmin(1, keepdim=True))],
        normal((4, 8), (4, 8)),
    ),
    "computed places": (lambda x: x.argmax(1) * 2 + 1, [lambda x: x.argmax(1) * 2], normal((4, 8))),
    "where": (
        lambda x, y: torch.where(x.bool(), y, -y),
        [lambda x, y: torch.where(x > 0, y, -y)],
        stepped((4, 8), (4, 8)),
    ),
    "where of integers": (lambda x: torch.where(x > 0, 1, 0), [lambda x: torch.where(x > 0, 0, 1)], normal((4, 8))),
    "truths": (
        truths,
        [lambda x, y: truths(y, x), lambda x, y: (*truths(x, y)[:2], torch.logical_or(x, y), torch.logical_not(x))],
        stepped((4, 8), (4, 8)),
    ),
    "integers times": (
        lambda x, y: (x > 0).int() * y,
        [lambda x, y: y, lambda x, y: (x >= 0).int() * y],
        stepped((4, 8), (4, 8)),
    ),
    "filled": (
        lambda x, m: x.masked_fill(m.bool(), 0.0),
        [lambda x, m: x.masked_fill(m > 1, 0.0)],
        stepped((4, 8), (4, 8)),
    ),
    "any and all": (
        lambda x: (x.any(-1), x.all(0)),
        [lambda x: (x.all(-1), x.all(0)), lambda x: ((x > 0).any(-1), x.all(0))],
        stepped((6, 2)),
    ),
    "remainder": (lambda x: (x * 10).long() % 3, [lambda x: torch.fmod((x * 10).long(), 3)], normal((4, 8))),
    "counted": (lambda x: (x > 0).sum(-1), [lambda x: (x >= 0).sum(-1)], stepped((4, 8))),
    "floor division": (torch.floor_divide, [lambda x, y: torch.trunc(x / y), torch.div], normal((4, 8), (4, 8))),
    "sign": (torch.signbit, [lambda x: x < 0, lambda x: x > 0], lambda seed: (torch.tensor([1.0, -1.0, 0.0, -0.0]),)),
}  # fmt: skip


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("name", CASES)
def test_a_spec_that_casts_accepts_itself_and_no_planted_fault(name: str) -> None:
    spec, faults, inputs = CASES[name]
    right = opassay.judge(spec, traced_once(spec), inputs, questions=QUESTIONS)
    assert right.verdict == "accepted", str(right)
    for fault in faults:
        assert opassay.judge(fault, traced_once(spec), inputs, questions=QUESTIONS[:3]).verdict == "rejected"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quantised", "restored", "embedding", "multiplied", "floor division", "sign"])
def test_a_spec_that_casts_accepts_itself_in_every_question(name: str) -> None:
    spec, _, inputs = CASES[name]
    judgement = opassay.judge(spec, spec, inputs)
    assert judgement.verdict == "accepted", str(judgement)


def test_an_integer_that_rounding_leaves_open_may_be_either() -> None:
    x = torch.tensor([9.0, 5.0])
    (result,) = read(lambda a: (a / 3.0).int(), (x,))
    assert isinstance(result, Whole)
    assert (result.low.tolist(), result.high.tolist(), result.dtype) == ([2, 1], [3, 1], np.int32)
    assert result.accepts(np.array([2, 1])).all()
    assert not result.accepts(np.array([4, 1])).all()
    # What is computed of it holds both, and the element that is known stays known.
    (ball,) = read(lambda a: ((a / 3.0).int() * 10).float(), (x,))
    assert (ball.centre - ball.radii() <= [20, 10]).all()
    assert (ball.centre + ball.radii() >= [30, 10]).all()
    assert ball.radii()[1] == 0


def test_what_is_read_at_an_open_place_holds_the_elements_of_all_of_them() -> None:
    x, table = torch.tensor([9.0, 5.0]), torch.tensor([1.0, 2.0, 4.0, 8.0])
    (ball,) = read(lambda a, t: t[(a / 3.0).long()], (x, table))
    assert (ball.centre.tolist(), ball.radii()[1]) == ([6.0, 2.0], 0.0)
    assert 2.0 <= ball.radii()[0] <= 2.0 * (1 + 1e-9)


def test_what_has_no_integer_in_range_is_not_judged() -> None:
    x = torch.tensor([300.0, -1.0, float("nan"), 7.5])
    spec: Spec = lambda a: a.to(torch.uint8)  # noqa: E731
    (result,) = read(spec, (x,))
    assert result.refutable(None).tolist() == [False, False, False, True]
    assert result.accepts(np.array([1, 2, 3, 7])).all()
    assert not result.accepts(np.array([1, 2, 3, 8])).all()
    (ball,) = read(lambda a: a.to(torch.uint8) + 1.0, (x,))
    assert np.isinf(ball.radii()[:3]).all()
    assert ball.centre[3] == 8.0


_OPERATIONS: dict[str, Spec] = {
    "add": torch.ops.aten.add.Tensor,
    "mul": torch.ops.aten.mul.Tensor,
    "xor": torch.ops.aten.bitwise_xor.Tensor,
    "remainder": torch.ops.aten.remainder.Tensor,
    "mm": torch.ops.aten.mm.default,
}


@pytest.mark.parametrize("width", [1, 9])
@pytest.mark.parametrize("name", _OPERATIONS)
def test_the_bounds_of_integers_hold_every_combination(name: str, width: int) -> None:
    """Of a few integers all combinations are tried, and those of the ends of many."""
    rng = np.random.default_rng(width)
    operation = _OPERATIONS[name]
    (reading,) = balls(lambda x: x, [np.ones(())], contract("float32"))
    assert isinstance(reading, Ball)
    sides = []
    for _ in range(2):
        low = rng.integers(1, 100, (2, 2)).astype(np.int8)
        sides.append(Whole(low, (low + rng.integers(0, width + 1, (2, 2))).astype(np.int8), reading))

    def by_torch(args: Any, kwargs: Any) -> Any:
        return operation(*(torch.from_numpy(np.array(x)) for x in args), **kwargs).numpy()

    result = of_integers(operation, sides, {}, by_torch)
    low, high = (result.low, result.high) if isinstance(result, Whole) else (result, result)
    for shares in itertools.product((0.0, 0.5, 1.0), repeat=2):
        at = [
            (x.low + np.rint(share * (x.high - x.low))).astype(np.int8) for x, share in zip(sides, shares, strict=True)
        ]
        value = by_torch(at, {})
        inside = (low <= value) & (value <= high)
        # A product of matrices whose bounds leave the range of the dtype says nothing, and is known by that.
        assert inside.all(), (low, value, high)


def test_of_an_unbounded_element_nothing_is_known() -> None:
    (reading,) = balls(lambda x: x, [np.ones(())], contract("float32"))
    assert np.isinf(unbounded(reading, (2,)).radii()).all()


def test_gradients_do_not_pass_through_integers() -> None:
    (x,) = normal((3,), scale=4.0)(0)
    graph = traced(lambda a: a.int().float() * a, x)
    (ball,) = balls(lambda a: graph(a), [x.double().numpy()], contract("float32"))
    assert (np.abs(ball.centre - np.trunc(x.double().numpy()) * x.double().numpy()) <= ball.radii()).all()
