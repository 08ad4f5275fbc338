"""Environment variables, and what the names of torch, NumPy and Python mean: the tier compared at the end of a cell."""

from __future__ import annotations

import builtins
import cmath
import math
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

#: Whose attributes count. Each is a module or a class that everything judged after a subject would use.
OWNERS: tuple[Any, ...] = (
    torch, torch.Tensor, torch.nn.functional, torch.nn.Module, torch.autograd, torch.autograd.Function, torch.func,
    torch.linalg, torch.special, torch.fft, math, cmath, builtins, np, np.linalg, np.random,
)  # fmt: skip
#: Where torch's compiler lives, which replaces some methods of torch when it is first used, and for good.
_COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")
#: How variables begin that it sets for its own processes.
_OF_COMPILER = ("TORCH", "_TORCH", "TRITON")
#: Elements of a tensor that torch shares out among its threads.
_SHARED = 1 << 17
_MISSING = object()
Before = tuple[dict[Any, Any], list[dict[str, Any]]]


class Deep:
    """Environment variables and attributes. What is replaced or deleted is a change; what is new is one only where it
    hides an attribute of a base class."""

    def read(self) -> Before:
        return _environment().copy(), [dict(vars(owner)) for owner in OWNERS]

    def restored(self, before: Before, compiled: bool) -> list[str]:
        variables, attributes = before
        lines = _restored_environment(variables, _OF_COMPILER if compiled else ())
        for owner, old in zip(OWNERS, attributes, strict=True):
            lines += _restored_attributes(owner, old)
        return [*lines, *_flushing_threads()]


def _flushing_threads() -> list[str]:
    """Whether threads of torch's pool turn subnormal results into zero, which no call from here sets back."""
    if torch.get_num_threads() == 1:
        return []  # there is this thread alone, whose own arithmetic tells (`state_numerics`)
    shared = torch.full((_SHARED,), sys.float_info.min, dtype=torch.float64) * 0.5
    return [] if bool((shared != 0).all()) else ["flush-to-zero in threads of torch's pool: on"]


def _environment() -> dict[Any, Any]:
    data: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined]  # copying os.environ itself decodes each
    return data


def _restored_environment(before: dict[Any, Any], spared: tuple[str, ...]) -> list[str]:
    after = _environment()
    if after == before:
        return []
    lines = []
    for key in [*before, *(key for key in after if key not in before)]:
        old, new = before.get(key), after.get(key)
        name = os.fsdecode(key)
        if old == new or name.startswith(spared):
            continue
        # The values are not told: variables hold what must not stand in a report.
        lines.append(
            f"environment variable {name}: {'set' if old is None else 'deleted' if new is None else 'replaced'}"
        )
        if old is None:
            del os.environ[name]
        else:
            os.environ[name] = os.fsdecode(old)
    return lines


def _restored_attributes(owner: Any, before: dict[str, Any]) -> list[str]:
    now = vars(owner)
    if _equal(now, before):
        return []
    lines = []
    for name, old in before.items():
        new = now.get(name, _MISSING)
        if new is not old and not str(getattr(new, "__module__", "")).startswith(_COMPILER):
            lines.append(f"{_name(owner)}.{name}: {'deleted' if new is _MISSING else 'replaced'}")
            setattr(owner, name, old)
    for name in [name for name in now if name not in before]:
        if isinstance(owner, type) and any(name in vars(base) for base in owner.__mro__[1:]):
            lines.append(f"{_name(owner)}.{name}: replaced")
            delattr(owner, name)
    return lines


def _equal(now: Mapping[str, Any], before: dict[str, Any]) -> bool:
    """Whether nothing changed; the comparison looks at identity first, and so at no value that did not change."""
    try:
        return bool(now == before)
    except Exception:  # of values that do not compare, of which one took the place of the other
        return False


def _name(owner: Any) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else str(owner.__name__)
