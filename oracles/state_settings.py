"""The tier that is compared after every sample: settings of the thread, of torch, of Python and of NumPy."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from .state_numerics import NUMERICS
from .state_python import PYTHON
from .state_setting import ANY, restored
from .state_torch import LEVELS, TORCH

#: Compared around every call of a subject: with one of these changed, what we compute ourselves would be wrong, too.
_MODES = (*LEVELS, *NUMERICS)
_REST = (*NUMERICS, *TORCH, *PYTHON)
_Values = tuple[tuple[Any, ...], tuple[Any, ...]]


class Settings:
    """All of them; comparing takes some 25 µs, and so does reading."""

    def read(self) -> _Values:
        return tuple([setting.read() for setting in LEVELS]), tuple([setting.read() for setting in _REST])

    def restored(self, before: _Values, compiled: bool) -> list[str]:
        return [*restored(LEVELS, before[0]), *restored(_REST, before[1], compiled)]


def modes() -> tuple[Any, ...]:
    """The values of what a call must not leave otherwise for a moment; two microseconds."""
    return tuple([setting.read() for setting in _MODES])


def restored_modes(before: tuple[Any, ...]) -> list[str]:
    """What of `modes()` differs, a line each; put back."""
    return restored(_MODES, before)


def make_canonical() -> None:
    """Set what decides numbers to what a fresh process has, and the random states to fixed ones."""
    for setting in (*LEVELS, *_REST):
        if setting.default is not ANY and setting.read() != setting.default:
            setting.write(setting.default)
    torch.default_generator.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (the global one is meant)
