"""The log of a campaign: one file of JSON lines that only grows, from which a campaign that ended goes on.

It is not the log of a run (`log`), because a campaign may have several sessions, and items that are no cells. The first
line says what was asked; then comes a line for every item that is done, as soon as it is. A line that was cut when a
session was killed costs its item, which is asked again.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import msgspec

from . import log

SCHEMA = 1


class JournalError(ValueError):
    """A file that a campaign may not go on with; the text says which, what is there, and the rule."""


class Campaign(log.LogLine, tag="campaign"):
    """What was asked for: the head of the record, and a digest of the items and of the source that runs them."""

    schema: int
    began: log.Began
    items: str
    source: str


class Done(log.LogLine, tag="done"):
    """An item and what its process answered; `at` counts seconds of the session, `seconds` those of processors."""

    kind: str
    item: str
    answer: dict[str, Any]
    worker: str
    at: float
    seconds: float
    notes: list[str] = msgspec.field(default_factory=list)


class Lost(log.LogLine, tag="lost"):
    """An item that has no answer: its processes ended, or its time was over; a second line names the sample."""

    kind: str
    item: str
    how: str
    details: str
    timed_out: bool
    at: float
    case_id: str = ""
    case: str = ""
    program: str = ""
    with_worker: bool = False  # whether the worker of the cluster ended, and not only the item's process


Line = Campaign | log.Environment | Done | Lost | log.Ended

#: How the first line of every campaign begins.
_BEGINNING = b'{"event":"campaign",'
_DECODER = msgspec.json.Decoder(Line)


class Journal(log.LineFile):
    """The file of a campaign, locked by this process until it is closed.

    Args:
        path: the file; made if absent, and its folder too.

    Attributes:
        lines: what the file says so far. unreadable: how many lines hold nothing that can be read.

    Raises:
        JournalError: another campaign goes on with it, or it is no file of a campaign.
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # O_NONBLOCK, because a pipe of that name would otherwise keep this process waiting.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        super().__init__(os.fdopen(os.open(path, flags, 0o644), "ab", buffering=0))
        try:
            self._lock()
            self.lines, self.unreadable = self._read()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            rule = "need one log per campaign: wait for it, or name another file"
            raise JournalError(f"{self.path}: is in use by another campaign; {rule}") from None

    def _read(self) -> tuple[list[Line], int]:
        with open(self.path, "rb") as file:
            content = file.read()
        entries = [log.decode_line(_DECODER, text) for text in content.split(b"\n") if text]
        lines = [line for line in entries if line is not None]
        first = lines[0] if lines else None
        # A campaign that was killed while it wrote its first line has left a part of that and nothing else.
        begun = not lines and b"\n" not in content and content.startswith(_BEGINNING)
        if entries and not begun and not (isinstance(first, Campaign) and first.schema == SCHEMA):
            rule = f"need one of schema {SCHEMA}, or a name that is free"
            raise JournalError(f"{self.path}: is no log of a campaign; {rule}")
        if content and not content.endswith(b"\n"):
            # The next line must not become the rest of one that was cut.
            self._file.write(b"\n")
        return lines, len(entries) - len(lines)
