"""The ranks and devices of this package on which declarations run programs, in the world that this process is in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...impl.comm import CudaFabric, FoldedFabric, HostFabric, LockstepWorld
from .. import worlds


def run_on_ranks(size: int, program: Callable[[Any], Any]) -> list[Any]:
    """The results of a program on all ranks; each gets its rank's comm."""
    peers = worlds.peers()
    if peers is not None:
        return peers.run(program)
    # The order in which ranks take their turns is random, so that no program passes thanks to one order. The seed is
    # fixed, so that a failing sample fails again.
    return LockstepWorld(size, order="random", seed=size, forward_mode=True).run(program)


def make_fabric(size: int) -> Any:
    """A fabric of `size` devices."""
    if worlds.here().fabric == "host":
        return HostFabric(size)
    return FoldedFabric(size) if worlds.here().fabric == "folded" else CudaFabric(range(size))
