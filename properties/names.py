"""The names that cells and worlds are made of, and the errors about unknown names.

Every room uses these names, and this module imports of ours only what makes a hint of a wrong name: so the command line
can refuse it at once, and no module has to import another one for a name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from ..reference.missing import nearest_name as nearest_name
from ..reference.missing import nearest_of as nearest_of

SUBJECTS: tuple[str, ...] = (
    "opassay",
    "torch",
    "decomposition",
    "compiled",
    "functional",
    "triton",
    "ptx",
    "module",
    "own_module",
)
#: The subjects that are the Triton kernels of the production ops: interpreted, and executed as PTX.
ON_KERNELS: tuple[str, ...] = ("triton", "ptx")
DEVICES: tuple[str, ...] = ("cpu", "cuda")
#: Kinds of ranks, and of devices, for an op that runs in several places; every machine has the first kind of each.
COMMS: tuple[str, ...] = ("lockstep", "gloo", "nccl")
#: Over what the ranks of a candidate talk: collectives go to its judge, or to these backends of torch as they stand.
WIRES = ("judge", *COMMS[1:])
FABRICS: tuple[str, ...] = ("host", "folded", "cuda")
#: The group of the entry points by which other packages declare ops.
ENTRY_POINT_GROUP = "opassay.ops"


class SelectionError(ValueError):
    """A name is not in its table; the text lists the names of the table."""


class PluginError(RuntimeError):
    """An entry point of `ENTRY_POINT_GROUP` that could not be loaded."""


def unknown_name(kind: str, name: object, names: Iterable[str]) -> str:
    """The message about a name that is not in a table of `names`: its kind, the most similar name, and all names."""
    table = tuple(names)
    # The hint comes first, because the names are many and a reader stops before their end.
    return f"unknown {kind}: got {kind}={name!r}{nearest_of(name, table)}, need one of {', '.join(table)}"


def require_known(kind: str, names: Iterable[object], table: Collection[str]) -> None:
    """Require names of a table.

    Raises:
        SelectionError: the table has no such name; the text names the nearest one.
    """
    for name in names:
        if name not in table:
            raise SelectionError(unknown_name(kind, name, table))


def collect_names(names: Any) -> tuple[Any, ...]:
    """The names in a collection; what is one name, or one dtype, alone."""
    return tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else (names,)
