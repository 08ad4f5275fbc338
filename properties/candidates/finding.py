"""What came of one question, and how a question says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...oracles.judge.holding import Standing
from ...oracles.verdicts.verdict import FAILED, Code, Outcome, Verdict
from ...oracles.verdicts.violation import Violation
from .arguments import CallArguments, State
from .host.calls import BackwardCall, Executed, Manner
from .layouts import AnyLayout, Placing

#: What is wrong and no failure of an answer, because there was none, and its codes.
_ENDS = {Outcome.TIMEOUT: Code.TIMED_OUT, Outcome.CRASH: Code.CRASHED}


def lines_of_variant(executed: Executed | None) -> list[str]:
    """A line of a card about the variant in which kernels were executed as PTX; none where none was."""
    return [] if executed is None else [f"executed   as PTX: {executed.variant}"]


def in_variant(finding: Finding, executed: Executed | None) -> Finding:
    """A finding whose card says in which variant kernels were executed."""
    return with_lines(finding, *lines_of_variant(executed))


def require_no_fault(executed: Executed | None) -> Executed | None:
    """Give how kernels were executed, where nothing was wrong with a launch, whatever the candidate has made of it.

    Raises:
        Violation: a launch was at fault, or could not be executed.
    """
    if executed is not None and executed.fault:
        title, *lines = executed.text
        raise Violation(Code(executed.fault), title, (*map(str.strip, lines), *lines_of_variant(executed)))
    return executed


@dataclass(frozen=True)
class FailingCall:
    """A call that raises, or an output or gradient of which is outside its accept set.

    Attributes:
        arguments, state: of the call. layout: of arguments or destinations; None for their own. manner: of the call.
        place: of the output among those, or of the gradient among those of `backward`; None where the call raises.
        backward: of which gradients are taken; None for outputs.
        placing: of the arguments in memory, which `Session.attach_call` adds.
    """

    arguments: CallArguments
    state: State
    layout: AnyLayout | None = None
    manner: Manner = Manner.PLAIN
    place: int | None = None
    backward: BackwardCall | None = None
    placing: Placing = field(default_factory=Placing)


@dataclass(frozen=True)
class Finding:
    """The result of one question.

    Attributes:
        question: its code. outcome: "weak" if half of the elements have a bound wider than themselves, if no element
            has a bound, or if only a statistical test finds a fault.
        wrong: the fault, or the reason why the call was refused or the question not asked.
        judged, elements: how many elements were compared with a bound, and how many there are.
        sampled: the part of a large problem that was compared, in words; empty for all of it.
        left_out: the part of the question that could not be asked, in words; empty if there is none.
        call: the call that shows the fault, if a single one does. verdict: if the question is a property of an op.
        by_residual: whether some of the elements were judged by their residual.
    """

    question: str
    outcome: Outcome
    wrong: Violation | None = None
    judged: int = 0
    sampled: str = ""
    left_out: str = ""
    elements: int = 0
    call: FailingCall | None = None
    verdict: Verdict | None = None
    by_residual: bool = False

    @property
    def is_wrong(self) -> bool:
        """Whether it rejects the candidate."""
        return self.outcome in FAILED | _ENDS.keys()

    @property
    def is_suspect(self) -> bool:
        """Whether all elements are within their bounds, but their errors are improbable for independent roundings."""
        return self.outcome is Outcome.WEAK and self.wrong is not None

    @property
    def unasked(self) -> str:
        """The part of the question that was not answered, with the reason; all of it where the candidate refuses."""
        refusal = self.wrong.title if self.outcome is Outcome.REFUSED and self.wrong is not None else ""
        return refusal or self.left_out

    @property
    def is_spread(self) -> bool:
        """Whether it says that a NaN or an infinity spreads otherwise than in the spec, which rejects nobody."""
        return self.wrong is not None and self.wrong.code is Code.SPREAD

    @property
    def text(self) -> str:
        """One line."""
        share = f" of {self.sampled}" if self.sampled and self.wrong is None else ""
        if self.wrong is not None:
            return self.wrong.title
        scope = f"{self.judged} elements{share}" if self.judged else share.strip()
        if self.judged < self.elements:
            scope = f"{self.judged} of {self.elements} elements{share}"
        scope = f"{scope} by their residual" if self.by_residual else scope
        return f"{scope}; {self.left_out}" if self.left_out else scope


def with_lines(finding: Finding, *lines: str) -> Finding:
    """A finding whose card has these lines, too, if something is wrong."""
    return finding if finding.wrong is None else replace(finding, wrong=finding.wrong.with_lines(*lines))


def summed(question: str, standings: Sequence[Standing], arguments: CallArguments) -> Finding:
    """The finding for all outputs of a call; the first wrong one decides."""
    judged, elements = sum(each.judged for each in standings), sum(each.elements for each in standings)
    wrong = next((each.wrong for each in standings if each.wrong is not None), None)
    if wrong is not None:
        wrong = wrong.with_lines(f"input      {arguments.text}")
        return Finding(question, Outcome.FAIL, wrong, judged, elements=elements)
    by_residual = any(each.by_residual for each in standings)
    vacuous = any(each.vacuous or (each.elements and not each.judged) for each in standings)
    outcome = Outcome.WEAK if vacuous else Outcome.VERIFIED
    spread = next((each.spread for each in standings if each.spread is not None), None)
    outcome = outcome if spread is None else Outcome.VERIFIED
    owed = next((each.reason for each in standings if not each.missed), "")
    return Finding(question, outcome, spread, judged, left_out=owed, elements=elements, by_residual=by_residual)


def raised(question: str, text: str, refusable: bool = False) -> Finding:
    """The finding of an exception."""
    first, *more = text.splitlines() or [""]
    outcome = Outcome.REFUSED if refusable else Outcome.FAIL
    return Finding(question, outcome, Violation(Code.RAISED, f"raised {first}", tuple(more)))


def not_asked(question: str, why: str) -> Finding:
    return Finding(question, Outcome.UNSUPPORTED, Violation(Code.NOT_APPLICABLE, why))


def wrong(question: str, code: Code, title: str, *lines: str) -> Finding:
    outcome = next((each for each, end in _ENDS.items() if end is code), Outcome.FAIL)
    return Finding(question, outcome, Violation(code, title, lines))


def process_changed(question: str, lines: Sequence[str]) -> Finding:
    """The finding of changes of the process, a line each."""
    return wrong(question, Code.MUTATED, f"the process was changed: {lines[0]}", *lines[1:])


def of_property(verdict: Verdict) -> Finding:
    """The finding of a property."""
    measure = verdict.measure
    text, lines = verdict.reason, () if verdict.failure is None else tuple(s.strip() for s in verdict.failure.details())
    why = None if verdict.holds else Violation(verdict.code, text, lines)
    elements = measure.judged + measure.not_judged
    return Finding(verdict.cell.property, verdict.outcome, why, measure.judged, elements=elements, verdict=verdict)


def passing(question: str, judged: int = 0) -> Finding:
    return Finding(question, Outcome.VERIFIED, None, judged)
