"""Which lines of the production ops run while a cell is judged: a mutant of other lines is none that it could see."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from .asking import Line
from .planting import FOLDER


@contextlib.contextmanager
def note_lines(into: set[Line]) -> Iterator[None]:
    """Within it, every line of the production ops that runs is added, in whatever thread."""
    files: dict[str, str | None] = {}

    def record_call(frame: FrameType, event: str, value: Any) -> Any:
        path = frame.f_code.co_filename
        file = files.get(path, "")
        if file == "":
            file = files[path] = _below(path)
        if file is None:
            return None

        def line(frame: FrameType, event: str, value: Any) -> Any:
            into.add((file, frame.f_lineno))
            return line

        into.add((file, frame.f_lineno))
        return line

    before = sys.gettrace()
    threading.settrace(record_call)
    sys.settrace(record_call)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(None)


def _below(path: str) -> str | None:
    folder = f"{FOLDER}/"
    return path.removeprefix(folder) if path.startswith(folder) else None
