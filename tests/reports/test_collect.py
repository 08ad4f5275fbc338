"""Logs and what becomes of them: every way in which a run can end."""

from __future__ import annotations

import io
import json
import math
import typing
from collections.abc import Sequence
from dataclasses import replace

import pytest

from opassay.oracles.verdicts.verdict import Cell, Code, Outcome, Verdict
from opassay.reports.collect import DESELECTED, OTHER_SHARD, SEVERITY, Account
from opassay.reports.record import RecordError, plan_digest
from opassay.reports.store import log
from tests.reports.conftest import HOSTILE, failed, verdict


def began(cells: Sequence[Cell]) -> log.Began:
    return log.Began(
        run="20260301-100000-abcdef",
        version="0.1.0",
        profile="commit",
        seed=3,
        max_examples=None,
        plan_digest=plan_digest(cells),
        started="2026-03-01T10:00:00+00:00",
        command=["opassay", "run"],
        settings={"workers": "2"},
        commit="",
        dirty=False,
    )


def beginning(cells: Sequence[Cell], left_out: dict[str, str] | None = None) -> list[log.Event]:
    return [began(cells), *log.plan_events(cells, left_out or {})]


def log_bytes(events: Sequence[log.Event]) -> bytes:
    file = io.BytesIO()
    records = log.LineFile(file)
    for event in events:
        records.write(event)
    assert records.broken == ""
    return file.getvalue()


def account(content: bytes) -> Account:
    result = Account()
    for event in log.read_events(io.BytesIO(content)):
        result.take(event)
    return result


def test_what_is_logged_is_read() -> None:
    measure = replace(verdict().measure, max_ulp=math.inf)
    items = [replace(verdict(), measure=measure), replace(failed(), reason=HOSTILE)]
    events = beginning([item.cell for item in items])
    events += [log.Environment({"torch": "2\x1b[31m"}), log.Noted("one"), log.Noted("one")]
    for item in items:
        events += [log.CellStarted(item.cell.key, 0), log.verdict_event(item)]
    result = account(log_bytes([*events, log.Ended(1.5, [])]))
    run = result.run([], seconds=1.5)
    assert run.verdicts[0] == items[0]
    assert run.verdicts[1].failure == items[1].failure
    assert (run.environment, run.notes, run.seed) == ({"torch": "2"}, ("one",), 3)
    assert run.exit_code == 1


def test_a_log_cut_anywhere_still_says_what_it_holds() -> None:
    items = [verdict("FWD"), verdict("VJP"), failed("JVP")]
    events = beginning([item.cell for item in items])
    for item in items:
        events += [log.CellStarted(item.cell.key, 0), log.verdict_event(item)]
    whole = log_bytes(events)
    head = len(log_bytes(events[:2]))
    for end in range(head, len(whole), 97):
        result = account(whole[:end])
        done = whole[:end].count(b"\n") - 2  # lines after the beginning: a start and an end for each cell
        assert len(result.finished) == done // 2
        verdicts = result.verdicts("killed")
        assert [v.cell for v in verdicts] == [item.cell for item in items]
        assert all(v.outcome is Outcome.NOT_RUN and v.reason == "killed" for v in verdicts[done // 2 :])
        assert verdicts[: done // 2] == tuple(items[: done // 2])


def test_a_process_that_died() -> None:
    cell = verdict().cell
    for timed_out, outcome, code in ((False, Outcome.CRASH, Code.CRASHED), (True, Outcome.TIMEOUT, Code.TIMED_OUT)):
        died = log.CellDied(cell.key, timed_out, "how \x1b[31mit died", "Thread 1")
        result = account(log_bytes([*beginning([cell]), died])).verdicts()[0]
        assert (result.outcome, result.code, result.reason) == (outcome, code, "how it died")
        assert result.failure is not None
        assert result.failure.message == "Thread 1"
    unknown = log.CellDied("no such cell", False, "", "")
    assert account(log_bytes([*beginning([cell]), unknown])).verdicts()[0].outcome is Outcome.NOT_RUN


def test_planned_without_events() -> None:
    cells = [verdict(name).cell for name in ("FWD", "VJP", "JVP", "ADJ")]
    left_out = {cells[0].key: DESELECTED, cells[2].key: OTHER_SHARD}
    given_up = log.CellsGivenUp([cells[3].key], "it crashed twice")
    result = account(log_bytes([*beginning(cells, left_out), given_up])).verdicts()
    assert [item.outcome for item in result] == [Outcome.NOT_RUN] * 4
    assert [item.code for item in result] == [Code.DESELECTED, Code.INTERRUPTED, Code.DESELECTED, Code.RETIRED]


def test_of_two_verdicts_the_worse_one_counts() -> None:
    good = verdict()
    bad = replace(good, outcome=Outcome.UNSTABLE, code=Code.VALUE)
    result = account(log_bytes([*beginning([good.cell]), *map(log.verdict_event, (good, bad, good))]))
    assert result.verdicts()[0].outcome is Outcome.UNSTABLE
    assert len(result.notes) == 1
    assert set(SEVERITY) == set(Outcome)


@pytest.mark.parametrize(
    "line",
    [b"[]", b"{}", b'{"event": "other"}', b'{"event": "cell_started", "cell": 3}', b"\x00", b"\xff{", b"[" * 9999],
)
def test_a_foreign_line_is_counted(line: bytes) -> None:
    cell = verdict().cell
    result = account(log_bytes(beginning([cell])) + line + b"\n" + log_bytes([log.CellStarted(cell.key, 1)]))
    assert (result.unreadable, result.started) == (1, {cell.key})
    assert "log: 1 unreadable lines" in result.run([], seconds=0.0).notes


def test_a_line_that_is_too_long_is_one_unreadable_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_LINE", 1000)
    cell = verdict().cell
    inner = log_bytes([log.Noted("inside")])
    result = account(log_bytes(beginning([cell])) + b"x" * 1500 + inner + log_bytes([log.Noted("after")]))
    assert (result.unreadable, result.notes) == (1, ["after"])


def test_without_its_beginning_a_log_is_no_record() -> None:
    cell = verdict().cell
    with pytest.raises(RecordError, match="no beginning"):
        account(b"").run([], seconds=0.0)
    with pytest.raises(RecordError, match="not those of its plan"):
        account(log_bytes(beginning([cell])[:1])).run([], seconds=0.0)


def test_cases_are_handed_on_before_memory_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opassay.reports.collect._MAX_CASE_BYTES", 5)
    memory: dict[str, str] = {}
    items = [failed("VJP"), failed("JVP")]
    result = Account(on_case=lambda name, text, program: memory.update({name: text}))
    for event in [*beginning([item.cell for item in items]), *map(log.verdict_event, items)]:
        result.take(event)
    assert set(memory.values()) == {'{"op": 1}'}
    assert len(memory) == 2
    assert all(item.failure is not None and item.failure.case == "" for item in result.verdicts())


class _Full(io.BytesIO):
    """A disk with room for so many bytes."""

    room = 300

    def write(self, content: object, /) -> int:
        data = bytes(content)[: self.room]  # type: ignore[call-overload]
        if not data:
            raise OSError(28, "No space left on device")
        self.room -= len(data)
        return super().write(data)


def test_a_full_disk_breaks_the_log_and_nothing_else() -> None:
    file = _Full()
    records = log.LineFile(file)
    for _ in range(20):
        records.write(log.Noted("a sentence of some length"))
    assert "No space left" in records.broken
    assert len(file.getvalue()) == 300
    events = list(log.read_events(io.BytesIO(file.getvalue())))
    assert events[-1] is None
    assert all(isinstance(event, log.Noted) for event in events[:-1])


def test_every_event_survives_its_line() -> None:
    item: Verdict = failed()
    cell = item.cell
    events: list[log.Event] = [
        *beginning([cell]),
        log.Environment({"a": "b"}),
        log.CellStarted(cell.key, 0),
        log.verdict_event(item),
        log.CellDied(cell.key, True, "how", ""),
        log.CellsGivenUp([cell.key], "why"),
        log.Noted("text"),
        log.Ended(0.5, [(1, "reason")]),
    ]
    assert {type(event) for event in events} == set(typing.get_args(log.Event))
    lines = log_bytes(events).splitlines()
    assert [json.loads(line)["event"] for line in lines][:2] == ["began", "planned"]
    assert list(log.read_events(io.BytesIO(log_bytes(events)))) == events
