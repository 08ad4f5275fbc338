"""Settings of Python and NumPy: random states, directory, signal handlers, warnings, hooks."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .state_setting import Setting, onoff

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD)


def _numpy_state() -> Any:
    """NumPy's global random state, as bytes where it is the Mersenne twister that it begins as: reading it is slow."""
    generator = np.random.mtrand._rand._bit_generator
    if type(generator) is not np.random.MT19937:
        return repr(generator.state)
    return ctypes.string_at(generator.ctypes.state_address, _TWISTER)


_TWISTER = 624 * 4 + 4  # bytes: the words, and the position among them


def _set_numpy_state(state: Any) -> None:
    if isinstance(state, bytes):
        words = np.frombuffer(state, np.uint32)
        np.random.set_state(("MT19937", words[:624], int(words[624]), 0, 0.0))  # noqa: NPY002 (the global one is meant)


def _handler(number: signal.Signals) -> Setting:
    return Setting(
        f"{number.name} handler",
        lambda: signal.getsignal(number),
        lambda handler: _set_handler(number, handler),
        show=_callable,
    )


def _set_handler(number: signal.Signals, handler: Any) -> None:
    # Python lets only the main thread set one, and knows none that another language has set.
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(number, handler)


def _callable(value: Any) -> str:
    if isinstance(value, int):
        return str(signal.Handlers(value).name)
    return "none" if value is None else str(getattr(value, "__qualname__", type(value).__name__))


def _set_filters(wanted: tuple[Any, ...]) -> None:
    warnings.resetwarnings()  # tells the registries of warnings already shown that filters are new
    warnings.filters[:] = list(wanted)  # type: ignore[index]


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "(deleted)"


def _hooks() -> tuple[Any, ...]:
    return sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook, warnings.showwarning


def _set_hooks(wanted: tuple[Any, ...]) -> None:
    sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook, warnings.showwarning = wanted


def _set_streams(wanted: tuple[Any, ...]) -> None:
    sys.stdin, sys.stdout, sys.stderr = wanted


def _set_collector(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()


def _set_path(wanted: tuple[str, ...]) -> None:
    sys.path[:] = wanted


def _count(what: str) -> Callable[[tuple[Any, ...]], str]:
    return lambda entries: f"{len(entries)} {what}"


def _show_errors(found: dict[str, str]) -> str:
    return ", ".join(f"{kind} {action}" for kind, action in found.items())


PYTHON = (
    Setting("random state of Python", random.getstate, random.setstate, show=None),
    Setting("random state of NumPy", _numpy_state, _set_numpy_state, show=None),
    Setting("working directory", _directory, lambda path: os.chdir(path) if os.path.isdir(path) else None),
    *map(_handler, _SIGNALS),
    Setting("warnings filters", lambda: tuple(warnings.filters), _set_filters, show=_count("filters")),
    Setting("recursion limit", sys.getrecursionlimit, sys.setrecursionlimit, compiler=True),
    Setting(
        "NumPy's error state",
        np.geterr,
        lambda wanted: np.seterr(**wanted),
        {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"},
        _show_errors,
    ),
    Setting("NumPy's error callback", np.geterrcall, np.seterrcall, show=None),
    Setting("sys.path", lambda: tuple(sys.path), _set_path, show=_count("entries"), compiler=True),
    Setting("exception and display hooks", _hooks, _set_hooks, show=lambda hooks: ", ".join(map(_callable, hooks))),
    Setting("trace function", sys.gettrace, sys.settrace, show=_callable),
    Setting("profile function", sys.getprofile, sys.setprofile, show=_callable),
    Setting("standard streams", lambda: (sys.stdin, sys.stdout, sys.stderr), _set_streams, show=None),
    Setting("garbage collection", gc.isenabled, _set_collector, show=onoff),
)
