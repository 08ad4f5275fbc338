"""A run as JSON in the Common Test Report Format, which many services and chat tools read: https://ctrf.io.

The format is that of the schema of its version 0.1.0, ctrf-io/ctrf on GitHub, schema/ctrf.schema.json.
"""

from __future__ import annotations

import json
import math
import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from ...oracles.verdicts.verdict import HELD, MAX_TEXT, Outcome, Verdict
from ..exit_codes import is_incomplete
from ..record import Run
from ..text import clean, failure_text, one_line

SPEC = "0.1.0"
_STATUSES = ("passed", "failed", "skipped", "pending", "other")
_SKIPPED = (Outcome.REFUSED, Outcome.UNSUPPORTED, Outcome.NOT_RUN)
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
        "extra": {"cell": cell.id, "code": str(verdict.code), "samples": verdict.measure.samples, **_error(verdict)},
    }
    if verdict.outcome not in HELD:
        test["message"] = one_line(f"{verdict.code} {failure.title if failure else verdict.reason}", 1000)
    if test["status"] == "failed":
        test["trace"] = failure_text(verdict, lines=MAX_TEXT, characters=MAX_TEXT)
    if failure is not None and failure.snippet:
        test["snippet"] = clean(failure.snippet)
    return test


def _status(verdict: Verdict) -> str:
    if verdict.outcome in HELD:
        return "passed"
    if verdict.outcome not in _SKIPPED:
        return "failed"
    return "pending" if is_incomplete(verdict) else "skipped"


def _error(verdict: Verdict) -> dict[str, float | str]:
    """The largest error/bound; JSON has no infinity, so that is a word."""
    ratio = verdict.measure.max_ratio
    if not verdict.measure.judged or math.isnan(ratio):
        return {}
    return {"error/bound": ratio if math.isfinite(ratio) else "inf"}


def _milliseconds(started: str) -> int:
    moment = datetime.fromisoformat(started)
    # A record that names no time zone means UTC, as every record that this version writes does.
    return round(1000 * (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
