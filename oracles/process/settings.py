"""Settings of the thread, of torch, of Python and of NumPy; those that may decide a number are compared per sample."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from .number_settings import NUMERICS
from .python_settings import PYTHON
from .setting import ANY, Table
from .torch_settings import DISPATCH_KEYS, LEVELS, TORCH, seed_torch

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
