"""One cell: draw samples, ask the property's question, say the verdict."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import math
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import hypothesis
import torch
from hypothesis import HealthCheck, Phase

from ..oracles import state
from ..oracles.accept import ReadingError
from ..oracles.case import case_id, dump_case, load_case
from ..oracles.checks import CHECKS
from ..oracles.contract import contract
from ..oracles.judge import Judge
from ..oracles.op import Draft, Op, Sample
from ..oracles.properties import DTYPES, PROPERTIES, Property, Where
from ..oracles.snippet import snippet
from ..oracles.state import interrupt
from ..oracles.tally import LARGE, PLANNED
from ..oracles.verdict import CHECKED, Cell, Code, Failure, Outcome, Verdict, changed_failure, charged
from ..oracles.violation import ChangedState, Unsupported, Violation, error_name, raised, said
from ..reference.exact import PrecisionError
from . import draws, forward_ad, kinds, source_numbers, worlds
from .plan import load_op
from .profiles import PROFILES

#: How often a failing sample is judged again before it is called a failure.
REPETITIONS = 3
#: Characters kept of a line of a traceback: its last line is the text of the exception, which may be of any length.
MAX_TRACE = 2_000


@dataclass(frozen=True)
class Settings:
    """How much to ask: the profile, the run's seed, and a cap on the examples per cell."""

    profile: str = "commit"
    seed: int = 0
    max_examples: int | None = None

    def examples(self, question: Property, compiled: bool = False) -> int:
        profile = PROFILES[self.profile]
        wanted = max(1, round(profile.examples * question.effort))
        if compiled:
            # Each path of each example is compiled anew, which takes seconds.
            wanted = min(wanted, profile.compiled)
        return wanted if self.max_examples is None else min(wanted, self.max_examples)


def run_cell(cell: Cell, settings: Settings, op: Op | None = None, *, here: bool = False) -> Verdict:
    """The verdict of a cell. Faults of the framework become a verdict too ("error"), never an exception.

    Args:
        cell: what to ask. settings: how much.
        op: the declaration, where it is not one of the catalog or of a plugin.
        here: in this process, even where the question asks for one prepared for it.

    Raises:
        KeyboardInterrupt: a signal came (or what else the caller's signal handler raises); there is no verdict then.
    """
    return _apart(cell, lambda: _asked(cell, settings, op) if here else _sent(cell, settings, op))


def _apart(cell: Cell, run: Callable[[], Verdict]) -> Verdict:
    """A cell's verdict, whatever ran in this process before, and the process as it was after it."""
    start = time.perf_counter()
    with interrupt.heard(), state.pinned() as pin:
        verdict = _guarded(cell, run)
    changed = tuple(dict.fromkeys((*verdict.changed, *pin.changed)))
    if changed and verdict.outcome is Outcome.ERROR and verdict.code is not Code.DECLARATION:
        # With the process changed under it, the framework may raise anywhere; that is no fault of the framework.
        failure = changed_failure(cell.op, (*changed, f"after that, the framework raised: {verdict.reason}"))
        verdict = replace(verdict, outcome=Outcome.FAIL, code=Code.MUTATED, reason=failure.title, failure=failure)
    seconds, asked = time.perf_counter() - start, PROPERTIES.get(cell.property)
    return replace(verdict, seconds=seconds, title=asked.title if asked else "", changed=changed)


def _sent(cell: Cell, settings: Settings, op: Op | None) -> Verdict:
    """The verdict of a process that is prepared for the question, or of this one where the question needs none."""
    question = PROPERTIES.get(cell.property)
    if question is not None and question.where is Where.WORLD:
        return _in_world(cell, settings, op)
    if question is None or question.where is not Where.PREPARED:
        return _asked(cell, settings, op)
    if op is not None:
        raise Unsupported(Code.NOT_APPLICABLE, f"{cell.property} is asked of ops that other processes know by name")
    _open(cell, light=True)
    return forward_ad.judged(cell, settings=asdict(settings))


def _in_world(cell: Cell, settings: Settings, op: Op | None) -> Verdict:
    """The verdict of the world that this process is told to judge COMM in."""
    world = worlds.here()
    judgement, _ = _open(cell, light=True, op=op)
    if judgement.op.ranks is None and judgement.op.devices is None:
        raise Unsupported(Code.NOT_APPLICABLE, f"{cell.op} runs in one place")
    lacks = world.lacks(cell.device)
    if lacks:
        raise Unsupported(Code.NO_DEVICE, lacks)
    if world.comm != "lockstep":
        if op is not None:
            raise Unsupported(Code.NOT_APPLICABLE, "ranks in other processes know ops by name")
        importlib.import_module(".team", __package__).gather(world)
    verdict = _asked(cell, settings, op)
    return replace(verdict, reason=f"{verdict.reason}, {world}") if verdict.outcome in CHECKED else verdict


def replay_case(text: str, *, here: bool = False) -> Verdict:
    """Judge the sample of a case file again.

    Raises:
        CaseError: the text is no case file.
    """
    cell, sample = load_case(text)

    def again() -> Verdict:
        judgement, question = _open(cell, light=True)
        if question.where is Where.PREPARED and not here:
            return forward_ad.judged(cell, case=text)
        return _closed(cell, judgement, lambda: _one(judgement, question, sample, cell), lambda: (sample, None))

    return _apart(cell, again)


def judge_case(text: str) -> None:
    """Ask the question of a case file, and leave the verdict to whoever drew it.

    Raises:
        CaseError: the text is no case file.
    """
    cell, sample = load_case(text)
    judgement, question = _open(cell, light=True)
    with interrupt.heard(), state.pinned(), contextlib.suppress(Violation):
        _check(judgement, question, sample)


def _guarded(cell: Cell, run: Callable[[], Verdict]) -> Verdict:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a subject warns of is not judged, and would drown the log
            return run()
    except Unsupported as answer:
        outcome = Outcome.NOT_RUN if answer.code == Code.NO_DEVICE else Outcome.UNSUPPORTED
        return Verdict(cell, outcome, answer.code, str(answer))
    except kinds.DeclarationError as err:
        return Verdict(cell, Outcome.ERROR, Code.DECLARATION, str(err))
    except (ReadingError, PrecisionError) as err:
        return Verdict(cell, Outcome.ERROR, Code.READING, str(err))
    except BaseException as err:
        interrupt.reraise()
        text = "".join(line[:MAX_TRACE] for line in traceback.format_exception(err, limit=-6)[-12:])
        reason = ": ".join([error_name(err), *said(err)[:1]])
        return Verdict(cell, Outcome.ERROR, Code.HARNESS, reason, failure=Failure(Code.HARNESS, reason, text))


def verify(
    op: Op,
    subject: str = "opassay",
    properties: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    device: str = "cpu",
    settings: Settings | None = None,
) -> list[Verdict]:
    """Judge one implementation of an op: a verdict for every property and dtype.

    Args:
        op: the declaration; `subject` is a name among its `subjects`.
        properties, dtypes: codes of `PROPERTIES` and torch dtype names; all by default.
        device: "cpu" or "cuda".
        settings: profile, seed and examples; profile "commit" by default.
    """
    cells = [
        Cell(op.name, code, dtype, device, subject) for code in properties or PROPERTIES for dtype in dtypes or DTYPES
    ]
    return charged([run_cell(cell, settings or Settings(), op) for cell in cells])


def _open(cell: Cell, light: bool, op: Op | None = None) -> tuple[Judge, Property]:
    if cell.property not in PROPERTIES:
        raise Unsupported(Code.NOT_BUILT, f"no check is built for {cell.property}")
    question = PROPERTIES[cell.property]
    op = load_op(cell.op) if op is None else op
    subject = question.subject_of(cell.subject)
    if not op.has_subject(subject):
        raise Unsupported(Code.NO_SUBJECT, f"{cell.op} has no subject {subject!r}")
    if op.is_compiled(cell.subject) and not question.compiles:
        asked = ", ".join(code for code, other in PROPERTIES.items() if other.compiles)
        raise Unsupported(Code.NOT_APPLICABLE, f"{cell.property} is not asked of compiled code; asked are {asked}")
    if cell.dtype not in question.dtypes:
        raise Unsupported(Code.DTYPE_OUTSIDE, f"{cell.property} is asked in {', '.join(question.dtypes)}")
    if cell.device == "cuda" and not torch.cuda.is_available():
        raise Unsupported(Code.NO_DEVICE, "0 CUDA devices, needs 1")
    return Judge(op, subject, contract(cell.dtype, cell.device), cell.device, light), question


def _asked(cell: Cell, settings: Settings, op: Op | None) -> Verdict:
    judgement, question = _open(cell, not PROFILES[settings.profile].inductor, op)
    verdict = _drawn(cell, judgement, question, settings)
    biases = judgement.tally.biases() if verdict.outcome == Outcome.VERIFIED else {}
    if not biases:
        return verdict
    # A bias is a statement about chance: it counts only if a fresh draw makes it again.
    fresh, _ = _open(cell, judgement.light, op)
    _drawn(cell, fresh, question, replace(settings, seed=settings.seed + 1))
    again = {name: mean for name, mean in fresh.tally.biases().items() if mean * biases.get(name, 0.0) > 0}
    if not again:
        return verdict
    name, mean = max(again.items(), key=lambda item: abs(item[1]))
    reason = f"{cell.op} {name}: errors average {mean:+.3g} of their bound, in two independent draws"
    return replace(
        verdict, outcome=Outcome.FAIL, code=Code.BIAS, reason=reason, failure=Failure(Code.BIAS, reason, reason)
    )


def _drawn(cell: Cell, judgement: Judge, question: Property, settings: Settings) -> Verdict:
    examples = settings.examples(question, judgement.compiled)
    steered = not PROFILES[settings.profile].fixed  # towards the worst input; else examples are drawn alike
    last: list[tuple[Sample, Violation | None]] = []
    changes: list[tuple[Sample, Violation | None]] = []  # of the process: what was seen once need not come again

    def ask(kind: str, draft: Draft, seed: int) -> Sample:
        with judgement.tally.clock("generate"):
            sample = _on(kinds.sample_of(draft, seed, question.slices, kind), cell.device)
        last[:] = [(sample, None)]
        try:
            _one(judgement, question, sample, cell)
        except Violation as violation:
            last[:] = [(sample, violation)]
            if isinstance(violation, ChangedState):
                changes.append(last[0])
            raise
        if steered and kind == question.kind != "large":
            hypothesis.target(judgement.tally.ratio_of_sample, label="error / bound")
        return sample

    shrunk = worlds.here().comm == "lockstep" or question.where is not Where.WORLD  # ranks that hang do so each time

    def draw(kind: str, count: int, choice: draws.Every, label: str = "") -> None:
        drafts = kinds.drafts_of(judgement.op, cell.dtype, kind)
        limits = _hypothesis_settings(count, steered and not label, shrunk)
        seconds = draws.SHRINKING if kind == "large" else math.inf
        draws.run(drafts, functools.partial(ask, kind), choice, _seed(cell, settings, label), limits, seconds)

    def found() -> tuple[Sample, Violation | None]:
        return changes[0] if changes and last[0][1] is None else last[0]

    return _closed(cell, judgement, lambda: draws.stages(judgement, question, examples, draw), found)


def _hypothesis_settings(examples: int, steered: bool, shrunk: bool) -> hypothesis.settings:
    chosen = {Phase.generate: True, Phase.target: steered, Phase.shrink: shrunk}
    phases = tuple(phase for phase, wanted in chosen.items() if wanted)
    # Every field is set: Hypothesis's own profiles, and CI=1, must not change what is drawn.
    return hypothesis.settings(
        max_examples=examples, database=None, deadline=None, derandomize=False, print_blob=False,
        phases=phases, stateful_step_count=1, report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck), verbosity=hypothesis.Verbosity.quiet, backend="hypothesis",
    )  # fmt: skip


def _seed(cell: Cell, settings: Settings, label: str = "") -> int:
    """The seed of the cell's samples; with a label, of those besides its ordinary ones."""
    digest = hashlib.sha256(f"{cell.key}:{settings.seed}{label and ':'}{label}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def _on(sample: Sample, device: str) -> Sample:
    def move(args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(a.to(device) if isinstance(a, torch.Tensor) else a for a in args)

    if device == "cpu":
        return sample
    return replace(sample, args=move(sample.args), slices=tuple(move(args) for args in sample.slices))


def _one(judgement: Judge, question: Property, sample: Sample, cell: Cell) -> None:
    if question.where is Where.WORLD:
        worlds.tell(lambda: dump_case(cell, sample))
    with judgement.tally.sample(sample):
        _check(judgement, question, sample)


def _check(judgement: Judge, question: Property, sample: Sample) -> None:
    """Ask the question, with the process as it was before and after; SystemExit and its like are the subject's."""
    interrupt.reraise()
    with state.watched(state.SETTINGS):
        try:
            CHECKS[question.code](judgement, sample)
        except Exception:
            raise
        except kinds.DeclarationError:
            raise
        except BaseException as err:
            interrupt.reraise()
            raise raised(judgement.op.name, err, "call") from err
    interrupt.reraise()


def _closed(
    cell: Cell, judgement: Judge, run: Callable[[], None],
    last: Callable[[], tuple[Sample, Violation | None]],
) -> Verdict:  # fmt: skip
    state.make_canonical()
    # Processes that are ranks open connections to each other when they first need them.
    alone = worlds.here().comm == "lockstep"
    with state.watched(state.DEEP, *((state.LEFTOVERS,) if alone else ())):
        return _answered(cell, judgement, run, last)


def _answered(
    cell: Cell, judgement: Judge, run: Callable[[], None],
    last: Callable[[], tuple[Sample, Violation | None]],
) -> Verdict:  # fmt: skip
    try:
        with source_numbers.not_drawn():
            run()
    except (Violation, hypothesis.errors.Flaky) as err:
        interrupt.reraise()
        sample, violation = last()
        violation = violation or (err if isinstance(err, Violation) else None)
        return _failed(cell, judgement, sample, violation, err)
    timing = tuple(judgement.tally.timing.items())
    measure = judgement.tally.measure()
    if measure.samples == 0:
        return Verdict(cell, Outcome.WEAK, Code.FEW_SAMPLES, "no sample could be drawn", measure, timing=timing)
    of = [part for part in (PLANNED, LARGE) if not judgement.tally.mostly_judged(part)]
    if of or not measure.judged:
        whole = f"only {measure.judged} of {measure.judged + measure.not_judged} elements could be judged"
        reason = whole if PLANNED in of or not of else f"{whole}, and less than half of the large samples' elements"
        return Verdict(cell, Outcome.WEAK, Code.MOSTLY_NOT_JUDGED, reason, measure, timing=timing)
    starved = judgement.tally.starved()
    if starved:
        reason = f"no element could be judged of the regime{'s' * (len(starved) > 1)} {', '.join(starved)}"
        return Verdict(cell, Outcome.WEAK, Code.REGIME_NOT_JUDGED, reason, measure, timing=timing)
    reason = "; ".join((f"held on {measure.samples} samples, {measure.judged} elements", *judgement.tally.notes))
    return Verdict(cell, Outcome.VERIFIED, Code.HELD, reason, measure, timing=timing)


def _failed(cell: Cell, judgement: Judge, sample: Sample, violation: Violation | None, err: BaseException) -> Verdict:
    question = PROPERTIES[cell.property]
    again, seen = 0, isinstance(violation, ChangedState)
    for _ in range(REPETITIONS):
        try:
            fresh = judgement.again()
            _one(fresh, question, sample, cell)
        except Violation as repeated:
            violation, again = repeated, again + 1
    text = dump_case(cell, sample)
    if violation is None:
        failure = Failure(Code.BITS, "a failure that did not repeat", str(err), case_id(cell, text), text)
    else:
        lines = f"# opassay replay {case_id(cell, text)}"
        if question.where is not Where.PREPARED:  # a program of its own has no process prepared for it
            lines = _program(judgement, cell, violation.sample or sample, violation, case_id(cell, text), lines)
        failure = Failure(violation.code, violation.title, violation.message, case_id(cell, text), text, lines)
    # A setter that fires once has changed the process all the same.
    outcome = Outcome.FAIL if again == REPETITIONS or seen else Outcome.UNSTABLE
    reason = failure.title if outcome == Outcome.FAIL else f"{failure.title} (repeated {again} of {REPETITIONS} times)"
    measure = judgement.tally.measure()
    if violation is not None and violation.worst is not None:
        worst = violation.worst
        ulp, ratio = max(measure.max_ulp, worst.ulp), max(measure.max_ratio, worst.ratio)
        measure = replace(measure, max_ulp=ulp, max_ratio=ratio, worst=worst)
    return Verdict(cell, outcome, failure.code, reason, measure, failure, timing=tuple(judgement.tally.timing.items()))


def _program(judgement: Judge, cell: Cell, sample: Sample, violation: Violation, name: str, otherwise: str) -> str:
    """The failure as a program. Writing it calls the subject once more, which may raise this time."""
    with state.watched(state.SETTINGS):
        try:
            return snippet(judgement.op, cell.subject, sample, violation, name)
        except BaseException:
            interrupt.reraise()
            return otherwise
