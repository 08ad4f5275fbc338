"""Trees are searched by measurements: heights are those of real trees, never less, and what is no tree is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from workshop.probing.tree_search import TreeError, TreeQuestion, search_tree

#: A node of a tree: the number of a term, or several nodes that are added at once.
Node = Any


def _halves(nodes: Sequence[Node]) -> Node:
    middle = (len(nodes) + 1) // 2
    return nodes[0] if len(nodes) == 1 else (_halves(nodes[:middle]), _halves(nodes[middle:]))


def _chain(nodes: Sequence[Node]) -> Node:
    total = nodes[0]
    for node in nodes[1:]:
        total = (total, node)
    return total


def _fours(nodes: Sequence[Node]) -> Node:
    if len(nodes) <= 4:
        return tuple(nodes) if len(nodes) > 1 else nodes[0]
    size = -(-len(nodes) // 4)
    return tuple(_fours(nodes[i : i + size]) for i in range(0, len(nodes), size))


SHAPES: dict[str, Callable[[Sequence[Node]], Node]] = {
    "one after another": _chain,
    "halves": _halves,
    "blocks": lambda nodes: _halves([_chain(nodes[i : i + 32]) for i in range(0, len(nodes), 32)]),
    "lanes": lambda nodes: _halves([_chain(nodes[i::8]) for i in range(min(8, len(nodes)))]),
    "four at once": _fours,
    "all at once": lambda nodes: tuple(nodes),
}


def _height_of(node: Node) -> int:
    return len(node) - 1 + max(map(_height_of, node)) if isinstance(node, tuple) else 0


def _meetings(node: Node, terms: int) -> Any:
    """(terms, terms): how many terms lie below the node where two meet."""
    sizes = np.zeros((terms, terms), dtype=np.int64)

    def enter(node: Node) -> list[int]:
        if not isinstance(node, tuple):
            return [node]
        parts = [enter(part) for part in node]
        whole = [term for part in parts for term in part]
        for part in parts:
            others = [term for term in whole if term not in part]
            sizes[np.ix_(part, others)] = len(whole)
        return whole

    enter(node)
    return sizes


@pytest.mark.parametrize("terms", [2, 3, 7, 64, 130])
@pytest.mark.parametrize("name", list(SHAPES))
def test_a_height_is_that_of_the_tree_that_was_measured(name: str, terms: int) -> None:
    draws = np.random.default_rng(3)
    node = SHAPES[name]([int(i) for i in draws.permutation(terms)])
    sizes = _meetings(node, terms)

    def measure(questions: Sequence[TreeQuestion]) -> list[Any]:
        return [sizes[each.pivot, each.others] for each in questions]

    if name == "all at once" and terms > 2:
        # That is found by asking for every pair alone.
        assert search_tree(terms, measure, draws, terms**2).height == terms - 1
    result = search_tree(terms, measure, draws, terms**2)
    assert (result.height, result.whole) == (_height_of(node), True)
    for question, size in result.sample:
        assert sizes[question.pivot, question.others[0]] == size
    for most in (0, terms // 2, 2 * terms, 3 * terms):
        part = search_tree(terms, measure, draws, most)
        assert _height_of(node) <= part.height <= terms - 1
        assert part.pairs <= most


def test_groups_are_what_may_lie_below_a_node() -> None:
    # One mask of few units tells the same, where it has those of the group alone and one of the terms beside it.
    draws, terms = np.random.default_rng(4), 40
    node = _halves([_chain(range(i, i + 5)) for i in range(0, terms, 5)])
    sizes = _meetings(node, terms)

    def measure(questions: Sequence[TreeQuestion]) -> list[Any]:
        for each in questions:
            assert each.pivot in each.group
            assert set(each.others) < set(each.group)
            below = np.flatnonzero(sizes[each.pivot] <= each.above)
            assert set(each.group) <= set(below)
            assert each.outside == -1 or (each.outside in below and each.outside not in each.group)
        return [sizes[each.pivot, each.others] for each in questions]

    assert search_tree(terms, measure, draws, terms**2).height == _height_of(node)


def test_no_tree_is_refused() -> None:
    draws = np.random.default_rng(5)

    def alike(size: int) -> Callable[[Sequence[TreeQuestion]], list[Any]]:
        return lambda questions: [np.full(len(each.others), size) for each in questions]

    with pytest.raises(TreeError, match="no term is lost beside a large one"):
        search_tree(9, alike(2), draws, 99)
    for size in (1, 3, 10, 12):
        with pytest.raises(TreeError):
            search_tree(9, alike(size), draws, 99)
    assert search_tree(9, alike(9), draws, 99).height == 8  # all at once
