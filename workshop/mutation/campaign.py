"""A campaign: mutants are chosen, and the ops that run their lines are asked to refuse them.

What this is for: the owner's side. It imports no torch and runs no op; for each module of the catalog in turn it
starts a process that is prepared for that module's ops (`program`), and has it try mutants, several at once.

What is hard here: one line may serve many ops. A mutant that the ops of one module do not refuse is asked by the next
module's, as far as they run its line; it has survived when none is left.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opassay.oracles.verdicts.verdict import Cell, Outcome
from opassay.properties.catalog import CATALOG
from opassay.properties.places.process import EndedError, Process

from .asking import cells_of
from .equivalents import Equivalent, why_equivalent
from .mutants import Mutant, mutants_of

#: Parts of paths of what runs on CUDA alone, where this campaign does not ask.
ELSEWHERE = ("kernels_cuda", "kernels_triton", "gpu/")
#: Seconds for one answer of a process: a cell of the right op, or a trial with all of its questions.
PATIENCE = 1800.0
PROGRAM = (sys.executable, "-m", "workshop.mutation.program")
#: Outcomes of a cell of the right op by which no mutant can be judged.
_BROKEN = (Outcome.FAIL, Outcome.UNSTABLE, Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT)

Record = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How a campaign asks.

    Attributes:
        seed: which mutants are chosen. most: of each family; 0 for all.
        workers: how many trials are under way at once.
        seconds: of CPU for the questions of one module's ops to one mutant.
        graph: whether the mutants are those of the graph: `most` is then of each family in what a module's ops run.
    """

    seed: int = 0
    most: int = 0
    workers: int = 1
    seconds: float = 30.0
    graph: bool = False


#: Names of the settings.
SETTINGS = tuple(Settings.__dataclass_fields__)


def folder() -> Path:
    """Where the production ops are; nothing of them is imported."""
    spec = importlib.util.find_spec("opassay.impl")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def every_mutant(below: Sequence[str] = ("",)) -> list[Mutant]:
    """All mutants of the files that run on a CPU and whose paths begin with one of `below`."""
    root, mutants = folder(), list[Mutant]()
    for path in sorted(root.rglob("*.py")):
        file = str(path.relative_to(root))
        if file.startswith(tuple(below)) and not any(part in file for part in ELSEWHERE):
            mutants += mutants_of(file, path.read_text(encoding="utf-8"))
    return mutants


@dataclass(frozen=True)
class MutantFilter:
    """Says of a mutant whether it is to be asked.

    Attributes:
        files: beginnings of paths, of which the mutant's has one. table: equivalent mutants, which are not asked.
    """

    files: Sequence[str] = ("",)
    table: Sequence[Equivalent] = ()

    def __call__(self, mutant: Mutant) -> bool:
        return mutant.file.startswith(tuple(self.files)) and not why_equivalent(mutant, self.table)


def choose_mutants(mutants: Sequence[Mutant], settings: Settings) -> list[Mutant]:
    """Of every family as many mutants as asked for, those that come first in an order that the seed fixes."""
    families = defaultdict[str, list[Mutant]](list)
    for mutant in mutants:
        families[mutant.family].append(mutant)

    def order(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{settings.seed}:{mutant.key}".encode()).digest()

    return [one for family in families.values() for one in sorted(family, key=order)[: settings.most or len(family)]]


def groups_of(ops: Sequence[str]) -> dict[str, list[str]]:
    """The ops by the module of the catalog that declares them; those of few ops first."""
    groups = defaultdict[str, list[str]](list)
    for op in ops:
        groups[CATALOG.get(op, op.partition(".declaration:")[0])].append(op)
    return dict(sorted(groups.items(), key=lambda item: len(item[1])))


def campaign(
    ops: Sequence[str], mutants: Sequence[Mutant], settings: Settings, before: Collection[Mapping[str, Any]],
    tell: Callable[[str], None], is_candidate: Callable[[Mutant], bool] = lambda mutant: True,
) -> Iterator[Record]:  # fmt: skip
    """What comes of the mutants, as records for a log.

    Args:
        ops: names of the catalog. mutants: the chosen ones; of a graph none, because these are found while the ops run.
        settings: how to ask.
        before: records of a campaign that was interrupted; what they say is not asked again, but for mutants that
            survived because their time was over, where it is longer now.
        tell: takes a line about what is being done.
        is_candidate: whether a mutant of a graph may be chosen.

    Yields:
        {"mutant", "group", "outcome", ...} for each trial, {"done": group} after the last of a group; before the first
        of a group {"excluded": cell, "group", "outcome", "reason"} for each cell that does not hold without a mutant,
        and {"found": [mutant, ...], "group"}, the chosen mutants of the graph.
    """
    ended = {record["mutant"] for record in before if record.get("outcome") in ("killed", "same")}
    again = {_trial_of(record) for record in before if _was_short(record, settings) and record["mutant"] not in ended}
    earlier_trials = {_trial_of(record) for record in before if "mutant" in record} - again
    finished_groups = {record["done"] for record in before if "done" in record} - {group for _, group in again}
    exclusions = {record["excluded"]: record for record in before if "excluded" in record}
    for group, members in groups_of(ops).items():
        if group in finished_groups:
            continue
        process, news = _prepare_process(members, group, settings.graph, tell, exclusions)
        with closing(process):
            yield from news
            if settings.graph:
                mutants = choose_mutants([one for one in _graph_mutants(process) if is_candidate(one)], settings)
                yield {"found": [mutant.data() for mutant in mutants], "group": group}
            waiting = [mutant for mutant in mutants if mutant.key not in ended]
            reached = [m for m, count in zip(waiting, _counts(process, waiting), strict=True) if count]
            remaining = [mutant for mutant in reached if (mutant.key, group) not in earlier_trials]
            tell(f"{group}: {len(reached)} mutants of lines that it runs, {len(remaining)} to ask")
            for answer in _trials(process, remaining, settings):
                record = {"mutant": answer.pop("key"), "group": group, **answer}
                if record["outcome"] != "survived":
                    ended.add(record["mutant"])
                yield record
        yield {"done": group}


def _trial_of(record: Mapping[str, Any]) -> tuple[str, str]:
    return record["mutant"], record["group"]


def _was_short(record: Mapping[str, Any], settings: Settings) -> bool:
    """Whether a mutant survived because its time was over, and has more of it now."""
    # All cells are asked twice, with a few samples and with all.
    is_incomplete = record.get("outcome") == "survived" and record["asked"] < 2 * record["of"]
    return is_incomplete and record["seconds"] < settings.seconds


def _start_process() -> Process:
    process = Process({}, command=PROGRAM)
    process.answer(time.monotonic() + PATIENCE)  # that it is ready
    return process


def _ask(process: Process, **question: Any) -> Record:
    process.ask(question)
    return process.answer(time.monotonic() + PATIENCE)


def _graph_mutants(process: Process) -> list[Mutant]:
    """The mutants of the graph, in what the process has run, of files that run on a CPU."""
    mutants = [Mutant.of(data) for data in _ask(process, graph=True)["mutants"]]
    return [mutant for mutant in mutants if not any(part in mutant.file for part in ELSEWHERE)]


def _prepare_process(
    ops: Sequence[str], group: str, graph: bool, tell: Callable[[str], None], before: Mapping[str, Mapping[str, Any]]
) -> tuple[Process, list[Record]]:
    """A process that has judged every cell of the right ops, and a record of each cell that did not hold there.

    A cell may end its process, a fault of torch under a mode for instance. What the process had noted is gone then, so
    another one judges all the others again.

    Args:
        before: by cell, records of this kind; a cell that ended its process is not judged again.
    """
    excluded = {key: dict(record) for key, record in before.items() if record["outcome"] == Outcome.CRASH}
    while True:
        process = _start_process()
        cells = [cell for op in ops for cell in cells_of(op, graph) if cell.key not in excluded]
        try:
            successes, news = 0, list[Record]()
            for number, cell in enumerate(cells, 1):
                answer = _reach(process, cell, graph)
                successes += answer["outcome"] == Outcome.VERIFIED
                if answer["outcome"] in _BROKEN:
                    news.append(_exclusion(cell, group, answer, tell))
                if number % 40 == 0 or number == len(cells):
                    tell(f"{group}: lines of {number}/{len(cells)} cells, {successes} held")
        except EndedError as err:
            process.close()
            answer = {"outcome": str(Outcome.CRASH), "reason": f"its process {err}"}
            excluded[cell.key] = _exclusion(cell, group, answer, tell)
        except BaseException:
            process.close()
            raise
        else:
            return process, [record for record in (*excluded.values(), *news) if record["excluded"] not in before]


def _exclusion(cell: Cell, group: str, answer: Record, tell: Callable[[str], None]) -> Record:
    """The record of a cell that does not hold without a mutant; it is told, too."""
    tell(f"{cell.key} does not hold without a mutant, and is not asked: {answer['reason']}")
    return {"excluded": cell.key, "group": group, "outcome": answer["outcome"], "reason": answer["reason"]}


def _reach(process: Process, cell: Cell, graph: bool) -> Record:
    return _ask(process, reach=[cell.op, cell.property, cell.dtype], **({"graph": True} if graph else {}))


def _counts(process: Process, mutants: Sequence[Mutant]) -> list[int]:
    """How many cells run a line of each mutant."""
    counts: list[int] = []
    for start in range(0, len(mutants), 100):
        counts += _ask(process, count=[mutant.data() for mutant in mutants[start : start + 100]])["cells"]
    return counts


def _trials(process: Process, mutants: Sequence[Mutant], settings: Settings) -> Iterator[Record]:
    waiting, under_way = list(reversed(mutants)), 0
    while waiting or under_way:
        while waiting and under_way < settings.workers:
            _ask(process, begin=waiting.pop().data(), seconds=settings.seconds)
            under_way += 1
        yield _ask(process, next=True)
        under_way -= 1
