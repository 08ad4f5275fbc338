"""What commands share: how one ends, what surrounds it, and what has to be installed for it.

This module needs the standard library alone, as `main` does.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

from .. import exit_codes

#: Modules of the packages that the extra `verify` brings.
EXTRA = frozenset(
    ("click", "rich", "jinja2", "markupsafe", "msgspec", "junitparser", "mpmath", "gmpy2", "hypothesis", "pytest",
     "xdist", "yaml")
)  # fmt: skip
_INSTALL = 'pip install "opassay[verify]"'


class Stop(Exception):
    """Ends a command with an exit code and a sentence; no traceback."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text)
        self.code = code


@dataclass
class Host:
    """What surrounds a command.

    Attributes:
        worker: the program of the processes that judge.
        alone: whether this process does nothing else, and is not that of somebody who calls `main` in his own.
        ends_at_once: whether the program ends without running exit handlers. A handler may import a module, and whoever
            was judged may have put another file where Python looks for it.
    """

    worker: tuple[str, ...] = ()
    alone: bool = False
    ends_at_once: bool = False


def set_library_settings() -> None:
    """Set variables that NumPy and torch read when they are imported, where the user has not."""
    # This process and the candidate's keep the memory that they free, so each page of it is cleared once. For NumPy's
    # arrays the kernel would make huge pages, and may move other memory about for each, which takes longer than that.
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
    # A process with threads cannot be copied for the candidate, and NumPy's library starts some when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # torch's threads sleep while they wait: threads that spin take the processor from the candidate.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def is_installed(module: str) -> bool:
    """Whether a module could be imported; it is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    # ValueError is raised for a module that is loaded and has no specification, as one that a test puts in its place.
    except (ImportError, ValueError):
        return False


def require(*modules: str) -> None:
    """Ends the command with 2 and the line that installs them if one of these modules is not installed."""
    for name in modules:
        if not is_installed(name):
            raise Stop(exit_codes.USAGE, not_installed(name))


def not_installed(name: str) -> str:
    return f"{name} is not installed; {_INSTALL}"
