"""The course of many runs, in a database of SQLite: one row per run and per cell, enough for a trend and no more.

A record is read once, and told apart by its SHA-256, so that a file that was copied or renamed counts once. What has
been read stays in the database, also when the file of the record is removed.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...oracles.verdicts.verdict import Verdict, clean
from ..record import RecordError, Run, decode
from ..store.files import read_capped
from ..text import one_line

#: What SQLite writes into the head of the file, so that a database of somebody else is not taken for ours: "opas".
APPLICATION = 0x6F706173
VERSION = 1
#: Where a record says what it is; files without it are something else, such as a plan or a case.
_MARK = b'"tool": "opassay"'
_HEAD = 4096  # bytes of a file in which the mark is looked for
MOST_FILES = 20_000

_TABLES = """
CREATE TABLE runs (digest TEXT PRIMARY KEY, file TEXT, started TEXT, revision TEXT, version TEXT, torch TEXT,
                   profile TEXT, seed TEXT, seconds REAL, exit_code INTEGER);
CREATE TABLE cells (run TEXT REFERENCES runs (digest), op TEXT, property TEXT, dtype TEXT, device TEXT, subject TEXT,
                    outcome TEXT, code TEXT, ratio REAL, judged INTEGER, seconds REAL,
                    PRIMARY KEY (run, op, property, dtype, device, subject)) WITHOUT ROWID;
CREATE TABLE files (file TEXT PRIMARY KEY, size INTEGER, changed INTEGER, digest TEXT);
"""


@dataclass(frozen=True)
class Intake:
    """What reading a folder has brought: how many records are new or old, and which files are broken."""

    new: int
    old: int
    refusals: tuple[str, ...]


class History:
    """An open database of runs, which has the tables; see `open_history`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def gather(self, files: Iterable[Path]) -> Intake:
        """Reads the records among some files that were not read before."""
        new = old = 0
        refusals = []
        for path in files:
            try:
                is_new = self._read(path)
            except (RecordError, OSError) as err:
                refusals.append(f"{path}: {one_line(str(err), 300)}")
                continue
            new += is_new is True
            old += is_new is False
        return Intake(new, old, tuple(refusals))

    def _read(self, path: Path) -> bool | None:
        """True for a new record, False for one that is there already, None for a file that is no record."""
        stat = path.stat()
        name, stamp = str(path.resolve()), (stat.st_size, stat.st_mtime_ns)
        query = "SELECT digest FROM files WHERE file = ? AND size = ? AND changed = ?"
        before = self.connection.execute(query, (name, *stamp)).fetchone()
        if before is not None:
            return None if before == ("",) else False
        with path.open("rb") as file:
            marked = _MARK in file.read(_HEAD)
        content = read_capped(path) if marked else b""
        digest = digest_of(content) if marked else ""
        there = self.connection.execute("SELECT 1 FROM runs WHERE digest = ?", (digest,)).fetchone()
        with self.connection:  # one transaction: a run is in the database with all its cells, or not at all
            if marked and there is None:
                self._add(digest, name, decode(content))
            self.connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", (name, *stamp, digest))
        return there is None if marked else None

    def _add(self, digest: str, name: str, run: Run) -> None:
        head = (run.started, run.commit, run.version, run.environment.get("torch", ""), run.profile, str(run.seed))
        row = (digest, name, *map(clean, head), run.seconds, run.exit_code)
        self.connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(row))})", row)
        rows = [(digest, *_history_row(verdict)) for verdict in run.verdicts]
        # Two hostile names may become one when they are cleaned; a run with such names is still read.
        self.connection.executemany(f"INSERT OR REPLACE INTO cells VALUES ({', '.join('?' * 11)})", rows)


def digest_of(content: bytes) -> str:
    """The SHA-256 by which the history tells one record from another."""
    return hashlib.sha256(content).hexdigest()


def _history_row(verdict: Verdict) -> tuple[str | int | float, ...]:
    cell, measure = verdict.cell, verdict.measure
    axes = [clean(name) for name in (cell.op, cell.property, cell.dtype, cell.device, cell.subject)]
    # SQLite has no NaN and keeps a NULL for it, which is what a cell without a measure has.
    return (*axes, str(verdict.outcome), str(verdict.code), measure.max_ratio, measure.judged, verdict.seconds)


@contextmanager
def open_history(path: Path) -> Iterator[History]:
    """The database of a file, made where there is none; closed at the end.

    Raises:
        RecordError: the file is something else, or of another version, or it cannot be written.
    """
    if path.is_symlink():
        raise RecordError(f"{path}: is a symbolic link; need a regular file, or a name that is free")
    try:
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            _create_tables(connection, path)
            yield History(connection)
    except sqlite3.Error as err:
        raise RecordError(f"{path}: {one_line(str(err))}") from err


def _create_tables(connection: sqlite3.Connection, path: Path) -> None:
    # A database may come from somebody else, and its views and triggers could call functions with side effects.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA foreign_keys = ON")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, tables) == (0, 0, 0):
        with connection:
            connection.executescript(
                f"BEGIN; {_TABLES} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
            )
    elif application != APPLICATION:
        raise RecordError(f"{path}: is a database of something else; need another name")
    elif version != VERSION:
        raise RecordError(f"{path}: got version {version} of the history, need {VERSION}; remove it to read all again")


def records_in(folder: Path) -> list[Path]:
    """The JSON files below a folder, sorted; what is hidden, and what a link leads to, is left out.

    Raises:
        RecordError: no such folder, or too many files.
    """
    if not folder.is_dir():
        raise RecordError(f"{folder}: no such folder")
    paths: list[Path] = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths += [Path(place, name) for name in sorted(files) if name.endswith(".json") and not name.startswith(".")]
        if len(paths) > MOST_FILES:
            raise RecordError(f"{folder}: more than {MOST_FILES} JSON files")
    return [path for path in paths if path.is_file() and not path.is_symlink()]
