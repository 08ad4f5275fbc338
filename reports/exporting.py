"""A run as files that services for tests read: JUnit XML, and JSON in the Common Test Report Format (https://ctrf.io).

The latter is that of the schema of its version 0.1.0, ctrf-io/ctrf on GitHub, schema/ctrf.schema.json.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from ..oracles.verdicts.verdict import HELD, MAX_TEXT, Outcome, Verdict
from .exit_codes import is_incomplete
from .record import Run
from .text import clean, failure_text, one_line, what_of

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
        result = kind(xml_text(one_line(f"{verdict.code} {what_of(verdict)}")), xml_text(str(verdict.outcome)))
        if kind is not Skipped:
            # The whole text is kept, and not what a terminal is given: a CI service shows it on a page of its own.
            result.text = xml_text(failure_text(verdict, lines=MAX_TEXT, characters=MAX_TEXT))
        case.result = [result]
    return case


SPEC = "0.1.0"
_STATUSES = ("passed", "failed", "skipped", "pending", "other")
_AS_SKIPPED = (Outcome.REFUSED, Outcome.UNSUPPORTED, Outcome.NOT_RUN)
#: What the stable ids of tests are made in: an id is that of the cell's key, and the same in every run.
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "cells.opassay")


def to_ctrf(run: Run) -> bytes:
    """One test per cell; what holds weakly passes, what was not asked is skipped, or pending where it should have been.

    A crash, a time limit and an error are failed: the format has no word for a test that came to no end, and a service
    must not show the run as green.
    """
    tests = [_test(verdict) for verdict in run.verdicts]
    counts = Counter(test["status"] for test in tests)
    start = _milliseconds(run.started)
    document = {
        "reportFormat": "CTRF",
        "specVersion": SPEC,
        "generatedBy": f"opassay {one_line(run.version, 50)}",
        "results": {
            "tool": {"name": "opassay", "version": one_line(run.version, 50)},
            "summary": {
                "tests": len(tests),
                **{status: counts[status] for status in _STATUSES},
                "suites": len({verdict.cell.op for verdict in run.verdicts}),
                "start": start,
                "stop": start + round(1000 * run.seconds),
                "duration": round(1000 * run.seconds),
                "extra": {"exit code": run.exit_code, "profile": clean(run.profile), "seed": str(run.seed)},
            },
            "tests": tests,
            "environment": {
                **({"commit": clean(run.commit)} if run.commit else {}),
                "healthy": run.exit_code == 0,
                "extra": {clean(name): clean(value) for name, value in run.environment.items()},
            },
        },
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1).encode("utf-8", "replace") + b"\n"


def _test(verdict: Verdict) -> dict[str, Any]:
    cell, failure = verdict.cell, verdict.failure
    test: dict[str, Any] = {
        "id": str(uuid.uuid5(_NAMESPACE, clean(cell.key))),
        "name": clean(f"{cell.property}[{cell.dtype}-{cell.device}-{cell.subject}]"),
        "status": _status(verdict),
        "duration": round(1000 * verdict.seconds),
        "suite": [clean(cell.op)],
        "rawStatus": str(verdict.outcome),
        "tags": [clean(name) for name in (cell.property, cell.dtype, cell.device, cell.subject)],
        "extra": {"cell": cell.id, "code": str(verdict.code), "samples": verdict.measure.samples, **_error_of(verdict)},
    }
    if verdict.outcome not in HELD:
        test["message"] = one_line(f"{verdict.code} {what_of(verdict)}", 1000)
    if test["status"] == "failed":
        test["trace"] = failure_text(verdict, lines=MAX_TEXT, characters=MAX_TEXT)
    if failure is not None and failure.snippet:
        test["snippet"] = clean(failure.snippet)
    return test


def _status(verdict: Verdict) -> str:
    if verdict.outcome in HELD:
        return "passed"
    if verdict.outcome not in _AS_SKIPPED:
        return "failed"
    return "pending" if is_incomplete(verdict) else "skipped"


def _error_of(verdict: Verdict) -> dict[str, float | str]:
    """The largest error/bound; JSON has no infinity, so that is a word."""
    ratio = verdict.measure.max_ratio
    if not verdict.measure.judged or math.isnan(ratio):
        return {}
    return {"error/bound": ratio if math.isfinite(ratio) else "inf"}


def _milliseconds(started: str) -> int:
    moment = datetime.fromisoformat(started)
    # A record that names no time zone means UTC, as every record that this version writes does.
    return round(1000 * (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
