"""What `dir(opassay.impl)` lists: the names that are offered, without the folders in which they stand."""

from __future__ import annotations

import sys
import types

#: The modules that are meant to be used by name.
_MODULES = frozenset({"comm", "decompositions"})


def list_names() -> list[str]:
    """The public ops, classes and modules of this package, sorted. Other folders are not listed."""
    members = vars(sys.modules[__package__ or ""])
    return sorted(
        name
        for name, value in members.items()
        if not name.startswith("_") and (name in _MODULES or not isinstance(value, types.ModuleType))
    )
