"""Results of torch that are outside for a reason that is known, so that no bound should take them in."""

from __future__ import annotations

import re
from typing import Any

#: (functions, dtypes, what) as patterns -> what torch's kernel does there that the contract does not allow.
EXPLAINED: dict[tuple[str, str, str], str] = {}


def explanation(row: dict[str, Any]) -> str:
    """Why torch is wrong in a row; empty if nothing is known, or if it is not torch that is wrong.

    It is not where torch's own float64 is off the centre of the ball, nor where the same operations, each computed in
    float64 and rounded once, are outside as well.
    """
    if is_off(row) or row["stepped"]:
        return ""
    words = (row["name"], row["dtype"], row["what"])
    for patterns, why in EXPLAINED.items():
        if all(re.fullmatch(pattern, word) for pattern, word in zip(patterns, words, strict=True)):
            return why
    return ""


def is_off(row: dict[str, Any]) -> bool:
    """Whether torch's own float64 is farther from the centre of the ball than the ball is wide."""
    return bool(abs(row["centre"] - row["exact"]) > row["width"])
