"""Checks that the ops of a selection can be loaded, in a process of its own.

Loading the declaration of somebody else's op runs that person's code, which may do anything: raise, call `sys.exit`, or
end the process. So the process that decides the exit code never loads one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from ..names import PluginError
from .pool import ALONE, owner_of
from .process import AnswerError, EndedError, Process

#: Seconds that the declarations of all ops together may take.
DEADLINE = 300.0


def require_loadable(
    ops: Sequence[str], *, command: Sequence[str], stopped: Callable[[], bool] = lambda: False
) -> None:
    """Load the declarations of the ops that are not of this package, in another process.

    Raises:
        PluginError: one of them cannot be loaded; the text says which, and why.
    """
    names = [name for name in ops if owner_of(name)]
    if not names:
        return
    # The process is ended at once and not told to go, because what was imported there may have left anything running.
    with contextlib.closing(Process(ALONE, command=command)) as process:
        until = time.monotonic() + DEADLINE
        # The first answer only says that the worker is ready, so it is taken before any name is asked for.
        _answer(process, "", until, stopped)
        for name in names:
            process.ask({"load": name})
            error = _answer(process, name, until, stopped).get("loaded")
            if error:
                raise PluginError(f"op {name!r} cannot be loaded: {error}")


def _answer(process: Process, name: str, until: float, stopped: Callable[[], bool]) -> dict[str, object]:
    """The next answer of a process that loads the op `name`; PluginError where there is none."""
    try:
        return process.answer(until, stopped)
    except AnswerError as err:
        raise PluginError(f"op {name!r}: its process said {err} while it was loaded") from err
    except EndedError as err:
        if time.monotonic() > until:
            raise PluginError(f"op {name!r}: its declaration was not loaded within {DEADLINE:.0f} s") from err
        last = "".join(f": {text[-500:]}" for text in [" ".join(process.last_output().split())] if text)
        raise PluginError(f"op {name!r} ended the process that loaded it ({process.how()}){last}") from err
