"""Derivatives whose steps are stored in the format of the operation that they belong to.

What this is for. A framework that computes in a half format keeps every result in it: the result of an operation, which
its derivative reads again, each step of a derivative that is made of several operations, and the contributions to one
cotangent, which are added up one after another. A formula knows nothing of that. So whoever reads an operation of such
a framework says so (`steps_stored`), and derivatives of what is read there may store their steps. A reading whose
contract allows no stored intermediates is read as ever.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..algorithms import Algorithm
from ..array import MOVING, Array, Operands, Params, bind, scatter, store

#: Format of the operation that is being read, "" where its steps are not stored.
_FORMAT: ContextVar[str] = ContextVar("format of the operation that is read", default="")


@contextlib.contextmanager
def steps_stored(dtype: str) -> Iterator[None]:
    """A context in which an operation is read whose results, and whose derivative's steps, have this format.

    Args:
        dtype: torch's name of the format; "" where nothing is stored.
    """
    token = _FORMAT.set(dtype)
    try:
        yield
    finally:
        _FORMAT.reset(token)


def format_of_steps() -> str:
    """The format of the operation that is being read; "" where its steps are not stored."""
    return _FORMAT.get()


class Wrapped(Array):
    """An array of a level of its own around one of the level below, which is its primal."""

    __slots__ = ("level", "primal")

    def __init__(self, primal: Array, level: int) -> None:
        self.primal, self.level = primal, level

    @property
    def shape(self) -> tuple[int, ...]:
        return self.primal.shape

    @property
    def order(self) -> int:
        return self.primal.order

    def base(self) -> Array:
        return self.primal.base()

    def comparable(self) -> Any:
        return self.primal.comparable()

    def lift(self, value: Any) -> Array:
        return self.primal.lift(value)


class Stored(Wrapped):
    """A step of a derivative: an array of the level below, which is stored before another step reads it.

    Attributes:
        primal: as it was computed. format: of what is stored. rounded: whether storing rounds it.
    """

    __slots__ = ("format", "rounded")

    def __init__(self, primal: Array, level: int, format: str, rounded: bool) -> None:
        super().__init__(primal, level)
        self.format, self.rounded = format, rounded

    def read_back(self) -> Array:
        """The array as another step has it."""
        if not self.rounded:
            return self.primal
        stored: Array = store(self.primal, self.format, always=False)
        return stored

    def apply(self, primitive: str, operands: Operands, params: Params) -> Array:
        moving = primitive in MOVING
        mine = [isinstance(x, Stored) and x.level == self.level for x in operands]
        xs = tuple((x.primal if moving else x.read_back()) if own else x for x, own in zip(operands, mine, strict=True))
        rounded = any(x.rounded for x, own in zip(operands, mine, strict=True) if own) if moving else True
        if primitive == "among":
            params = {"ways": [Algorithm(self._in_steps(way.formula), way.name) for way in params["ways"]]}
        return Stored(bind(primitive, xs, params), self.level, self.format, rounded)

    def _in_steps(self, way: Callable[..., Any]) -> Callable[..., Any]:
        """A way to a result, in stored steps, too."""
        steps = Steps(self.level, self.format)
        return lambda *xs: steps.unwrap(way(*(steps.wrap(x, False) for x in xs)))


class Steps:
    """A derivative that is evaluated in steps, each of which is stored, on a level of its own.

    Attributes:
        level: its number. format: of what is stored.
    """

    def __init__(self, level: int, format: str) -> None:
        self.level, self.format = level, format

    def wrap(self, x: Any, rounded: bool) -> Any:
        """An operand of the derivative; `rounded`: whether it has not been stored yet."""
        return Stored(x, self.level, self.format, rounded) if isinstance(x, Array) else x

    def unwrap(self, x: Any) -> Any:
        """A result, as it was computed."""
        return x.primal if isinstance(x, Stored) and x.level == self.level else x


def sum_of_stored(contributions: Sequence[Any], dtype: str) -> Any:
    """The sum of contributions to one cotangent, each of them stored, and added one after another to what is stored."""
    terms = [store(each, dtype, always=False) for each in contributions]
    if len(terms) == 2:
        return terms[0] + terms[1]
    place = np.zeros(len(terms), dtype=np.int64)
    return scatter(np.stack(terms), place, (1, *np.shape(terms[0])), in_place=True)[0]
