"""Positions that a computation chooses by comparing values: any that rounding leaves possible is right.

`numpy.argmax`, `torch.sort` and pooling return indices beside values, or instead of them. Where two values lie within
each other's error, one evaluation finds one first and another the other, and both are right; so are ties. A `Choice`
says which indices an evaluation may have chosen.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .condition import is_open, possibly, surely
from .missing import NoReadingError


class AnswerSet:
    """What is right for an output that has no ball.

    Attributes:
        shape: of the output. by_residual: whether a value is right by what it leaves of an equation.
        is_vacuous: whether more than half of its elements may have any of the values that there are.
    """

    by_residual = is_vacuous = False

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    @abstractmethod
    def accepts(self, values: Any) -> Any:
        """Which elements of an array of this shape an evaluation may have given."""

    def refutable(self, values: Any) -> Any:
        """Where `accepts` could have refused a value."""
        return np.ones(self.shape, dtype=bool)

    @abstractmethod
    def likely(self) -> Any:
        """What the centres of values give, or float64; NaN where that is not known."""

    def explain(self, values: Any) -> str:
        """What is wrong with the first element that no evaluation may have given; empty where nothing is known."""
        return ""


class Choice(AnswerSet):
    """Indices that were chosen by values.

    Attributes:
        shape: of the indices.
        source: the choice whose indices, or some of them, these are. places: where in it, counted through; None where
            it is this choice.
    """

    places: Any = None

    def __init__(
        self, shape: tuple[int, ...], accepts: Callable[[Any], Any], choose: Callable[[], tuple[Any, Any]],
        known: Callable[[], Any] | None = None,
    ) -> None:  # fmt: skip
        """No function is called before an answer needs it.

        Args:
            shape: of the indices. accepts: of an array of indices, which of them are right.
            choose: the indices that the centres give, and which of them are the only ones possible.
            known: where not every number is right; None for everywhere.
        """
        super().__init__(shape)
        self.source: Choice = self
        self._accepts = accepts
        self._choose = choose
        self._known = known

    def accepts(self, indices: Any) -> Any:
        indices = np.asarray(indices)
        if indices.shape != self.shape:
            raise ValueError(f"indices: got shape={indices.shape}, need {self.shape}")
        return self._accepts(indices)

    def refutable(self, values: Any) -> Any:
        return super().refutable(values) if self._known is None else self._known()

    def sure(self) -> Any:
        """Where one index alone is possible."""
        return self._choose()[1]

    def likely(self) -> Any:
        return self._choose()[0]

    def moved(self, move: Callable[[Any], Any]) -> Choice:
        """The choice with its indices, or some of them, at other places.

        Args:
            move: what takes the elements of any NumPy array of this shape to those places.
        """
        number = move(np.arange(int(np.prod(self.shape, dtype=np.int64))).reshape(self.shape))

        def accepts(indices: Any) -> Any:
            # Where `move` leaves an index out stands −1, no element: it is refused, which says nothing of the others.
            whole = np.full(self.shape, -1).reshape(-1)
            whole[number] = indices
            return self._accepts(whole.reshape(self.shape)).reshape(-1)[number]

        def choose() -> tuple[Any, Any]:
            likely, sure = self._choose()
            return move(likely), move(sure)

        known = self._known
        other = Choice(number.shape, accepts, choose, None if known is None else lambda: move(known()))
        other.source, other.places = self.source, number if self.places is None else self.places.reshape(-1)[number]
        return other

    def explain(self, indices: Any) -> str:
        if self.source is self:
            return ""
        every = np.asarray(self.source.likely()).copy()
        if self.places.size != every.size:
            return ""
        every.reshape(-1)[self.places.reshape(-1)] = np.asarray(indices).reshape(-1)
        return self.source.explain(every)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, index: Any) -> Choice:
        return self.moved(lambda x: x[index])

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in (np.shape, np.ndim):
            return self.shape if func is np.shape else self.ndim
        _, *rest = args
        if func in _STRUCTURAL and args[0] is self:
            return self.moved(lambda x: func(x, *rest, **kwargs))
        return func(*(np.asarray(x) if isinstance(x, Choice) else x for x in args), **kwargs)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """The indices as numbers, in NumPy's protocol; NoReadingError where more than one is possible."""
        # A computation from indices needs numbers, and not a set of those that they may be.
        likely, sure = self._choose()
        if not np.all(sure):
            raise NoReadingError("an index depends on a comparison that rounding decides, and more is computed from it")
        return np.array(likely, dtype=dtype, copy=copy) if copy else np.asarray(likely, dtype=dtype)


class Decidable(Choice):
    """A choice that a reading can decide: each of its rows has a few sequences of integers, of which it takes one.

    Attributes:
        name: of the operation that chooses, where a reader has given it one.
    """

    name = ""

    @abstractmethod
    def as_rows(self, numbers: Any) -> Any:
        """Integers, of the shape of this choice, as a table with a line for each row."""

    @abstractmethod
    def of_table(self, table: Any) -> Any:
        """The inverse of `as_rows`."""

    @abstractmethod
    def can_take(self, table: Any) -> Any:
        """The lines of a table that a reading can go on with, whether an evaluation may have them or not."""

    @abstractmethod
    def open_rows(self) -> Any:
        """The numbers of the rows in which more than one sequence is possible."""

    @abstractmethod
    def sequences(self, row: int) -> Iterator[Any]:
        """Every sequence that is possible in a row, the likely one first."""

    def tables(self) -> Iterator[Any] | None:
        """Tables of which the first has the first sequence of every row, and so on; None where none are at hand."""
        return None

    @property
    def is_ordered(self) -> bool:
        """Whether values that stand beside the integers have one order."""
        return True


def answers_of(reading: Any) -> AnswerSet:
    """What is right by a reading that is no ball; arrays are right as they are, but for truth values that are open."""
    if isinstance(reading, AnswerSet):
        return reading
    values = np.asarray(possibly(reading) if is_open(reading) else reading)
    sure = ~values | surely(reading) if is_open(reading) else np.ones(values.shape, dtype=bool)
    answers = Choice(values.shape, lambda own: (own == values) | ~sure, lambda: (values, sure))
    answers.is_vacuous = 2 * int(np.count_nonzero(~sure)) > values.size
    return answers


def has_residual(readings: Any) -> bool:
    """Whether some of these readings are right by what they leave of an equation."""
    return any(isinstance(each, AnswerSet) and each.by_residual for each in readings)


#: Functions that move elements and leave each as it is.
_STRUCTURAL = frozenset({np.reshape, np.ravel, np.transpose, np.moveaxis, np.swapaxes, np.expand_dims, np.squeeze})
