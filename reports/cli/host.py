"""What commands share: how one ends, what surrounds it, and what has to be installed for it.

This module needs the standard library alone, as `main` does.
"""

from __future__ import annotations

import importlib.util
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
        ends_at_once: whether the program ends without running exit handlers. A handler may import a module, and whoever
            was judged may have put another file where Python looks for it.
    """

    worker: tuple[str, ...] = ()
    ends_at_once: bool = False


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
