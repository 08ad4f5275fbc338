"""Trees of sums: along which an implementation says that it adds up, and how far a sum is off along one.

What this is for. A sum of n terms that may be added in any order passes up to n - 1 roundings, and its bound is that
wide. Kernels add in halves, in blocks or in lanes, where a term passes few. A declared tree is a promise of that, and
an implementation that breaks it may be refused.

The rule. Of a tree of height h each term passes h additions at most, and each of these is off by the factor 1 + d,
|d| <= u. So the error is at most ((1 + u)^h - 1) Σ|x| (N. J. Higham, Accuracy and Stability of Numerical Algorithms,
2nd ed., section 4.2). What holds for every order, (n - 1) u Σ|x|, holds for this one, too. A product that is rounded
before is one factor more; where it is fused with its addition it is none. Multiplications by powers of two round
nothing, and so change no height. A node that adds m terms at once counts as m - 1 additions one after another.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

#: The most additions that a term passes, by the kind of tree, for n terms and its number.
_HEIGHTS: Mapping[str, Callable[[int, int], int]] = {
    # Halves of halves.
    "pairwise": lambda n, _: _halvings(n),
    # One after another within blocks of so many terms, then the sums of blocks in halves.
    "blocks": lambda n, size: min(size, n) - 1 + _halvings(-(-n // size)),
    # One after another in each of so many lanes, then the lanes in halves.
    "lanes": lambda n, lanes: -(-n // lanes) - 1 + _halvings(min(lanes, n)),
    # What has that height; less than in halves is in no tree.
    "height": lambda n, height: max(height, _halvings(n)),
}
_NAME = re.compile(r"(pairwise)|(blocks|lanes|height)([1-9]\d{0,8})(?:of([1-9]\d{0,8}))?")
#: Names of trees, for messages and lists; the numbers may be any.
NAMES = ("pairwise", "blocks32", "lanes128", "height12")
#: In place of a name: the tree that a probe of the candidate shows. No bound can be had of it before.
OF_PROBE = "probed"


def _halvings(terms: int) -> int:
    return max(terms - 1, 0).bit_length()


@dataclass(frozen=True)
class Tree:
    """A tree of sums of any number of terms.

    Attributes:
        kind: a key of `_HEIGHTS`; empty for any order. size: the number of the kind.
        only: how many terms the sums have that are added along it, others in any order; 0 for all sums.
    """

    kind: str = ""
    size: int = 1
    only: int = 0

    def __str__(self) -> str:
        """What is promised, in words."""
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
            terms: how many. unit: u. before: roundings that a term has passed before.
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
