"""The items of `pytest --opassay`: one test for each cell."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ..oracles.verdicts.verdict import AXES, HELD, Cell, Outcome, Verdict, clean, failure_text
from ..oracles.verdicts.witnesses import tell
from ..properties.catalog import CATALOG
from ..properties.catalog.loading import load_op
from ..properties.engine.plan import Selection, in_shard, plan
from ..properties.names import PluginError, SelectionError
from ..properties.worlds import World, enter

_PREPARED = pytest.StashKey[bool]()
_ROOT = "opassay"
#: Signs in the name of an op that a shell would interpret, and what stands for them in the id of an item.
_TO_ID = str.maketrans({"(": "{", ")": "}", ",": "+", "[": "::", "]": ""})
_FROM_ID = str.maketrans({"{": "(", "}": ")", "+": ","})
#: The dtypes in which a custom function is asked where no other is named: in the half types it would be held to one
#: rounding per output.
_FUNCTION_DTYPES = ("float64", "float32")


class CellFailed(Exception):
    """The verdict of a cell that is not a pass; its text is the whole report of the item."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(failure_text(verdict))


def cell_items(session: pytest.Session, config: pytest.Config) -> list[CellItem]:
    """The items of the cells that the options ask for."""
    root = CellCollector.from_parent(session, name=_ROOT, nodeid=_ROOT)
    return [CellItem.from_parent(root, name=item_name(cell), cell=cell) for cell in planned_cells(config)]


def item_name(cell: Cell) -> str:
    """The cell as part of an id that every shell takes as one plain word."""
    return cell.key.translate(_TO_ID)


def planned_cells(config: pytest.Config) -> list[Cell]:
    """The cells that the options ask for, in the same order in every process."""
    # Every worker of xdist makes this list itself, and xdist refuses to run where two of them differ.
    ids = [word.removeprefix(f"{_ROOT}::").translate(_TO_ID) for word in getattr(config.option, "opassay_ids", ())]
    axes: dict[str, list[str]] = {axis: config.getoption(f"opassay_{axis}") for axis in AXES}
    named = [word.split("::") for word in ids if word != _ROOT]
    if named:
        # An op that no table lists is known because an id names it, and so are devices and subjects.
        ends = [parts[2].split("-", 2) for parts in named if len(parts) > 2]
        named_axes = {"op": [parts[0].translate(_FROM_ID) for parts in named]}
        named_axes |= {axis: [end[i] for end in ends if len(end) > i] for i, axis in ((1, "device"), (2, "subject"))}
        axes |= {axis: list(dict.fromkeys(names)) for axis, names in named_axes.items() if not axes[axis]}
    try:
        selection = Selection.of(axes)
        cells = [cell for part in _parts(selection) for cell in in_shard(plan(part), config.getoption("opassay_shard"))]
        matches = [cell for cell in cells if not named or any(_begins(item_name(cell), word) for word in ids)]
        unknown = [word for word in ids if word != _ROOT and not any(_begins(item_name(c), word) for c in cells)]
        if unknown:
            raise pytest.UsageError(clean(f"no cell has an id that begins with {_ROOT}::{unknown[0]}"))
        cells = matches
        for name in dict.fromkeys(cell.op for cell in cells if cell.op not in CATALOG):
            load_op(name)  # one that does not load must stop the session before it starts
        return cells
    except (SelectionError, PluginError) as err:
        raise pytest.UsageError(clean(str(err))) from err


def _parts(selection: Selection) -> list[Selection]:
    """The selection, in parts: custom functions, whose names hold what makes their samples, and the other ops."""
    functions = tuple(name for name in selection.ops if "(" in name)
    if not functions or selection.dtypes:
        return [selection]
    others = tuple(name for name in selection.ops if name not in functions)
    parts = [replace(selection, ops=functions, dtypes=_FUNCTION_DTYPES)]
    return [replace(selection, ops=others), *parts] if others else parts


def _begins(name: str, word: str) -> bool:
    return name == word or name.startswith(f"{word}::")


class CellCollector(pytest.Collector):
    """The node above all cells; it collects nothing itself."""

    def collect(self) -> Iterator[pytest.Item]:
        # pytest collects what its arguments name, and none of them names the cells;
        # `pytest_collection_modifyitems` adds them.
        yield from ()


class CellItem(pytest.Item):
    """One cell: passes if verified or weak, is skipped if not asked, fails otherwise."""

    def __init__(self, *, cell: Cell, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.cell = cell
        self.add_marker(pytest.mark.opassay(op=cell.op, property=cell.property))
        if cell.device != "cpu":
            self.add_marker(pytest.mark.opassay_gpu)

    def runtest(self) -> None:
        verdict = judge_cell(self.cell, self.config)
        self.user_properties.append(("opassay_outcome", str(verdict.outcome)))
        tell([verdict])
        if verdict.outcome in (Outcome.REFUSED, Outcome.UNSUPPORTED, Outcome.NOT_RUN):
            pytest.skip(clean(f"{verdict.code}: {verdict.reason}"))
        if verdict.outcome not in HELD:
            raise CellFailed(verdict)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CellFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, None, str]:
        return "opassay", None, self.name


def judge_cell(cell: Cell, config: pytest.Config) -> Verdict:
    """The verdict of a cell, in this process."""
    from ..properties.verification import Settings, run_cell  # here, because it imports torch

    _enter_world_once(config)
    settings = Settings(
        profile=config.getoption("opassay_profile"),
        seed=config.getoption("opassay_seed"),
        max_examples=config.getoption("opassay_max_examples"),
    )
    return run_cell(cell, settings)


def _enter_world_once(config: pytest.Config) -> None:
    """Enter the world that the options name, once, when the first cell runs."""
    if config.stash.get(_PREPARED, False):
        return
    config.stash[_PREPARED] = True
    enter(World(*(config.getoption(f"opassay_{name}") for name in ("comm", "fabric", "ranks"))))
    # A conftest may have imported torch before this plugin set the variables, which torch reads at its import only.
    if hasattr(config, "workerinput") and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
