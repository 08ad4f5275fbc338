"""The report folder: who may write into it, and where a run keeps what it has not told yet.

    DIR/.opassay/marker.json   this folder belongs to opassay; the run whose files stand in it
    DIR/.opassay/lock          held while a run goes on; the kernel frees it when the process dies
    DIR/.opassay/RUN.ndjson    log of a run
    DIR/.opassay/RUN.run.json  record of an earlier run, until the next one stands; so with the other files
    DIR/cases/                 ID.json of every failure of that run, ID.py where a program shows it, its data ID.bin
    DIR/cases-earlier/RUN/     those of earlier runs
    DIR/plan.json, run.json, junit.xml, report.html, ctrf.json, watch.json, watch.html

A folder with anything in it and without the marker is refused, so that no file of a user is lost to a run.
Every name is opened relative to the folder and never through a symbolic link: a name that somebody exchanges
while a run goes on cannot lead the run to another place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

from .handles import DIRECTORY, KINDS, make_folder, names_in
from .marker import NAME, RUN_ID, Marker, check_run, encode_marker, read_marker

FILES = ("plan.json", "run.json", "junit.xml", "report.html", "ctrf.json", "watch.json", "watch.html")
CASES, EARLIER, PRIVATE = "cases", "cases-earlier", ".opassay"

_RUN_FILE = re.compile(rf"({RUN_ID.pattern})\.[a-z0-9][a-z0-9.-]{{0,80}}")
_CASE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4,64}\.(json|py|bin)")
_SCRATCH = re.compile(r"new-[0-9a-f]{16}")
#: What a person can put right; a full disk or a broken one is left to the caller as it is.
_REFUSALS = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
        *(errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOENT),
    }
)


class FolderError(ValueError):
    """A folder that a run may not use: the text says where, what is there, and the rule."""


class Folder:
    """A report folder that this process has locked."""

    def __init__(self, path: Path, run: str) -> None:
        """Use `claim` or `reopen`."""
        self.path = path
        self.run = run
        self.log = path / PRIVATE / f"{run}.ndjson"
        self._stack = contextlib.ExitStack()
        self._top = self._private = -1

    @classmethod
    def claim(cls, path: Path, run: str) -> Folder:
        """The folder for a new run: created if absent, locked, cases of the run before it put away.

        Its parents are created, too; `run` is an id as `new_run_id` gives it.

        Raises:
            FolderError: something in the folder is not ours, another run goes on in it, or it cannot be written to.
            OSError: the disk is full or broken.
        """
        check_run(run)
        folder = cls(path, run)
        with folder._opening():
            folder._create()
            folder._check()
            folder._lock()
            # Read again under the lock: another run may have ended since the check and written another marker.
            before = folder._marker()
            if folder._kind(folder._private, f"{run}.ndjson"):
                folder._refuse(f"has a log of run {run}", "every run needs an id of its own")
            folder._clear_scratch()
            if before is not None:
                folder._put_cases_away(before.run)
                folder._put_record_away(before.run)
            folder._mark(before.recorded if before else [])
        return folder

    @classmethod
    def reopen(cls, path: Path, run: str | None = None) -> Folder:
        """The folder of a run that ended without its record, locked, to write that record from the log.

        By default that is the newest run with a log and without a record.

        Raises:
            FolderError: not a report folder, no such run, or a run goes on in it.
            OSError: the disk is full or broken.
        """
        folder = cls(path, run or "")
        with folder._opening():
            folder._top = folder._enter(os.open(path, DIRECTORY))
            marker = folder._check()
            if marker is None:
                folder._refuse("has no marker .opassay/marker.json", "need the report folder of a run")
            folder._lock()
            marker = folder._marker() or marker
            unfinished = [name for name in folder._logs() if name not in marker.recorded]
            if run is None and not unfinished:
                folder._refuse("every run in it has its record", "there is nothing to recover")
            if run is not None and run not in folder._logs():
                logs = ", ".join(folder._logs()) or "none"
                folder._refuse(f"has no log of run {run!r}", f"need one of the runs with a log: {logs}")
            folder.run = run or unfinished[-1]
            folder.log = path / PRIVATE / f"{folder.run}.ndjson"
            folder._clear_scratch()
            if folder.run != marker.run:
                # This run's record takes the place of the other's, which can be recovered from its log in turn.
                folder._put_cases_away(marker.run)
                folder._put_record_away(marker.run)
                marker = msgspec.structs.replace(marker, recorded=[r for r in marker.recorded if r != marker.run])
            folder._mark([name for name in marker.recorded if name != folder.run])
        return folder

    @classmethod
    def last_run(cls, path: Path) -> str | None:
        """The run that claimed a report folder last, if its log is there; FolderError for a marker of another form."""
        try:
            handle = os.open(path / PRIVATE, DIRECTORY)
        except OSError:
            return None
        try:
            marker = read_marker(handle, cls(path, "")._refuse)
        finally:
            os.close(handle)
        return marker.run if marker and (path / PRIVATE / f"{marker.run}.ndjson").is_file() else None

    def open_log(self) -> BinaryIO:
        """The log, open for appending, created if absent; unbuffered, so that what is written outlives this process.

        A last line that was cut is ended, so that the next one does not become its rest.

        Raises:
            FolderError, OSError: what has its name is no regular file. ValueError: the folder was released.
        """
        # O_NONBLOCK, because a pipe of that name would otherwise keep the run waiting until somebody reads from it.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        handle = os.open(self.log.name, flags, 0o644, dir_fd=self._live())
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            self._refuse(f"{PRIVATE}/{self.log.name} is not a regular file", "a log is one")
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            os.write(handle, b"\n")
        return os.fdopen(handle, "ab", buffering=0)

    def write(self, name: str, content: bytes) -> None:
        """Writes one file in one step: a reader sees the old file or the whole new one.

        Raises:
            ValueError: the name is neither one of FILES nor `cases/ID.json` (or `.py`, `.bin`) with the id of a case.
            FolderError: something that is not a regular file has that name.
            OSError: it cannot be written.
        """
        self._live()
        head, _, tail = name.rpartition("/")
        if not ((not head and tail in FILES) or (head == CASES and _CASE.fullmatch(tail))):
            raise ValueError(f"report folder: got name={name!r}, need one of {', '.join(FILES)} or cases/ID.json")
        if not head:
            self._put(self._top, name, content)
            return
        cases = make_folder(self._top, CASES, self._refuse)
        try:
            self._put(cases, tail, content)
        finally:
            os.close(cases)

    def finish(self) -> None:
        """The record stands: logs of earlier runs that have one are deleted, those of runs without one are kept."""
        self._live()
        marker = self._marker()
        before = [] if marker is None else marker.recorded
        for name in names_in(self._private):
            match = _RUN_FILE.fullmatch(name)
            # Ids begin with the time of a run. After the recovery of an old run, the logs of later
            # ones are not smaller and stay.
            if match and match[1] in before and match[1] < self.run and self._kind(self._private, name) == stat.S_IFREG:
                os.unlink(name, dir_fd=self._private)
        logs = self._logs()
        self._mark([name for name in dict.fromkeys([*before, self.run]) if name in logs or name == self.run])

    def unrecorded(self) -> list[str]:
        """Ids of other runs whose logs stand without a record, oldest first; see `reopen`."""
        self._live()
        marker = self._marker()
        recorded = [] if marker is None else marker.recorded
        return [name for name in self._logs() if name != self.run and name not in recorded]

    def release(self) -> None:
        """Frees the lock; nothing can be written afterwards. A second call does nothing."""
        self._stack.close()
        self._top = self._private = -1

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        """Releases what was opened if the folder is refused; what the system refuses becomes a sentence."""
        try:
            yield
        except BaseException as err:
            self.release()
            if isinstance(err, OSError) and err.errno in _REFUSALS:
                where = "" if err.filename is None else f" ({os.fsdecode(err.filename)!r})"
                text = f"{err.strerror}{where}; need a folder that this user may write to"
                raise FolderError(f"report folder {str(self.path)!r}: {text}") from err
            raise

    def _create(self) -> None:
        if self.path.is_symlink():
            self._refuse("is a symbolic link", "need a folder itself")
        self.path.mkdir(parents=True, exist_ok=True)
        self._top = self._enter(os.open(self.path, DIRECTORY))

    def _check(self) -> Marker | None:
        """Refuses what is not ours, before anything is written; the marker, or None in a folder that is new."""
        self._check_kinds(self._top, {PRIVATE: stat.S_IFDIR, CASES: stat.S_IFDIR, EARLIER: stat.S_IFDIR})
        self._check_kinds(self._top, dict.fromkeys(FILES, stat.S_IFREG))
        names = names_in(self._top)
        private: list[str] = []
        marker = None
        if PRIVATE in names:
            handle = os.open(PRIVATE, DIRECTORY, dir_fd=self._top)
            try:
                private = names_in(handle)
                ours = [name for name in private if name in ("lock", NAME) or _RUN_FILE.fullmatch(name)]
                self._check_kinds(handle, dict.fromkeys(ours, stat.S_IFREG))
                marker = read_marker(handle, self._refuse)
            finally:
                os.close(handle)
        if marker is None and (set(names) - {PRIVATE} or [n for n in private if n != "lock" and not _SCRATCH.match(n)]):
            text = ", ".join(repr(name) for name in sorted(names)[:3])
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            self._refuse(
                f"holds {text}{more} and no marker .opassay/marker.json",
                "need a folder that is new, empty, or made by opassay; nothing was changed",
            )
        return marker

    def _check_kinds(self, where: int, kinds: dict[str, int]) -> None:
        for name, kind in kinds.items():
            actual = self._kind(where, name)
            if actual not in (0, kind):
                need = "a folder" if kind == stat.S_IFDIR else "a regular file"
                self._refuse(f"{name} in it is {KINDS.get(actual, 'a special file')}", f"need {need} or nothing there")

    def _lock(self) -> None:
        self._private = self._enter(make_folder(self._top, PRIVATE, self._refuse))
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        lock = self._enter(os.open("lock", flags, 0o644, dir_fd=self._private))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Another process wrote this text, so it is shown only where it has the form that this class writes.
            who = os.pread(lock, 100, 0).decode("ascii", "replace").split()
            is_ours = len(who) == 2 and RUN_ID.fullmatch(who[0]) and who[1].isdecimal()
            holder = f"run {who[0]} (pid {who[1]})" if is_ours else "another run"
            self._refuse(f"is in use by {holder}", "need one folder per run: wait for it, or name another folder")
        # A process that was forked from this one has a copy of the handle: only unlocking frees the lock for sure.
        self._stack.callback(fcntl.flock, lock, fcntl.LOCK_UN)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{self.run or 'recover'} {os.getpid()}\n".encode(), 0)

    def _enter(self, handle: int) -> int:
        self._stack.callback(os.close, handle)
        return handle

    def _live(self) -> int:
        if self._private < 0:
            raise ValueError(f"report folder {str(self.path)!r}: was released")
        return self._private

    def _marker(self) -> Marker | None:
        return read_marker(self._private, self._refuse)

    def _mark(self, recorded: list[str]) -> None:
        logs = set(self._logs())
        runs = [name for name in recorded if name in logs or name == self.run]
        self._put(self._private, NAME, encode_marker(self.run, runs))

    def _logs(self) -> list[str]:
        names = [name.removesuffix(".ndjson") for name in names_in(self._private) if name.endswith(".ndjson")]
        return sorted(name for name in names if RUN_ID.fullmatch(name))

    def _put(self, where: int, name: str, content: bytes) -> None:
        self._check_kinds(where, {name: stat.S_IFREG})
        scratch = f"new-{secrets.token_hex(8)}"
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=self._private)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                # Without this a power cut after the renaming could leave the name with an empty
                # file, and the old content lost.
                os.fsync(file.fileno())
            os.rename(scratch, name, src_dir_fd=self._private, dst_dir_fd=where)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(scratch, dir_fd=self._private)
            raise

    def _clear_scratch(self) -> None:
        """Removes what a run that died had half written."""
        for name in names_in(self._private):
            if _SCRATCH.fullmatch(name) and self._kind(self._private, name) == stat.S_IFREG:
                os.unlink(name, dir_fd=self._private)

    def _put_cases_away(self, run: str) -> None:
        """Moves the cases of an earlier run to a folder of theirs; other files in cases/ stay."""
        if not self._kind(self._top, CASES):
            return
        with contextlib.ExitStack() as stack:
            cases = os.open(CASES, DIRECTORY, dir_fd=self._top)
            stack.callback(os.close, cases)
            regular = [name for name in names_in(cases) if self._kind(cases, name) == stat.S_IFREG]
            mine = [name for name in regular if _CASE.fullmatch(name)]
            if not mine:
                return
            earlier = make_folder(self._top, EARLIER, self._refuse)
            stack.callback(os.close, earlier)
            target = make_folder(earlier, run, self._refuse)
            stack.callback(os.close, target)
            target_names = set(names_in(target))
            for name in mine:
                stem, _, kind = name.rpartition(".")
                free = (f"{stem}.{i}.{kind}" for i in range(2, len(target_names) + 3))
                new = name if name not in target_names else next(other for other in free if other not in target_names)
                os.rename(name, new, src_dir_fd=cases, dst_dir_fd=target)

    def _put_record_away(self, run: str) -> None:
        """Moves the record of an earlier run and its renderings to the private folder, where `finish` deletes them.

        If they stayed, a gate would take them for those of the new run when that is killed before it writes its own.
        """
        for name in FILES:
            if self._kind(self._top, name) == stat.S_IFREG:
                os.rename(name, f"{run}.{name}", src_dir_fd=self._top, dst_dir_fd=self._private)

    @staticmethod
    def _kind(where: int, name: str) -> int:
        """The type of a name itself, without following links; 0 for a name that is free."""
        try:
            return stat.S_IFMT(os.stat(name, dir_fd=where, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return 0

    def _refuse(self, problem: str, rule: str) -> NoReturn:
        raise FolderError(f"report folder {str(self.path)!r}: {problem}; {rule}")
