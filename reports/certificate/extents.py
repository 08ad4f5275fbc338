"""The extents of several cells' samples, as one list."""

from __future__ import annotations

import re
from collections.abc import Iterable


def extents(texts: Iterable[str]) -> tuple[str, ...]:
    """Extents by argument and dim, as a measure tells them, "input dim 0: 1 to 5, 7", of all the texts together."""
    by_name: dict[str, set[tuple[int, int]]] = {}
    for text in texts:
        name, _, numbers = text.rpartition(": ")
        runs = re.findall(r"(\d+)(?: to (\d+))?", numbers)
        by_name.setdefault(name, set()).update((int(low), int(high or low)) for low, high in runs)
    return tuple(f"{name}: {_ranges(by_name[name])}" for name in sorted(by_name))


def _ranges(runs: Iterable[tuple[int, int]]) -> str:
    together: list[tuple[int, int]] = []
    for low, high in sorted(runs):
        if together and low <= together[-1][1] + 1:
            first, last = together.pop()
            low, high = first, max(last, high)
        together.append((low, high))
    return ", ".join(f"{low} to {high}" if low < high else str(low) for low, high in together)
