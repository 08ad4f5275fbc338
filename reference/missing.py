"""What is said where a formula calls a NumPy function that the readings do not know."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class NoReadingError(TypeError):
    """A formula calls a function, or calls it in a way, that the readings do not know; the text says what to write."""


#: Functions without a reading that formulas ask for, and what says the same with functions that have one.
_INSTEAD = {
    "sign": "numpy.where(x > 0, 1.0, numpy.where(x < 0, -1.0, 0.0)), which is constant for derivatives",
    "clip": "numpy.minimum(numpy.maximum(x, low), high)",
    "cosh": "(numpy.exp(x) + numpy.exp(-x)) / 2",
    "sinh": "(numpy.exp(x) - numpy.exp(-x)) / 2",
    "logaddexp": "m + numpy.log(numpy.exp(a - m) + numpy.exp(b - m)) with m = numpy.maximum(a, b)",
    "exp2": "numpy.exp(x * numpy.log(2.0))",
    "log2": "numpy.log(x) / numpy.log(2.0)",
    "log10": "numpy.log(x) / numpy.log(10.0)",
    "reciprocal": "1 / x",
    "cbrt": "numpy.where(x < 0, -1.0, 1.0) * numpy.abs(x) ** (1 / 3)",
    "min": "-numpy.max(-x, axis)",
    "amin": "-numpy.max(-x, axis)",
    "std": "numpy.sqrt(numpy.var(x, axis))",
    "dot": "numpy.einsum",
    "tensordot": "numpy.einsum",
    "outer": "numpy.einsum('i,j->ij', a, b)",
    "hstack": "numpy.concatenate",
    "vstack": "numpy.concatenate",
    "flip": "x[::-1]",
}


def instead_of(name: str, known: Iterable[Callable[..., Any]]) -> str:
    """What to write in place of the function of that name, given the functions that have a reading."""
    names = ", ".join(sorted(each.__name__ for each in known))
    return _INSTEAD.get(name, f"it with functions that have one: {names}")
