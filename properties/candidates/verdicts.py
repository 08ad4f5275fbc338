"""A judgement as verdicts of cells, one for each question, so that it can be recorded, gated, compared and shown."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from dataclasses import replace

from ...oracles.op.script import NoProgram
from ...oracles.programs.writing import without
from ...oracles.verdicts.verdict import Cell, Code, Failure, Measure, Outcome, Signs, Verdict
from ..table import TABLE
from .cases import SUBJECT, JudgedCase
from .finding import Finding
from .judgement import Judgement, Ruling
from .programs import write_program

_VACUOUS = "held, but half of the elements or more have a bound wider than themselves, or none"


def verdicts_of(judgement: Judgement, case: JudgedCase, store: Callable[[str, bytes], None]) -> tuple[Verdict, ...]:
    """The verdicts of a judgement.

    Args:
        judgement: of a candidate. case: what was asked of it, with no question chosen; its cells have its address.
        store: (id of a case, bytes) -> None: keeps the large tensors of the program of a failure.
    """
    dtype, device = judgement.assignment.dtype, judgement.assignment.device
    if judgement.verdict is Ruling.ERROR:
        cell = Cell(case.candidate, "FWD:given", dtype, device, SUBJECT)
        return (Verdict(cell, Outcome.ERROR, Code.DECLARATION, judgement.error or "no verdict"),)
    sha256 = dict(judgement.assignment.sha256)
    cells = [Cell(case.candidate, finding.question, dtype, device, SUBJECT) for finding in judgement.findings]
    pairs = zip(cells, judgement.findings, strict=True)
    return tuple(_verdict(cell, finding, case.of(cell, sha256), store) for cell, finding in pairs)


def _snippet(finding: Finding, case: JudgedCase, store: Callable[[str, bytes], None]) -> str:
    """The program of a failure, or why there is none."""
    try:
        program, stored = write_program(finding, case)
    except NoProgram as err:
        return without(str(err))
    if stored:
        store(case.id, stored)
    return program


def _verdict(cell: Cell, finding: Finding, case: JudgedCase, store: Callable[[str, bytes], None]) -> Verdict:
    """The verdict of a finding; its failure is seen again by its program, or by the command that judges."""
    verdict = finding.verdict or _of_question(cell, finding)
    failure = verdict.failure
    if failure is not None:
        message = f"{failure.message}\n  again      {shlex.join(case.words)}"
        snippet = _snippet(finding, case, store)
        failure = replace(failure, message=message, case_id=case.id, case=case.text, snippet=snippet)
    return replace(verdict, cell=cell, failure=failure, others=())


def _of_question(cell: Cell, finding: Finding) -> Verdict:
    wrong, judged, elements = finding.wrong, finding.judged, max(finding.elements, finding.judged)
    of = functools.partial(Verdict, cell, finding.outcome, title=TABLE[finding.question].title)
    measure = Measure(samples=1, judged=judged, not_judged=elements - judged)
    if wrong is None or not finding.is_wrong:
        usual = Code.HELD if finding.outcome is Outcome.VERIFIED else Code.MOSTLY_NOT_JUDGED
        code = usual if wrong is None else Code.REFUSED if finding.outcome is Outcome.REFUSED else wrong.code
        reason = _VACUOUS if code is Code.MOSTLY_NOT_JUDGED else finding.text or "held"
        # A question about the call as a whole has judged one thing.
        return of(code, reason, Measure(samples=1, judged=1) if code is Code.HELD and not judged else measure)
    signs, at = Signs(samples=1), wrong.outlier
    if at is not None:
        measure, signs = measure.reaching(at.worst), Signs(samples=1, output=at.output, share=at.worst.share)
    return of(wrong.code, wrong.title, measure, Failure(wrong.code, wrong.title, str(wrong), signs=signs))
