"""The state of the process that a subject must leave as it was: pinned before, compared after, put back.

What this is for: a subject runs in a process that judges others after it. So a change of the state of that process (the
default dtype, a random state, a signal handler, an attribute of torch) is a broken promise of the subject, and must
never decide the verdict on another op.

What is hard here: the whole state is too large to be compared after every call. So it is compared in three tiers:
`SETTINGS` (whatever may decide a number) after every sample, `DEEP` (other settings, environment variables, the
attributes of modules) at the end of every cell, and `LEFTOVERS` (threads, processes, descriptors), with both others,
after every sample of PURE. Besides, not every change is the subject's: torch's compiler sets things of its own, and
Hypothesis moves the random states between samples.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import torch

from . import interrupt
from .attributes import Deep
from .leftovers import Leftovers
from .settings import MODES, SampleSettings

#: Limits of a report: characters of a line, and lines of a cell. It must be bounded, whatever a subject does.
MAX_LINE = 200
MAX_LINES = 16


class Tier(Protocol):
    """A part of the state."""

    def read(self) -> Any:
        """The state now."""

    def restored(self, before: Any, compiled: bool) -> list[str]:
        """Put an earlier state back as far as possible, and report each difference as a line.

        Args:
            before: the earlier state, as `read` gave it.
            compiled: whether torch's compiler ran meanwhile, which changes some parts of the state for itself.
        """


SETTINGS = SampleSettings()
DEEP: Tier = Deep()
LEFTOVERS: Tier = Leftovers()


class Pin:
    """The changes of the process's state by the subject of one cell.

    Attributes:
        changed: lines such as "default dtype: torch.float32 -> torch.float64", each once, in the order of observation.
    """

    def __init__(self) -> None:
        self._changed: dict[str, None] = {}
        self._more = 0

    def note(self, lines: Sequence[str]) -> None:
        for line in lines:
            if line in self._changed:
                continue
            if len(self._changed) < MAX_LINES:
                self._changed[line] = None
            else:
                self._more += 1

    @property
    def changed(self) -> tuple[str, ...]:
        return (*self._changed, *((f"and {self._more} further changes",) if self._more else ()))


#: Modules that torch imports at the first transform or compilation. Their import adds a warnings filter, sets an
#: environment variable and replaces `torch.manual_seed`. It must happen before the state is pinned, so that no subject
#: is charged with it. The import of inductor changes nothing and takes most of a second, so it is left to the first
#: compilation.
_MACHINERY = ("torch._dynamo", "torch._subclasses.schema_check_mode")

_PINS: list[Pin] = []
#: Lines about the changes that `undisturbed` has observed, and put back, since the present sample began.
_NOTED: list[str] = []


def settle() -> None:
    """Import the modules that torch imports at the first transform or compilation, so that no subject imports them."""
    for name in _MACHINERY:
        if name not in sys.modules:
            importlib.import_module(name)


class pinned(AbstractContextManager[Pin]):
    """Run the questions of one cell in the state that a fresh process has, and give the caller's state back after it.

    Threads, directory, environment, handlers and warnings are the caller's, who may want them so. What would decide
    numbers (default dtype and device, gradients, autocast, flush-to-zero, the random states) is torch's default,
    whatever ran in this process before.
    """

    # Signals wait while state is read and set: an interrupt in the midst of it would leave the caller with a process
    # that is half a cell's.

    def __enter__(self) -> Pin:
        interrupt.HOLD.depth += 1
        try:
            settle()
            # A new object is read, because `SETTINGS` would give the values that it has cached for an outer cell.
            self._before = SampleSettings().read()
            self._random_state = np.random.get_state()  # noqa: NPY002 (the global one, whole, is meant)
            if not _PINS:
                _NOTED.clear()
            self._pin = Pin()
            self._earlier = SETTINGS.begin()
            _PINS.append(self._pin)
        finally:
            interrupt.HOLD.depth -= 1
        return self._pin

    def __exit__(self, *raised: object) -> None:
        interrupt.HOLD.depth += 1
        try:
            SETTINGS.end(self._earlier)
            _PINS.remove(self._pin)
            SETTINGS.restored(self._before, False)
            np.random.set_state(self._random_state)  # noqa: NPY002
        finally:
            interrupt.release()


class watched(AbstractContextManager[list[str]]):
    """Compare the state after the block with that before, and put it back; the list gets the changes as the block ends.

    The changes are noted in the cell's pin, too. A process that the block forked ends here, because it must not judge.
    """

    def __init__(self, *tiers: Tier) -> None:
        self._tiers = tiers
        self._changes: list[str] = []

    def __enter__(self) -> list[str]:
        interrupt.HOLD.depth += 1
        try:
            self._process, self._first, self._compilation = os.getpid(), len(_NOTED), _last_compilation()
            self._before = [(tier, tier.read()) for tier in self._tiers]
        finally:
            interrupt.HOLD.depth -= 1
        return self._changes

    def __exit__(self, *raised: object) -> None:
        interrupt.HOLD.depth += 1
        try:
            if os.getpid() != self._process:
                # A normal exit would run the handlers, and write the buffers, that the copy has of its parent.
                os._exit(1)
            self._restore()
        finally:
            interrupt.release()

    def _restore(self) -> None:
        compiled = _last_compilation() is not self._compilation
        restored = (line for tier, earlier in self._before for line in tier.restored(earlier, compiled))
        lines = [*_NOTED[self._first :], *restored]
        del _NOTED[self._first :]
        self._changes += dict.fromkeys(shortened(line) for line in lines)
        if _PINS:
            _PINS[-1].note(self._changes)


def make_canonical() -> None:
    """Set the settings that decide numbers once more, after the import of the cell's op, which may change them."""
    SETTINGS.begin()


def undisturbed(call: Callable[..., Any], args: Sequence[Any], device: str = "cpu") -> Any:
    """Call a function, and then put back the modes that decide numbers, because our own readings come next.

    Args:
        call, args: what is called. device: whose work is waited for, see `await_work`.
    """
    before = MODES.read()
    try:
        result = call(*args)
        await_work(device)
        return result
    finally:
        interrupt.HOLD.depth += 1
        _NOTED.extend(MODES.restored(before))
        interrupt.release()


def await_work(device: str) -> None:
    """Wait for the work of a device, "cpu" or "cuda".

    A GPU does its work after the call that asked for it has returned. What is wrong with that work is an error of this
    call, and the work's time is the call's.
    """
    if device == "cuda" and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _last_compilation() -> object:
    """Torch's record of its last compilation: another object after every compilation."""
    metrics = torch._dynamo.utils.get_compilation_metrics() if "torch._dynamo" in sys.modules else []
    return metrics[-1] if metrics else None


def shortened(line: str, limit: int = MAX_LINE) -> str:
    """A text as one line of bounded length."""
    line = " ".join(line[: 4 * limit].split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
