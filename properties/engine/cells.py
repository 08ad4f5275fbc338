"""One cell, judged in this process: draw samples, ask the property's question of each, and decide the verdict.

What this is for: everything between the name of a cell and its verdict. `properties.verification` chooses the process
in which a cell is judged; the code that judges cells there calls this module.

What is hard here: a cell is judged more than once. A sample that fails is judged three times more, each time by a new
judge, because a failure that does not repeat is unstable, not wrong; and where errors lean to one side, all samples
are drawn anew. Each of these judgements must find the process as the first one found it, so the state of the process
is compared after every sample, and in full after the cell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

import hypothesis
import torch

from ...oracles import process
from ...oracles.bound.contract import contract
from ...oracles.judge.judge import Judge
from ...oracles.judge.tally import LARGE, PLANNED
from ...oracles.machine.ptx import hardware
from ...oracles.op.copies import describe_argument
from ...oracles.op.declaration import EXECUTED, INTERPRETED, KERNELS, Op, Sample, arithmetic_of
from ...oracles.op.script import NoProgram
from ...oracles.op.transforms import OFFERS
from ...oracles.process import interrupt
from ...oracles.programs.writing import program, without
from ...oracles.verdicts.case import case_id, dump_case, load_case
from ...oracles.verdicts.verdict import Cell, Code, Failure, Outcome, Signs, Verdict
from ...oracles.verdicts.violation import Unsupported, Violation, error_of, kind_of, shape_of
from .. import worlds
from ..catalog.loading import load_op
from ..declaring import kinds
from ..table import BINNED, PROPERTIES
from . import other_ops
from .documented_limits import require_promise, with_documented_promises
from .failures import MOST_CALLS, calls_of, kernel_of
from .limits import without_source_numbers
from .profiles import PROFILES
from .samples import OneSample, Opened, Picked, Samples, Settings, Tell, ask_watched, judge_one

#: How often a failing sample is judged again before it is called a failure.
REPETITIONS = 3
#: The most elements of a large sample for kernels on a CPU, each of whose programs takes milliseconds.
KERNELS_MOST = 20_000
#: The same for kernels as PTX, which DET executes warp by warp, and for those of users, one program for each row.
EXECUTED_MOST = 4_200
#: Questions of several threads: Triton's interpreter changes its language for the whole process at each call.
_OF_THREADS = frozenset({"DET", "CALLS"})
#: How many different refusals the reason of a verdict names.
REFUSALS = 2
#: Added to the run's seed for the second draw of a cell whose errors lean to one side.
_SECOND_DRAW = 1


def open_cell(cell: Cell, light: bool, op: Op | None = None, tell: Tell | None = None) -> Opened:
    """The cell with its declaration loaded.

    Args:
        light: whether few samples are read exactly. op: the declaration, where no catalog has it.
        tell: see `Opened`.

    Raises:
        Unsupported: the question is not asked of this op, subject or dtype, or not on this machine.
    """
    if cell.property not in PROPERTIES:
        raise Unsupported(Code.NOT_BUILT, f"no check is built for {cell.property}")
    question = PROPERTIES[cell.property]
    op = load_op(cell.op) if op is None else op
    subject = question.subject_of(cell.subject)
    if not op.has_subject(subject):
        raise Unsupported(Code.NO_SUBJECT, f"{cell.op} has no subject {subject!r}")
    if op.is_compiled(cell.subject) and not question.compiles:
        codes = ", ".join(code for code, other in PROPERTIES.items() if other.compiles)
        raise Unsupported(Code.NOT_APPLICABLE, f"{cell.property} is not asked of compiled code; asked are {codes}")
    require_promise(op, subject, cell.property)
    if cell.dtype not in question.dtypes:
        raise Unsupported(Code.DTYPE_OUTSIDE, f"{cell.property} is asked in {', '.join(question.dtypes)}")
    lacking = [name for name in question.requires if name in op.promises.without]
    if lacking:
        raise Unsupported(Code.NOT_APPLICABLE, f"{cell.op} offers no {lacking[0]}: {OFFERS[lacking[0]]}")
    machine = op.production.machine(cell.subject)
    if machine == INTERPRETED and cell.subject != machine and cell.property in _OF_THREADS:
        text = f'{cell.property} is not asked of interpreted kernels: Triton interprets in one thread; compiled="sm_90"'
        raise Unsupported(Code.NOT_APPLICABLE, f"{text} compiles them")
    if cell.device == "cuda" and not torch.cuda.is_available():
        raise Unsupported(Code.NO_DEVICE, "0 CUDA devices, needs 1")
    if machine:
        # A large sample takes a minute on a CPU, which short profiles have not.
        usual = question.sampling
        most = KERNELS_MOST if cell.subject == INTERPRETED else EXECUTED_MOST
        large, most = 0.0 if light else usual.large, min(usual.most, most)
        question = replace(question, sampling=replace(usual, large=large, most=most))
    allowed = contract(cell.dtype, arithmetic_of(subject, cell.device))
    judge = Judge(with_documented_promises(op, subject), subject, allowed, cell.device, light)
    if cell.subject == EXECUTED:
        judge.hardware = hardware.ENDS
    if cell.property in BINNED:
        judge.tally.bins = {}
    if question.sampling.others:
        judge.between = other_ops.calls(cell.dtype, cell.device)
    return Opened(cell, judge, question, tell)


def judge_cell(cell: Cell, settings: Settings, op: Op | None = None, tell: Tell | None = None) -> Verdict:
    """The verdict of a cell on samples that are drawn; the other arguments are those of `open_cell`.

    Raises:
        Unsupported: as `open_cell`. Errors of the declaration and of the readings pass through to `guard`.
    """
    light = not PROFILES[settings.profile].inductor
    opened = open_cell(cell, light, op, tell)
    verdict = _judge_watched(opened, Picked(opened, settings))
    # Only a cell that held can be charged with a bias, because one that failed has its reason already.
    biases = opened.judge.tally.biases() if verdict.outcome == Outcome.VERIFIED else {}
    if not biases:
        return verdict
    # A bias is a statement about chance: it counts only if samples that are drawn anew show it again, and if it exceeds
    # the common error that the contract allows in all samples. That allowance takes a second reading, made only here.
    fresh = open_cell(cell, light, op, tell)
    fresh.judge.weighs_bias = True
    _judge_watched(fresh, Picked(fresh, replace(settings, seed=settings.seed + _SECOND_DRAW)))
    # The product is positive only where the errors of both draws lean to the same side.
    again = {name: mean for name, mean in fresh.judge.tally.biases().items() if mean * biases.get(name, 0.0) > 0}
    if not again:
        return verdict
    name, mean = max(again.items(), key=lambda item: abs(item[1]))
    reason = f"{cell.op} {name}: errors average {mean:+.3g} of their bound, in two independent draws"
    return replace(
        verdict, outcome=Outcome.FAIL, code=Code.BIAS, reason=reason, failure=Failure(Code.BIAS, reason, reason)
    )


def judge_sample(cell: Cell, sample: Sample, tell: Tell | None = None) -> Verdict:
    """The verdict of a cell on one sample, that of a case file; arguments and errors are those of `judge_cell`."""
    opened = open_cell(cell, light=True, tell=tell)
    return _judge_watched(opened, OneSample(opened, sample.on(cell.device)))


def judge_case(text: str) -> None:
    """Ask the question of a case file, and leave the verdict to the process that drew its sample.

    Raises:
        CaseError: the text is no case file.
    """
    cell, sample = load_case(text)
    opened = open_cell(cell, light=True)
    # A violation is dropped here, because the process that drew the sample finds it as well and decides the verdict.
    with interrupt.SignalScope(), process.pinned(), contextlib.suppress(Violation):
        try:
            ask_watched(opened, sample.on(cell.device))
        except kinds.DeclarationError as err:
            # The process that drew the sample says whose fault the error is.
            raise err.__cause__ or RuntimeError(str(err)) from None


def _judge_watched(opened: Opened, samples: Samples) -> Verdict:
    """The verdict on samples; the state of the process is compared in full once they are judged."""
    process.make_canonical()
    # Processes that are ranks open connections to each other when they first need them.
    leftovers = () if worlds.here().in_processes else (process.LEFTOVERS,)
    with process.watched(process.DEEP, *leftovers):
        return _judge_samples(opened, samples)


def _judge_samples(opened: Opened, samples: Samples) -> Verdict:
    """The verdict on samples: that on the first failure, else what the tally counted."""
    cell, tally = opened.cell, opened.judge.tally
    try:
        with without_source_numbers():
            samples.judge()
    except (Violation, hypothesis.errors.Flaky) as err:
        interrupt.reraise()
        sample, violation = samples.failing()
        violation = violation or (err if isinstance(err, Violation) else None)
        return _judge_failure(opened, samples, sample, violation, err)
    timing, measure = tuple(tally.timing.items()), tally.measure()
    refusals = describe_refusals(tally.refusals)
    if refusals and not measure.samples:
        return Verdict(cell, Outcome.REFUSED, Code.REFUSED, refusals, measure, timing=timing)
    omissions, left = describe_refusals(tally.omissions), sum(tally.omissions.values())
    if omissions and not measure.samples:
        text = f"torch's own evaluation of the reference fails at all {left} samples, too: {omissions}"
        if tally.left_whole == left and opened.question.sampling.kind != "empty":
            raise kinds.DeclarationError(f"{text}; say by sizes or shapes which ones it takes")
        return Verdict(cell, Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, text, measure, timing=timing)
    if omissions:
        tally.note(
            f"{left} samples left out, or a part, at which torch's own evaluation of the reference fails: {omissions}"
        )
    if refusals:
        tally.note(f"of {measure.refused} samples the subject refused a part: {refusals}")
    if measure.samples == 0:
        return Verdict(cell, Outcome.WEAK, Code.FEW_SAMPLES, "no sample could be drawn", measure, timing=timing)
    if not (measure.judged or measure.not_judged):
        text = f"none of {measure.samples} samples has a result of which this can be asked"
        return Verdict(cell, Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, text, measure, timing=timing)
    # Planned and large samples are counted apart, because the many elements of a few large samples would hide that
    # hardly anything of the others could be judged.
    undecided = [part for part in (PLANNED, LARGE) if not tally.mostly_judged(part)]
    if undecided or not measure.judged:
        whole = f"only {measure.judged} of {measure.judged + measure.not_judged} elements could be judged"
        of_large = f"{whole}, and less than half of the large samples' elements"
        reason = of_large if undecided == [LARGE] else whole
        return Verdict(cell, Outcome.WEAK, Code.MOSTLY_NOT_JUDGED, reason, measure, timing=timing)
    # A cell about sizes asks for a regime where it can, to meet other code, and not for the regime's own sake.
    starved = tally.starved() if opened.question.sampling.kind != "sizes" else ()
    if starved:
        reason = f"no element could be judged of the regime{'s' * (len(starved) > 1)} {', '.join(starved)}"
        return Verdict(cell, Outcome.WEAK, Code.REGIME_NOT_JUDGED, reason, measure, timing=timing)
    covered = samples.covered()
    if covered.lacking:
        return Verdict(cell, Outcome.WEAK, Code.VALUE_NOT_MET, covered.lacking, measure, timing=timing)
    counted = (f"held on {measure.samples} samples, {measure.judged} elements", *covered.text)
    reason = "; ".join((*counted, *tally.notes))
    return Verdict(cell, Outcome.VERIFIED, Code.HELD, reason, measure, timing=timing)


def describe_refusals(refusals: Mapping[str, int]) -> str:
    """The reasons for which a subject refused samples, the most frequent first; empty where it refused none."""
    ranked = sorted(refusals, key=lambda reason: -refusals[reason])
    more = f"; and {len(ranked) - REFUSALS} more" if len(ranked) > REFUSALS else ""
    return "; ".join(ranked[:REFUSALS]) + more


def _judge_failure(
    opened: Opened, samples: Samples, sample: Sample, violation: Violation | None, err: BaseException
) -> Verdict:
    """The verdict on a sample that failed. The sample is judged again, and written as a case file and as a program.

    The violation is known, or `err` alone, by which the judging ended.
    """
    cell, judge = opened.cell, opened.judge
    in_common = samples.in_common()
    again, once = 0, violation is not None and violation.once
    for _ in range(REPETITIONS):
        try:
            judge_one(replace(opened, judge=judge.again()), sample)
        except Violation as repeated:
            violation, again = repeated, again + 1
    others: tuple[Failure, ...] = ()
    if violation is None:
        text = dump_case(cell, sample)
        failure = Failure(Code.BITS, "a failure that did not repeat", str(err), case_id(cell, text), text)
    else:
        failure = _describe_failure(opened, samples, sample, violation, in_common)
        others = _describe_others(opened, samples, violation)
    # A setter that fires only once has still changed the process, and a call that gave other bits once has still given
    # them, so neither needs to repeat.
    # What asks for a device that is not here says nothing of the op, and not that it is fine without that.
    certain = Outcome.ERROR if failure.code is Code.NO_DEVICE else Outcome.FAIL
    outcome = certain if again == REPETITIONS or once else Outcome.UNSTABLE
    reason = failure.title if outcome == certain else f"{failure.title} (repeated {again} of {REPETITIONS} times)"
    measure = judge.tally.measure().reaching(None if violation is None else violation.worst)
    timing = tuple(judge.tally.timing.items())
    return Verdict(cell, outcome, failure.code, reason, measure, failure, timing=timing, others=others)


def _describe_failure(
    opened: Opened, samples: Samples, sample: Sample, violation: Violation, in_common: str = ""
) -> Failure:
    """A failure with its case file, its program, and the signs that tell it from others.

    Its message ends with the input, and with what failing samples have in common.
    """
    cell, judge = opened.cell, opened.judge
    text = dump_case(cell, sample)
    name = case_id(cell, text)
    snippet = _write_program(opened, violation, name)
    worst = violation.worst
    signs = Signs(
        path=shape_of(violation.path)[:300],
        output="" if worst is None else worst.where.partition("[")[0][:100],
        kernel=kernel_of(judge, sample),
        calls=tuple(calls_of(judge, sample, violation.path)[:MOST_CALLS]),
        error=error_of(violation),
        samples=samples.failures.count(violation),
        common=tuple(" and ".join(facts) for facts in samples.contrast.telling(violation)[0]),
        share=None if worst is None else worst.share,
    )
    allowance = "" if violation.allowance is None else violation.allowance()
    lines = (violation.message, allowance, _describe_input(judge.op, sample), in_common)
    message = "\n  ".join(line for line in lines if line)
    return Failure(violation.code, violation.title, message, name, text, snippet, signs)


def _describe_input(op: Op, sample: Sample) -> str:
    """The line of a card about the arguments: what is short in full, and of what kind the values are."""
    named = (f"{op.argument(i)}: {describe_argument(a)}" for i, a in enumerate(sample.args))
    return f"input      {'; '.join(named)}; regime {sample.regime}"


def _describe_others(opened: Opened, samples: Samples, first: Violation) -> tuple[Failure, ...]:
    """The failures of other kinds than the first; those that do not repeat are left out."""
    failures = []
    for kind in samples.failures.others(first):
        opened.judge.tally.part = kind.part
        try:
            judge_one(replace(opened, judge=opened.judge.again()), kind.sample)
        except Violation as repeated:
            if kind_of(repeated) == kind_of(kind.violation):
                failures.append(_describe_failure(opened, samples, kind.sample, repeated))
    return tuple(failures)


def _write_program(opened: Opened, violation: Violation, name: str) -> str:
    """The failure as a program, or why there is none; `name` is that of its case file."""
    try:
        if opened.question.no_program:
            raise NoProgram(opened.question.no_program)
        if opened.cell.subject in KERNELS:
            raise NoProgram("The kernels run on the CPU, which needs more than torch and the kernels.")
        if violation.make_script is None:
            raise NoProgram(f"What {opened.cell.property} compared here is more than a few lines can say.")
        return program(opened.judge.op, opened.cell, violation.make_script(), violation.title, name)
    except NoProgram as reason:
        return without(str(reason))
    except Exception as err:
        # A program is a courtesy, so an error while it is written must not cost the verdict.
        return without(f"Writing it raised {type(err).__name__}: {err}")
