"""A judgement as verdicts of cells, one for each question, so that it can be recorded, gated, compared and shown."""

from __future__ import annotations

from collections.abc import Callable

from ...oracles.verdicts.verdict import Cell, Code, Failure, Measure, Outcome, Signs, Verdict, Worst
from .finding import Finding
from .judgement import Judgement, Ruling
from .questions import QUESTIONS, Standing

#: The subject of every cell: the op has the name of the candidate.
SUBJECT = "candidate"
#: The device where candidates are called.
DEVICE = "cpu"
_VACUOUS = "held, but half of the elements or more have a bound wider than themselves, or none"
_OUTCOMES = {
    Standing.HELD: (Outcome.VERIFIED, Code.HELD),
    Standing.VACUOUS: (Outcome.WEAK, Code.MOSTLY_NOT_JUDGED),
    Standing.SUSPECT: (Outcome.WEAK, Code.BIAS),
    Standing.REFUSED: (Outcome.REFUSED, Code.REFUSED),
    Standing.NOT_ASKED: (Outcome.UNSUPPORTED, Code.NOT_APPLICABLE),
}
#: Codes of a wrong finding that are no failure of an answer, because there was none.
_ENDS = {Code.TIMED_OUT: Outcome.TIMEOUT, Code.CRASHED: Outcome.CRASH}


def verdicts_of(judgement: Judgement, op: str, command: Callable[[str], str]) -> tuple[Verdict, ...]:
    """The verdicts of a judgement.

    Args:
        judgement: of a candidate. op: the name that its cells have, such as its address.
        command: (code of a question) -> the command line that asks it again.
    """
    dtype = judgement.assignment.dtype
    if judgement.verdict is Ruling.ERROR:
        cell = Cell(op, "GIVEN", dtype, DEVICE, SUBJECT)
        return (Verdict(cell, Outcome.ERROR, Code.DECLARATION, judgement.error or "no verdict"),)
    cells = [Cell(op, finding.question, dtype, DEVICE, SUBJECT) for finding in judgement.findings]
    pairs = zip(cells, judgement.findings, strict=True)
    return tuple(_verdict(cell, finding, command(finding.question)) for cell, finding in pairs)


def _verdict(cell: Cell, finding: Finding, command: str) -> Verdict:
    title = QUESTIONS[finding.question].title
    judged, elements = finding.judged, max(finding.elements, finding.judged)
    measure = Measure(samples=1, judged=judged, not_judged=elements - judged)
    wrong = finding.wrong
    if finding.standing is not Standing.WRONG:
        outcome, code = _OUTCOMES[finding.standing]
        reason = _VACUOUS if finding.standing is Standing.VACUOUS else finding.text or "held"
        if outcome is Outcome.VERIFIED and not judged:
            measure = Measure(samples=1, judged=1)  # a question about the call as a whole
        return Verdict(cell, outcome, code, reason, measure, title=title)
    assert wrong is not None
    signs = Signs(samples=1)
    if wrong.outlier is not None:
        at = wrong.outlier
        where = f"{at.output}[{', '.join(map(str, at.index))}]" if at.index else at.output
        worst = Worst(where, "forward", at.computed.hex(), repr(at.exact), float("nan"), at.ratio, at.share)
        measure = measure.reaching(worst)
        signs = Signs(samples=1, output=at.output, share=at.share)
    failure = Failure(
        wrong.code, wrong.title, f"{wrong}\n  again      {command}", snippet=f"# {command}\n", signs=signs
    )
    return Verdict(cell, _ENDS.get(wrong.code, Outcome.FAIL), wrong.code, wrong.title, measure, failure, title=title)
