"""pytest plugin: one test item per cell. Silent unless `--opassay` is given; imports torch only to run.

pytest --opassay --opassay-op layer_norm --opassay-property VJP -n 2
"""

from __future__ import annotations

import importlib
import os
import secrets
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..oracles.verdict import CHECKED, Cell, Code, Failure, Outcome, Verdict, clean, failure_text
from .events import EventLog
from .plan import COMMS, FABRICS, PluginError, Selection, SelectionError, plan
from .profiles import PROFILES

_AXES = ("op", "property", "dtype", "device", "subject")
_LOG = pytest.StashKey[EventLog]()
_SESSION_LOGGED = pytest.StashKey[bool]()


class CellFailed(Exception):
    """The verdict of a cell that is not a pass; its text is the whole report of the item."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(failure_text(verdict))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("opassay", "opassay: verification of ops")
    add = group.addoption
    add("--opassay", action="store_true", help="add one test per op x property x dtype x device x subject")
    for axis in _AXES:
        text = f"only this {axis}; may be repeated"
        add(f"--opassay-{axis}", action="append", default=[], metavar=axis.upper(), help=text)
    add("--opassay-profile", choices=tuple(PROFILES), default="commit", help="effort and seeds (default commit)")
    add("--opassay-seed", type=int, default=None, help="base seed (default: 0 for commit, else random)")
    add("--opassay-max-examples", type=int, default=None, help="samples per cell")
    add("--opassay-log", default=None, metavar="DIR", help="write events-WORKER.ndjson here")
    add("--opassay-timeout", type=float, default=None, help="seconds per cell (under pytest-xdist)")
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
        os.environ.setdefault(
            "OMP_WAIT_POLICY", "PASSIVE"
        )  # DET asks for threads, which else spin on other workers' cores
    folder = config.getoption("opassay_log")
    if folder and _runs_cells(config):
        config.stash[_LOG] = EventLog(Path(folder), _worker(config))


def pytest_unconfigure(config: pytest.Config) -> None:
    log = config.stash.get(_LOG, None)
    if log is not None:
        log.close()


def pytest_report_header(config: pytest.Config) -> str | None:
    if not config.getoption("opassay"):
        return None
    return f"opassay: profile {config.getoption('opassay_profile')}, seed {config.getoption('opassay_seed')}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("opassay"):
        return
    root = CellCollector.from_parent(session, name="opassay", nodeid="opassay")
    items.extend(CellItem.from_parent(root, name=cell.key, cell=cell) for cell in planned_cells(config))


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    cells = [item.cell for item in items if isinstance(item, CellItem)]
    log = items[0].config.stash.get(_LOG, None) if items else None
    if cells and log is not None:
        log.deselected(cells)


def planned_cells(config: pytest.Config) -> list[Cell]:
    """The cells that the options ask for, in the same order in every process."""
    chosen = {axis: tuple(config.getoption(f"opassay_{axis}")) for axis in _AXES}
    usual = Selection()
    selection = Selection(
        ops=chosen["op"],
        properties=chosen["property"],
        dtypes=chosen["dtype"],
        devices=chosen["device"] or usual.devices,
        subjects=chosen["subject"] or usual.subjects,
    )
    try:
        cells = plan(selection)
        return in_shard(cells, config.getoption("opassay_shard"))
    except (SelectionError, PluginError) as err:
        raise pytest.UsageError(clean(str(err))) from err


def in_shard(cells: Sequence[Cell], shard: str | None) -> list[Cell]:
    """The cells of part I of N by their ids: a new op does not move the others to another part."""
    if shard is None:
        return list(cells)
    part, _, parts = shard.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise SelectionError(f"shard: got shard={shard!r}, need I/N with 1 <= I <= N")
    return [cell for cell in cells if int(cell.id, 16) % int(parts) == int(part) - 1]


def default_seed(profile: str) -> int:
    """Base seed of a profile: 0 for commit, so that runs can be compared; else random."""
    return 0 if PROFILES[profile].fixed else secrets.randbits(32)


class CellCollector(pytest.Collector):
    """The node above all cells; it collects nothing itself."""

    def collect(self) -> Iterator[pytest.Item]:
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
        verdict = run_logged(self.cell, self.config)
        self.user_properties.append(("opassay_outcome", str(verdict.outcome)))
        if verdict.outcome in (Outcome.UNSUPPORTED, Outcome.NOT_RUN):
            pytest.skip(clean(f"{verdict.code}: {verdict.reason}"))
        if verdict.outcome not in (Outcome.VERIFIED, Outcome.WEAK):
            if self.config.getoption("opassay_log") is None:  # else whoever reads the log keeps the case
                keep_case(verdict, Path("opassay-report") / "cases")
            raise CellFailed(verdict)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CellFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, None, str]:
        return "opassay", None, self.name


def run_logged(cell: Cell, config: pytest.Config) -> Verdict:
    """The verdict of a cell, with lines in the event log before and after."""
    log = config.stash.get(_LOG, None)
    cells = _suite(config)
    settings = cells.Settings(
        profile=config.getoption("opassay_profile"),
        seed=config.getoption("opassay_seed"),
        max_examples=config.getoption("opassay_max_examples"),
    )
    under_xdist = hasattr(config, "workerinput")
    if log is None:
        return timed(cells, cell, settings)
    log.started(cell, config.getoption("opassay_timeout") if under_xdist else None)
    try:
        verdict = timed(cells, cell, settings)
    finally:
        log.stopped()
    log.finished(verdict)
    if cell.property == "COMM" and verdict.outcome in CHECKED:
        for line in importlib.import_module("opassay.properties.predictions").predictions(cell.op):
            log.note(line)
    return verdict


def keep_case(verdict: Verdict, folder: Path) -> None:
    """Writes the failure's case where `opassay replay ID` looks for it."""
    failure = verdict.failure
    if failure is None or not failure.case or not failure.case_id.replace("-", "").isalnum():
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{failure.case_id}.json").write_text(failure.case, encoding="utf-8", errors="replace")


def timed(cells: Any, cell: Cell, settings: Any) -> Verdict:
    """The cell's verdict; what it raises is the verdict `error`, never the end of the session."""
    start = time.perf_counter()
    try:
        verdict: Verdict = cells.run_cell(cell, settings)
    except Exception as err:
        said = f"{type(err).__name__}: {err}"
        trace = "".join(traceback.format_exception(err, limit=-12))
        failure = Failure(Code.HARNESS, said.partition("\n")[0], trace)
        verdict = Verdict(cell, Outcome.ERROR, Code.HARNESS, said, failure=failure)
    checked = verdict.outcome in CHECKED or verdict.outcome is Outcome.ERROR
    if verdict.seconds == 0 and checked:
        return verdict.with_seconds(time.perf_counter() - start)
    return verdict


def _suite(config: pytest.Config) -> Any:
    """The module that runs cells; imports torch, once, when the first cell runs."""
    cells = importlib.import_module("opassay.properties.cells")
    if config.stash.get(_SESSION_LOGGED, False):
        return cells
    config.stash[_SESSION_LOGGED] = True
    enter = importlib.import_module("opassay.properties.worlds").enter_unless_there
    enter(*(config.getoption(f"opassay_{name}") for name in ("comm", "fabric", "ranks")))
    if hasattr(config, "workerinput") and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    log = config.stash.get(_LOG, None)
    if log is not None:
        found = importlib.import_module("opassay.properties.environment").environment()
        profile, seed = config.getoption("opassay_profile"), config.getoption("opassay_seed")
        log.session(profile=profile, seed=seed, environment=found)
    return cells


def _worker(config: pytest.Config) -> str:
    return str(getattr(config, "workerinput", {}).get("workerid", "main"))


def _runs_cells(config: pytest.Config) -> bool:
    """False in the controller of pytest-xdist, which hands every cell to a worker."""
    return hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None)
