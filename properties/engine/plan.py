"""Which cells there are: names in, cells out. Imports neither torch nor mpmath, so that listing is instant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...oracles.verdicts.verdict import AXES, Cell
from ...reference.dtypes import dtype_name
from ..catalog.loading import op_names
from ..names import DEVICES, SUBJECTS, SelectionError, collect_names, require_known
from ..table import DTYPES as DTYPES
from ..table import PROPERTIES
from ..torch_ops.patterns import matching


@dataclass(frozen=True)
class Selection:
    """Which cells to run; an empty tuple means all names of that axis.

    An op is one of `op_names()`, or "module:name" for an `Op` that a module declares, or
    "module:class(module:samples,module:reference)" for a custom function; the reference may be left out. "torch:NAME"
    is an operation of torch, and NAME may have * and ? in it.
    """

    ops: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)
    subjects: tuple[str, ...] = ("opassay",)

    @classmethod
    def of(cls, words: Mapping[str, Sequence[str]]) -> Selection:
        """The selection of names by axis; cpu and opassay where no device or subject is named."""
        ops, properties, dtypes, devices, subjects = (tuple(words[axis]) for axis in AXES)
        return cls(ops, properties, dtypes, devices or cls.devices, subjects or cls.subjects)


def plan(selection: Selection) -> list[Cell]:
    """The cells of a selection, in the report's order. No op is loaded, because that would run its author's code.

    Raises:
        SelectionError: a name that no table has.
        PluginError: a plugin has the name of another op.
    """
    names = op_names()
    elsewhere = tuple(dict.fromkeys(each for name in selection.ops if ":" in name for each in matching(name)))
    listed = [name for name in selection.ops if ":" not in name]
    ops = [*(_choose("op", listed, names) if listed or not elsewhere else ()), *elsewhere]
    codes = [code for codes_of in selection.properties for code in codes_of.upper().split(",")]
    properties = _choose("property", codes, tuple(PROPERTIES))
    dtypes = _choose("dtype", map(dtype_name, selection.dtypes), DTYPES)
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


def cells_of(
    op: str, properties: Iterable[str], dtypes: Iterable[object], device: str, subject: str = "opassay"
) -> list[Cell]:
    """The cells of one op, in the order of the names.

    Args:
        op: its name. properties, dtypes: codes, and what `dtype_name` takes; all where there are none.
        device, subject: of the cells.

    Raises:
        SelectionError: a table has no such property, dtype or device; the text names the nearest one.
    """
    codes = tuple(str(code).upper() for code in collect_names(properties)) or tuple(PROPERTIES)
    names = tuple(map(dtype_name, collect_names(dtypes))) or DTYPES
    require_known("property", codes, PROPERTIES)
    require_known("dtype", names, DTYPES)
    require_known("device", [device], DEVICES)
    return [Cell(op, code, dtype, device, subject) for code in codes for dtype in names]


def in_shard(cells: Sequence[Cell], shard: str | None) -> list[Cell]:
    """The cells of part I of N by their ids: a new op does not move the others to another part.

    Raises:
        SelectionError: not I/N with 1 <= I <= N <= 10000.
    """
    if shard is None:
        return list(cells)
    match = re.fullmatch(r"([0-9]{1,5})/([0-9]{1,5})", shard)
    part, parts = map(int, match.groups()) if match else (0, 0)
    if not 1 <= part <= parts <= 10_000:
        raise SelectionError(f"shard: got shard={shard[:40]!r}, need I/N with 1 <= I <= N <= 10000")
    return [cell for cell in cells if int(cell.id, 16) % parts == part - 1]


def _choose(kind: str, names: Iterable[str], table: Sequence[str]) -> list[str]:
    """The names of `table` that are in `names`; all of them if `names` is empty. SelectionError for an unknown name."""
    names = list(names)
    require_known(kind, names, table)
    # The order is that of the table, and each name comes once, so that the order in which a user gives names changes
    # no report.
    return [name for name in table if not names or name in names]
