"""Names of torch's operations by pattern, for a process that imports no torch: "torch:linalg.*"."""

from __future__ import annotations

import functools
import subprocess
import sys
from fnmatch import fnmatchcase

from ..names import SelectionError

#: What the names of the generated catalog begin with.
PREFIX = "torch:"


def matching(name: str) -> tuple[str, ...]:
    """The name alone; of torch's operations, all whose names fit it as a pattern.

    Raises:
        SelectionError: there are none, or torch's samples cannot be imported.
    """
    if not name.startswith(PREFIX):
        return (name,)
    names = tuple(each for each in _names() if fnmatchcase(each, name))
    if not names:
        raise SelectionError(f"op: got op={name!r}, which is no operation of torch's own tests")
    return names


@functools.cache
def _names() -> tuple[str, ...]:
    """All names, by a process that imports torch, one for all patterns."""
    command = [sys.executable, "-m", f"{__package__}.names_of"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise SelectionError(answer.stderr.strip().rpartition("\n")[2])
    return tuple(answer.stdout.split())
