"""Formulas that treat rows one by one are read by blocks of rows, with the same balls; others as a whole."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from opassay.oracles.bound import accept
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball, balls, reading, rows
from opassay.oracles.bound.rounding.spread import SLACK
from opassay.oracles.bound.terms import terms
from opassay.oracles.specs import traced
from opassay.reference.algorithms import Algorithm
from opassay.reference.array import among, store
from opassay.reference.formats import BINARY32
from opassay.reference.norms.layer_norm import native_layer_norm
from opassay.reference.softmax import softmax

Formula = Callable[..., Any]


def _relu(x: Any) -> Any:
    return np.where(x <= 0, 0.0, x) * 3.0


BY_ROWS: dict[str, tuple[Formula, tuple[tuple[int, ...], ...]]] = {
    "softmax": (lambda x: softmax(x, -1), ((12, 5),)),
    "layer norm": (lambda x, w, b: native_layer_norm(x, (5,), w, b, 1e-5)[0], ((12, 5), (5,), (5,))),
    "relu": (_relu, ((12, 5),)),
    "moves": (lambda x: np.reshape(np.transpose(store(x[:, 1:], "bfloat16"), (0, 2, 1)), (12, 8)), ((12, 3, 4),)),
    "constants": (lambda x, w: np.broadcast_to(x, (12, 5)) * np.exp(w) + np.ones((1, 5)), ((12, 1), (5,))),
}
MIXED: dict[str, tuple[Formula, tuple[tuple[int, ...], ...]]] = {
    "softmax over rows": (lambda x: softmax(x, 0), ((12, 5),)),
    "transpose": (lambda x: np.transpose(x) + 0.0, ((12, 12),)),
    "product": (lambda x: x @ x, ((12, 12),)),
    "gather": (lambda x: x[np.arange(12)[::-1]], ((12, 5),)),
    "backwards": (lambda x: x[::-1] * 2.0, ((12, 5),)),
    "sum of all": (lambda x: np.sum(x), ((12, 5),)),
    "column": (lambda x, w: x * np.reshape(w, (12, 1)), ((12, 5), (12,))),
    "mask of rows": (lambda x: np.where(np.arange(12)[:, None] < 5, x, 0.0), ((12, 5),)),
    "branch": (lambda x: x * 2.0 if np.all(x < 100.0) else x, ((12, 5),)),
}


def _values(shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape).astype(np.float32).astype(np.float64) for shape in shapes]


def _planned(formula: Formula, shapes: tuple[tuple[int, ...], ...]) -> rows.PrimitiveOrder | None:
    return reading._by_rows(formula, _values(shapes), contract("float32"))


@pytest.mark.parametrize("name", BY_ROWS)
def test_blocks_of_rows_have_the_same_balls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    formula, shapes = BY_ROWS[name]
    values, terms = _values(shapes), contract("float32")
    values[0].flat[3] = np.inf
    whole = balls(formula, values, terms)
    monkeypatch.setattr(rows, "LARGE", 1)
    monkeypatch.setattr(rows, "BLOCK", 15)
    assert _planned(formula, shapes) is not None
    for a, b in zip(whole, balls(formula, values, terms), strict=True):
        np.testing.assert_array_equal(a.centre, b.centre)
        # A rule may take another way to the same radius where a block has no hard element: its own roundings differ.
        assert (np.abs(a.radii() - b.radii()) <= 4.0 * SLACK * b.radii()).all()
        assert (a.special, a.nonnegative) == (b.special, b.nonnegative)


@pytest.mark.parametrize("name", MIXED)
def test_what_mixes_rows_is_not_read_by_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    formula, shapes = MIXED[name]
    assert _planned(formula, shapes) is None
    monkeypatch.setattr(rows, "LARGE", 1)
    (ball,) = balls(formula, _values(shapes), contract("float32"))
    assert ball.shape == np.shape(formula(*_values(shapes)))


def test_a_spec_is_read_by_rows() -> None:
    x = torch.ones(12, 5)
    assert _planned(traced(lambda a: torch.softmax(torch.relu(a) * 2, -1), x), ((12, 5),)) is not None


def test_large_outputs_are_judged_by_blocks_as_small_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    centre, radius = rng.standard_normal((7, 9)), np.full((7, 9), 1e-7)
    radius[2, 3] = np.inf
    computed = (centre + rng.uniform(-2e-7, 2e-7, centre.shape)).astype(np.float32).astype(np.float64)
    computed[3, 4] = np.nan
    ball = Ball(centre, radius, contract("float32"))
    whole = accept.place_in_accept_sets(computed, BINARY32, ball, None)
    monkeypatch.setattr(accept, "BLOCK", 8)
    parts = accept.place_in_accept_sets(computed, BINARY32, ball, None)
    for name in ("accepted", "judged", "special", "ulp", "ratio", "signed", "width", "bound", "value"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))
    assert not parts.accepted.all()
    assert parts.accepted.any()
    assert parts.worst() == whole.worst() == np.unravel_index(np.argmax(whole.ratio), (7, 9))
    beside = np.array(whole.accepted)
    beside[parts.worst()] = True  # The worst of the others is another one.
    assert replace(parts, accepted=beside).worst() == np.unravel_index(
        np.argmax(np.where(beside, -1.0, whole.ratio)), (7, 9)
    )
    some = [3, 40, 17]
    for one, of_all in zip(parts.of(some), whole._measures, strict=True):
        np.testing.assert_array_equal(one, of_all.reshape(-1)[some])


@pytest.mark.parametrize(
    ("computed", "centre", "radius"),
    [
        (1.0, 1.0, 2.0**-23),
        (1.0 + 2.0**-23, 1.0, 2.0**-23),
        (1.0 + 2.0**-22, 1.0, 2.0**-23),
        (1.0, math.nan, 0.0),
        (math.nan, 1.0, 2.0**-23),
        (math.inf, math.inf, 0.0),
        (math.inf, math.inf, math.inf),
        (1.0, 1.0, math.inf),
        (1.0, 1.0, math.nan),
        (BINARY32.max, 2.0 * BINARY32.max, 2.0 * BINARY32.max),
    ],
)
def test_a_block_of_results_near_their_centres_is_judged_as_each_of_them_is(
    computed: float, centre: float, radius: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs, centres, radii = np.full(24, 0.5), np.full(24, 0.5), np.full(24, 1e-7)
    outputs[13], centres[13], radii[13] = computed, centre, radius
    ball = Ball(centres, radii, contract("float32"))
    whole = accept.place_in_accept_sets(outputs, BINARY32, ball, None)
    monkeypatch.setattr(accept, "BLOCK", 8)
    parts = accept.place_in_accept_sets(outputs, BINARY32, ball, None)
    for name in ("accepted", "judged", "special", "ulp", "ratio", "width", "bound", "value"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))


@pytest.mark.parametrize(
    "norm", [lambda x: functional.group_norm(x, 2), lambda x: functional.layer_norm(x, (4, 5))], ids=["group", "layer"]
)
def test_a_spec_that_has_several_ways_is_read_by_rows(norm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways of group norm have the number of rows in them; those of layer norm that are named widen the bound."""
    x = torch.from_numpy(_values(((6, 4, 5),))[0]).float()
    formula = traced(norm, x)
    allowed = [terms(name).contract("float32") for name in ("strict", "torch")]
    whole = [balls(formula, [x.double().numpy()], each)[0] for each in allowed]
    monkeypatch.setattr(rows, "LARGE", 1)
    monkeypatch.setattr(rows, "BLOCK", 45)
    assert reading._by_rows(formula, [x.double().numpy()], allowed[0]) is not None
    parts = [balls(formula, [x.double().numpy()], each)[0] for each in allowed]
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one.centre, other.centre)
        assert (np.abs(one.radii() - other.radii()) <= 2 * SLACK * one.radii()).all()
    assert (parts[1].radii() > parts[0].radii()).any() == (whole[1].radii() > whole[0].radii()).any()


def test_what_a_way_computes_twice_has_two_errors() -> None:
    """Several ways share a step that both begin with; two steps of one way stay two."""

    def length(x: Any) -> Any:
        return np.sqrt(np.sum(x * x, axis=-1, keepdims=True))

    def twice(x: Any) -> Any:
        return x * length(x) - x * length(x)

    ways = [Algorithm(lambda x: x * 0.0, ""), Algorithm(twice, ""), Algorithm(twice, "")]
    plan = rows.PrimitiveOrder(lambda x: among(ways, x), [(4, 3)])
    assert [primitive for _, primitive, _, _ in plan.steps].count("sqrt") == 2
