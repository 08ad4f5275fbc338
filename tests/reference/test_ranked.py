"""Sets of indices that are chosen by values: all that some evaluation may give, and no others."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball
from opassay.reference.ranked import Ranked, RankRange

COUNT = 4
#: RankRange of an order of four elements.
QUERIES = {
    "largest": RankRange(),
    "least": RankRange(descending=False, nans_first=True),
    "best two": RankRange(0, 2),
    "best two in any order": RankRange(0, 2, ordered=False),
    "third": RankRange(2, 1, descending=False),
    "order": RankRange(0, COUNT, descending=False),
}


def _reading(low: Any, high: Any) -> Ball:
    low, high = np.asarray(low, float), np.asarray(high, float)
    return Ball((low + high) / 2, (high - low) / 2, contract("float32"))


def _possible(low: Any, high: Any, ranks: RankRange) -> set[tuple[int, ...]]:
    """What sorting gives for some values between the ends, of ties in any order: by trying all of them."""
    sequences = set()
    for values in itertools.product(*(np.arange(a, b + 0.25, 0.5) for a, b in zip(low, high, strict=True))):
        keys = np.array(values) * (-1 if ranks.descending else 1)
        for order in itertools.permutations(range(len(low))):
            if (np.diff(keys[list(order)]) >= 0).all():
                sequences.add(order[ranks.start : ranks.start + ranks.count])
    return sequences if ranks.ordered else {order for one in sequences for order in itertools.permutations(one)}


@pytest.mark.one_fast_in(2)
@pytest.mark.parametrize("name", QUERIES)
def test_the_sequences_are_those_that_some_values_give(name: str) -> None:
    ranks, rng = QUERIES[name], np.random.default_rng(5)
    for _ in range(12):
        low = rng.integers(0, 4, COUNT)
        high = low + rng.integers(0, 3, COUNT)
        need = _possible(low, high, ranks)
        ranking = Ranked(_reading(low, high), (0,), ranks)
        attempts = itertools.product(range(-1, COUNT + 1), repeat=ranks.count)
        assert {each for each in attempts if ranking.accepts(np.array(each)).all()} == need
        if ranks.ordered:
            assert {tuple(each.tolist()) for each in ranking.sequences(0)} == need
            assert (len(need) == 1) == (not ranking.open_rows().size)
        else:
            assert {tuple(each.tolist()) for each in ranking.sequences(0)} <= need
        assert tuple(ranking.likely().tolist()) in need


def test_a_stable_order_keeps_the_order_of_equal_elements() -> None:
    ranking = Ranked(_reading([2, 1, 2, 1], [2, 1, 2, 1]), (0,), RankRange(0, 4, descending=False, stable=True))
    assert [tuple(each.tolist()) for each in ranking.sequences(0)] == [(1, 3, 0, 2)]
    assert not ranking.accepts(np.array([3, 1, 0, 2])).all()
    assert "stable" in ranking.explain(np.array([3, 1, 0, 2]))
    # Elements that are only near may be equal in one evaluation, and in order in another.
    near = Ranked(_reading([2, 1], [2, 2]), (0,), RankRange(0, 2, descending=False, stable=True))
    assert near.accepts(np.array([0, 1])).all()
    assert near.accepts(np.array([1, 0])).all()


def test_a_nan_is_the_largest_the_least_where_that_is_asked_and_a_median() -> None:
    values = [1.0, np.nan, np.inf, np.nan]
    for ranks, right in (
        (RankRange(), {1, 3}),
        (RankRange(descending=False, nans_first=True), {1, 3}),
        (RankRange(1, 1, descending=False, nans_win=True), {1, 3}),
        (RankRange(1, 1, descending=False), {2}),
    ):
        ranking = Ranked(Ball(np.array(values), None, contract("float32")), (0,), ranks)
        assert {i for i in range(4) if ranking.accepts(np.array([i]))[0]} == right
        assert {int(each[0]) for each in ranking.sequences(0)} == right


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ([7, 0], "none of the 4"),
        ([1, 1], "twice"),
        ([0, 1], "index 0 has a number from 0.5 to 1; index 3, which is not chosen, has 5"),
        ([1, 3], "index 1 has 4; index 3, which comes later, has 5"),
    ],
)
def test_what_is_wrong_with_an_index_is_said(indices: list[int], words: str) -> None:
    ranking = Ranked(_reading([0.5, 4, 2, 5], [1, 4, 3, 5]), (0,), RankRange(0, 2))
    assert words in ranking.explain(np.array(indices))
    assert ranking.explain(np.array([3, 1])) == ""


def test_moved_indices_are_explained_by_what_they_come_from() -> None:
    rows = _reading([[0, 4], [2, 5]], [[0, 4], [2, 5]])
    moved = Ranked(rows, (1,), RankRange()).moved(lambda indices: indices.reshape(-1)[::-1])
    assert moved.explain(np.array([1, 1])) == ""
    assert moved.explain(np.array([0, 1])) == "index 0 has 2; index 1, which is not chosen, has 5"
