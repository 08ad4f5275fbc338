"""Specs that are formulas in NumPy: how they are known, and called with arrays in place of tensors."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...oracles.bound.rounding.rows import LARGE
from ...oracles.op.declaration import is_float, to_array
from ...reference.algorithms import algorithm_of, declared
from .arguments import CallArguments, Tensor, call


@dataclass(frozen=True)
class Formula:
    """Marks a function as a NumPy formula; one that calls NumPy by a global name is known without it."""

    function: Callable[..., Any]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"Formula: got a {type(self.function).__name__}, need a function of NumPy arrays")


def name_of_function(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def calls_numpy(function: Any) -> bool:
    """Whether a function calls NumPy, and not torch, by the global names of its text."""
    inner = getattr(function, "func", function)
    code, names = getattr(inner, "__code__", None), getattr(inner, "__globals__", {})
    if code is None:
        return False
    used = [names.get(name) for name in code.co_names]
    modules = {m.__name__.partition(".")[0] for m in used if isinstance(m, types.ModuleType)}
    return "numpy" in modules and "torch" not in modules


def array_of(tensor: Tensor) -> Any:
    plain = tensor.detach().cpu()
    return to_array(plain) if is_float(plain) else plain.numpy()


def values_of(tensor: Tensor) -> Any:
    """The values of a floating operand; of a large one those of float32, which are made wider where they are read."""
    is_plain = tensor.dtype == torch.float32 and tensor.numel() >= LARGE and not tensor._is_zerotensor()
    return tensor.numpy(force=True) if is_plain else to_array(tensor)


def with_algorithms(formula: Callable[..., Any], arguments: CallArguments) -> Callable[..., Any]:
    def filled(function: Callable[..., Any], *arrays: Any) -> Any:
        outputs = call(function, arguments.with_tensors(arrays).args)
        leaves = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        return tuple(leaf for leaf in leaves if leaf is not None)

    first = functools.partial(filled, formula)
    for other in declared(formula):
        algorithm_of(first, other.name)(functools.partial(filled, other.formula))
    return first
