"""Signals that ask a run to end: it stops at once, in good order, and writes what it knows."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

#: Ctrl-C, the request of a CI service to end, and a terminal that was closed.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ending:
    """While it is entered, a signal that asks for the end is noted instead of raising an exception.

    An exception could come between any two steps, also while a verdict or the report is written. Further signals of a
    user who presses Ctrl-C again change nothing: the report is written within seconds, and then the program ends.

    Attributes:
        signal_name: name of the first signal that came; empty while none has.
    """

    def __init__(self) -> None:
        self.signal_name = ""
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        """Whether the end was asked for."""
        return bool(self.signal_name)

    def __enter__(self) -> Ending:
        if threading.current_thread() is threading.main_thread():  # Python allows it nowhere else
            for number in _ENDING:
                if signal.getsignal(number) != signal.SIG_IGN:  # nohup asks that SIGHUP be ignored
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # Python reports None for a handler that was not installed from Python. That one cannot be
            # put back, so the default is.
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal_name = self.signal_name or signal.Signals(number).name
