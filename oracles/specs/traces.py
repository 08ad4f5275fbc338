"""What a spec was traced as, by what each trace holds for: shapes and dtypes, and values of integers where it reads
those.
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
    """Values of its tensors that a spec may read numbers, branches or shapes off; its trace holds for those alone."""

    NONE = enum.auto()
    INTEGERS = enum.auto()  # those of integers and truth values that are given, and what is computed of them alone
    ALL = enum.auto()  # floating ones, too, of which rounding may decide a branch


class Traces(Generic[T]):
    """Traces of one spec.

    Attributes:
        reads_values: whether the spec reads values of integers, as offsets, lengths and page tables are read.
    """

    def __init__(self) -> None:
        self.reads_values = False
        self._traces: dict[str, T] = {}

    def at(self, form: str, integers: Sequence[npt.NDArray[np.generic]], trace_of: Callable[[Values], T]) -> T:
        """The trace that holds for a call; it is made where there is none.

        Args:
            form: of the call: all that a trace holds for but values. integers: arrays of integers and truth values.
            trace_of: traces the spec at the call, which may read some values.
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
        """The same with one trace in place of each."""
        other: Traces[T] = Traces()
        other.reads_values, other._traces = self.reads_values, dict.fromkeys(self._traces, trace)
        return other
