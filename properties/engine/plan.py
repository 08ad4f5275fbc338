"""Which cells there are: names in, cells out. Imports neither torch nor mpmath, so that listing is instant."""

from __future__ import annotations

import difflib
import importlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ...oracles.properties import DTYPES as DTYPES
from ...oracles.properties import PROPERTIES
from ...oracles.verdict import AXES, Cell
from ..catalog import CATALOG
from ..names import DEVICES, ENTRY_POINT_GROUP, SUBJECTS, PluginError, SelectionError


@dataclass(frozen=True)
class Selection:
    """Which cells to run; an empty tuple means all names of that axis.

    An op is one of `op_names()`, or "module:name" for an `Op` that a module declares, or
    "module:class(module:samples,module:reference)" for a custom function; the reference may be left out.
    """

    ops: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)
    subjects: tuple[str, ...] = ("opassay",)

    @classmethod
    def of(cls, chosen: Mapping[str, Sequence[str]]) -> Selection:
        """The selection of names by axis; cpu and opassay where no device or subject is named."""
        ops, properties, dtypes, devices, subjects = (tuple(chosen[axis]) for axis in AXES)
        return cls(ops, properties, dtypes, devices or cls.devices, subjects or cls.subjects)


def plugin_entry_points() -> tuple[EntryPoint, ...]:
    """Installed entry points that declare ops, unless OPASSAY_DISABLE_PLUGIN_AUTOLOAD is set."""
    if os.environ.get("OPASSAY_DISABLE_PLUGIN_AUTOLOAD"):
        return ()
    # Entry points come in the order in which packages lie on the disk. That differs between machines, and the report of
    # a run must not.
    return tuple(sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name))


def op_names() -> tuple[str, ...]:
    """Names of all known ops: the catalog's first, then those of installed plugins."""
    plugins = [point.name for point in plugin_entry_points()]
    taken = [name for name in plugins if name in CATALOG or plugins.count(name) > 1]
    if taken:
        raise PluginError(f"plugin op name={taken[0]!r} is already taken; names must be unique")
    return (*CATALOG, *plugins)


def load_op(name: str) -> Any:
    """The declaration (`opassay.oracles.op.Op`) of a name of `op_names()`, or of "module:name".

    Raises:
        SelectionError: there is no such op.
    """
    if ":" in name:
        from ..functions.named import named_op  # imports torch

        return named_op(name)
    if name in CATALOG:
        module = importlib.import_module(f"..catalog.{CATALOG[name]}", __package__)
        return _production(next(op for op in module.OPS if op.name == name))
    for point in plugin_entry_points():
        if point.name == name:
            return _load_plugin(point)
    raise SelectionError(_unknown("op", name, op_names()))


def _production(op: Any) -> Any:
    """With the promise of all ops of the catalog: their errors call them as the op, or its function, is called."""
    from ...oracles.op import OWN  # imports torch

    own = getattr(op.subjects[OWN], "__name__", op.name)
    return replace(op, promises=replace(op.promises, called=(op.name, own)))


def plan(selection: Selection) -> list[Cell]:
    """The cells of a selection, in the report's order. Nothing is loaded: that runs the code of whoever wrote an op.

    Raises:
        SelectionError: a name that no table has.
        PluginError: a plugin takes a name that is taken.
    """
    names = op_names()
    elsewhere = tuple(dict.fromkeys(name for name in selection.ops if ":" in name))
    listed = [name for name in selection.ops if ":" not in name]
    ops = [*(_choose("op", listed, names) if listed or not elsewhere else ()), *elsewhere]
    properties = _choose("property", [p.upper() for p in selection.properties], tuple(PROPERTIES))
    dtypes = _choose("dtype", selection.dtypes, DTYPES)
    devices = _choose("device", selection.devices, DEVICES)
    subjects = _choose("subject", selection.subjects, SUBJECTS)
    return [
        Cell(op, code, dtype, device, subject)
        for op in ops
        for code in properties
        for dtype in dtypes
        for device in devices
        for subject in subjects
    ]


def require_known(properties: Iterable[str], dtypes: Iterable[str], device: str) -> None:
    """Require names that there are.

    Raises:
        SelectionError: there is no such property, dtype or device; the text says which is near.
    """
    _choose("property", properties, tuple(PROPERTIES))
    _choose("dtype", dtypes, DTYPES)
    _choose("device", [device], DEVICES)


def in_shard(cells: Sequence[Cell], shard: str | None) -> list[Cell]:
    """The cells of part I of N by their ids: a new op does not move the others to another part.

    Raises:
        SelectionError: not I/N with 1 <= I <= N <= 10000.
    """
    if shard is None:
        return list(cells)
    found = re.fullmatch(r"([0-9]{1,5})/([0-9]{1,5})", shard)
    part, parts = map(int, found.groups()) if found else (0, 0)
    if not 1 <= part <= parts <= 10_000:
        raise SelectionError(f"shard: got shard={shard[:40]!r}, need I/N with 1 <= I <= N <= 10000")
    return [cell for cell in cells if int(cell.id, 16) % parts == part - 1]


def _choose(kind: str, wanted: Iterable[str], known: Sequence[str]) -> list[str]:
    wanted = list(wanted)
    for name in wanted:
        if name not in known:
            raise SelectionError(_unknown(kind, name, known))
    # The order is that of the table, and each name comes once, so that the order in which a user gives names changes
    # no report.
    return [name for name in known if not wanted or name in wanted]


def _unknown(kind: str, name: str, known: Sequence[str]) -> str:
    # Names are compared in lower case, because what is mistyped is often only the case.
    close = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1)
    near = [k for k in known if close and k.lower() == close[0]]
    # The hint comes first, because the names are many and a reader stops before their end.
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"unknown {kind}: got {kind}={name!r}{hint}, need one of {', '.join(known)}"


def _load_plugin(point: EntryPoint) -> Any:
    try:
        return point.load()
    except (Exception, SystemExit) as err:
        # SystemExit is caught as well, because a module that calls `sys.exit` while it is imported would end the
        # command line as if all were well.
        text = f"plugin {point.name!r} ({point.value}) failed to load: {type(err).__name__}: {err}"
        raise PluginError(text) from err
