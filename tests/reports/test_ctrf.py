"""A run in the Common Test Report Format: every cell is a test, and nothing that is not decided looks green."""

from __future__ import annotations

import json
import math
import subprocess
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opassay.oracles.verdicts.verdict import Code, Failure, Outcome
from opassay.reports import record
from opassay.reports.cli.main import main
from opassay.reports.exporting import to_ctrf
from tests.reports.conftest import HOSTILE, failed, make_run, verdict
from tests.reports.json_schema import schema_errors
from tests.reports.test_cli import OP

Call = Callable[..., "subprocess.CompletedProcess[str]"]


def _object(required: str, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": fields, "additionalProperties": False}


_INTEGER, _TEXT, _ANY = {"type": "integer"}, {"type": "string"}, {"type": "object"}
_NAME, _TEXTS = {"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}}
_STATUSES = ("passed", "failed", "skipped", "pending", "other")
#: What the format's own schema, of version 0.1.0, says of the fields that are written.
SCHEMA = _object(
    "results reportFormat specVersion",
    reportFormat={"enum": ["CTRF"]},
    specVersion={"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+$"},
    generatedBy=_TEXT,
    results=_object(
        "tool summary tests",
        tool=_object("name", name=_NAME, version=_TEXT),
        summary=_object(
            "tests passed failed skipped pending other start stop",
            **dict.fromkeys(("tests", *_STATUSES, "suites", "start", "stop", "duration"), _INTEGER),
            extra=_ANY,
        ),
        tests={"type": "array", "items": _object(
            "name status duration",
            id={"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
            name=_NAME, status={"enum": list(_STATUSES)}, duration=_INTEGER,
            suite={"type": "array", "minItems": 1, "items": _TEXT},
            message=_TEXT, trace=_TEXT, snippet=_TEXT, rawStatus=_TEXT, tags=_TEXTS, extra=_ANY,
        )},
        environment=_object("", commit=_TEXT, healthy={"type": "boolean"}, extra=_ANY),
    ),
)  # fmt: skip

EACH = [
    (verdict("A"), "passed"),
    (verdict("B", Outcome.WEAK, Code.FEW_SAMPLES), "passed"),
    (failed("C"), "failed"),
    (verdict("D", Outcome.UNSTABLE, Code.BITS), "failed"),
    (verdict("E", Outcome.CRASH, Code.CRASHED, judged=0), "failed"),
    (verdict("F", Outcome.TIMEOUT, Code.TIMED_OUT, judged=0), "failed"),
    (verdict("G", Outcome.ERROR, Code.HARNESS, judged=0), "failed"),
    (verdict("H", Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, judged=0), "skipped"),
    (verdict("I", Outcome.REFUSED, Code.REFUSED, judged=0), "skipped"),
    (verdict("J", Outcome.NOT_RUN, Code.DESELECTED, judged=0), "skipped"),
    (verdict("K", Outcome.NOT_RUN, Code.INTERRUPTED, judged=0), "pending"),
]


def test_every_outcome_has_a_status_and_the_counts_are_theirs() -> None:
    assert {item.outcome for item, _ in EACH} == set(Outcome)
    run = replace(make_run(*(item for item, _ in EACH)), seconds=2.5, exit_code=3, commit="abc")
    document = json.loads(to_ctrf(run))
    assert schema_errors(document, SCHEMA) == []
    tests, summary = document["results"]["tests"], document["results"]["summary"]
    assert [test["status"] for test in tests] == [status for _, status in EACH]
    assert {name: summary[name] for name in ("tests", *_STATUSES)} == {
        "tests": 11, "passed": 2, "failed": 5, "skipped": 3, "pending": 1, "other": 0,
    }  # fmt: skip
    assert summary["stop"] - summary["start"] == summary["duration"] == 2500
    assert summary["start"] == 1772359200000  # 2026-03-01T10:00:00+00:00
    assert document["results"]["environment"]["healthy"] is False
    bad = tests[2]
    assert (bad["suite"], bad["name"], bad["duration"]) == (["softmax"], "C[float32-cpu-opassay]", 750)
    assert bad["message"] == "OA101 worse than its bound"
    assert "line 2" in bad["trace"]
    assert bad["snippet"] == "exit(1)"
    assert bad["extra"]["error/bound"] == 3.9
    assert not any("message" in test for test in tests[:2])


def test_ids_are_the_same_in_every_run_and_differ() -> None:
    first, second = (json.loads(to_ctrf(make_run(*items))) for items in ([verdict(), failed()], [failed(), verdict()]))
    ids = [{test["name"]: test["id"] for test in result["results"]["tests"]} for result in (first, second)]
    assert ids[0] == ids[1]
    assert len({uuid.UUID(one) for one in ids[0].values()}) == 2


def test_infinities_and_hostile_texts_are_json() -> None:
    bad = replace(failed(ratio=math.inf), failure=Failure(Code.VALUE, HOSTILE, HOSTILE, "id", "", HOSTILE))
    content = to_ctrf(replace(make_run(bad, verdict(op=HOSTILE)), environment={HOSTILE: HOSTILE}))
    document = json.loads(content)
    assert schema_errors(document, SCHEMA) == []
    assert document["results"]["tests"][0]["extra"]["error/bound"] == "inf"
    assert not [sign for sign in ("\x1b", "\x00", "\u202e") if sign in content.decode()]


def test_a_planted_fault_is_seen() -> None:
    document = json.loads(to_ctrf(make_run(verdict())))
    document["results"]["tests"][0]["status"] = "verified"
    assert schema_errors(document, SCHEMA) != []


def test_a_run_writes_it_where_it_is_asked_to(opassay: Call, tmp_path: Path) -> None:
    words = ("run", OP, "--dtype=float32", "--property=FWD", "--property=VJP", "-n", "0")
    assert opassay(*words, "--ctrf").returncode == 1
    path = tmp_path / "opassay-report/ctrf.json"
    document = json.loads(path.read_text())
    assert schema_errors(document, SCHEMA) == []
    assert document["results"]["summary"]["failed"] == 1
    assert opassay(*words).returncode == 1
    assert not path.exists(), "that of an earlier run must not pass for one of this"


def test_a_record_is_rendered_and_a_file_of_the_user_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    record.save(tmp_path / "run.json", make_run(verdict()))
    for _ in range(2):  # the second time over its own file
        assert main(["report", "run.json", "--ctrf", "ctrf.json"]) == 0
    assert schema_errors(json.loads((tmp_path / "ctrf.json").read_text()), SCHEMA) == []
    (tmp_path / "mine.json").write_text('{"reportFormat": "CTRF", "mine": true}')
    assert main(["report", "run.json", "--ctrf", "mine.json"]) == 2
    assert "mine.json: exists and is no CTRF report that opassay wrote" in capsys.readouterr().err
