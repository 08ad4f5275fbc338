"""The names that cells and worlds are made of, and the errors of a name that is not there.

Every part of the suite speaks of these names, and they need nothing: so the command line can refuse a wrong one at
once, and no module has to import another one for the sake of a name.
"""

from __future__ import annotations

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
