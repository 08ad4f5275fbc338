"""Event logs: every way in which a worker can end."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from opassay.oracles.verdict import Code, Outcome, Verdict
from opassay.properties.events import EventLog
from opassay.reports.collect import SEVERITY, read_events, verdicts
from tests.reports.conftest import HOSTILE, failed, verdict


@pytest.fixture(name="log")
def _log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EventLog:
    for name in ("enable", "disable"):  # pytest's own handler stays
        monkeypatch.setattr(f"faulthandler.{name}", lambda **_: None)
    return EventLog(tmp_path, "gw0")


def _events_file(folder: Path) -> Path:
    return folder / "events-gw0.ndjson"


def test_what_is_logged_is_read(tmp_path: Path, log: EventLog) -> None:
    measure = replace(verdict().measure, max_ulp=math.inf)
    items = [replace(verdict(), measure=measure), replace(failed(), reason=HOSTILE)]
    log.session(profile="commit", seed=3, environment={"torch": "2\x1b[31m"})
    for item in items:
        log.started(item.cell, None)
        log.finished(item)
    events = read_events(tmp_path)
    found = verdicts([item.cell for item in items], events)
    assert found[0] == items[0]
    assert found[1].failure == items[1].failure
    assert events.environment == {"torch": "2"}
    assert events.notes == []


def test_a_truncated_last_line_is_dropped(tmp_path: Path, log: EventLog) -> None:
    done, torn = verdict("FWD"), verdict("VJP")
    log.started(done.cell, None)
    log.finished(done)
    log.started(torn.cell, None)
    log.finished(torn)
    path = _events_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-40])
    found = verdicts([done.cell, torn.cell], read_events(tmp_path))
    assert [item.outcome for item in found] == [Outcome.VERIFIED, Outcome.CRASH]


def test_a_log_goes_on_after_a_torn_line(tmp_path: Path, log: EventLog) -> None:
    log.close()
    _events_file(tmp_path).write_bytes(b'{"event": "cell_fin')
    again = EventLog(tmp_path, "gw0")
    again.finished(verdict())
    events = read_events(tmp_path)
    assert list(events.finished) == [verdict().cell.key]
    assert events.notes == ["events-gw0.ndjson: 1 unreadable lines"]


def test_started_without_an_end(tmp_path: Path, log: EventLog) -> None:
    cell = verdict().cell
    log.started(cell, None)
    events = read_events(tmp_path)
    assert verdicts([cell], events)[0].code is Code.CRASHED
    assert verdicts([cell], events, interrupted="Ctrl-C")[0].code is Code.INTERRUPTED
    (tmp_path / "stacks-gw0.txt").write_text("Timeout (0:00:02)!\nThread 1\n" + "x" * 20_000)
    timed_out = verdicts([cell], read_events(tmp_path))[0]
    assert timed_out.outcome is Outcome.TIMEOUT
    assert timed_out.failure is not None
    assert len(timed_out.failure.message) <= 8192


def test_planned_without_events(tmp_path: Path, log: EventLog) -> None:
    cells = [verdict(name).cell for name in ("FWD", "VJP", "JVP")]
    log.deselected(cells[:1])
    found = verdicts(cells, read_events(tmp_path), elsewhere={cells[2].key})
    assert [item.outcome for item in found] == [Outcome.NOT_RUN] * 3
    assert [item.code for item in found] == [Code.DESELECTED, Code.INTERRUPTED, Code.DESELECTED]


def test_of_two_verdicts_the_worse_one_counts(tmp_path: Path, log: EventLog) -> None:
    good = verdict()
    bad = replace(good, outcome=Outcome.UNSTABLE)
    for item in (good, bad, good):
        log.finished(item)
    events = read_events(tmp_path)
    assert verdicts([good.cell], events)[0].outcome is Outcome.UNSTABLE
    assert len(events.notes) == 2
    assert set(SEVERITY) == set(Outcome)


@pytest.mark.parametrize("line", ["[]", "{}", '{"event": "other"}', '{"event": "cell_started", "cell": 3}', "\x00"])
def test_a_foreign_line_is_counted(tmp_path: Path, line: str) -> None:
    good = {"event": "cell_started", "worker": "gw0", "pid": 1, "time": "0x0p+0", "cell": verdict().cell.key}
    _events_file(tmp_path).write_text(line + "\n" + json.dumps(good) + "\n")
    events = read_events(tmp_path)
    assert events.notes == ["events-gw0.ndjson: 1 unreadable lines"]
    assert list(events.started) == [verdict().cell.key]


def test_no_log_at_all(tmp_path: Path) -> None:
    found: tuple[Verdict, ...] = verdicts([verdict().cell], read_events(tmp_path / "nowhere"))
    assert found[0].outcome is Outcome.NOT_RUN
