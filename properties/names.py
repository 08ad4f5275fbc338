"""The names that cells and worlds are made of, and the errors about unknown names.

Every room uses these names, and this module imports nothing of ours: so the command line can refuse a wrong name at
once, and no module has to import another one for a name.
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
#: Kinds of ranks, and of devices, for an op that runs in several places; every machine has the first kind of each.
COMMS: tuple[str, ...] = ("lockstep", "gloo", "nccl")
FABRICS: tuple[str, ...] = ("host", "folded", "cuda")
#: The group of the entry points by which other packages declare ops.
ENTRY_POINT_GROUP = "opassay.ops"


class SelectionError(ValueError):
    """A name is not in its table; the text lists the names of the table."""


class PluginError(RuntimeError):
    """An entry point of `ENTRY_POINT_GROUP` that could not be loaded."""


def unknown_name(kind: str, name: str, names: Sequence[str]) -> str:
    """The message about a name that is not in a table of `names`: its kind, the most similar name, and all names."""
    # Names are compared in lower case, because often only the case is mistyped.
    close = difflib.get_close_matches(name.lower(), [k.lower() for k in names], n=1)
    near = [k for k in names if close and k.lower() == close[0]]
    # The hint comes first, because the names are many and a reader stops before their end.
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"unknown {kind}: got {kind}={name!r}{hint}, need one of {', '.join(names)}"
