"""Trees of sums: the orders in which an implementation may promise to add, and the error of a sum in such an order.

What this is for. If a sum of n terms may be added in any order, a term may pass n - 1 roundings, which makes its bound
wide. Kernels add in halves, in blocks or in lanes, where a term passes few additions. A declared tree is a promise of
that order, and an implementation that breaks the promise may be refused.

The rule. In a tree of height h each term passes at most h additions, each of which multiplies it by 1 + d, |d| <= u. So
the error is at most ((1 + u)^h - 1) Σ|x| (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
section 4.2). The bound for every order, (n - 1) u Σ|x|, is also valid for this one. A product that is rounded before
its addition adds one factor 1 + d; a product that is fused with its addition adds none. Multiplications by powers of
two do not round, so they change no height. A node that adds m terms at once counts as m - 1 successive additions.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

#: kind of tree -> (n terms, the number in its name) -> the most additions that a term passes.
_HEIGHTS: Mapping[str, Callable[[int, int], int]] = {
    # Halves of halves.
    "pairwise": lambda n, _: _halvings(n),
    # One after another within blocks of `size` terms, then the sums of blocks in halves.
    "blocks": lambda n, size: min(size, n) - 1 + _halvings(-(-n // size)),
    # One after another in each of `lanes` lanes, then the lanes in halves.
    "lanes": lambda n, lanes: -(-n // lanes) - 1 + _halvings(min(lanes, n)),
    # Any tree of that height; no tree is lower than one of halves.
    "height": lambda n, height: max(height, _halvings(n)),
}
_NAME = re.compile(r"(pairwise)|(blocks|lanes|height)([1-9]\d{0,8})(?:of([1-9]\d{0,8}))?")
#: Examples of the names of trees, for messages and lists; other numbers are possible.
NAMES = ("pairwise", "blocks32", "lanes128", "height12")


def _halvings(terms: int) -> int:
    return max(terms - 1, 0).bit_length()


@dataclass(frozen=True)
class Tree:
    """A tree of sums of any number of terms.

    Attributes:
        kind: a key of `_HEIGHTS`; empty for any order. size: the number in the name, such as that of lanes.
        only: the tree is promised for sums of so many terms only, and other sums have any order; 0 for all sums.
    """

    kind: str = ""
    size: int = 1
    only: int = 0

    def __str__(self) -> str:
        """The promise in words."""
        words = {
            "": "in any order",
            "pairwise": "in halves",
            "blocks": f"in blocks of {self.size}, the blocks in halves",
            "lanes": f"in {self.size} lanes, the lanes in halves",
            "height": f"along a tree of height {self.size}",
        }
        return words[self.kind] + (f" where they have {self.only} terms" if self.only else "")

    def height(self, terms: int) -> int:
        """The most additions that a term of a sum passes."""
        if not self.kind or self.only not in (0, terms):
            return max(terms - 1, 0)
        return min(_HEIGHTS[self.kind](terms, self.size), max(terms - 1, 0))

    def error(self, terms: int, unit: float, before: int = 0) -> float:
        """A bound on the error of a sum, as a share of the sum of the magnitudes of its terms.

        Args:
            terms: their number. unit: u. before: how many roundings a term has passed before the sum.
        """
        most = (max(terms - 1, 0) + before) * unit
        if not self.kind:
            return most
        return min(most, math.expm1((self.height(terms) + before) * math.log1p(unit)) * (1.0 + 2.0**-50))


#: Any order.
ANY = Tree()


@functools.lru_cache(maxsize=64)
def tree(name: str) -> Tree:
    """The tree of a name: pairwise, blocks32, lanes128, height12, height12of4096; empty for any order.

    Raises:
        ValueError: no tree has this name.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        if name:
            raise ValueError(f"tree: got {name!r}, need a name as {', '.join(NAMES)}")
        return ANY
    return Tree(match[1] or match[2], int(match[3] or 1), int(match[4] or 0))
