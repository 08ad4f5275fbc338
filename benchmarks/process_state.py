"""What it costs to pin the state of the process, compare it after every sample and put it back: share of a run's time.

Run `python benchmarks/process_state.py`. Two figures: the time that a run spends inside the comparison, and the time of
each cell with and without it, judged in turn in one process. The second has the smaller errors of method (it sees what
the comparison pushes out of the caches) and the larger ones of measurement (some percent on a shared machine).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
from measurement import Row, at_most, fastest, line

from opassay import Cell, Settings, run_cell
from opassay.oracles import process
from opassay.properties.engine import plan
from opassay.properties.table import PROPERTIES as TABLE

OPS = ("layer_norm", "softmax", "batch_norm", "nll_loss")
#: All but those that compile or ask other processes, whose times vary more than what is measured here.
PROPERTIES = tuple(code for code in TABLE if code not in ("COMP", "FWAD"))
DTYPE = "float32"
SETTINGS = Settings("brief")  # what the assay asks
ROUNDS = 4
#: Cells of the whole assay that are drawn; those of FWAD are judged in another process.
CELLS, SEED = 400, 0
#: Percent of the time without the comparison.
TARGET = 3.0


@contextmanager
def _unpinned() -> Iterator[process.Pin]:
    yield process.Pin()


@contextmanager
def _unwatched(*tiers: process.Tier) -> Iterator[list[str]]:
    yield []


def _undisturbed(call: Callable[..., Any], args: Sequence[Any]) -> Any:
    return call(*args)


def without(cell: Cell) -> None:
    """The verdict of a cell by the same code, with the comparison taken out."""
    with mock.patch.multiple(process, pinned=_unpinned, watched=_unwatched, undisturbed=_undisturbed):
        run_cell(cell, SETTINGS)


class Clock:
    """Seconds that passed inside of what it was put around."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args)
            finally:
                self.seconds += time.perf_counter() - start

        return timed

    def block(self, manager: Callable[..., AbstractContextManager[Any]]) -> Callable[..., Any]:
        """The beginning and the end of a block, without what runs in it."""

        @contextmanager
        def timed(*args: Any) -> Iterator[Any]:
            with ExitStack() as stack:
                stack.callback(self._stop)
                start = time.perf_counter()
                value = stack.enter_context(manager(*args))
                self.seconds += time.perf_counter() - start
                stack.callback(self._start)
                yield value

        return timed

    def _start(self) -> None:
        self._started = time.perf_counter()

    def _stop(self) -> None:
        self.seconds += time.perf_counter() - self._started


def inside(cells: Sequence[Cell]) -> float:
    """Percent of the time of these cells that is spent in the comparison."""
    clock = Clock()
    parts = {"pinned": clock.block(process.pinned), "watched": clock.block(process.watched)}
    modes = {"read": clock.call(process.MODES.read), "restored": clock.call(process.MODES.restored)}
    with mock.patch.multiple(process, **parts), mock.patch.multiple(process.MODES, **modes):
        start = time.perf_counter()
        for cell in cells:
            run_cell(cell, SETTINGS)
        whole = time.perf_counter() - start
    return 100 * clock.seconds / (whole - clock.seconds)


def cells_of(op: str) -> list[Cell]:
    return [Cell(op, code, DTYPE, "cpu", "opassay") for code in PROPERTIES]


def rows() -> Iterator[Row]:
    draws = random.Random(SEED).sample(
        [cell for cell in plan.plan(plan.Selection(devices=("cpu",))) if cell.property != "FWAD"], CELLS
    )
    for cell in draws:
        run_cell(cell, SETTINGS)  # the first time, much is imported
    yield at_most("state", f"inside, {CELLS} cells of the assay, seed {SEED}", inside(draws), "% more time", TARGET)
    whole = [0.0, 0.0]
    for op in OPS:
        spent = [0.0, 0.0]
        for cell in cells_of(op):
            calls = [partial(run_cell, cell, SETTINGS), partial(without, cell)]
            for side, seconds in enumerate(fastest(calls, ROUNDS)):
                spent[side] += seconds
                whole[side] += seconds
        yield Row("state", f"with and without, {op}", 100 * (spent[0] / spent[1] - 1), "% more time")
    yield Row("state", "with and without, all of these", 100 * (whole[0] / whole[1] - 1), "% more time")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for row in rows():
        print(line(row), flush=True)
