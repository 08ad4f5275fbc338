"""Output streams that cannot end a command: a reader that goes away (`| head`) does not change the exit code."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO


class _Raw(io.FileIO):
    """A file descriptor whose writes always succeed; it keeps the first fault, but for a reader that went away."""

    def __init__(self, handle: int) -> None:
        # The descriptor belongs to the process. If it were closed with this object, the stream
        # that comes back could not write.
        super().__init__(handle, "wb", closefd=False)
        self.fault: OSError | None = None

    def write(self, data: object, /) -> int:
        try:
            count: int = super().write(data)  # type: ignore[arg-type]
        except BlockingIOError:
            raise
        except OSError as err:
            if err.errno != errno.EPIPE and self.fault is None:
                self.fault = err
            # If Python learnt of the failure, it would keep the text and try again when the interpreter
            # ends, which makes the exit code 120.
            return memoryview(data).nbytes  # type: ignore[arg-type]
        return count


class Streams:
    """Standard output and error for the time of a command."""

    def __init__(self) -> None:
        self._raws: list[_Raw] = []

    def fault(self) -> OSError | None:
        """What kept text from being written, such as a full disk; a reader that went away is no fault."""
        # What stands in a buffer has not met the disk yet; only flushing shows that the disk is full.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        return next((raw.fault for raw in self._raws if raw.fault is not None), None)

    def steady(self, stream: TextIO | None) -> TextIO | None:
        """The stream, made steady; one without a file descriptor, as in tests, stays as it is."""
        try:
            if stream is None:
                return None
            handle = stream.fileno()
        except (OSError, ValueError, AttributeError):
            return stream
        try:
            stream.flush()
            raw = _Raw(handle)
        except OSError:  # the descriptor was closed: there is no reader
            return open(os.devnull, "w", encoding="utf-8")
        self._raws.append(raw)
        # A person sees every line at once, and errors are never held back; a file or a pipe
        # gets blocks, which is faster.
        buffered = stream.isatty() or stream is sys.stderr
        return io.TextIOWrapper(
            io.BufferedWriter(raw), encoding=stream.encoding or "utf-8", errors="replace", line_buffering=buffered
        )


@contextlib.contextmanager
def steady_output() -> Iterator[Streams]:
    """Standard output and error that never raise; at the end text is flushed and the streams of before come back."""
    before = sys.stdout, sys.stderr
    streams = Streams()
    sys.stdout, sys.stderr = streams.steady(before[0]), streams.steady(before[1])
    try:
        yield streams
    finally:
        # Called because it flushes: what is left in a buffer would be written when Python drops it,
        # after the exit code is known.
        streams.fault()
        sys.stdout, sys.stderr = before
