"""A campaign on PTX: mutants of what Triton made of the kernels, asked what subject "ptx" is asked.

What this is for: this process compiles and executes kernels, and does nothing else. It judges the cells of the right
ops, by which it learns which programs they execute; then each mutant has a copy of it (`trial`).
"""

from __future__ import annotations

import functools
import gc
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from opassay.oracles.machine.compiling import architecture
from opassay.oracles.op.declaration import EXECUTED
from opassay.oracles.verdicts.verdict import Cell, Outcome, Verdict
from opassay.properties.engine.cells import judge_cell
from opassay.properties.engine.guard import guard
from opassay.properties.engine.samples import Settings as CellSettings
from opassay.properties.places import interpreting
from opassay.properties.table import PROPERTIES

from .asking import in_order_of_precedence
from .ptx_changes import PtxMutant, disturb, mutants_of
from .ptx_launches import MutableExecutor
from .trial import Answer, Asking, Trial, begin, wait_for_trial

#: Outcomes of a right program.
PASSING = (Outcome.VERIFIED, Outcome.WEAK, Outcome.UNSUPPORTED)
#: Mutants are planted in programs that these execute, for they have the shapes that all questions share. What VMAP or
#: INV alone execute, at batches of other shapes, is another specialisation of the same kernels, asked one question.
ASKING_VALUES = frozenset({"FWD", "VJP", "JVP"})
#: CPU seconds of one question: the slowest one of a right program takes a tenth of it.
LIMIT = 20
#: An op of each family, whose cells reach its kernels of both directions.
USUAL_OPS = (
    "layer_norm", "rms_norm", "fused_add_rms_norm", "group_norm", "batch_norm", "softmax", "log_softmax", "nll_loss",
    "cross_entropy", "log_sigmoid", "trace", "cross_map_lrn2d",
)  # fmt: skip


@dataclass(frozen=True)
class PtxSettings:
    """How a campaign asks.

    Attributes:
        seed: which mutants are chosen. most: of each kind of each family; 0 for all.
        workers: how many trials are under way at once. seconds: of CPU for the questions of one mutant.
    """

    seed: int = 0
    most: int = 1
    workers: int = 1
    seconds: float = 30.0


def cells_of(ops: Sequence[str], dtypes: Sequence[str]) -> list[Cell]:
    """The cells that mutants are asked, those first in which most mistakes show."""
    order = in_order_of_precedence(row for row in PROPERTIES.values() if EXECUTED in row.kernels)
    return [Cell(op, code, dtype, "cpu", EXECUTED) for op in ops for dtype in dtypes for code in order]


def judge(cell: Cell, examples: int | None) -> Verdict:
    """The verdict of a cell in this process."""
    settings = CellSettings("brief", max_examples=examples, simpler=False)
    return guard(cell, functools.partial(judge_cell, cell, settings))


#: Why a mutant of a kind that acts, and leaves all bits as they were, is none that anybody could see.
REASONS = {
    "barrier dropped": "no thread touches, behind it, what another one touched before it",
    "predicate dropped": "the threads that it keeps away load what is masked later, or store what is there already",
    "comparison off by one": "where both sides are equal, both ways lead to the same bits",
    "ftz": "what is flushed is lost in a later rounding",
    "operands swapped": "the threads in which the operands differ are masked later",
    "rounding": "the other direction is lost in a later rounding",
    "shuffle distance": "the lanes that are read have the same values",
    "address": "the neighbour has the same value, or the thread is masked later",
    "constant": "the threads in which the constant counts are masked later, or it is a limit that is not met",
}


@dataclass(frozen=True)
class PtxFate:
    """What became of a mutant.

    Attributes:
        outcome: "killed"; "survived"; "allowed", where one rounding goes in another direction, bits differ, and every
            result is within the bound; "equivalent", where the instruction gave other results, on which others hang,
            and all bits stayed; "without effect", where it gave the same on all inputs, or no result depends on it.
        by, how: the property that refused it, and its verdict. why: of an equivalent one. questions, of: how many
            cells it was asked, and how many there are. seconds: of CPU.
    """

    mutant: PtxMutant
    outcome: str
    by: str = ""
    how: str = ""
    why: str = ""
    questions: int = 0
    of: int = 0
    seconds: float = 0.0


def fate_of(mutant: PtxMutant, answer: Answer) -> PtxFate:
    """What the answer of a trial says."""
    outcome, why = answer["outcome"], ""
    if outcome == "survived" and not (answer["acts"] and answer["live"]):
        outcome = "without effect"
    elif outcome == "survived" and not answer["differs"]:
        outcome, why = "equivalent", REASONS[mutant.kind]
    elif outcome == "survived" and mutant.kind == "rounding":
        outcome = "allowed"
    by, how = (answer["by"], answer["code"] or answer["how"]) if outcome == "killed" else ("", "")
    return PtxFate(mutant, outcome, by, how, why, answer["asked"], answer["of"], answer["seconds"])


def machine_of_ops() -> MutableExecutor:
    """What executes the kernels of all ops in this process from now on, for good."""
    interpreting.install_executor()
    from opassay.impl.gpu import launching

    machine = MutableExecutor(architecture())
    launching.put_on(machine)
    return machine


class PtxCampaign:
    """Asks the cells of right kernels, and then those of their mutants.

    Args:
        machine: which executes them. cells: what is asked; one that does not hold without a mutant is asked no more.
        say: takes a line about what is being done. ask: gives the verdict of a cell in this process.
        limit: CPU seconds of one question.
    """

    def __init__(
        self, machine: MutableExecutor, cells: Sequence[Cell], say: Callable[[str], None],
        ask: Callable[[Cell, int | None], Verdict] = judge, limit: int = LIMIT,
    ) -> None:  # fmt: skip
        self.machine, self._ask, self._limit = machine, ask, limit
        self._families: dict[str, str] = {}
        for cell in cells:
            machine.cell = cell
            verdict = ask(cell, None)
            if verdict.outcome not in PASSING:
                say(f"{cell.key} does not hold without a mutant: {verdict.reason}")
            for digest, program in machine.programs.items():
                self._families.setdefault(digest, cell.op)
                program.cells = [each for each in program.cells if each != cell or verdict.outcome in PASSING]
        machine.cell = None
        say(f"{len(machine.programs)} programs, which {len(cells)} cells execute")

    def mutants(self, settings: PtxSettings) -> list[PtxMutant]:
        """The chosen mutants: of every kind in every family those that come first in an order that the seed fixes."""
        groups = defaultdict[tuple[str, str], list[PtxMutant]](list)
        for digest, program in self.machine.programs.items():
            if ASKING_VALUES.isdisjoint(cell.property for cell in program.cells):
                continue
            blocks = program.steps.executed
            for mutant in mutants_of(self._families[digest], digest, program.text, program.kernel.entry, blocks):
                groups[mutant.family, mutant.kind].append(mutant)

        def order(mutant: PtxMutant) -> bytes:
            return hashlib.sha256(f"{settings.seed}:{mutant.key}".encode()).digest()

        return [one for group in groups.values() for one in sorted(group, key=order)[: settings.most or len(group)]]

    def fates(self, mutants: Sequence[PtxMutant], settings: PtxSettings) -> Iterator[PtxFate]:
        """What becomes of each mutant."""
        gc.collect()
        gc.freeze()  # collecting there what is shared with the copies would make each of them write to all of it
        waiting, by_key, running = list(reversed(mutants)), {each.key: each for each in mutants}, list[Trial]()
        while waiting or running:
            while waiting and len(running) < settings.workers:
                running.append(begin(self._asking(waiting.pop(), settings.seconds)))
            trial, answer = wait_for_trial(running)
            yield fate_of(by_key[trial.asking.key], answer)

    def _asking(self, mutant: PtxMutant, seconds: float) -> Asking:
        cells = self.machine.programs[mutant.program].cells
        return Asking(
            mutant.key, cells, functools.partial(self.machine.plant, mutant), seconds, self._limit, self._ask, (None,),
            functools.partial(self._conclude, mutant, cells),
        )  # fmt: skip

    def _conclude(self, mutant: PtxMutant, cells: Sequence[Cell]) -> Answer:
        """Of a mutant that survived: whether it left other bits, and whether any result depends on what it changed."""
        machine = self.machine
        acts, differs = machine.acts, machine.differs
        other = disturb(mutant, machine.programs[mutant.program].kernel.entry)
        if differs or not acts or other is None:
            return {"acts": acts, "differs": differs, "live": acts}
        with machine.plant(other):
            live = any(self._ask(cell, None).outcome not in PASSING or machine.differs for cell in cells)
        return {"acts": acts, "differs": differs, "live": live}
