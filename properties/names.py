"""The names that cells and worlds are made of, and the errors of a name that is not there.

Every part of the suite speaks of these names, and they need nothing: so the command line can refuse a wrong one at
once, and no module has to import another one for the sake of a name.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

SUBJECTS: tuple[str, ...] = (
    "opassay",
    "torch",
    "decomposition",
    "compiled",
    "functional",
    "triton",
    "module",
    "own_module",
)
DEVICES: tuple[str, ...] = ("cpu", "cuda")
#: What ranks are, and what devices are, where an op runs in several places; the first of each needs nothing.
COMMS: tuple[str, ...] = ("lockstep", "gloo", "nccl")
FABRICS: tuple[str, ...] = ("host", "folded", "cuda")
#: The group of the entry points by which other packages declare ops.
ENTRY_POINT_GROUP = "opassay.ops"


class SelectionError(ValueError):
    """A name that is not in its table; the text says which names are."""


class PluginError(RuntimeError):
    """An entry point of `ENTRY_POINT_GROUP` that could not be loaded."""


def unknown_name(kind: str, name: str, known: Sequence[str]) -> str:
    """The message about a name that a table has not: of what kind, which is near, and which there are."""
    # Names are compared in lower case, because what is mistyped is often only the case.
    close = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1)
    near = [k for k in known if close and k.lower() == close[0]]
    # The hint comes first, because the names are many and a reader stops before their end.
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"unknown {kind}: got {kind}={name!r}{hint}, need one of {', '.join(known)}"
