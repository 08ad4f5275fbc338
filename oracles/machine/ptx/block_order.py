"""Which block comes after which, by way of atomic operations: one waits for what another one has set.

What a block does after an atomic operation, or a strong load or store, comes after what another block did before an
earlier one of its own that releases it: by its own order (.release, .acq_rel), or because the block had a fence between
(NVIDIA, PTX ISA 9.1, section 8.8, release patterns). That the two met at one address is taken for granted, and so is a
fence behind the operation, so that no kernel that orders its blocks is refused; of one that only seems to, nothing is
said.
"""

from __future__ import annotations

import numpy as np

from .formats import Lanes


class BlockOrder:
    """The order that the operations of a launch make; `clock` is how many there were.

    Args:
        unit: threads of what comes before or after others: a block, in its own memory a warp.
        within: whether it orders what threads of one block do, too. In shared memory warps stand in the place of
            blocks, and barriers (`mbarriers.py`) in that of atomic operations.
    """

    def __init__(self, unit: int, within: bool = False) -> None:
        self.clock, self.unit, self._within = 0, unit, within
        #: By block: when its operations were, and until when what it did before each is released by it.
        self._times: dict[int, list[int]] = {}
        self._released: dict[int, list[int]] = {}
        self._fences: dict[int, int] = {}

    def pass_through(self, blocks: Lanes, releases: bool = True) -> None:
        """Blocks perform an operation, in the order of their threads."""
        for block in dict.fromkeys(blocks.tolist()):
            self.clock += 1
            self._times.setdefault(block, []).append(self.clock)
            released = self._released.setdefault(block, [])
            until = self.clock if releases else max(self._fences.get(block, 0), *released[-1:], 0)
            released.append(until)

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
        # Threads are many, and pairs of those that they belong to few.
        _, first, pairs = np.unique(
            theirs * (int(ours.max(initial=0)) + 1) + ours, return_index=True, return_inverse=True
        )
        for number, place in enumerate(first.tolist()):
            their, our, own = int(theirs[place]), int(ours[place]), pairs == number
            latest = self._times.get(our, [0])[-1]
            if their < 0:  # of several readers it is not known when all of them have read
                result[own] = latest > 0
            elif their != our or self._within:
                times = np.array([*self._times.get(their, ()), np.iinfo(np.int64).max])
                released = self._released.get(their, [])
                result[own] = times[np.searchsorted(released, stamps[own], "right")] < latest
        return result
