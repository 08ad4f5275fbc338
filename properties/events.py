"""The event log: one NDJSON line per thing that happened, flushed at once, one file per worker.

The log is the source of every report: whatever kills a worker, the lines before it stay.
"""

from __future__ import annotations

import faulthandler
import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from ..oracles.verdict import Cell, Verdict, as_data


class EventLog:
    """Appends to DIR/events-WORKER.ndjson; the stacks of a dying worker go to DIR/stacks-WORKER.txt."""

    def __init__(self, folder: Path, worker: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.worker = worker
        path = folder / f"events-{worker}.ndjson"
        torn = path.exists() and not path.read_bytes().endswith(b"\n")
        self._file: TextIO = path.open("a", encoding="utf-8")
        if torn:  # an earlier session died while it wrote its last line
            self._file.write("\n")
        self._stacks: TextIO = (folder / f"stacks-{worker}.txt").open("a", encoding="utf-8")
        faulthandler.enable(file=self._stacks)

    def session(self, *, profile: str, seed: int, environment: Mapping[str, str]) -> None:
        self._write("session", profile=profile, seed=seed, environment=dict(environment))

    def deselected(self, cells: Iterable[Cell]) -> None:
        self._write("cells_deselected", cells=[cell.key for cell in cells])

    def started(self, cell: Cell, timeout: float | None) -> None:
        """A cell begins; if it is given `timeout` seconds, the process ends when they are over."""
        self._write("cell_started", cell=cell.key)
        if timeout:
            faulthandler.dump_traceback_later(timeout, exit=True, file=self._stacks)

    def stopped(self) -> None:
        faulthandler.cancel_dump_traceback_later()

    def finished(self, verdict: Verdict) -> None:
        self._write("cell_finished", verdict=as_data(verdict))

    def note(self, text: str) -> None:
        """A line for the report; one that several workers write is told once."""
        self._write("note", text=text)

    def close(self) -> None:
        faulthandler.disable()
        self._stacks.close()
        self._file.close()

    def _write(self, event: str, **data: Any) -> None:
        line = {"event": event, "worker": self.worker, "pid": os.getpid(), "time": time.time().hex()}
        self._file.write(json.dumps(line | data, separators=(",", ":"), allow_nan=False) + "\n")
        self._file.flush()
