"""Whose exception it is: one that a signal handler of the user raised is the user's, all others are the subject's."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
#: What handlers raised since the outermost `heard` began. The first of these exceptions is raised again at its end.
_RAISED: list[BaseException] = []
_DEPTH = 0


@contextmanager
def heard() -> Iterator[None]:
    """Run a cell so that a signal ends it with what the user's handler raises (KeyboardInterrupt), and no verdict.

    A subject may swallow or disguise such an exception, and so may what stands between (Hypothesis calls it flaky). So
    the handlers that are there are wrapped to remember what they raise, and it is raised again at the end of the block.
    Outside the main thread, where no handler runs, the block runs as it is.
    """
    global _DEPTH
    if _DEPTH == 0:
        _RAISED.clear()
    handlers = _wrapped()
    _DEPTH += 1
    try:
        yield
    finally:
        _DEPTH -= 1
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if _RAISED:
            raise _RAISED[0] from None  # It replaces any exception that is on its way through this block.


def reraise() -> None:
    """Raise what a handler of the user raised, if one has: asked wherever a subject's exception is caught."""
    if _DEPTH and _RAISED:
        raise _RAISED[0] from None


def _wrapped() -> dict[signal.Signals, Any]:
    """Put remembering handlers in the place of all that Python functions handle; returns those that were there."""
    # Inside of another block the handlers are wrapped already, and outside the main thread Python lets nobody set one.
    if _DEPTH or threading.current_thread() is not threading.main_thread():
        return {}
    found = {number: signal.getsignal(number) for number in _SIGNALS}
    found = {number: handler for number, handler in found.items() if callable(handler)}
    for number, handler in found.items():
        signal.signal(number, _remembering(handler))
    return found


def _remembering(handler: Any) -> Any:
    def handle(number: int, frame: FrameType | None) -> Any:
        try:
            return handler(number, frame)
        except BaseException as err:
            _RAISED.append(err)
            raise

    return handle
