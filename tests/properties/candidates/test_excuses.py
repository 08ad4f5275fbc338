"""A candidate is not rejected for what the machine, or who installs this package, does to its process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opassay.oracles.verdicts.verdict import Code, Outcome
from opassay.properties.candidates import excuses
from opassay.properties.candidates.finding import Finding, wrong
from opassay.properties.candidates.host.quarters import Confinement
from opassay.properties.candidates.judge_draws import Draws
from opassay.properties.candidates.judgement import Assignment, Judgement, Ruling
from opassay.properties.candidates.suites import warm_program
from opassay.properties.engine.environment import digest_sources

KILLED = wrong("FWD:given", Code.CRASHED, "the candidate's process died (killed by SIGKILL)")
EXITED = wrong("FWD:given", Code.CRASHED, "the candidate's process died (exit status 70)")
VALUE = wrong("FWD:signs", Code.VALUE, "out[0] is outside its accept set")
LATE = wrong("FWD:given", Code.TIMED_OUT, "the candidate's process did not answer in time")
LEFT = wrong("PURE:left", Code.MUTATED, "a file was written")
FINE = Finding("PURE:left", Outcome.VERIFIED)


def _judge(*findings: Finding, compiled: bool = False, before: int = 0) -> tuple[Ruling, str]:
    of = Assignment("candidate", "reference", "torch", Draws.public(0))
    rejection = Judgement(of, Ruling.REJECTED, (*findings, FINE))
    judgement = excuses.excuse(rejection, Confinement(compiled=compiled), before)
    return judgement.verdict, judgement.error


def test_nothing_is_excused_where_nothing_has_happened() -> None:
    for each in (KILLED, EXITED, VALUE, LATE, LEFT):
        assert _judge(each, before=excuses.ended_for_memory()) == (Ruling.REJECTED, "")


def test_a_process_that_loads_another_version_than_its_judge_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excuses, "_SOURCES", "other")
    verdict, why = _judge(EXITED)
    assert verdict is Ruling.ERROR
    assert "files of opassay have changed since this judge began" in why
    # The candidate may have written them itself.
    assert _judge(EXITED, LEFT)[0] is Ruling.REJECTED


def test_a_process_that_is_ended_for_want_of_memory_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(excuses, "_COUNTS", tmp_path / "vmstat")
    assert excuses.ended_for_memory() == 0
    (tmp_path / "vmstat").write_text("pgfault 7\noom_kill 3\n")
    assert "out of memory" in _judge(KILLED, before=2)[1]
    for findings, before in (((KILLED,), 3), ((EXITED,), 2), ((KILLED, VALUE), 2)):
        assert _judge(*findings, before=before)[0] is Ruling.REJECTED


def test_executed_ptx_is_late_for_reasons_of_its_own() -> None:
    assert "PTX is executed slowly" in _judge(LATE, compiled=True)[1]
    assert _judge(LATE, VALUE, compiled=True)[0] is Ruling.REJECTED


def test_a_file_that_is_written_or_added_is_seen_and_its_time_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opassay.properties.engine.environment.ROOT", tmp_path)
    digests = [digest_sources()]
    for name, text in (("a.py", ""), ("b.py", ""), ("a.py", "1"), ("a.py", "2")):
        (tmp_path / name).write_text(text)
        digests.append(digest_sources())
    assert len(set(digests)) == 5
    os.utime(tmp_path / "a.py", (1, 1))
    (tmp_path / "a.py").chmod(0o600)
    assert digest_sources() == digests[-1]


def test_a_candidate_that_changes_times_alone_excuses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opassay.properties.engine.environment.ROOT", tmp_path)
    (tmp_path / "a.py").write_text("1")
    monkeypatch.setattr(excuses, "_SOURCES", digest_sources())
    os.utime(tmp_path / "a.py", (1, 1))
    assert _judge(VALUE)[0] is Ruling.REJECTED
    (tmp_path / "a.py").write_text("2")
    assert _judge(VALUE)[0] is Ruling.ERROR


def test_a_warm_judge_whose_files_have_changed_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    record = {"record": f'{{"verdict": "error", "error": "out is wrong; {excuses.CHANGED}"}}'}
    monkeypatch.setattr(warm_program, "answer_to", lambda question: record)
    assert warm_program._answer_in_copy({})["record"] == record["record"], "a candidate may say that"
    monkeypatch.setattr(excuses, "_SOURCES", "other")
    with pytest.raises(SystemExit, match="files of opassay"):
        warm_program._answer_in_copy({})
