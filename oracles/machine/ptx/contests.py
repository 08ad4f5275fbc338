"""Stores of threads of a block to one address of shared memory, by one instruction: whose value is there afterwards.

Triton's layouts have an element in several lanes and warps, which all store their copies on the way to another layout.
Copies of a sum may differ in the last bit, as each lane adds in an order of its own and fma rounds one of two products
alone. One of the values is there afterwards, and which one is undefined (NVIDIA, CUDA C++ Programming Guide, "SIMT
Architecture", for lanes; for warps no barrier lies between). So that is no fault by itself, but each of them must do:
the hardware (`hardware.Hardware.winner`) says which one it is. Whoever reads it before a barrier races.

In global memory Triton has one of the threads store, so there several values remain a race.
"""

from __future__ import annotations

import numpy as np

from . import approximations, hardware
from .formats import Lanes

#: Threads of a warp.
WARP = 32
NOBODY, SEVERAL = -1, -2
#: An epoch has the barriers of the block above this bit, and those of the thread's warp alone below it.
OF_BLOCK = 32


def is_open(epochs: Lanes, now: Lanes, alike: Lanes) -> Lanes:
    """Whether no barrier lies between epochs and the present ones; `alike` says where the threads are of one warp."""
    return (epochs >> OF_BLOCK == now >> OF_BLOCK) & (~alike | (epochs == now))


class Contests:
    """The elements to which several threads have stored different values, by the first byte.

    Args:
        count: bytes of the memory.
    """

    def __init__(self, count: int) -> None:
        self._numbers: dict[str, int] = {}
        self._stored_by = np.full(count, NOBODY, np.int32)
        #: The warp of all who have stored to a contested element; NOBODY where it is not contested.
        self._warps = np.full(count, NOBODY, np.int64)
        self._ever = False

    def open(self, at: Lanes, epochs: Lanes, now: Lanes, threads: Lanes) -> Lanes:
        """Where threads have stored different values, and no barrier lies between that and now.

        Args:
            at: elements. epochs, now: those of their last stores, and the present ones. threads: who asks.
        """
        if not self._ever:
            return np.zeros(at.size, bool)
        warps = self._warps[at]
        return (warps != NOBODY) & is_open(epochs, now, warps == threads // WARP)

    def of_instruction(self, where: str, at: Lanes) -> Lanes:
        """Whether an instruction was the last to store there."""
        return np.asarray(self._stored_by[at] == self._number(where))

    def among_warps(self, at: Lanes) -> Lanes:
        """Where threads of several warps have stored different values."""
        return np.asarray(self._warps[at] == SEVERAL)

    def note(self, where: str, at: Lanes, threads: Lanes, contested: Lanes, across: Lanes) -> None:
        """An instruction has stored.

        Args:
            at, threads: which elements, and who. contested: where others have stored another value.
            across: where others of another warp did before this instruction.
        """
        warps = threads // WARP
        self._stored_by[at] = self._number(where)
        self._warps[at] = np.where(contested, np.where(across, SEVERAL, warps), NOBODY)
        if contested.any():
            self._ever = True
            self._warps[at[contested & (self._warps[at] != warps)]] = SEVERAL

    def _number(self, where: str) -> int:
        return self._numbers.setdefault(where, len(self._numbers))


def rank_stores(threads: Lanes, elements: Lanes, bits: Lanes) -> Lanes:
    """Numbers of threads that store to the same elements; the thread with the largest wins. The call is counted.

    The count shows that the results of a launch may depend on the hardware, so that it is executed on several
    (`account.py`).
    """
    approximations.executed[approximations.STORE] += 1
    winner = hardware.current().winner
    if winner == "any":  # odd factors make another order of the lanes of each element
        return (threads * 7 + elements * 11) % WARP
    sign = np.array(1, bits.dtype) << (8 * bits.itemsize - 1)
    size = (bits & ~sign).astype(np.int64)
    size = np.where(bits & sign, -size, size)  # in the order of the numbers, for every format of floats
    return -size if winner == "smallest" else size
