"""A judgement as verdicts of cells, one for each question, so that it can be recorded, gated, compared and shown."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

from ...oracles.op.script import NoProgram
from ...oracles.programs.writing import without
from ...oracles.verdicts.verdict import Cell, Code, Failure, Measure, Outcome, Signs, Verdict, Worst
from ..table import TABLE
from .cases import DEVICE, SUBJECT, JudgedCase
from .finding import Finding
from .judgement import Judgement, Ruling
from .programs import write_program

_NO_PROGRAM = "A property is asked of the candidate beside its spec, which is more than a few lines can say."
_VACUOUS = "held, but half of the elements or more have a bound wider than themselves, or none"


def verdicts_of(judgement: Judgement, case: JudgedCase, store: Callable[[str, bytes], None]) -> tuple[Verdict, ...]:
    """The verdicts of a judgement.

    Args:
        judgement: of a candidate. case: what was asked of it, with no question chosen; its cells have its address.
        store: (id of a case, bytes) -> None: keeps the large tensors of the program of a failure.
    """
    dtype = judgement.assignment.dtype
    if judgement.verdict is Ruling.ERROR:
        cell = Cell(case.candidate, "GIVEN", dtype, DEVICE, SUBJECT)
        return (Verdict(cell, Outcome.ERROR, Code.DECLARATION, judgement.error or "no verdict"),)
    sha256 = dict(judgement.assignment.sha256)
    cells = [Cell(case.candidate, finding.question, dtype, DEVICE, SUBJECT) for finding in judgement.findings]
    pairs = zip(cells, judgement.findings, strict=True)
    return tuple(_verdict(cell, finding, case.of(cell, sha256), store) for cell, finding in pairs)


def _snippet(finding: Finding, case: JudgedCase, store: Callable[[str, bytes], None]) -> str:
    """The program of a failure, or why there is none and the command that asks again."""
    try:
        program, stored = write_program(finding, case)
    except NoProgram as err:
        return without(str(err), shlex.join(case.words))
    if stored:
        store(case.id, stored)
    return program


def _verdict(cell: Cell, finding: Finding, case: JudgedCase, store: Callable[[str, bytes], None]) -> Verdict:
    if finding.verdict is not None:
        return _of_property(cell, finding.verdict, case)
    title = TABLE[finding.question].title
    judged, elements = finding.judged, max(finding.elements, finding.judged)
    measure = Measure(samples=1, judged=judged, not_judged=elements - judged)
    wrong = finding.wrong
    if not finding.is_wrong:
        usual = Code.HELD if finding.outcome is Outcome.VERIFIED else Code.MOSTLY_NOT_JUDGED
        code = usual if wrong is None else Code.REFUSED if finding.outcome is Outcome.REFUSED else wrong.code
        reason = _VACUOUS if code is Code.MOSTLY_NOT_JUDGED else finding.text or "held"
        if code is Code.HELD and not judged:
            measure = Measure(samples=1, judged=1)  # a question about the call as a whole
        return Verdict(cell, finding.outcome, code, reason, measure, title=title)
    assert wrong is not None
    signs = Signs(samples=1)
    if wrong.outlier is not None:
        at = wrong.outlier
        where = f"{at.output}[{', '.join(map(str, at.index))}]" if at.index else at.output
        worst = Worst(where, "forward", at.computed.hex(), repr(at.exact), float("nan"), at.ratio, at.share)
        measure = measure.reaching(worst)
        signs = Signs(samples=1, output=at.output, share=at.share)
    message = f"{wrong}\n  again      {shlex.join(case.words)}"
    failure = Failure(wrong.code, wrong.title, message, case.id, case.text, _snippet(finding, case, store), signs)
    return Verdict(cell, finding.outcome, wrong.code, wrong.title, measure, failure, title=title)


def _of_property(cell: Cell, verdict: Verdict, case: JudgedCase) -> Verdict:
    """The verdict of a property, whose failure is seen again by the command that judges."""
    failure, command = verdict.failure, shlex.join(case.words)
    if failure is not None:
        message, snippet = f"{failure.message}\n  again      {command}", without(_NO_PROGRAM, command)
        failure = replace(failure, message=message, case_id=case.id, case=case.text, snippet=snippet)
    return replace(verdict, cell=cell, failure=failure, others=())
