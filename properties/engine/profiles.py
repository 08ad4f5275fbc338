"""How much is asked: named profiles. Imports nothing, so that the command line lists them at once."""

from __future__ import annotations

import secrets
from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """One profile.

    Attributes:
        examples: samples per cell of a property of effort 1. compiled: the most samples per cell of compiled code.
        interpreted: samples per cell of interpreted kernels, whatever the property's effort. executed: of kernels as
            PTX, each of which is compiled for its shapes, and executed on several kinds of hardware.
        fixed: whether the same commit always asks the same; else each run draws a seed, and Hypothesis steers towards
            the largest error/bound.
        inductor: whether COMP compiles with inductor, not with the light backend.
        simpler: about how many samples are tried to make a failing one simpler, for each that the cell draws.
    """

    examples: int
    compiled: int
    interpreted: int
    executed: int
    fixed: bool
    simpler: int
    inductor: bool = False


PROFILES: dict[str, Profile] = {
    "brief": Profile(20, 1, 7, 2, fixed=True, simpler=2),
    "dev": Profile(40, 1, 8, 3, fixed=False, simpler=4),
    "commit": Profile(80, 2, 20, 6, fixed=True, simpler=8),
    "nightly": Profile(1000, 10, 250, 60, fixed=False, simpler=8, inductor=True),
}


def default_seed(profile: str) -> int:
    """Base seed of a profile: 0 where the same commit is to ask the same every time, else random."""
    return 0 if PROFILES[profile].fixed else secrets.randbits(32)
