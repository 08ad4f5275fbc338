"""The traces of a spec. Each holds for calls of the same shapes and dtypes, and of the same integers if the spec reads
their values.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from .calls import ValuesNeededError

T = TypeVar("T")


class Values(enum.Enum):
    """Which values a spec may read, for a number, a branch or a shape; its trace holds for these values only."""

    NONE = enum.auto()
    INTEGERS = enum.auto()  # of integer and bool arguments, and of what is computed from these alone
    ALL = enum.auto()  # floating ones, too, so that rounding may decide a branch


class Traces(Generic[T]):
    """Traces of one spec.

    Attributes:
        reads_values: whether the spec reads values of integers, as offsets, lengths and page tables are read.
    """

    def __init__(self) -> None:
        self.reads_values = False
        self._traces: dict[str, T] = {}

    def at(self, form: str, integers: Sequence[npt.NDArray[np.generic]], trace_of: Callable[[Values], T]) -> T:
        """The trace that holds for a call: an earlier one, or else a new one.

        Args:
            form: everything but values on which a trace depends. integers: the integer and bool arguments.
            trace_of: (values that the spec may read) -> its trace at the call.
        """
        if not self.reads_values:
            try:
                return self._traced(form, Values.NONE, trace_of)
            except ValuesNeededError:
                self.reads_values = True
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(values).tobytes() for values in integers))
        return self._traced(f"{form} {digest.hexdigest()}", Values.INTEGERS, trace_of)

    def _traced(self, key: str, values: Values, trace_of: Callable[[Values], T]) -> T:
        if key not in self._traces:
            self._traces[key] = trace_of(values)
        return self._traces[key]

    def all_as(self, trace: T) -> Traces[T]:
        """A copy in which each trace is replaced by one."""
        other: Traces[T] = Traces()
        other.reads_values, other._traces = self.reads_values, dict.fromkeys(self._traces, trace)
        return other
