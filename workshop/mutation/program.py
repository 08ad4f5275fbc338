"""`python -m workshop.mutation.program`: a process that is prepared for some ops, and tries mutants of them.

Its owner sends one question per line, as to every process that judges (`places.serving`). The hello has no settings.

- `{"reach": [op, property, dtype]}`: judge a cell of the right op, and note its lines: `{"outcome", "reason"}`.
- `{"reach": ..., "graph": true}`: the same, and the places where operations of torch are asked for are noted as well.
- `{"graph": true}`: the mutants of all places that were noted: `{"mutants": [mutant, ...]}`.
- `{"count": [mutant, ...]}`: of each, how many cells run a line of it: `{"cells": [number, ...]}`.
- `{"begin": mutant, "seconds": CPU seconds}`: start a trial: `{"begun": key}`.
- `{"next": true}`: wait for the end of a trial: `{"key", "outcome", ...}` as `trial.wait_for_trial` has them.
"""

from __future__ import annotations

import contextlib
import functools
import gc

import torch

from opassay.oracles.verdicts.verdict import Cell, Outcome
from opassay.properties import worlds
from opassay.properties.catalog.loading import load_op
from opassay.properties.places.serving import Json, serve

from .asking import APART, BY_OTHERS, COMPILED, Line, Reach
from .graph import Place, change_graph, graph_mutants, note_places
from .mutants import Mutant
from .planting import plant_mutant, remember, source
from .reach import note_lines
from .trial import FEW, Asking, Trial, begin, in_copy, judge_brief, wait_for_trial

_REACH = Reach()
_PLACES: dict[Place, set[tuple[str, str]]] = {}
_TRIALS: list[Trial] = []


def prepare(hello: Json) -> dict[str, str]:
    """Import torch and what judges; the process is alone, with ranks that are threads and devices in memory."""
    torch.set_num_threads(1)
    worlds.enter(worlds.World())
    return {}


def answer(question: Json) -> Json:
    """The answer to a question; see the module."""
    if "reach" in question:
        op, code, dtype = question["reach"]
        return _note_reach(Cell(op, code, dtype, "cpu", "opassay"), bool(question.get("graph")))
    if "graph" in question:
        return {"mutants": [mutant.data() for mutant in graph_mutants(_PLACES)]}
    if "count" in question:
        return {"cells": [len(_REACH.cells(Mutant.of(data))) for data in question["count"]]}
    if "begin" in question:
        return _begin_trial(Mutant.of(question["begin"]), question["seconds"])
    trial, outcome = wait_for_trial(_TRIALS)
    return {"key": trial.asking.key, **outcome}


def _note_reach(cell: Cell, graph: bool) -> Json:
    # What a copy of the process notes is lost, and what the op's other cells run has been noted by these.
    places = {} if cell.property in (*APART, *BY_OTHERS) else _PLACES
    with note_places(places) if graph else contextlib.nullcontext():
        judgement = in_copy(lambda: _judge_cell(cell)) if cell.property in APART else _judge_cell(cell)
    if judgement["outcome"] == Outcome.VERIFIED:
        _REACH.note(cell, {(file, line) for file, line in judgement["lines"]})
    return {"outcome": judgement["outcome"], "reason": judgement["reason"]}


def _judge_cell(cell: Cell) -> Json:
    """The verdict of a cell of the right op, and which lines it ran; what is compiled is not watched."""
    lines: set[Line] = set()
    # What runs when the op is imported is done before there is a mutant, so it is none of the lines that a cell runs.
    load_op(cell.op)
    with contextlib.nullcontext() if cell.property == COMPILED else note_lines(lines):
        verdict = judge_brief(cell, FEW)
    return {"outcome": str(verdict.outcome), "reason": verdict.reason, "lines": sorted(lines)}


@functools.cache
def _prepare_to_copy() -> None:
    # What is there now is shared with the copies; collecting it there would make each copy write to all of it.
    gc.collect()
    remember()
    gc.freeze()


def _begin_trial(mutant: Mutant, seconds: float) -> Json:
    _prepare_to_copy()
    cells = _REACH.cells(mutant)
    if mutant.in_graph:
        calls: list[None] = []
        plant = functools.partial(change_graph, mutant, lambda: calls.append(None))
        asking = Asking(mutant.key, cells, plant, seconds, conclude=lambda: {"calls": len(calls)})
    else:
        source(mutant.file)
        asking = Asking(mutant.key, cells, functools.partial(plant_mutant, mutant), seconds)
    _TRIALS.append(begin(asking))
    return {"begun": mutant.key}


if __name__ == "__main__":
    serve(prepare, answer)
