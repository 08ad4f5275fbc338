"""The tier compared at the end of a cell: quiet settings, environment variables, attributes of modules and classes."""

from __future__ import annotations

import builtins
import cmath
import math
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import _compile

from .settings import QUIET

#: The modules and classes whose attributes are compared: every op that is judged after a subject uses them, or whoever
#: compares its outputs and measures its time.
OWNERS: tuple[Any, ...] = (
    torch, torch.Tensor, torch.nn.functional, torch.nn.Module, torch.autograd, torch.autograd.Function, torch.func,
    torch.linalg, torch.special, torch.fft, math, cmath, builtins, np, np.linalg, np.random, time,
    torch.testing,
)  # fmt: skip
#: Where torch's compiler lives, which replaces some methods of torch when it is first used, and for good.
_COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")
#: The code of what it puts in the place of a function that it does not trace.
_UNTRACED = getattr(_compile._disable_dynamo(math.floor), "__code__", None)
#: How the environment variables begin that the compiler sets for its own processes.
_OF_COMPILER = ("TORCH", "_TORCH", "TRITON")
#: The number of elements from which on torch divides a tensor among its threads.
_SHARED = 1 << 17
_MISSING = object()


class _Attributes:
    """The attributes of one module or class at one moment; as two lists, which are compared several times as fast as
    two dictionaries."""

    def __init__(self, owner: Any) -> None:
        attributes = vars(owner)
        self.names, self.values = list(attributes), list(attributes.values())

    def are_those_of(self, owner: Any) -> bool:
        """Whether nothing changed; identities are compared first, so that no unchanged value is compared itself."""
        attributes = vars(owner)
        try:
            return list(attributes.values()) == self.values and list(attributes) == self.names
        except Exception:  # One value took the place of another, and the two cannot be compared.
            return False


Before = tuple[list[Any], dict[Any, Any], list[_Attributes]]


class Deep:
    """Quiet settings, environment variables and attributes.

    An attribute that is replaced or deleted is a change; one that is new is a change only where it hides an attribute
    of a base class. `more` are modules and classes that are compared besides `OWNERS`.
    """

    def __init__(self, more: Sequence[Any] = ()) -> None:
        self._owners = (*OWNERS, *more)

    def read(self) -> Before:
        return QUIET.read(), _variables().copy(), [_Attributes(owner) for owner in self._owners]

    def restored(self, before: Before, compiled: bool) -> list[str]:
        settings, variables, attributes = before
        lines = QUIET.restored(settings, compiled)
        lines += _restored_environment(variables, _OF_COMPILER if compiled else ())
        for owner, old in zip(self._owners, attributes, strict=True):
            lines += _restored_attributes(owner, old)
        return [*lines, *_flushing_threads()]


def _flushing_threads() -> list[str]:
    """Whether threads of torch's pool turn subnormal results into zero, which no call from here sets back."""
    if torch.get_num_threads() == 1:
        return []  # there is this thread alone, whose own arithmetic tells (`number_settings`)
    # Every thread has a switch of its own for this, so the tensor is so large that each thread of the pool gets a part.
    shared = torch.full((_SHARED,), sys.float_info.min, dtype=torch.float64) * 0.5
    return [] if bool((shared != 0).all()) else ["flush-to-zero in threads of torch's pool: on"]


def _variables() -> dict[Any, Any]:
    data: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined]  # copying os.environ itself decodes each
    return data


def _restored_environment(before: dict[Any, Any], exempt: tuple[str, ...]) -> list[str]:
    after = _variables()
    if after == before:
        return []
    lines = []
    for key in [*before, *(key for key in after if key not in before)]:
        old, new = before.get(key), after.get(key)
        name = os.fsdecode(key)
        if old == new or name.startswith(exempt):
            continue
        # The values are not reported, because a variable may hold a password.
        lines.append(
            f"environment variable {name}: {'set' if old is None else 'deleted' if new is None else 'replaced'}"
        )
        if old is None:
            del os.environ[name]
        else:
            os.environ[name] = os.fsdecode(old)
    return lines


def _restored_attributes(owner: Any, earlier: _Attributes) -> list[str]:
    if earlier.are_those_of(owner):
        return []
    now, before, lines = vars(owner), dict(zip(earlier.names, earlier.values, strict=True)), []
    for name, old in before.items():
        new = now.get(name, _MISSING)
        if new is not old and not _is_of_compiler(new, old):
            lines.append(f"{_name(owner)}.{name}: {'deleted' if new is _MISSING else 'replaced'}")
            setattr(owner, name, old)
    for name in [name for name in now if name not in before]:
        if isinstance(owner, type) and any(name in vars(base) for base in owner.__mro__[1:]):
            lines.append(f"{_name(owner)}.{name}: replaced")
            delattr(owner, name)
    return lines


def _is_of_compiler(new: Any, old: Any) -> bool:
    """Whether torch's compiler made a new attribute, as the wrapper around `torch.manual_seed` when it is imported."""
    wraps = getattr(new, "__wrapped__", None) is old and getattr(new, "__code__", None) is _UNTRACED
    return wraps or str(getattr(new, "__module__", "")).startswith(_COMPILER)


def _name(owner: Any) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else str(owner.__name__)
