"""What it costs to pin the state of the process, compare it after every sample and put it back: share of a run's time.

Run `python benchmarks/process_state.py`. Each cell is judged in turn with and without the comparison, in one process;
the minima of all rounds are added up over the cells, so that a slow moment of the machine counts on neither side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
from measurement import Row, at_most, fastest, line

from opassay import Cell, Settings, run_cell
from opassay.oracles import state
from opassay.properties import plan

OPS = ("layer_norm", "softmax", "batch_norm", "nll_loss")
#: All but those that compile or ask other processes, whose times vary more than what is measured here.
PROPERTIES = tuple(code for code in plan.PROPERTIES if code not in ("COMP", "FWAD"))
DTYPE = "float32"
SETTINGS = Settings("brief")
ROUNDS = 4
#: Percent of the time without the comparison.
TARGET = 3.0


@contextmanager
def _unpinned() -> Iterator[state.Pin]:
    yield state.Pin()


@contextmanager
def _unwatched(*tiers: state.Tier) -> Iterator[list[str]]:
    yield []


def _undisturbed(call: Callable[..., Any], args: Sequence[Any]) -> Any:
    return call(*args)


def without(cell: Cell) -> None:
    """The verdict of a cell by the same code, with the comparison taken out."""
    with mock.patch.multiple(state, pinned=_unpinned, watched=_unwatched, undisturbed=_undisturbed):
        run_cell(cell, SETTINGS)


def rows() -> Iterator[Row]:
    whole = [0.0, 0.0]
    for op in OPS:
        spent = [0.0, 0.0]
        for cell in [Cell(op, code, DTYPE, "cpu", "opassay") for code in PROPERTIES]:
            calls = [partial(run_cell, cell, SETTINGS), partial(without, cell)]
            for side, seconds in enumerate(fastest(calls, ROUNDS)):
                spent[side] += seconds
                whole[side] += seconds
        yield Row("state", f"{op}, all properties", 100 * (spent[0] / spent[1] - 1), "% more time")
    yield at_most("state", "all of these", 100 * (whole[0] / whole[1] - 1), "% more time", TARGET)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for row in rows():
        print(line(row), flush=True)
