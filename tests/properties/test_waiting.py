"""Whoever does work stays with one op, as long as there is some, and nobody waits while there is any."""

from __future__ import annotations

import random

import pytest

from opassay.properties.waiting import Waiting

SEED = 0
PIECES = [f"{op}{number}" for op in "abc" for number in range(3)]


def _waiting() -> Waiting[str]:
    return Waiting(PIECES, lambda piece: piece[0])


def test_one_alone_does_all_in_order() -> None:
    waiting, done = _waiting(), [""]
    while waiting:
        done.append(waiting.take(done[-1][:1]))
    assert done[1:] == PIECES
    with pytest.raises(IndexError, match="nothing waits"):
        waiting.take()


def test_two_are_busy_with_different_ops_while_there_are_several() -> None:
    waiting = _waiting()
    first = second = ""
    taken = []
    while waiting:
        first = waiting.take(first[:1], second[:1])
        taken.append(first)
        if waiting:
            second = waiting.take(second[:1], first[:1])
            taken.append(second)
    assert taken == ["a0", "b0", "a1", "b1", "a2", "b2", "c0", "c1", "c2"]


def test_ops_that_all_are_busy_with_are_shared_where_most_is_left() -> None:
    waiting = Waiting(["a0", "b0", "b1"], lambda piece: piece[0])
    assert waiting.take("c", {"a", "b"}) == "b0"
    assert waiting.take("c", {"a"}) == "b1"


def test_what_is_dropped_is_not_given() -> None:
    waiting = _waiting()
    assert waiting.drop(lambda piece: piece.endswith("1")) == ["a1", "b1", "c1"]
    assert len(waiting) == 6
    assert waiting.take("a") == "a0"
    assert waiting.take("a") == "a2"
    waiting.put("a9")
    assert waiting.take("a") == "a9"


def test_every_piece_is_given_once_whoever_asks() -> None:
    draw = random.Random(SEED)
    print(f"seed {SEED}")
    for _ in range(50):
        waiting, taken = _waiting(), []
        while waiting:
            taken.append(waiting.take(draw.choice("abcd"), set(draw.sample("abcd", 2))))
        assert sorted(taken) == PIECES
