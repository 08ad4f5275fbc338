"""A truth value per element that rounding may leave open.

What this is for. A formula compares computed values and chooses by what it finds: `np.where(x > 0, x, 0.0)`. Where the
operands of the comparison lie within each other's error, one evaluation goes one way and another goes the other, and
both are right. So a comparison has three outcomes, and what follows from it must hold for whichever it was. At a kink
the same third outcome says that any slope between the two one-sided ones will do.

What is hard here. Formulas treat conditions as NumPy arrays: they index, reshape, combine and count them. So a
`Condition` is one, of the codes FALSE, TRUE and EITHER, and NumPy's structural functions work on it as they are.
Logic follows Kleene's tables (S. C. Kleene, Introduction to Metamathematics, 1952, section 64). As a number, EITHER is
anything from 0 to 1. A comparison that leaves nothing open gives an ordinary array of booleans, so formulas without
open conditions never meet this page.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .missing import NoReadingError

FALSE, TRUE, EITHER = 0, 1, 2

#: Functions that move elements and leave each as it is.
_STRUCTURAL = frozenset(
    {np.reshape, np.ravel, np.transpose, np.broadcast_to, np.moveaxis, np.swapaxes, np.expand_dims, np.squeeze}
    | {np.concatenate, np.stack, np.take, np.take_along_axis, np.shape, np.ndim, np.size, np.diagonal}
)


class Condition(np.ndarray[Any, Any]):
    """Codes FALSE, TRUE and EITHER; `reading` is an array of the reading that compared, `unordered` as below."""

    reading: Any
    unordered: Any

    def __array_finalize__(self, source: Any) -> None:
        self.reading, self.unordered = getattr(source, "reading", None), None

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(not isinstance(x, (np.ndarray, bool, int, float, np.generic)) for x in inputs):
            return NotImplemented  # An array of a reading is among them, and knows what to do.
        if method == "__call__" and ufunc in _LOGIC:
            every, some = _LOGIC[ufunc](*map(_extremes, inputs))
            return _beside_nan(condition(every, some, self.reading), _unordered_among(inputs))
        if method == "reduce" and ufunc in _OVER_ALL:
            every, some = (_OVER_ALL[ufunc](part, axis=kwargs.get("axis")) for part in _extremes(self))
            return condition(every, some, self.reading)
        return getattr(ufunc, method)(*(_as_number(x) for x in inputs), **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(not issubclass(kind, np.ndarray) for kind in types):
            return NotImplemented
        if func in _STRUCTURAL:
            return super().__array_function__(func, types, args, kwargs)
        if func is np.where:
            open_, a, b = args
            return func(open_, self.reading.lift(a), b)
        return func(*(_as_number(x) for x in args), **kwargs)

    def __bool__(self) -> bool:
        if self.size == 1 and self.item() == EITHER:
            text = "a branch of the formula depends on a comparison that rounding decides; use numpy.where"
            raise NoReadingError(text)
        return bool(self.view(np.ndarray))

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        """The condition itself: where an operation needs a number, it takes the condition as one."""
        return self


class NanComparison(np.ndarray[Any, Any]):
    """Booleans that say which of two numbers is larger, where one of these may be NaN.

    A NaN is not smaller, nor larger, and a value that is chosen so is what the formula says. But what its slope is, no
    text says: that of either side, or NaN.

    Attributes:
        unordered: where an operand is NaN; of the outcome of a comparison, and of what logic makes of it.
    """

    unordered: Any

    def __array_finalize__(self, source: Any) -> None:
        self.unordered = None

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(not isinstance(x, (np.ndarray, bool, int, float, np.generic)) for x in inputs):
            return NotImplemented
        answers = getattr(ufunc, method)(
            *(x.view(np.ndarray) if isinstance(x, NanComparison) else x for x in inputs), **kwargs
        )
        return _beside_nan(answers, _unordered_among(inputs)) if method == "__call__" and ufunc in _LOGIC else answers


def compared(ufunc: np.ufunc, answers: Any, unordered: Any) -> Any:
    """The outcome of a comparison by a ufunc, of which a mask says where an operand is NaN."""
    return _beside_nan(answers, unordered) if ufunc in _ORDERINGS else answers


def _beside_nan(answers: Any, unordered: Any) -> Any:
    if unordered is None or not unordered.any():
        return answers
    comparison: Any = answers if is_open(answers) else np.asarray(answers).view(NanComparison)
    comparison.unordered = unordered
    return comparison


def unordered_of(truth: Any) -> Any:
    """Where a condition holds, or not, because a number that was compared is NaN; None for nowhere."""
    return truth.unordered if isinstance(truth, (NanComparison, Condition)) else None


def _unordered_among(truths: Sequence[Any]) -> Any:
    masks = [mask for mask in map(unordered_of, truths) if mask is not None]
    return functools.reduce(np.logical_or, masks) if masks else None


def condition(surely: Any, possibly: Any, reading: Any) -> Any:
    """What is known of a condition: an array of booleans if nothing is open, else a `Condition`.

    Args:
        surely, possibly: where it holds whatever the evaluation, and where it may hold.
        reading: an array of the reading.
    """
    if np.array_equal(surely, possibly):
        return surely
    codes = np.where(surely, TRUE, np.where(possibly, EITHER, FALSE)).astype(np.uint8).view(Condition)
    codes.reading, codes.unordered = reading, unordered_of(surely)
    return codes


def is_open(truth: Any) -> bool:
    """Whether rounding may leave some of these truth values open; those are codes, and not booleans."""
    return isinstance(truth, Condition)


def surely(truth: Any) -> Any:
    """Where a condition holds whatever the evaluation."""
    return truth.view(np.ndarray) == TRUE if is_open(truth) else np.asarray(truth, dtype=bool)


def possibly(truth: Any) -> Any:
    """Where a condition may hold."""
    return truth.view(np.ndarray) != FALSE if is_open(truth) else np.asarray(truth, dtype=bool)


def _extremes(truth: Any) -> tuple[Any, Any]:
    return surely(truth), possibly(truth)


def _as_number(value: Any) -> Any:
    return value.reading.lift(value) if is_open(value) else value


_Both = tuple[Any, Any]
_LOGIC: dict[np.ufunc, Callable[..., _Both]] = {
    **dict.fromkeys((np.logical_and, np.bitwise_and), lambda a, b: tuple(x & y for x, y in zip(a, b, strict=True))),
    **dict.fromkeys((np.logical_or, np.bitwise_or), lambda a, b: tuple(x | y for x, y in zip(a, b, strict=True))),
    **dict.fromkeys((np.logical_not, np.invert), lambda a: tuple(~x for x in reversed(a))),
}
#: Comparisons by which a NaN has no place. Whether two numbers are equal tells a NaN, too, and so is asked on purpose.
_ORDERINGS = frozenset({np.less, np.less_equal, np.greater, np.greater_equal})
_OVER_ALL: dict[np.ufunc, Callable[..., Any]] = {np.logical_and: np.all, np.logical_or: np.any}
