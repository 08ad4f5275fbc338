"""The log of a run: one JSON line per thing that happens, written at once, so that nothing known is lost.

Whatever ends the run, `opassay report recover` makes the record of what the log says. The log is read as a stream, so
its size does not matter; a line that was cut when the run was killed, or that is no event, is counted and passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, BinaryIO

import msgspec

from ...oracles.verdicts.data import VerdictData, as_data
from ...oracles.verdicts.verdict import MAX_CASE, MAX_TEXT, Cell, Verdict

#: Bytes of a line; an event with the largest case and snippet of a failure stays below it.
MAX_LINE = 64 * 2**20
#: Cells per line of the plan.
#: A plan of a million cells must not become one line, because a line that a kill cuts is lost as a whole.
_CHUNK = 1000

_Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
_Long = Annotated[str, msgspec.Meta(max_length=MAX_CASE)]
# A key joins five names of at most 512 characters each (`data.Name`) with a few signs between them.
_Key = Annotated[str, msgspec.Meta(max_length=2600)]


# Fields that are not known are refused, so that a line of another version counts as unreadable. Read in part, it would
# change the record without a word.
class LogLine(msgspec.Struct, tag_field="event", forbid_unknown_fields=True):
    pass


class Began(LogLine, tag="began"):
    """What the run was asked for; the cells of its plan follow in events `Planned`."""

    run: str
    version: str
    profile: str
    seed: int
    max_examples: int | None
    plan_digest: str
    started: str
    command: list[str]
    settings: dict[str, str]
    commit: str
    dirty: bool


class Planned(LogLine, tag="planned"):
    """Some cells of the plan, in its order: op, property, dtype, device, subject; and why each is not asked, if so."""

    cells: list[tuple[str, str, str, str, str, str]]


class Environment(LogLine, tag="environment"):
    """What a worker says of its machine, and of its libraries."""

    environment: dict[str, str]


class CellStarted(LogLine, tag="cell_started"):
    cell: _Key
    worker: int


class CellFinished(LogLine, tag="cell_finished"):
    verdict: VerdictData


class CellDied(LogLine, tag="cell_died"):
    """The process of a cell ended, or was ended; a second event of a cell says by which sample."""

    cell: _Key
    timed_out: bool
    how: _Text
    details: _Text
    case_id: _Text = ""
    case: _Long = ""
    program: _Long = ""


class CellsGivenUp(LogLine, tag="cells_given_up"):
    """Cells of an op that had ended too many processes."""

    cells: list[_Key]
    why: _Text


class Noted(LogLine, tag="noted"):
    text: _Text


class Ended(LogLine, tag="ended"):
    """The session is over, its report files come next; `reasons` say why some cells were not asked, if so."""

    seconds: float
    reasons: list[tuple[int, str]]


Event = Began | Planned | Environment | CellStarted | CellFinished | CellDied | CellsGivenUp | Noted | Ended

_DECODER = msgspec.json.Decoder(Event)


def plan_events(cells: Sequence[Cell], exclusions: Mapping[str, str]) -> Iterator[Planned]:
    """The events that hold a plan, `_CHUNK` cells each; `exclusions`: key of a cell -> why it is not asked."""
    rows = [(c.op, c.property, c.dtype, c.device, c.subject, exclusions.get(c.key, "")) for c in cells]
    for start in range(0, len(rows), _CHUNK):
        yield Planned(rows[start : start + _CHUNK])


def verdict_event(verdict: Verdict) -> CellFinished:
    """The event that holds a verdict."""
    return CellFinished(msgspec.convert(as_data(verdict), VerdictData))


class LineFile:
    """A file that lines of JSON are appended to.

    Args:
        file: without a buffer, so that a line is on its way to the disk when `write` returns.

    Attributes:
        broken: why nothing is written any more, such as a full disk; empty while all is well. Whoever writes goes on
            without the file then, and a run's record is made from memory.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.broken = ""
        self._file = file

    def write(self, line: LogLine) -> bool:
        """Append one line; whether the file has become broken by that."""
        if self.broken:
            return False
        rest = memoryview(msgspec.json.encode(line) + b"\n")
        try:
            while rest:
                rest = rest[self._file.write(rest) :]  # it may take only a part of what it is given
        except OSError as err:
            self.broken = f"{type(err).__name__}: {err}"
        return bool(self.broken)

    def close(self) -> None:
        """Close the file; what could not be written is lost with it. A second call does nothing."""
        try:
            self._file.close()
        except OSError as err:
            self.broken = self.broken or f"{type(err).__name__}: {err}"


def read_events(file: BinaryIO) -> Iterator[Event | None]:
    """The events of a log, one after the other; None for a line that holds no event, or has no end."""
    # Without the limit, one line without an end would be read into memory as a whole, however large the log is.
    while line := file.readline(MAX_LINE):
        if not line.endswith(b"\n"):
            if len(line) == MAX_LINE:  # the rest of a line that is too long must not be taken for one of its own
                _skip_line(file)
            yield None
            continue
        try:
            yield _DECODER.decode(line)
        # A line that is nested too deeply raises RecursionError. No event is, but a damaged or hostile log may hold
        # anything.
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            yield None


def _skip_line(file: BinaryIO) -> None:
    while (more := file.readline(MAX_LINE)) and not more.endswith(b"\n"):
        pass
