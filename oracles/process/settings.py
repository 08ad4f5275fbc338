"""Settings of the thread, of torch, of Python and of NumPy; those that may decide a number are compared per sample."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from .setting import ANY, Setting, Table, onoff
from .torch_settings import DISPATCH_KEYS, LEVELS, TORCH, seed_torch

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

# The operands are variables, so that Python does not compute the results while it compiles the expressions below.
_SMALL, _HALF, _SUBNORMAL, _LARGE, _ONE, _TIE = [sys.float_info.min, 0.5, 5e-324, 2.0**1000, 1.0, 0.75 * 2.0**-52]


def flushes() -> bool:
    """Whether this thread turns subnormal results into zero; Python and NumPy do what it does."""
    return _SMALL * _HALF == 0


def _ignores() -> bool:
    """Whether this thread reads subnormal operands as zero."""
    return _SUBNORMAL * _LARGE == 0


def _rounding() -> tuple[bool, bool]:
    """How this thread rounds: (3/4 of an ulp goes up, and down below zero) to nearest, otherwise elsewhere."""
    return _ONE + _TIE > 1.0, -_ONE - _TIE < -1.0


_ROUNDINGS = {(True, True): "to nearest", (True, False): "upward", (False, True): "downward", (False, False): "to zero"}


def _round_to_nearest(_: Any) -> None:
    ctypes.CDLL(None).fesetround(0)  # FE_TONEAREST on every platform that torch runs on


#: Guards of inference mode. When torch deletes a guard, it leaves the mode that the guard entered.
_OPEN_GUARDS: list[Any] = []


def _set_inference(enabled: bool) -> None:
    if torch.is_inference_mode_enabled() != enabled:
        guard: Any = torch._C._InferenceMode(enabled)
        guard.__enter__()
        _OPEN_GUARDS.append(guard)


# Torch sets both switches for subnormals in one call, but other code can set either of them, so each is read by
# itself.
NUMERICS = (
    Setting("flush-to-zero", flushes, torch.set_flush_denormal, False, onoff),
    Setting("denormals-are-zero", _ignores, torch.set_flush_denormal, False, onoff),
    Setting("rounding", _rounding, _round_to_nearest, (True, True), _ROUNDINGS.__getitem__),
    Setting("default dtype", torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    Setting("inference mode", torch.is_inference_mode_enabled, _set_inference, False, onoff),
    Setting("grad mode", torch.is_grad_enabled, torch._C._set_grad_enabled, True, onoff),
)


#: Compared around every call of a subject, because our own readings would be wrong while one of these is changed.
MODES = Table(*(level for level in LEVELS if level.name != DISPATCH_KEYS), *NUMERICS)
_LEVELS = Table(*LEVELS)
_ALL = (*NUMERICS, *TORCH, *PYTHON)
#: Settings that decide no number, such as signal handlers. Reading all of them is slow, so they are compared rarely.
QUIET = Table(*(setting for setting in _ALL if setting.quiet))
_STEADY = Table(*(setting for setting in _ALL if not setting.drifts and not setting.quiet))
_DRIFTING = Table(*(setting for setting in _ALL if setting.drifts))
_SEED = 0x0A55A1
_Values = tuple[list[Any], list[Any], list[Any]]


class SampleSettings:
    """All settings but the quiet ones; a comparison takes some 15 µs with warm caches, and 60 µs between two samples.

    Attributes:
        steady: the values, at the beginning of the cell, of the levels and of the settings that only a subject changes
            between two samples; None outside of a cell. Within a cell these are read after every sample, not before it.
    """

    steady: tuple[list[Any], list[Any]] | None = None

    def read(self) -> _Values:
        return *(self.steady or _read_steady()), _DRIFTING.read()

    def restored(self, before: _Values, compiled: bool) -> list[str]:
        levels, steady, drifting = before
        # The levels come first: while a mode is still entered, no tensor can be trusted, and some settings are tensors.
        lines = _LEVELS.restored(levels)
        return [*lines, *_STEADY.restored(steady, compiled), *_DRIFTING.restored(drifting, compiled)]

    def begin(self) -> tuple[list[Any], list[Any]] | None:
        """Begin a cell, with the settings that decide numbers as in a fresh process; returns the argument of `end`."""
        earlier = self.steady
        make_canonical()
        self.steady = _read_steady()
        return earlier

    def end(self, earlier: tuple[list[Any], list[Any]] | None) -> None:
        """End the cell; `earlier` is what `begin` returned."""
        self.steady = earlier


def _read_steady() -> tuple[list[Any], list[Any]]:
    return _LEVELS.read(), _STEADY.read()


def make_canonical() -> None:
    """Set the settings that decide numbers as a fresh process has them, and the random states to fixed ones."""
    # The levels are left before anything else is set, because a mode that is still entered could intercept the calls.
    for setting in (*LEVELS, *_ALL):
        if setting.default is not ANY and setting.read() != setting.default:
            setting.write(setting.default)
    _seed_generators(0)


@contextlib.contextmanager
def seeded(number: int) -> Iterator[None]:
    """Run a block with the global generators seeded by a number from 0 on, and put their states back."""
    before = _DRIFTING.read()
    _seed_generators(number)
    try:
        yield
    finally:
        _DRIFTING.restored(before)


def _seed_generators(number: int) -> None:
    """Seed the global generators of torch, Python and NumPy, each by a seed that is none of those that programs use.

    A subject that seeds a generator by 0 or 42 would else leave the very state that it began with, and nobody could
    see it.
    """
    seed = _SEED + number
    seed_torch(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (the global one is meant)
