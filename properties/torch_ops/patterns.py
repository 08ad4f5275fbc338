"""Names of torch's operations by pattern, for a process that imports no torch: "torch:linalg.*"."""

from __future__ import annotations

import functools
import subprocess
import sys

from ..names import SelectionError

#: What the names of the generated catalog begin with.
PREFIX = "torch:"


@functools.cache
def matching(name: str) -> tuple[str, ...]:
    """The name alone; of torch's operations, all whose names fit it as a pattern, by a process that imports torch.

    Raises:
        SelectionError: there are none, or torch's samples cannot be imported.
    """
    if not name.startswith(PREFIX):
        return (name,)
    command = [sys.executable, "-m", f"{__package__}.names_of", name]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    names = tuple(answer.stdout.split())
    if not names:
        last = answer.stderr.strip().rpartition("\n")[2]
        raise SelectionError(last or f"op: got op={name!r}, which is no operation of torch's own tests")
    return names
