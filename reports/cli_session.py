"""One verification session: pytest driven in this process, isolated from the user's test set-up."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..oracles.verdict import Cell
from ..properties.plan import Selection
from ..properties.worlds import World
from . import exit_codes
from .exit_codes import Reason
from .progress import Teller

_ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}


@dataclass(frozen=True)
class Request:
    """What `opassay run` was asked for."""

    selection: Selection
    profile: str
    seed: int
    max_examples: int | None = None
    workers: int = 1  # 0: in this process
    maxfail: int = 0
    keyword: str = ""
    timeout: float | None = None
    shard: str | None = None
    world: World = field(default_factory=World)
    pytest_args: tuple[str, ...] = ()


def worker_count(wanted: str, cells: int) -> int:
    """Workers for `auto` (one per usable core) or a number; never more than there are cells.

    Raises:
        ValueError: neither.
    """
    if wanted == "auto":
        return max(1, min(len(os.sched_getaffinity(0)), cells))
    count = int(wanted)
    if count < 0:
        raise ValueError(f"workers: got workers={count}, need 0 or more")
    return min(count, cells)


def run_session(request: Request, log: Path, teller: Teller) -> list[Reason]:
    """Runs the cells; the event logs appear in `log`.

    Returns:
        What went wrong with the session itself; verdicts are not judged here.
    """
    pytest = importlib.import_module("pytest")
    with tempfile.TemporaryDirectory(prefix="opassay-") as folder, _environment(_ENVIRONMENT):
        arguments = _arguments(request, Path(folder), log)
        try:
            with _terminable():
                code = int(pytest.main(arguments, plugins=[teller]))
        except KeyboardInterrupt:
            teller.interrupted = True
            code = int(pytest.ExitCode.INTERRUPTED)
    return _session_reasons(code, teller, pytest.ExitCode)


def select(cells: Sequence[Cell], shard: str | None) -> list[Cell]:
    """The cells of a shard.

    Raises:
        SelectionError: not I/N.
    """
    plugin: Any = importlib.import_module("opassay.properties.plugin")
    found: list[Cell] = plugin.in_shard(cells, shard)
    return found


def _arguments(request: Request, folder: Path, log: Path) -> list[str]:
    (folder / "empty").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    arguments = [str(folder / "empty"), "-c", str(folder / "pytest.ini"), f"--rootdir={folder}"]
    arguments += ["--noconftest", "-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:faulthandler"]
    arguments += ["-p", "opassay", "-p", "xdist", "--opassay", f"--opassay-log={log.resolve()}"]
    if request.workers:
        arguments += ["-n", str(request.workers), "--dist=load", f"--max-worker-restart={4 * request.workers}"]
        arguments += ["--maxschedchunk=1"]
    if request.maxfail:
        arguments.append(f"--maxfail={request.maxfail}")
    if request.keyword:
        arguments += ["-k", request.keyword]
    return arguments + _options(request) + list(request.pytest_args)


def _options(request: Request) -> list[str]:
    chosen = request.selection
    axes = {
        "op": chosen.ops,
        "property": chosen.properties,
        "dtype": chosen.dtypes,
        "device": chosen.devices,
        "subject": chosen.subjects,
    }
    options = [f"--opassay-{axis}={name}" for axis, names in axes.items() for name in names]
    options += [f"--opassay-profile={request.profile}", f"--opassay-seed={request.seed}"]
    options += [f"--opassay-comm={request.world.comm}", f"--opassay-fabric={request.world.fabric}"]
    optional = {"max-examples": request.max_examples, "timeout": request.timeout, "shard": request.shard}
    optional["ranks"] = request.world.size
    return options + [f"--opassay-{name}={value}" for name, value in optional.items() if value is not None]


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM, by which CI services cancel a job, ends the session as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _session_reasons(code: int, teller: Teller, known: Any) -> list[Reason]:
    if teller.interrupted:
        return [(exit_codes.INTERRUPT, "interrupted; the report is partial")]
    if code == known.INTERNAL_ERROR:
        return [(exit_codes.INTERNAL, "the pytest session broke")]
    if code == known.USAGE_ERROR:
        return [(exit_codes.USAGE, "pytest refused the options")]
    return []


def fresh_folder(folder: Path) -> None:
    """An empty folder for the event logs of one run.

    Raises:
        ValueError: the folder, or the report folder around it, is a symbolic link.
    """
    for path in (folder.parent, folder):
        if path.is_symlink():
            raise ValueError(f"report folder: {path.name} is a symbolic link")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
