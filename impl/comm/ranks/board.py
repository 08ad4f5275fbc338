"""`Board`: where the ranks of one machine say which call they are in, so that one that fails can be named.

What this is for: when a rank dies or makes another call, the others wait, and the transport tells them at best that a
connection broke. What each rank was doing is known to that rank alone, so each writes it down beforehand, where the
others can read it whatever becomes of the writer.

What is hard here: writer and reader are processes without a lock between them, and the writer may die in the middle of
a row. So a row carries its length and a checksum, and a row that does not fit its checksum is not read. Whether a
process lives is not concluded from its row, nor from its process id, which the system gives to others later: a living
process holds a lock, which the system takes away when the process ends. And a rank that gave up because another did
must not be taken for the cause, so the charges against ranks are ordered.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import mmap
import os
import struct
import tempfile
import time
import zlib
from dataclasses import dataclass
from types import TracebackType

_MAGIC = b"opassay\x01"
_HEAD = struct.Struct("<8sQ")  # magic, how many rows
#: Length and checksum of the rest; then phase, number, count, process, time, digest, and the lengths of both texts.
_PREFIX, _FIELDS = struct.Struct("<II"), struct.Struct("<BQQqd32sHH")
#: Bytes of a row, and the part of them for a call's text; the rest is for a note.
_ROW, _CALL = 1024, 320
_NOTE = _ROW - _PREFIX.size - _FIELDS.size - _CALL

#: The phases of a rank, as its row says. From LEFT on it makes no more calls.
ABSENT, IDLE, POSTED, DONE, LEFT, RAISED, FAILED = range(7)
_OVER = (LEFT, RAISED, FAILED)
#: Charges against a rank, the worst first: a dead or gone rank explains why another gave up, and not the reverse.
_DEAD, _GONE, _DIFFERENT, _GAVE_UP, _SILENT, _NOTHING = range(6)
#: Seconds without a sign from a rank that waits, after which it is called silent; it gives a sign every few hundredths.
_SILENCE = 0.5

#: (process, device, inode) of the boards that are open. The system drops a process's locks on a file as soon as it
#: closes any one of its descriptors of it, so that a second one would end the first one's.
_open_here: set[tuple[int, int, int]] = set()


@dataclass(frozen=True)
class RankRow:
    """The row that a rank has written last.

    Attributes:
        phase: one of ABSENT to FAILED.
        number, call, digest: of the call that the rank has come to; number is 0 before the first call.
        count: how many calls have been carried out.
        process: the id of the process that wrote the row.
        time: when it was written, by the clock `time.monotonic`, which the processes of a machine share.
        note: what the rank raised, or why it gave up.
    """

    phase: int = ABSENT
    number: int = 0
    count: int = 0
    process: int = 0
    time: float = 0.0
    digest: bytes = b""
    call: str = ""
    note: str = ""


class Board:
    """One row for every rank of a group, in memory that processes of one machine share.

    Give a board to `TorchComm`. A rank writes its row before it sends anything, so the others can read what it did even
    if it is dead. Whether it lives is for the system to say: it keeps the process's lock on the row until the process
    ends.

    Whoever creates a board removes its file: when it is closed, when a `with` ends, or at exit. As soon as every rank
    has come, the file loses its name, and nothing stays behind however the processes end. Leaving a `with` by an
    exception tells the others what was raised. A board is for one group, once.

    Attributes:
        path: of the file, for `join`.
        size: how many rows there are.
    """

    def __init__(self, path: str, descriptor: int, created: bool) -> None:
        """Maps the file into memory; to be called by `create` and `join`."""
        status = os.fstat(descriptor)
        self._identity = (os.getpid(), status.st_dev, status.st_ino)
        self._descriptor, self._memory = descriptor, mmap.mmap(descriptor, status.st_size)
        self.path, self.size = path, _HEAD.unpack_from(self._memory)[1]
        self._creator = os.getpid() if created else 0
        self._rank, self._process, self._phase = -1, 0, ABSENT
        self._number, self._count, self._digest, self._call = 0, 0, b"", b""
        _open_here.add(self._identity)
        atexit.register(self.close)

    @classmethod
    def create(cls, size: int) -> Board:
        """A board for `size` ranks, in a new file that the caller's process removes.

        Raises:
            ValueError: size is less than 1.
        """
        if size < 1:
            raise ValueError(f"Board.create: got size={size}, need at least 1 rank.")
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        descriptor, path = tempfile.mkstemp(prefix=f"opassay-board-{os.getpid()}-", dir=folder)
        # Memory is claimed at once. A file with a hole in it would be filled page by page, and a process that writes to
        # a page for which no memory is left is killed by SIGBUS.
        os.posix_fallocate(descriptor, 0, _ROW * (size + 1))
        os.pwrite(descriptor, _HEAD.pack(_MAGIC, size), 0)
        return cls(path, descriptor, created=True)

    @classmethod
    def join(cls, path: str) -> Board:
        """The board that another process has created.

        Raises:
            ValueError: there is no board in the file. OSError: there is no such file.
            RuntimeError: this process has it open already.
        """
        status = os.stat(path)
        if (os.getpid(), status.st_dev, status.st_ino) in _open_here:
            raise RuntimeError(f"Board.join: got path={path!r}, which this process has open, need it once per process.")
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        head = os.pread(descriptor, _HEAD.size, 0)
        magic, size = _HEAD.unpack(head.ljust(_HEAD.size, b"\0"))
        if magic != _MAGIC or status.st_size != _ROW * (size + 1):
            os.close(descriptor)
            raise ValueError(f"Board.join: got path={path!r}, need the path of a board.")
        return cls(path, descriptor, created=False)

    def __enter__(self) -> Board:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        if err is not None and self._is_mine() and self._phase not in _OVER:
            self._post(RAISED, note=f"{type(err).__name__}: {err}")
        self.close()

    def close(self) -> None:
        """Say that this rank has left, unless it raised or gave up before; a second call does nothing."""
        if self._descriptor < 0:
            return
        if self._is_mine() and self._phase not in _OVER:
            self._post(LEFT)
        atexit.unregister(self.close)
        _open_here.discard(self._identity)
        self._memory.close()
        os.close(self._descriptor)
        self._descriptor = -1
        if self._creator == os.getpid():
            self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def enter(self, rank: int) -> None:
        """Take the row of a rank, as long as this process lives or until the board is closed.

        Raises:
            RuntimeError: the board is closed, has been entered, or another process holds the row.
        """
        self._require_open()
        if self._is_mine():
            raise RuntimeError(f"Board: got rank={rank} where rank {self._rank} has entered, need a board per comm.")
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _ROW * (rank + 1))
        except OSError as err:
            raise RuntimeError(f"Board: got rank={rank}, whose row another process holds.") from err
        self._rank, self._process = rank, os.getpid()
        self._post(IDLE)
        # The last rank to come takes the name away: everybody has the file open, and nothing is left behind for good.
        if all(row is not None and row.phase != ABSENT for row in map(self.row, range(self.size))):
            self._remove()

    def post(self, number: int, call: str, digest: bytes) -> None:
        """Say that this rank has come to a call.

        Raises:
            RuntimeError: the board is closed.
        """
        self._require_open()
        self._number, self._call, self._digest = number, _clip(call, _CALL), digest
        self._post(POSTED)

    def done(self) -> None:
        """Say that the call has been carried out."""
        self._count = self._number
        self._post(DONE)

    def wait(self) -> None:
        """Say again, with the time, that this rank waits in its call."""
        self._post(POSTED)

    def fail(self, why: str) -> None:
        """Say that this rank has given up, and why."""
        self._post(FAILED, note=why)

    def obstacle(self, number: int, digest: bytes, late: bool = False) -> tuple[bool, str, str]:
        """Whether the call `number` with this digest can still take place, by the rows of the other ranks.

        Args:
            number, digest: of the call in which this rank waits.
            late: whether the deadline is over, so that silence counts.

        Returns:
            Whether another rank makes the call impossible; what every other rank does, the worst first; and the part of
            that text which is about the cause.
        """
        # Ranks are sorted by the charge against each, so that the first text is about the cause.
        now = time.monotonic()
        others = [rank for rank in range(self.size) if rank != self._rank]
        charges = sorted((self._charge(rank, number, digest, late, now), rank) for rank in others)
        worst, first = charges[0] if charges else (_NOTHING, 0)
        texts = [self._describe(rank, now) for _, rank in charges]
        text = ("different calls: " if worst == _DIFFERENT else "") + "; ".join(texts)
        cause = "; ".join(texts[: sum(charge == worst for charge, _ in charges)])
        # If ranks only gave up, the cause is what the first of them noted. Their texts would quote each other's notes,
        # and grow with every rank.
        if worst == _GAVE_UP and (row := self.row(first)) is not None:
            cause = row.note
        return worst != _NOTHING, text, cause

    def _charge(self, rank: int, number: int, digest: bytes, late: bool, now: float) -> int:
        """The charge against a rank, _NOTHING where there is none."""
        row = self.row(rank)
        if row is None or row.phase == ABSENT:
            return _SILENT if late else _NOTHING
        # The rank has carried out this very call, so whatever happened to it later does not prevent the call.
        if row.count >= number:
            return _NOTHING
        if row.phase in (LEFT, RAISED):
            return _GONE
        if row.phase != FAILED and not self._lives(rank):
            return _DEAD
        if row.number == number and row.digest != digest:
            return _DIFFERENT
        if row.phase == FAILED:
            return _GAVE_UP
        return _SILENT if late and (row.number < number or now - row.time > _SILENCE) else _NOTHING

    def _describe(self, rank: int, now: float) -> str:
        """What a rank does or did last, in words."""
        row = self.row(rank)
        if row is None:
            return f"rank {rank} has a row that cannot be read"
        if row.phase == ABSENT:
            return f"rank {rank} has not come to the board"
        call = f"call {row.number}, {row.call}"
        where = f"after {call}" if row.count == row.number else f"in {call}"
        where = where if row.number else "before its first call"
        if row.phase == RAISED:
            return f"rank {rank} raised {row.note} {where}"
        if row.phase == LEFT:
            return f"rank {rank} has left {where}"
        if row.phase == FAILED:
            return f"rank {rank} gave up {where}: {row.note}"
        if not self._lives(rank):
            return f"rank {rank} is dead (process {row.process}) {where}"
        if row.phase == POSTED and now - row.time <= _SILENCE:
            return f"rank {rank} waits {where}"
        return f"rank {rank} has been silent for {now - row.time:.1f} s {where}"

    def row(self, rank: int) -> RankRow | None:
        """The row of a rank; None where it cannot be read."""
        at = _ROW * (rank + 1)
        # A row that does not fit its checksum may be in the middle of being written, so it is read a few times more,
        # without a pause.
        for _ in range(4):
            whole = self._memory[at : at + _ROW]
            length, checksum = _PREFIX.unpack_from(whole)
            if length == checksum == 0:
                return RankRow()
            rest = whole[_PREFIX.size : _PREFIX.size + length]
            if _FIELDS.size <= length == len(rest) and zlib.crc32(rest) == checksum:
                phase, number, count, process, since, digest, call, note = _FIELDS.unpack_from(rest)
                text, end = rest[_FIELDS.size :], call + note
                return RankRow(
                    phase, number, count, process, since, digest, text[:call].decode(), text[call:end].decode()
                )
        return None

    def _post(self, phase: int, note: str = "") -> None:
        self._phase, call, text = phase, self._call, _clip(note, _NOTE)
        numbers = (phase, self._number, self._count, self._process, time.monotonic())
        rest = _FIELDS.pack(*numbers, self._digest, len(call), len(text)) + call + text
        whole = _PREFIX.pack(len(rest), zlib.crc32(rest)) + rest
        at = _ROW * (self._rank + 1)
        self._memory[at : at + len(whole)] = whole

    def _require_open(self) -> None:
        if self._descriptor < 0:
            raise RuntimeError("Board: got a board that is closed, need one that is open while its comm is used.")

    def _is_mine(self) -> bool:
        """Whether this very process has entered, and not one that it was forked from."""
        return self._process == os.getpid()

    def _lives(self, rank: int) -> bool:
        """Whether a process holds the lock on the row. The id alone would not tell: another process may have it now."""
        at = _ROW * (rank + 1)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, at)
        except OSError:
            return True
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, at)
        return False


def _clip(text: str, room: int) -> bytes:
    """The text in UTF-8, cut off after `room` bytes."""
    whole = text.encode(errors="replace")
    if len(whole) <= room:
        return whole
    return (whole[: room - 3].decode(errors="ignore") + "…").encode()
