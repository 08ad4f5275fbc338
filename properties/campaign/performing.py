"""The task of a worker of a cluster: run one item and report on it.

Items and reports are JSON. The cluster calls `perform` by its name, so its workers need opassay installed, the same as
the owner's, which `source_digest` tells.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
from dataclasses import asdict, dataclass, field
from typing import Any

from ..engine.environment import source_digest
from ..places.lifeline import adopt_orphans
from ..places.pool import fair_share
from .bench import Bench, ItemLost


@dataclass(frozen=True)
class Item:
    """One piece of work.

    Attributes:
        kind, name: what it is; two items of one kind have two names. group: op, subject and property, or what stands
            for these, by which items are given up where others have ended their processes (`places.crash_limit`).
        owner: whose process runs it; items of different owners never share one. question: what `programs.worker` is
            asked. topic: items of one topic are asked one after the other by one worker, as far as that can be had.
    """

    kind: str
    name: str
    group: tuple[str, str, str]
    owner: str
    question: dict[str, Any]
    topic: str = ""


@dataclass(frozen=True)
class ItemLimits:
    """How items are run.

    Attributes:
        timeout: seconds per item. memory: bytes per process; 0: a fair share of the machine's. beside: processes that
            share a machine. command: the program of a process; by default that of opassay's workers.
    """

    timeout: float = 1200.0
    memory: int = 0
    beside: int = 1
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class ItemReport:
    """What came of an item.

    Attributes:
        answer: of the item's process; empty where the item was out of time.
        lost: how the process was ended, and details, where the item was out of time; else None.
        environment, source: of the process: its versions and machine, and the digest of opassay's source.
        worker: the names of the machine and the process. seconds: of processor time.
        printed: bytes of the process's output, which began with `began`. left: names of processes left behind.
    """

    answer: dict[str, Any]
    lost: tuple[str, str] | None
    environment: dict[str, str]
    source: str
    worker: str
    seconds: float
    printed: int = 0
    began: str = ""
    left: tuple[str, ...] = ()


@dataclass
class _Benches:
    """The processes of this worker that have no item at the moment."""

    idle: list[Bench] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


_BENCHES = _Benches()


def perform(item_text: str, manner_text: str) -> str:
    """Run an `Item` by `ItemLimits`; the `ItemReport`. All three are JSON.

    Raises:
        ItemLost: the item's process ended. Whoever asks may ask again, here or elsewhere.
        NotStarted: no process could be started.
    """
    item, manner = json.loads(item_text), json.loads(manner_text)
    bench, leftovers = _bench_for(item["owner"], manner)
    answer: dict[str, Any] = {}
    printed, lost, before = 0, None, bench.seconds()
    try:
        answer, printed = bench.ask(item["question"], manner["timeout"])
    except ItemLost as err:
        leftovers += bench.close()
        # Only an end that may have come from outside is worth another try; one that is out of time will be so again.
        if not err.timed_out:
            raise
        lost = (err.how, err.details)
    seconds = bench.seconds() - before if lost is None else manner["timeout"]
    report = ItemReport(
        answer, lost, bench.environment, source_digest(), f"{socket.gethostname()} {bench.pid}", seconds,
        printed, bench.first_output() if printed else "", tuple(leftovers),
    )  # fmt: skip
    if lost is None:
        with _BENCHES.lock:
            _BENCHES.idle.append(bench)
    return json.dumps(asdict(report))


def release() -> None:
    """End the processes of this worker that have no item."""
    with _BENCHES.lock:
        idle, _BENCHES.idle = _BENCHES.idle, []
    for bench in idle:
        with contextlib.suppress(OSError):
            bench.close()


def dask_setup(worker: object) -> None:
    """Dask calls this in each worker of a campaign's own cluster: the campaign hears the user's interrupt, not they."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _bench_for(owner: str, manner: dict[str, Any]) -> tuple[Bench, list[str]]:
    """A process for an owner, and the names of leftovers of processes of other owners, which are ended for it."""
    # An op may start processes and then lose its own, which leaves them without a parent; see `places.lifeline`.
    adopt_orphans(True)
    leftovers: list[str] = []
    with _BENCHES.lock:
        fit = [bench for bench in _BENCHES.idle if (bench.owner, list(bench.command)) == (owner, manner["command"])]
        others = [bench for bench in _BENCHES.idle if bench not in fit]
        _BENCHES.idle = fit[1:]
    for bench in others:
        leftovers += bench.close()
    memory = manner["memory"] or fair_share(manner["beside"])
    return fit[0] if fit else Bench(owner, manner["command"], memory), leftovers
