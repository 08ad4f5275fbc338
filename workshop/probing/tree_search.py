"""Along which tree an implementation adds up, as its results show it.

What this is for. A bound for sums in any order is as wide as the tallest tree. An implementation that adds along a low
one need not declare it: it shows its tree (P. Xie, Y. Gao, Y. Wang, J. Xue, FPRev: Revealing the Order of
Floating-Point Summation Implementations, 2024).

The rule. Let one term be M, another -M, and the others units that M absorbs. A unit that is added to a partial sum with
M or -M in it is lost, and what is added after the two have met counts. So n less the result is the number of terms
below the node where both meet. Of one term, the pivot, these numbers for all others say which terms join it at which of
the nodes that it passes; terms that join at one node are a group, of which the same is asked again, with a pivot of its
own. A node of which pairs of three and more parts all show the same number adds them at once, and is counted as
additions one after another.

What is not asked any more, because the measurements are many enough, counts as if it was added one after another. So a
height is never less than that of the tree that the measurements belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

#: Pairs of one range of sizes, from a power of two to the next, that are measured again.
_SAMPLE = 6


class TreeError(ValueError):
    """Measurements that belong to no tree; the text says why."""


@dataclass(frozen=True)
class TreeQuestion:
    """How many terms lie below the nodes where a pivot meets others.

    Attributes:
        pivot: a term. others: those that it is to meet. group: all terms that may lie below these nodes, if not all
            `above` do. above: how many terms lie below the node at which the group joins others.
        outside: a term below that node that is none of the group; -1 for none.
    """

    pivot: int
    others: Any
    group: Any
    above: int
    outside: int = -1


#: Questions -> for each the numbers of terms, an integer for each of `others`.
Measure = Callable[[Sequence[TreeQuestion]], Sequence[Any]]


@dataclass
class _JoiningGroup:
    """Terms that join others at one node, as one part of it or as several.

    Attributes:
        terms: those that are not known yet to be of a part. above, outside: see `TreeQuestion`.
        parts: of those that are known, of each the groups that join its pivot, from the lowest node on.
    """

    terms: Any
    above: int
    outside: int = -1
    parts: list[list[_JoiningGroup]] = field(default_factory=list)

    def split(self, question: TreeQuestion, sizes: Any) -> None:
        """Take the part of a pivot out of the terms, by what was measured of it.

        Raises:
            TreeError: no tree has these sizes.
        """
        inside = sizes < self.above
        part: list[_JoiningGroup] = []
        below = 1
        for size in np.unique(sizes[inside]):
            members = question.others[sizes == size]
            below += len(members)
            if size != below:
                raise TreeError(f"{below} terms are added up at a node below which the measurements count {size}")
            part.append(_JoiningGroup(members, below, question.pivot))
        if np.any(sizes > self.above):
            raise TreeError(f"a node below {self.above} terms has {int(sizes.max())}")
        self.parts.append(part)
        self.terms = question.others[~inside]

    def height(self, below: int) -> int:
        """The most additions that a term has passed behind the node, where it has passed so many `below` it."""
        tallest = max((_height_of(part) for part in self.parts), default=0)
        return len(self.parts) + len(self.terms) + max(below, tallest)


def _height_of(part: Sequence[_JoiningGroup]) -> int:
    height = 0
    for group in part:
        height = group.height(height)
    return height


@dataclass(frozen=True)
class ProbedTree:
    """What measurements show of a tree.

    Attributes:
        terms: how many. height: the most additions that a term passes; never less than that.
        pairs: how many were measured. whole: whether all of the tree is known.
        sample: questions of single pairs at nodes of all sizes, and the numbers that were measured.
    """

    terms: int
    height: int
    pairs: int
    whole: bool
    sample: tuple[tuple[TreeQuestion, int], ...]


def search_tree(
    terms: int, measure: Measure, draws: np.random.Generator, most: int, room: int = 2**40
) -> ProbedTree:  # fmt: skip
    """The tree along which so many terms are added up.

    Args:
        terms: how many, two or more. measure: what measures pairs. draws: for pivots.
        most: masks that may be measured. room: of so many terms of a group one mask tells.

    Raises:
        TreeError: no tree has such measurements.
    """
    root = _JoiningGroup(np.arange(terms), terms + 1)
    opened, results, pairs, masks = [root], list[tuple[TreeQuestion, Any]](), 0, 0
    while opened:
        questions, groups = list[TreeQuestion](), list[_JoiningGroup]()
        for group in sorted(opened, key=lambda group: -len(group.terms)):
            count = len(group.terms) - 1
            own = count * -(-(count + 2) // room)
            if masks + own > most:
                continue
            pairs, masks = pairs + count, masks + own
            place = int(draws.integers(len(group.terms)))
            others = np.delete(group.terms, place)
            questions.append(TreeQuestion(int(group.terms[place]), others, group.terms, group.above, group.outside))
            groups.append(group)
        if not questions:
            break
        rest = [group for group in opened if not any(group is each for each in groups)]
        for group, question, sizes in zip(groups, questions, measure(questions), strict=True):
            if group is root and terms > 2 and np.all(sizes == 2):
                raise TreeError("no term is lost beside a large one: the sum is exact, compensated, sorted or wide")
            if np.any((sizes < 2) | (sizes > terms)):
                raise TreeError(f"of {terms} terms {int(sizes.min())} to {int(sizes.max())} lie below a node")
            group.split(question, sizes)
            results.append((question, sizes))
            rest += [each for each in (group, *group.parts[-1]) if len(each.terms) > 1]
            for each in (group, *group.parts[-1]):
                if len(each.terms) == 1:
                    each.parts.append([])
                    each.terms = each.terms[1:]
        opened = rest
    height = _height_of(root.parts[0]) if root.parts else terms - 1
    return ProbedTree(terms, min(height, terms - 1), pairs, not opened, _sample_of(results, draws))


def _sample_of(
    results: Sequence[tuple[TreeQuestion, Any]], draws: np.random.Generator
) -> tuple[tuple[TreeQuestion, int], ...]:
    """Some of the pairs that were measured, of nodes of all sizes."""
    if not results:
        return ()
    numbers = np.concatenate([np.full(len(sizes), i) for i, (_, sizes) in enumerate(results)])
    places = np.concatenate([np.arange(len(sizes)) for _, sizes in results])
    every = np.concatenate([sizes for _, sizes in results])
    ranges = np.frexp(every.astype(np.float64))[1]
    sample = []
    for exponent in np.unique(ranges):
        members = np.flatnonzero(ranges == exponent)
        for i in draws.choice(members, min(_SAMPLE, len(members)), replace=False):
            question, place = results[numbers[i]][0], places[i]
            sample.append((replace(question, others=question.others[place : place + 1]), int(every[i])))
    return tuple(sample)
