"""Settings of the thread, of torch, of Python and of NumPy; those that may decide a number are compared per sample."""

from __future__ import annotations

import contextlib
import ctypes
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from .python_settings import PYTHON
from .setting import ANY, Setting, Table, onoff
from .torch_settings import DISPATCH_KEYS, LEVELS, TORCH, seed_torch

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
