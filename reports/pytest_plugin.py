"""pytest plugin: one test item per cell. Silent unless `--opassay` is given; imports torch only to run.

Like the command line, it starts what it reports on, so it stands with the reports.

pytest --opassay --opassay-op layer_norm --opassay-property VJP -n 2
pytest opassay::layer_norm::VJP::float32-cpu-opassay
pytest --opassay-report report tests
pytest --opassay-watch tests/test_training.py

The second line is how such an item is named where pytest tells of it; the beginning of such a name, as
`opassay::layer_norm`, stands for all items that begin so. The third makes a record of
all assertions; the last holds every call of torch that a test makes by its own bound, as `opassay watch` does.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from ..oracles.verdicts.verdict import AXES, Cell, Outcome, clean
from ..oracles.verdicts.witnesses import ANNOUNCERS
from ..properties.engine.profiles import PROFILES, default_seed
from ..properties.names import COMMS, FABRICS

_ROOT = "opassay"
#: Seconds after which a line says what a test is asking.
_QUIET = 5.0
_ASSERTION = "opassay.properties.candidates.assertion"
#: Modules without which no cell can be judged, and what installs them.
_REQUIREMENTS = ("torch", "mpmath", "hypothesis", "msgspec")


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
    text = (
        "write run.json, junit.xml and report.html of all assertions and cells to DIR (with --opassay: opassay-report)"
    )
    add("--opassay-report", metavar="DIR", default=None, help=text)
    text = "failures that are accepted for a while, as `opassay gate` reads them (default: known.json, if it is there)"
    add("--opassay-known", metavar="FILE", default=None, help=text)
    add("--opassay-watch", action="store_true", help="hold every call of torch in each test by its own bound")
    add("--opassay-specs", action="append", default=[], metavar="FILE", help="specs of regions for --opassay-watch")
    add("--opassay-ranks", type=int, default=None, help="ranks and devices of every sample (default 1 to 8)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "opassay(op, property): a cell of the verification suite")
    config.addinivalue_line("markers", "opassay_gpu: a cell that needs a GPU")
    _take_ids(config)
    if config.getoption("opassay"):
        _require_installed()
        config.option.opassay_report = config.option.opassay_report or "opassay-report"
    if config.getoption("opassay_report") and not config.getoption("collectonly"):
        _report(config)
    if not config.getoption("opassay"):
        return
    if config.getoption("opassay_seed") is None:  # chosen here, so that every worker gets the same
        config.option.opassay_seed = default_seed(config.getoption("opassay_profile"))
    if hasattr(config, "workerinput"):  # before torch is imported: one thread per worker
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
        # DET asks for several threads; those that spin while they wait would take the cores of other workers.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _take_ids(config: pytest.Config) -> None:
    """Arguments that are ids of cells are no files: they turn the plugin on, and say which cells are meant."""
    ids = [word for word in config.args if word == _ROOT or word.startswith(f"{_ROOT}::")]
    if any(word != _ROOT for word in ids) or (ids and not Path(_ROOT).exists()):
        config.args[:] = [word for word in config.args if word not in ids]
        # A worker of xdist gets the options, but not the arguments that are taken away here.
        config.option.opassay, config.option.opassay_ids = True, ids


def _report(config: pytest.Config) -> None:
    """Have a report made of the session; its folder is claimed before the first test, so that none is asked in vain."""
    from ..properties.engine.environment import environment
    from .baseline import load_known
    from .pytest_report import SessionReport  # here, because whoever wants no report need not have what it is made with
    from .record import RecordError
    from .store.folder import Folder, FolderError
    from .store.marker import new_run_id

    path, name = Path(config.getoption("opassay_report")), config.getoption("opassay_known")
    file = Path(name or "known.json")
    try:
        known = load_known(file) if name or file.is_file() else {}
        folder = None if hasattr(config, "workerinput") else Folder.claim(path, new_run_id())
    except (RecordError, FolderError, OSError) as err:
        raise pytest.UsageError(clean(f"--opassay-report: {err}")) from err
    config.pluginmanager.register(SessionReport(path, folder, environment, known), "opassay-report")


def _require_installed() -> None:
    missing = [name for name in _REQUIREMENTS if name not in sys.modules and importlib.util.find_spec(name) is None]
    if missing:
        how = "install torch" if missing[0] == "torch" else 'pip install "opassay[verify]"'
        raise pytest.UsageError(f"--opassay: {missing[0]} is not installed; {how}")
    try:
        importlib.import_module(".pytest_cells", __package__)
    except ModuleNotFoundError as err:
        raise pytest.UsageError(f"--opassay: {err}") from err


def pytest_report_header(config: pytest.Config) -> str | None:
    if not config.getoption("opassay"):
        return None
    return f"opassay: profile {config.getoption('opassay_profile')}, seed {config.getoption('opassay_seed')}"


# First, because pytest applies -k and -m in the same hook: they must find the cells among the items.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("opassay"):
        return
    from .pytest_cells import cell_items  # here, because few sessions judge cells

    cells = cell_items(session, config)
    # The count that pytest prints is that of collectors that have reported.
    config.hook.pytest_collectreport(report=pytest.CollectReport(_ROOT, "passed", None, list(cells)))
    items.extend(cells)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Say which question a test is at, where it takes long: interpreted kernels do."""
    reporter, capture = map(item.config.pluginmanager.get_plugin, ("terminalreporter", "capturemanager"))
    last = time.monotonic()

    def announce(cell: Cell) -> None:
        nonlocal last
        if reporter is None or capture is None or time.monotonic() - last < _QUIET:
            return
        last = time.monotonic()
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(f"opassay: {item.name} has come to {cell.key}")

    ANNOUNCERS.append(announce)
    try:
        return (yield)
    finally:
        ANNOUNCERS.remove(announce)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and "0 active drivers" in str(call.excinfo.value) and _ASSERTION in sys.modules:
        advice = 'hand the kernel itself over: assert_conforms(kernel, spec, *args, compiled="sm_90")'
        report.sections.append(("opassay", f"a Triton kernel was launched, and there is no GPU here; {advice}"))
    if _is_cell(item):  # The card is the whole report; torch's own log of its compilers would hide it.
        report.sections = [part for part in report.sections if not part[0].startswith("Captured log")]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch what a test calls; it fails where a call is outside of its bound, if nothing else failed."""
    if not item.config.getoption("opassay_watch") or _is_cell(item):
        return (yield)
    from ..properties.watch.watcher import watch  # here, because it imports torch
    from .watch.text import lines_of

    _load_specs(item.config)
    watcher = watch(name=item.name)
    try:
        with watcher:
            answer = yield
    finally:
        lines = [] if watcher.result is None else lines_of(watcher.result)
        item.add_report_section("call", "opassay watch", "\n".join(lines))
    if watcher.result is not None and any(site.outcome is Outcome.FAIL for site in watcher.result.sites):
        pytest.fail("\n".join(lines), pytrace=False)
    return answer


def _load_specs(config: pytest.Config) -> None:
    """Run the files that register specs of regions, once."""
    for path in config.getoption("opassay_specs"):
        runpy.run_path(path)
    config.option.opassay_specs = []


def _is_cell(item: pytest.Item) -> bool:
    """Whether an item is one of `pytest_cells`, which is imported only where there are such items."""
    return isinstance(getattr(item, "cell", None), Cell)
