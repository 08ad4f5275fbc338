"""A spec with one of its torch functions replaced, while it runs: the way from a spec to candidates of every kind.

`Patched` calls a spec; every call of a torch function, method or operator in it goes through a patch, which may compute
something else. So a patch has derivatives like any function, and holds for every shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

#: (number of the call, name of the function, the function, its arguments, its keyword arguments) -> the result.
Patch = Callable[[int, str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class _Patching(TorchFunctionMode):
    def __init__(self, patch: Patch) -> None:
        super().__init__()
        self._patch, self._calls = patch, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = name_of(func)
        if not name or name in _LOOKS:
            return func(*args, **(kwargs or {}))
        self._calls += 1
        return self._patch(self._calls - 1, name, func, args, kwargs or {})


#: Functions that only look at a tensor.
_LOOKS = frozenset({"size", "dim", "numel", "stride", "storage_offset", "is_floating_point", "detach"})
#: Operators and methods by the name of the function that they stand for.
_SAME = {"rsub": "sub", "true_divide": "div", "radd": "add", "rmul": "mul", "truediv": "div", "rtruediv": "rdiv"}


def name_of(func: Any) -> str:
    """The last part of a torch function's name, without underscores; empty for an attribute."""
    name = (resolve_name(func) or "").rpartition(".")
    if name[2] == "__get__":
        return ""
    word = name[2].strip("_")
    return _SAME.get(word, word)


class Patched:
    """A candidate: a spec, run with a patch. A new one has a state of its own."""

    def __init__(self, spec: Callable[..., Tensor], patch: Patch) -> None:
        self._spec, self._patch = spec, patch
        self.__name__ = getattr(spec, "__name__", "spec")

    def __call__(self, *args: Any) -> Tensor:
        with _Patching(self._patch):
            return self._spec(*args)


@dataclass(frozen=True)
class Sighting:
    """One call of a torch function in a spec.

    Attributes:
        number: of the call. name: of the function. args, kwargs: what it was given. result: what it returned.
    """

    number: int
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


def calls_of(spec: Callable[..., Tensor], args: tuple[Tensor, ...]) -> list[Sighting]:
    """The calls of torch functions in a spec, in order."""
    calls: list[Sighting] = []

    def look(number: int, name: str, func: Any, operands: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*operands, **kwargs)
        calls.append(Sighting(number, name, operands, kwargs, result))
        return result

    with torch.no_grad():
        Patched(spec, look)(*args)
    return calls


def at(target: int, other: Callable[..., Any]) -> Patch:
    """A patch of the call of a number: `other(func, args, kwargs)` in its place."""

    def patch(number: int, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return other(func, args, kwargs) if number == target else func(*args, **kwargs)

    return patch


def patch_by_name(others: dict[str, Callable[..., Any]]) -> Patch:
    """A patch of all calls of functions of some names: `other(*args, **kwargs)` in their place."""

    def patch(number: int, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name not in others:
            return func(*args, **kwargs)
        return others[name](*args, **{word: value for word, value in kwargs.items() if word != "inplace"})

    return patch
