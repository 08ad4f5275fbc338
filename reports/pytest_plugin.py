"""pytest plugin: one test item per cell. Silent unless `--opassay` is given; imports torch only to run.

Like the command line, it starts what it reports on, so it stands with the reports.

pytest --opassay --opassay-op layer_norm --opassay-property VJP -n 2
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..oracles.verdict import AXES, HELD, Cell, Outcome, Verdict, clean, failure_text
from ..properties.catalog import CATALOG
from ..properties.engine.plan import Selection, in_shard, load_op, plan
from ..properties.engine.profiles import PROFILES, default_seed
from ..properties.names import COMMS, FABRICS, PluginError, SelectionError
from ..properties.worlds import World, enter

_PREPARED = pytest.StashKey[bool]()


class CellFailed(Exception):
    """The verdict of a cell that is not a pass; its text is the whole report of the item."""

    def __init__(self, verdict: Verdict, note: str = "") -> None:
        super().__init__("\n  ".join(filter(None, (failure_text(verdict), note))))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("opassay", "opassay: verification of ops")
    add = group.addoption
    add("--opassay", action="store_true", help="add one test per op x property x dtype x device x subject")
    for axis in AXES:
        text = f"only this {axis}; may be repeated"
        add(f"--opassay-{axis}", action="append", default=[], metavar=axis.upper(), help=text)
    add("--opassay-profile", choices=tuple(PROFILES), default="commit", help="effort and seeds (default commit)")
    add("--opassay-seed", type=int, default=None, help="base seed (default: 0 for commit, else random)")
    add("--opassay-max-examples", type=int, default=None, help="samples per cell")
    add("--opassay-shard", default=None, metavar="I/N", help="only part I of N of the cells")
    add("--opassay-comm", choices=COMMS, default=COMMS[0], help=f"what ranks are (default {COMMS[0]})")
    add("--opassay-fabric", choices=FABRICS, default=FABRICS[0], help=f"what devices are (default {FABRICS[0]})")
    add("--opassay-ranks", type=int, default=None, help="ranks and devices of every sample (default 1 to 8)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "opassay(op, property): a cell of the verification suite")
    config.addinivalue_line("markers", "opassay_gpu: a cell that needs a GPU")
    if not config.getoption("opassay"):
        return
    if config.getoption("opassay_seed") is None:  # chosen here, so that every worker gets the same
        config.option.opassay_seed = default_seed(config.getoption("opassay_profile"))
    if hasattr(config, "workerinput"):  # before torch is imported: one thread per worker
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
        # DET asks for several threads; those that spin while they wait would take the cores of other workers.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_report_header(config: pytest.Config) -> str | None:
    if not config.getoption("opassay"):
        return None
    return f"opassay: profile {config.getoption('opassay_profile')}, seed {config.getoption('opassay_seed')}"


# First, because pytest applies -k and -m in the same hook: they must find the cells among the items.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("opassay"):
        return
    root = CellCollector.from_parent(session, name="opassay", nodeid="opassay")
    items.extend(CellItem.from_parent(root, name=cell.key, cell=cell) for cell in planned_cells(config))


def planned_cells(config: pytest.Config) -> list[Cell]:
    """The cells that the options ask for, in the same order in every process."""
    # Every worker of xdist makes this list itself, and xdist refuses to run where two of them differ.
    selection = Selection.of({axis: config.getoption(f"opassay_{axis}") for axis in AXES})
    try:
        cells = in_shard(plan(selection), config.getoption("opassay_shard"))
        for name in dict.fromkeys(cell.op for cell in cells if cell.op not in CATALOG):
            load_op(name)  # one that does not load must stop the session before it starts
        return cells
    except (SelectionError, PluginError) as err:
        raise pytest.UsageError(clean(str(err))) from err


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
        verdict = judged(self.cell, self.config)
        self.user_properties.append(("opassay_outcome", str(verdict.outcome)))
        if verdict.outcome in (Outcome.REFUSED, Outcome.UNSUPPORTED, Outcome.NOT_RUN):
            pytest.skip(clean(f"{verdict.code}: {verdict.reason}"))
        if verdict.outcome not in HELD:
            raise CellFailed(verdict, keep_case(verdict, Path("opassay-report")))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CellFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, None, str]:
        return "opassay", None, self.name


def judged(cell: Cell, config: pytest.Config) -> Verdict:
    """The verdict of a cell, in this process."""
    from ..properties.verification import Settings, run_cell  # here, because it imports torch

    _prepare(config)
    settings = Settings(
        profile=config.getoption("opassay_profile"),
        seed=config.getoption("opassay_seed"),
        max_examples=config.getoption("opassay_max_examples"),
    )
    return run_cell(cell, settings)


def keep_case(verdict: Verdict, folder: Path) -> str:
    """Keeps the failure's case where `opassay replay ID` looks for it; why it was not kept, or empty."""
    failure = verdict.failure
    if failure is None or not failure.case:
        return ""
    from .store.folder import add_case  # here, because whoever runs pytest without --opassay need not have msgspec

    try:
        add_case(folder, failure.case_id, failure.case.encode("utf-8", "replace"))
    except (OSError, ValueError) as err:
        return clean(f"the case was not kept: {err}")
    return ""


def _prepare(config: pytest.Config) -> None:
    """Enter the world that the options name, once, when the first cell runs."""
    if config.stash.get(_PREPARED, False):
        return
    config.stash[_PREPARED] = True
    enter(World(*(config.getoption(f"opassay_{name}") for name in ("comm", "fabric", "ranks"))))
    # A conftest may have imported torch before this plugin set the variables, which torch reads at its import only.
    if hasattr(config, "workerinput") and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
