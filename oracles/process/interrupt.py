"""Exceptions by origin: one that a signal handler of the user raised is the user's, all others are the subject's."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ContextDecorator
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
#: What handlers raised since the outermost `heard` began. The first of these exceptions is raised again at its end.
_RAISED: list[BaseException] = []
_DEPTH = 0


class _Hold:
    """Whether signals wait, because an exception now would leave the process's state half restored.

    Attributes:
        depth: the number of blocks that hold signals. A block begins with `HOLD.depth += 1` written out, because the
            interpreter runs signal handlers between two calls and not between a load and a store.
        waiting: the handlers of the signals that came meanwhile.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.waiting: list[Callable[[], Any]] = []


HOLD = _Hold()


class SignalScope(AbstractContextManager[None], ContextDecorator):
    """Run a block, or a function, so that a signal ends it with what the user's handler raises (KeyboardInterrupt).

    Then there is no verdict.

    A subject may swallow or disguise such an exception, and so may the code that calls it (Hypothesis calls it flaky,
    and Python drops it in a callback of its garbage collector). So the present handlers are wrapped: their exceptions
    are remembered, and raised again at the next `reraise`, or at the end of the block. Outside the main thread, where
    no handler runs, the block runs as it is.
    """

    # This is a class because a signal may end a generator's context after its beginning and before the block, and
    # nothing would then put the handlers back.

    def __init__(self) -> None:
        self._handlers: dict[signal.Signals, Any] = {}

    def _recreate_cm(self) -> SignalScope:  # each call of a function has handlers of its own
        return SignalScope()

    def __enter__(self) -> None:
        global _DEPTH
        # Outside the main thread Python lets nobody set a handler, and runs none.
        if threading.current_thread() is not threading.main_thread():
            return
        HOLD.depth += 1
        try:
            if _DEPTH == 0:
                _RAISED.clear()
                HOLD.waiting.clear()
                self._wrap()
        except BaseException:
            HOLD.depth -= 1
            self._unwrap()
            raise
        _DEPTH += 1
        HOLD.depth -= 1

    def __exit__(self, *raised: object) -> None:
        global _DEPTH
        if threading.current_thread() is not threading.main_thread():
            return
        HOLD.depth += 1
        _DEPTH -= 1
        self._unwrap()
        try:
            release()
        except BaseException as err:
            _RAISED.append(err)
        if _RAISED:
            raise _RAISED[0] from None  # It replaces any exception that is on its way through this block.

    def _wrap(self) -> None:
        """Put remembering handlers in the place of all that Python functions handle."""
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, _remembering(handler))

    def _unwrap(self) -> None:
        """Put the handlers back. Each may run, and raise, as soon as it is back; then the others are still put back."""
        while self._handlers:
            number, handler = next(iter(self._handlers.items()))
            try:
                signal.signal(number, handler)
                del self._handlers[number]
            except BaseException as err:
                _RAISED.append(err)


def reraise() -> None:
    """Raise what a handler of the user raised, if one has: asked around every sample, and where subjects' errors are
    caught."""
    if _DEPTH and not HOLD.depth and HOLD.waiting:
        _deliver()
    if _DEPTH and _RAISED:
        raise _RAISED[0] from None


def release() -> None:
    """End a block that held signals; the handlers of those that came run now, and may raise."""
    HOLD.depth -= 1
    if not HOLD.depth:
        _deliver()


def _deliver() -> None:
    while HOLD.waiting:
        HOLD.waiting.pop(0)()


def _remembering(handler: Any) -> Any:
    def handle(number: int, frame: FrameType | None) -> Any:
        if HOLD.depth:
            HOLD.waiting.append(lambda: handle(number, frame))
            return None
        try:
            return handler(number, frame)
        except BaseException as err:
            _RAISED.append(err)
            raise

    return handle
