"""Event logs in, verdicts out: what each worker wrote before it ended, however it ended."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from ..oracles.verdict import Cell, Code, Failure, Outcome, Verdict, clean
from .record import MAX_FILE, RecordError, VerdictData, read_capped, verdict_of

MAX_STACKS = 8 * 2**10  # bytes of a dying worker's stacks that are kept

OTHER_SHARD = "in another shard"

#: From best to worst; where a cell has two verdicts, the worse one counts.
SEVERITY: tuple[Outcome, ...] = (
    Outcome.NOT_RUN,
    Outcome.UNSUPPORTED,
    Outcome.VERIFIED,
    Outcome.WEAK,
    Outcome.TIMEOUT,
    Outcome.CRASH,
    Outcome.ERROR,
    Outcome.UNSTABLE,
    Outcome.FAIL,
)


class _Event(msgspec.Struct, tag_field="event", forbid_unknown_fields=True):
    worker: Annotated[str, msgspec.Meta(max_length=64)]
    pid: int
    time: str


class _Session(_Event, tag="session"):
    profile: str
    seed: int
    environment: dict[str, str]


class _Deselected(_Event, tag="cells_deselected"):
    cells: list[str]


class _Started(_Event, tag="cell_started"):
    cell: str


class _Finished(_Event, tag="cell_finished"):
    verdict: VerdictData


class _Note(_Event, tag="note"):
    text: Annotated[str, msgspec.Meta(max_length=1000)]


_DECODER = msgspec.json.Decoder(_Session | _Deselected | _Started | _Finished | _Note)


@dataclass
class Events:
    """What the logs of a run say."""

    finished: dict[str, Verdict] = field(default_factory=dict)  # cell key -> verdict
    started: dict[str, str] = field(default_factory=dict)  # cell key -> worker
    deselected: set[str] = field(default_factory=set)
    environment: dict[str, str] = field(default_factory=dict)
    stacks: dict[str, str] = field(default_factory=dict)  # worker -> last lines
    notes: list[str] = field(default_factory=list)


def read_events(folder: Path) -> Events:
    """All logs of a folder; a last line without its end is dropped, a broken line is counted.

    Raises:
        RecordError: a log of more than 64 MiB.
    """
    events = Events()
    for path in sorted(folder.glob("events-*.ndjson")):
        broken = 0
        for line in _whole_lines(path):
            try:
                _take(events, _DECODER.decode(line))
            except (msgspec.MsgspecError, RecordError, UnicodeDecodeError):
                broken += 1
        if broken:
            events.notes.append(f"{path.name}: {broken} unreadable lines")
    for path in sorted(folder.glob("stacks-*.txt")):
        events.stacks[path.stem.removeprefix("stacks-")] = _last_stacks(path)
    return events


def verdicts(
    plan: Sequence[Cell],
    events: Events,
    *,
    interrupted: str = "",
    elsewhere: Container[str] = (),
) -> tuple[Verdict, ...]:
    """One verdict for every planned cell, in the plan's order.

    A started cell without an end is `crash` (`timeout` if the watchdog ended its process), or not run
    if the run was interrupted; one without any event is `not run`, as is one of another shard.

    Args:
        plan: all cells of the run and of its shards.
        events: what the logs say.
        interrupted: why the run ended early; empty if it did not.
        elsewhere: keys of the cells that belong to other shards.
    """
    return tuple(
        Verdict(cell, Outcome.NOT_RUN, Code.DESELECTED, OTHER_SHARD)
        if cell.key in elsewhere
        else _verdict(cell, events, interrupted)
        for cell in plan
    )


def worse(one: Verdict, other: Verdict) -> Verdict:
    """The verdict that counts of two for the same cell."""
    return max(one, other, key=lambda verdict: SEVERITY.index(verdict.outcome))


def _verdict(cell: Cell, events: Events, interrupted: str) -> Verdict:
    if cell.key in events.finished:
        return events.finished[cell.key]
    if cell.key in events.started and not interrupted:
        return _died(cell, events.stacks.get(events.started[cell.key], ""))
    if cell.key in events.deselected:
        return Verdict(cell, Outcome.NOT_RUN, Code.DESELECTED, "deselected by -k or -m")
    return Verdict(cell, Outcome.NOT_RUN, Code.INTERRUPTED, interrupted or "the run ended before this cell")


def _died(cell: Cell, stacks: str) -> Verdict:
    timed_out = "Timeout (" in stacks
    outcome = Outcome.TIMEOUT if timed_out else Outcome.CRASH
    code = Code.TIMED_OUT if timed_out else Code.CRASHED
    title = "stopped after its time limit" if timed_out else "the process died while this cell ran"
    failure = Failure(code, title, stacks) if stacks else None
    return Verdict(cell, outcome, code, title, failure=failure)


def _take(events: Events, event: _Session | _Deselected | _Started | _Finished | _Note) -> None:
    if isinstance(event, _Session):
        events.environment = events.environment or {clean(k): clean(v) for k, v in event.environment.items()}
    elif isinstance(event, _Deselected):
        events.deselected.update(event.cells)
    elif isinstance(event, _Started):
        events.started[event.cell] = event.worker
    elif isinstance(event, _Note):
        if clean(event.text) not in events.notes:
            events.notes.append(clean(event.text))
    else:
        verdict = verdict_of(event.verdict)
        earlier = events.finished.get(verdict.cell.key)
        if earlier is not None:
            events.notes.append(f"{verdict.cell.key}: two verdicts, the worse one counts")
        events.finished[verdict.cell.key] = verdict if earlier is None else worse(earlier, verdict)


def _last_stacks(path: Path) -> str:
    """The beginning of the last dump of a file: the cause and the innermost frames."""
    content = path.read_bytes() if path.stat().st_size <= MAX_FILE else b""
    start = max(content.rfind(b"Timeout ("), content.rfind(b"Fatal Python error"), 0)
    return clean(content[start : start + MAX_STACKS].decode(errors="replace"))


def _whole_lines(path: Path) -> list[bytes]:
    content = read_capped(path, 4 * MAX_FILE)
    return [line for line in content.split(b"\n")[:-1] if line.strip()]
