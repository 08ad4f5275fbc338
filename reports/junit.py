"""JUnit XML of a run, for CI services that show test results."""

from __future__ import annotations

import re

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from ..oracles.verdicts.verdict import MAX_TEXT, Outcome, Verdict
from .record import Run
from .text import clean, failure_text, one_line

# what XML 1.0 has no place for; `clean` has taken the rest
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# Outcomes that are not listed pass. JUnit has no word for "held, but weakly"; a failed test would contradict the exit
# code, which a weak verdict does not change. An Error is a case in which nothing was learnt about the op.
_KINDS: dict[Outcome, type[Failure] | type[Error] | type[Skipped]] = {
    Outcome.FAIL: Failure,
    Outcome.UNSTABLE: Failure,
    Outcome.CRASH: Error,
    Outcome.TIMEOUT: Error,
    Outcome.ERROR: Error,
    Outcome.REFUSED: Skipped,
    Outcome.UNSUPPORTED: Skipped,
    Outcome.NOT_RUN: Skipped,
}


def to_xml(run: Run) -> bytes:
    """One suite per op, one case per cell; weak passes; refused, unsupported and not run are skipped."""
    document = JUnitXml("opassay")
    suites: dict[str, TestSuite] = {}
    for verdict in run.verdicts:
        op = verdict.cell.op
        if op not in suites:
            suites[op] = TestSuite(xml_text(op))
            suites[op].timestamp = run.started
            suites[op].add_property("profile", xml_text(run.profile))
            suites[op].add_property("seed", str(run.seed))
        suites[op].add_testcase(_case(verdict))
    for suite in suites.values():
        document.add_testsuite(suite)
    document.update_statistics()
    content: bytes = document.tostring()
    return content


def xml_text(text: str) -> str:
    """The text without characters that XML 1.0 cannot hold."""
    return _NOT_XML.sub("", clean(text))


def _case(verdict: Verdict) -> TestCase:
    cell = verdict.cell
    name = f"{cell.property}[{cell.dtype}-{cell.device}-{cell.subject}]"
    case = TestCase(xml_text(name), classname=xml_text(f"opassay.{cell.op}"), time=verdict.seconds)
    kind = _KINDS.get(verdict.outcome)
    if kind is not None:
        title = verdict.failure.title if verdict.failure else verdict.reason
        result = kind(xml_text(one_line(f"{verdict.code} {title}")), xml_text(str(verdict.outcome)))
        if kind is not Skipped:
            # The whole text is kept, and not what a terminal is given: a CI service shows it on a page of its own.
            result.text = xml_text(failure_text(verdict, lines=MAX_TEXT, characters=MAX_TEXT))
        case.result = [result]
    return case
