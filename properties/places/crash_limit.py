"""Which cells are no longer asked, because cells like them have ended too many processes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

#: After so many processes that one property of an op ended, its other cells are not asked; after so many properties
#: that ended a process, no other cell of the op is.
PATIENCE = 2


@dataclass
class CrashLimit:
    """Counts the processes that cells have ended.

    Cells of one property end processes for one reason, such as tensors without elements, so at first only the other
    cells of that property are given up. Each subject has counts of its own, because one implementation says nothing
    about the others.
    """

    _counts: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)

    def note(self, op: str, subject: str, code: str) -> None:
        """Count a process that a cell of this property has ended."""
        self._counts.setdefault((op, subject), Counter())[code] += 1

    def why(self, op: str, subject: str, code: str) -> str:
        """Why a cell of this property is not asked any more; empty where it is."""
        counts = self._counts.get((op, subject), Counter())
        whole = len(counts) >= PATIENCE
        if not whole and counts[code] < PATIENCE:
            return ""
        what = "other cells" if whole else f"other cells of {code}"
        return f"{op} of subject {subject} ended {counts.total()} processes; its {what} were not asked"
