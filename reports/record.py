"""The run record: what was asked, what came out, where, and why the run ended as it did.

`Run` is what the reports work with. On disk it is JSON with every float as a hexadecimal string, so
that NaN and infinities survive; reading is strict: unknown fields, wrong types, oversized or
contradictory data are refused. Notes, reasons, settings and words of the command are capped in number, so that a
record that is accepted can be rendered in seconds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ..oracles.verdicts.data import Count, Hex, Name, VerdictData, as_data, decode_verdict, read_seconds
from ..oracles.verdicts.data import RecordError as RecordError
from ..oracles.verdicts.verdict import MAX_CASE, Cell, Verdict, clean
from .store.files import MAX_FILE, read_capped, write_atomically

SCHEMA = 1
MAX_CELLS = 1_000_000
MAX_NOTES = 1000
MAX_REASONS = 100
MAX_WORDS = 1000  # of the command
MAX_ENTRIES = 256  # of the settings, and of the environment
_LINE = 500  # characters that a note, a setting or a word of the command is cut to

_Line = Annotated[str, msgspec.Meta(max_length=4 * _LINE)]
_Table = Annotated[dict[Name, _Line], msgspec.Meta(max_length=MAX_ENTRIES)]


class ExitData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: Annotated[int, msgspec.Meta(ge=0, le=255)]
    reasons: Annotated[list[_Line], msgspec.Meta(max_length=MAX_REASONS)]


class HeadData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a record says of its run beside what came out."""

    schema: int
    tool: Name
    version: Name
    commit: _Line
    dirty: bool
    command: Annotated[list[_Line], msgspec.Meta(max_length=MAX_WORDS)]
    profile: Name
    seed: int
    max_examples: Count | None
    settings: _Table
    environment: _Table
    plan_digest: Name


class RunData(HeadData, frozen=True, forbid_unknown_fields=True):
    """The published schema of run.json."""

    started: Name
    seconds: Hex
    verdicts: Annotated[list[VerdictData], msgspec.Meta(max_length=MAX_CELLS)]
    notes: Annotated[list[_Line], msgspec.Meta(max_length=MAX_NOTES)]
    exit: ExitData


@dataclass(frozen=True)
class Head:
    """What a run was asked for."""

    version: str
    profile: str
    seed: int
    plan_digest: str
    started: str  # ISO 8601, UTC
    commit: str = ""
    dirty: bool = False
    command: tuple[str, ...] = ()
    max_examples: int | None = None
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Run(Head):
    """One run of the suite: a verdict for every planned cell."""

    verdicts: tuple[Verdict, ...]
    environment: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    exit_code: int = 0
    exit_reasons: tuple[str, ...] = ()

    @classmethod
    def of(cls, head: Any, **rest: Any) -> Run:
        """The run of a head, a `RunData` or the first event of a log (`Began`); `rest` has the other fields."""
        shared = {one.name: getattr(head, one.name) for one in fields(Head)}
        return cls(**{**shared, "command": tuple(head.command)}, **rest)


def plan_digest(cells: Iterable[Cell]) -> str:
    """SHA-256 of the cells' keys, independent of their order."""
    text = "\n".join(sorted(cell.key for cell in cells))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def encode(run: Run) -> bytes:
    """The record as indented JSON; above 64 MiB without the cases, which stand in cases/ too."""
    content = _encode(run, MAX_CASE)
    return content if len(content) <= MAX_FILE else _encode(run, 0)


def decode(content: bytes) -> Run:
    """The run of a record.

    Raises:
        RecordError: too large, not JSON, another schema, a field missing, unknown or out of range,
            a cell twice, a digest of other cells, or a verdict that contradicts itself.
    """
    if len(content) > MAX_FILE:
        raise RecordError(f"run record: got {len(content)} bytes, need at most {MAX_FILE}")
    try:
        data = msgspec.json.decode(content, type=RunData)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise RecordError(f"run record: {err}") from err
    if data.schema != SCHEMA:
        raise RecordError(f"run record: got schema={data.schema}, need {SCHEMA}")
    verdicts = tuple(decode_verdict(item) for item in data.verdicts)
    keys = {verdict.cell.key for verdict in verdicts}
    if len(keys) != len(verdicts):
        raise RecordError("run record: a cell has two verdicts")
    if data.plan_digest != plan_digest(verdict.cell for verdict in verdicts):
        raise RecordError("run record: plan_digest does not match the cells; cells were added, removed or renamed")
    seconds = read_seconds("seconds", data.seconds)
    try:
        datetime.fromisoformat(data.started)
    except ValueError as err:
        raise RecordError(f"run record: got started={data.started!r}, need an ISO 8601 time") from err
    return Run.of(
        data,
        verdicts=verdicts,
        environment=data.environment,
        seconds=seconds,
        notes=tuple(data.notes),
        exit_code=data.exit.code,
        exit_reasons=tuple(data.exit.reasons),
    )


def load(path: Path) -> Run:
    """The run of a file; see `decode`."""
    return decode(read_capped(path))


def save(path: Path, run: Run) -> None:
    """Writes run.json in one step: a reader sees the old file or the whole new one."""
    write_atomically(path, encode(run))


def schema() -> dict[str, Any]:
    """JSON Schema of the run record."""
    document = msgspec.json.schema(RunData)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "opassay run", **document}


def _encode(run: Run, max_case: int) -> bytes:
    data = {
        "schema": SCHEMA,
        "tool": "opassay",
        "version": run.version,
        "commit": run.commit,
        "dirty": run.dirty,
        "command": _lines(run.command, MAX_WORDS, "words"),
        "profile": run.profile,
        "seed": run.seed,
        "max_examples": run.max_examples,
        "settings": _short_entries(run.settings),
        "environment": _short_entries(run.environment),
        "plan_digest": run.plan_digest,
        "started": run.started,
        "seconds": run.seconds.hex(),
        "verdicts": [as_data(verdict, max_case=max_case) for verdict in run.verdicts],
        "notes": _lines(run.notes, MAX_NOTES, "notes"),
        "exit": {"code": run.exit_code, "reasons": _lines(run.exit_reasons, MAX_REASONS, "reasons")},
    }
    # All floats are strings by now. One that was forgotten is an error here, and not a NaN that
    # other readers of JSON refuse.
    return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=1).encode() + b"\n"


def _short_entries(values: Mapping[str, str]) -> dict[str, str]:
    return {_short(key): _short(value) for key, value in list(values.items())[:MAX_ENTRIES] if _short(key)}


def _lines(texts: Sequence[str], most: int, what: str) -> list[str]:
    """The texts, each cut to a line; where there are too many, the last line says how many are left out."""
    lines = [_short(text) for text in texts[:most]]
    return lines if len(texts) <= most else [*lines[:-1], f"and {len(texts) - most + 1} more {what}"]


def _short(text: str) -> str:
    # Cleaning shortens a text, so more than one line's worth is looked at, but never all of a text of megabytes.
    return clean(text[: 16 * _LINE])[:_LINE]
