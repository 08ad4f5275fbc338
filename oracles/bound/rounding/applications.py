"""The primitives that a text applies, as one reading of it meets them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ....reference.array import Params


class _Result(Protocol):
    """A ball, as what is known of it here."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def exact(self) -> bool: ...


Numbered = TypeVar("Numbered", bound=_Result)


@dataclass(frozen=True)
class Application:
    """A primitive that a text applies.

    Attributes:
        primitive, kind: its name, and what tells it from others: shapes and parameters.
        operands: the numbers of results that it reads; None for exact operands.
        out, exact: the number of its result, and whether that has no error.
    """

    primitive: str
    kind: Any
    operands: tuple[int | None, ...]
    out: int
    exact: bool


def describe_kind(primitive: str, shapes: Sequence[tuple[int, ...]], params: Params) -> Any:
    """What tells an application from others; `shapes`: of its result and of its operands."""
    return primitive, *shapes, *(repr(each) for each in params.values() if is_plain(each))


class Applications:
    """Those of one reading, in order; what a rule or a way of an algorithm applies is its own affair.

    Attributes:
        steps: the applications.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        """Args: inputs: of the text, which have the numbers -1, -2 and so on."""
        self.steps: list[Application] = []
        self._depth = 0
        #: By the `id` of an array, which another one may have when it is gone.
        self._numbers = {id(each): (weakref.ref(each), -1 - i) for i, each in enumerate(inputs)}

    def _number_of(self, each: Any) -> int | None:
        reference, number = self._numbers.get(id(each), (None, None))
        return number if reference is not None and reference() is each else None

    def add(
        self, apply: Callable[[str, list[Numbered], Params], Numbered], primitive: str, operands: list[Numbered],
        params: Params,
    ) -> Numbered:  # fmt: skip
        """Apply a primitive, note that, and number the result."""
        self._depth += 1
        try:
            out = apply(primitive, operands, params)
        finally:
            self._depth -= 1
        if self._depth:
            return out
        names = tuple(None if x.exact else self._number_of(x) for x in operands)
        number = self._number_of(out)
        if number is None:
            number = len(self.steps)
            self._numbers[id(out)] = weakref.ref(out), number
        kind = describe_kind(primitive, [out.shape, *(x.shape for x in operands)], params)
        self.steps.append(Application(primitive, kind, names, number, out.exact))
        return out


_NOTED: ContextVar[Applications | None] = ContextVar("applications", default=None)
noted = _NOTED.get


@contextmanager
def apply_by(notes: Applications) -> Iterator[Applications]:
    """Have what is applied in the block applied by these notes."""
    token = _NOTED.set(notes)
    try:
        yield notes
    finally:
        _NOTED.reset(token)


def note_applications(inputs: Sequence[Any]) -> AbstractContextManager[Applications]:
    """Note what is applied in the block to these balls."""
    return apply_by(Applications(inputs))


def is_plain(value: Any) -> bool:
    """Whether a parameter has no array in it, and so cannot treat single rows in a way of their own."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (int, float, str, bool, slice, type(Ellipsis)))
