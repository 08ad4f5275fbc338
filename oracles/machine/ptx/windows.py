"""Where state spaces are among generic addresses, and what of global memory has no operand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .formats import Lanes

#: Where global memory begins, so that a null pointer, and an offset without its pointer, are outside.
BASE = 1 << 40
#: Where state spaces begin among generic addresses. An address of global memory is a generic one in any instruction.
WINDOWS = {"shared": 1 << 34, "local": 1 << 36, "global": BASE}


class Gaps:
    """Ranges of addresses that no operand has and that no cells are kept for, as between rows far apart.

    Args:
        ranges: the first address of each and that behind its last one, in increasing order.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._first, self._behind = np.array(ranges, np.int64).reshape(-1, 2).T
        self._left_out = np.r_[0, np.cumsum(self._behind - self._first)]
        self.count = int(self._left_out[-1])

    def cells(self, at: Lanes) -> Lanes:
        """The cells of addresses; 0, which no operand has, of those in a gap."""
        if not self.count:
            return at
        number = np.searchsorted(self._behind, at, "right")
        within = at >= np.r_[self._first, np.iinfo(np.int64).max][number]
        return np.where(within, 0, at - self._left_out[number])

    def address(self, cell: int) -> int:
        """The address of a cell."""
        return int(cell + self._left_out[np.searchsorted(self._first - self._left_out[:-1], cell, "right")])
