"""Which cells are no longer asked, because cells like them have ended too many processes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

#: Processes that a property of an op may end, and properties that may end one, before others are no longer asked.
PATIENCE = 2


@dataclass
class CrashLimit:
    """Counts the processes that cells have ended.

    Cells of one property end for one reason, such as tensors without elements, so only the others of that property are
    given up first. Deaths are counted by subject, because one implementation says nothing about the others.
    """

    _counts: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)

    def note(self, op: str, subject: str, code: str) -> None:
        """One more process was ended by a cell of this property."""
        self._counts.setdefault((op, subject), Counter())[code] += 1

    def why(self, op: str, subject: str, code: str) -> str:
        """Why a cell of this property is not asked any more; empty where it is."""
        counts = self._counts.get((op, subject), Counter())
        whole = len(counts) >= PATIENCE
        if not whole and counts[code] < PATIENCE:
            return ""
        what = "other cells" if whole else f"other cells of {code}"
        return f"{op} of subject {subject} ended {counts.total()} processes; its {what} were not asked"
