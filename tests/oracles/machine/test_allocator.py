"""A process that is told so keeps the memory that it frees, and another array gets it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import resource, sys
import numpy as np
from opassay.oracles.machine.allocator import keep_freed_memory

if sys.argv[1] == "told" and not keep_freed_memory():
    sys.exit(7)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def filled():
    np.empty(2**23).fill(1.0)  # 64 MiB, which glibc maps anew for each array

filled()
before = faults()
for _ in range(8):
    filled()
print(faults() - before)
"""


def _faults(how: str) -> int | None:
    """Pages that the system had to give while one array came after another; None where the C library is not glibc."""
    # Nothing else of this process's environment, where glibc may be told how it keeps memory.
    environment = {"NUMPY_MADVISE_HUGEPAGE": "0", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    command = [sys.executable, "-c", _PROGRAM, how]
    process = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return None if process.returncode == 7 else int(process.stdout)


def test_what_is_freed_is_kept() -> None:
    faults = _faults("told")
    if faults is None:
        pytest.skip("the C library is not glibc, and takes no such wish")
    freed = _faults("not told")
    assert freed is not None
    assert faults < 1000 < freed
