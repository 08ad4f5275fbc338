"""Results of torch that are outside for a reason that is known and proved, so that no bound should take them in."""

from __future__ import annotations

import re
from typing import Any

#: (functions, dtypes, what, kinds) as patterns -> why torch's own value is wrong there.
EXPLAINED: dict[tuple[str, str, str, str], str] = {}


def explanation(row: dict[str, Any]) -> str:
    """Why torch is wrong in a row; empty if nothing is known."""
    words = (row["name"], row["dtype"], row["what"], row["kind"])
    for patterns, why in EXPLAINED.items():
        if all(re.fullmatch(pattern, word) for pattern, word in zip(patterns, words, strict=True)):
            return why
    return ""
