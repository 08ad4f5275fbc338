"""A worker stays with one op for as long as cells of it wait, and is given a cell whenever one waits."""

from __future__ import annotations

import random
from collections.abc import Container, Sequence
from operator import attrgetter

import pytest

from opassay.oracles.verdicts.verdict import Cell
from opassay.properties.places.topic_queue import TopicQueue

SEED = 0
NAMES = [f"{op}{number}" for op in "abc" for number in range(3)]


def _waiting(names: Sequence[str] = NAMES) -> TopicQueue[Cell]:
    """Cells of an op and a property each: "a0"."""
    waiting = TopicQueue[Cell](attrgetter("op"))
    for name in names:
        waiting.put(Cell(name[0], name[1:], "float32", "cpu", "opassay"))
    return waiting


def _take(waiting: TopicQueue[Cell], last: str = "", others: Container[str] = ()) -> str:
    cell = waiting.take(last[:1], others)
    return cell.op + cell.property


def test_one_alone_does_all_in_order() -> None:
    waiting, done = _waiting(), [""]
    while waiting:
        done.append(_take(waiting, done[-1]))
    assert done[1:] == NAMES
    with pytest.raises(IndexError, match="nothing waits"):
        _take(waiting)


def test_two_are_busy_with_different_ops_while_there_are_several() -> None:
    waiting = _waiting()
    first = second = ""
    cells = []
    while waiting:
        first = _take(waiting, first, second[:1])
        cells.append(first)
        if waiting:
            second = _take(waiting, second, first[:1])
            cells.append(second)
    assert cells == ["a0", "b0", "a1", "b1", "a2", "b2", "c0", "c1", "c2"]


def test_ops_that_all_are_busy_with_are_shared_where_most_is_left() -> None:
    waiting = _waiting(["a0", "b0", "b1"])
    assert _take(waiting, "c", {"a", "b"}) == "b0"
    assert _take(waiting, "c", {"a"}) == "b1"


def test_what_is_dropped_is_not_given() -> None:
    waiting = _waiting()
    assert [cell.op for cell in waiting.drop(lambda cell: cell.property == "1")] == ["a", "b", "c"]
    assert len(waiting) == 6
    assert _take(waiting, "a") == "a0"
    assert _take(waiting, "a") == "a2"


def test_every_cell_is_given_once_whoever_asks() -> None:
    draw = random.Random(SEED)
    print(f"seed {SEED}")
    for _ in range(50):
        waiting, cells = _waiting(), []
        while waiting:
            cells.append(_take(waiting, draw.choice("abcd"), set(draw.sample("abcd", 2))))
        assert sorted(cells) == NAMES
