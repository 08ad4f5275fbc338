"""Records: the arguments and outputs of an op by the names that its schema gives them, so that rules need no positions.

An op is called with its arguments by position, for that is what torch does and what is fast. Its rules see the same
values as `args.weight`; they are made from the schema when the op is defined, and a record is built only where a rule
runs. A record is a tuple, so `op(*args)` calls the op with it again.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, cast

import torch
from torch import Tensor


class Record(Protocol):
    """One value per argument, or per output, of an op, by name.

    The values may be the arguments themselves, their batch dims, whether they need gradients, or their tangents.
    """

    def __getattr__(self, name: str) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


Grads = Mapping[str, Tensor | None]
"""A cotangent per argument, by name. An argument that is not named has none, which means zero."""

MakeRecord = Callable[[Iterable[object]], Record]
"""Makes a record from values in the order of the schema."""


new: Any = tuple.__new__
"""`new(kind, values)`: a named tuple, in half the time of its constructor, which is a Python function; used for the
records that every call makes."""


def record_of(title: str, names: Iterable[str]) -> type[Any]:
    """The class of records with fields of these names: a named tuple."""
    make: Any = namedtuple  # mypy accepts `namedtuple` only with literal names
    record: type[Any] = make(title, tuple(names))
    return record


def maker(record: type[Any]) -> MakeRecord:
    """The function that makes records of a class which `record_of` returned."""
    return cast(MakeRecord, functools.partial(tuple.__new__, record))


def argument_names(overload: torch._ops.OpOverload) -> tuple[str, ...]:
    """The names of an op's arguments, in order."""
    return tuple(argument.name for argument in overload._schema.arguments)


def output_names(overload: torch._ops.OpOverload) -> tuple[str, ...]:
    """The names of an op's outputs: those in the schema, or `out` for a single one that has none."""
    returns = overload._schema.returns
    names = tuple(one.name or f"out{i}" for i, one in enumerate(returns))
    return ("out",) if names == ("out0",) else names


def tensor_positions(overload: torch._ops.OpOverload) -> tuple[int, ...]:
    """Positions of the `Tensor` and `Tensor?` arguments in an overload's schema."""
    kinds = [str(argument.type) for argument in overload._schema.arguments]
    return tuple(i for i, kind in enumerate(kinds) if kind in ("Tensor", "Optional[Tensor]"))
