"""What is said where a formula asks for something that the readings do not know."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any


class NoReadingError(TypeError):
    """A formula calls a function, or calls it in a way, that the readings do not know; the text says what to write."""


class NoAttributeError(NoReadingError, AttributeError):
    """A formula asks an array for a method or an attribute that the readings do not know."""


#: Functions without a reading that formulas ask for, and what says the same with functions that have one.
_INSTEAD = {
    "gradient": "numpy.diff",
    "empty_like": "numpy.zeros_like",
    "apply_along_axis": "the formula with an axis",
    "trapezoid": "numpy.sum of products",
    "putmask": "numpy.where(mask, new, x)",
    "place": "numpy.where(mask, new, x)",
    "copyto": "numpy.where(mask, new, x)",
    "fill_diagonal": "numpy.where(numpy.eye(n, dtype=bool), value, x)",
    "allclose": "nothing: a formula decides nothing by a tolerance",
    "isclose": "numpy.where with a comparison",
    "inv": "the solution that the inverse is for, written out",
    "spacing": "the constant that it has for the dtype",
    "nextafter": "x itself: a formula is about real numbers",
}


def nearest_name(name: object, names: Iterable[str]) -> str:
    """The most similar of some names; "" where none is similar."""
    # Names are compared in lower case, because often only the case is mistyped.
    by_lower = {each.lower(): each for each in reversed(list(names))}
    near = difflib.get_close_matches(str(name).lower()[:200], by_lower, n=1)
    return by_lower[near[0]] if near else ""


def nearest_of(name: object, names: Iterable[str]) -> str:
    """A question for an error that asks whether the most similar name was meant; "" where no name is similar."""
    nearest = nearest_name(name, names)
    return f" (did you mean {nearest!r}?)" if nearest else ""


def instead_of(name: str, functions: Iterable[Callable[..., Any]]) -> str:
    """What to write in place of the function of that name, given the functions that have a reading."""
    names = sorted({each.__name__ for each in functions})
    if name in _INSTEAD:
        return _INSTEAD[name]
    return f"it with functions that have one{nearest_of(name, names)}: {', '.join(names)}"
