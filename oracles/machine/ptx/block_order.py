"""Which block comes after which, by way of atomic operations: one waits for what another one has set.

What a block does after an atomic operation, or a strong load or store, comes after what another block did before an
earlier one of its own that releases it: by its own order (.release, .acq_rel), or because the block had a fence between
(NVIDIA, PTX ISA 9.1, section 8.8, release patterns). That the two met at one address is taken for granted, and so is a
fence behind the operation, so that no kernel that orders its blocks is refused; of one that only seems to, nothing is
said.
"""

from __future__ import annotations

import bisect

import numpy as np

from .formats import Lanes


class BlockOrder:
    """The order that the operations of a launch make; `clock` is how many there were.

    Args:
        within: whether it orders what threads of one block do, too. In shared memory warps stand in the place of
            blocks, and barriers (`mbarriers.py`) in that of atomic operations.
    """

    def __init__(self, within: bool = False) -> None:
        self.clock, self._within = 0, within
        #: By block: when its operations were, and until when what it did before each is released by it.
        self._times: dict[int, list[int]] = {}
        self._released: dict[int, list[int]] = {}
        self._fences: dict[int, int] = {}

    def pass_through(self, blocks: Lanes, releases: bool = True) -> None:
        """Blocks perform an operation, in the order of their threads."""
        for block in dict.fromkeys(blocks.tolist()):
            self.clock += 1
            self._times.setdefault(block, []).append(self.clock)
            self._released.setdefault(block, []).append(self.clock if releases else self._fences.get(block, 0))

    def pass_fence(self, blocks: Lanes) -> None:
        """Blocks order what they did so far before the operations that come."""
        for block in dict.fromkeys(blocks.tolist()):
            self.clock += 1
            self._fences[block] = self.clock

    def comes_before(self, theirs: Lanes, stamps: Lanes, ours: Lanes) -> Lanes:
        """Whether what blocks did when `stamps` say comes before what ours do now; of several blocks any will do."""
        result = np.zeros(len(ours), bool)
        if not self.clock:
            return result
        for i, (their, stamp, our) in enumerate(zip(theirs.tolist(), stamps.tolist(), ours.tolist(), strict=True)):
            latest = self._times.get(our, [0])[-1]
            if their < 0:  # of several readers it is not known when all of them have read
                result[i] = latest > 0
            elif their != our or self._within:
                times = self._times.get(their, [])
                first = max(bisect.bisect_right(each, stamp) for each in (times, self._released.get(their, [])))
                result[i] = first < len(times) and times[first] < latest
        return result
