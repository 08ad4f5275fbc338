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

from .setting import Setting, onoff

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD)


_RANDOM: Any = random.getstate.__self__  # type: ignore[attr-defined]  # the generator behind the module's functions
# The address at which CPython has the generator's position, and then its words; `_BY_BYTES` tells whether this is so.
_STATE = id(_RANDOM) + object.__basicsize__


def _python_bytes() -> bytes:
    return ctypes.string_at(_STATE, _TWISTER)


def _python_words(state: bytes) -> tuple[int, ...]:
    position, *words = np.frombuffer(state, np.uint32).tolist()
    return (*words, position)


def _python_state() -> Any:
    """Python's global random state, read as bytes from memory where possible, in a tenth of the time."""
    return (_python_bytes(), _RANDOM.gauss_next) if _BY_BYTES else random.getstate()


def _set_python_state(state: Any) -> None:
    # A state of two parts was read as bytes by `_python_state`. The state of `random.getstate` has three parts.
    random.setstate((3, _python_words(state[0]), state[1]) if len(state) == 2 else state)


#: Bytes of the state of a Mersenne twister: 624 words, and the position among them.
_TWISTER = 624 * 4 + 4
_BY_BYTES = type(_RANDOM) is random.Random and _python_words(_python_bytes()) == random.getstate()[1]
#: Where the state of NumPy's generator lies, by the generator's id; the generator is kept so that its id stays its own.
_ADDRESSES: dict[int, tuple[Any, int]] = {}


def _numpy_state() -> Any:
    """NumPy's global random state, as bytes where it is the Mersenne twister that it begins as: reading it is slow."""
    generator = np.random.mtrand._rand._bit_generator
    if type(generator) is not np.random.MT19937:
        return repr(generator.state)
    if id(generator) not in _ADDRESSES:
        _ADDRESSES.clear()
        _ADDRESSES[id(generator)] = generator, generator.ctypes.state_address
    return ctypes.string_at(_ADDRESSES[id(generator)][1], _TWISTER)


def _set_numpy_state(state: Any) -> None:
    # The state of another kind of generator is known as text alone. It cannot be set from that, but a change of it is
    # reported all the same.
    if isinstance(state, bytes):
        words = np.frombuffer(state, np.uint32)
        np.random.set_state(("MT19937", words[:624], int(words[624]), 0, 0.0))  # noqa: NPY002 (the global one is meant)


#: The function behind `signal.getsignal`, which is faster: the wrapper looks up a name for every handler.
_getsignal: Callable[[int], Any] = getattr(signal.getsignal, "__wrapped__", signal.getsignal)


def _handler(number: signal.Signals) -> Setting:
    return Setting(
        f"{number.name} handler",
        lambda: _getsignal(number),
        lambda handler: _set_handler(number, handler),
        show=_callable,
        quiet=True,
    )


def _set_handler(number: signal.Signals, handler: Any) -> None:
    # Python lets only the main thread set a handler. A handler that another language has set reads as None, and cannot
    # be set again from here.
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(number, handler)


def _callable(value: Any) -> str:
    if isinstance(value, int):
        return str(signal.Handlers(value).name)
    return "none" if value is None else str(getattr(value, "__qualname__", type(value).__name__))


def _callables(values: tuple[Any, ...]) -> str:
    return ", ".join(map(_callable, values))


def _filters() -> tuple[Any, ...]:
    # torch's compiler imports setuptools' pkg_resources where there is one, which adds a filter for its own warning.
    return tuple(entry for entry in warnings.filters if entry[2].__module__ != "pkg_resources")


def _set_filters(filters: tuple[Any, ...]) -> None:
    # Filters are set in two steps, because only this call makes Python forget which warnings it has shown already.
    warnings.resetwarnings()
    warnings.filters[:] = list(filters)  # type: ignore[index]


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "(deleted)"


def _hooks() -> tuple[Any, ...]:
    return sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook, warnings.showwarning


def _set_hooks(hooks: tuple[Any, ...]) -> None:
    sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook, warnings.showwarning = hooks


def _set_streams(streams: tuple[Any, ...]) -> None:
    sys.stdin, sys.stdout, sys.stderr = streams


def _set_collector(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()


def _set_path(entries: tuple[str, ...]) -> None:
    sys.path[:] = entries


def _how_many(what: str) -> Callable[[tuple[Any, ...]], str]:
    return lambda entries: f"{len(entries)} {what}"


PYTHON = (
    Setting("random state of Python", _python_state, _set_python_state, show=None, drifts=True),
    Setting("random state of NumPy", _numpy_state, _set_numpy_state, show=None, drifts=True),
    Setting("working directory", _directory, lambda path: os.chdir(path) if os.path.isdir(path) else None, quiet=True),
    *map(_handler, _SIGNALS),
    Setting("warnings filters", _filters, _set_filters, show=_how_many("filters"), drifts=True),
    Setting("recursion limit", sys.getrecursionlimit, sys.setrecursionlimit, drifts=True, compiler=True),
    Setting(
        "NumPy's error state",
        np.geterr,
        lambda actions: np.seterr(**actions),
        {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"},
        lambda actions: ", ".join(f"{kind} {action}" for kind, action in actions.items()),
    ),
    Setting("NumPy's error callback", np.geterrcall, np.seterrcall, show=None, quiet=True),
    Setting("sys.path", lambda: tuple(sys.path), _set_path, show=_how_many("entries"), quiet=True, compiler=True),
    Setting("exception and display hooks", _hooks, _set_hooks, show=_callables, quiet=True),
    Setting("trace function", sys.gettrace, sys.settrace, show=_callable, drifts=True),
    Setting("profile function", sys.getprofile, sys.setprofile, show=_callable, drifts=True),
    Setting("standard streams", lambda: (sys.stdin, sys.stdout, sys.stderr), _set_streams, show=None, quiet=True),
    Setting("garbage collection", gc.isenabled, _set_collector, show=onoff, quiet=True),
)
