"""Environment variables, and what the names of torch, NumPy and Python mean: the tier compared at the end of a cell."""

from __future__ import annotations

import builtins
import cmath
import math
import operator
import os
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
        return lines


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
    same = all(map(operator.is_, before.values(), map(now.get, before)))
    if same and len(now) == len(before):
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


def _name(owner: Any) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else str(owner.__name__)
