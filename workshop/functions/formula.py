"""Formulas of generated functions: sums and products of known functions of some of their arguments."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opassay.reference.algorithms import algorithm_of

Array = Any


@dataclass(frozen=True)
class Term:
    """One output: number · Π f(x_i), summed over all elements if `total`.

    Attributes:
        factors: (position of the argument, name in `FACTORS`) of each factor; they broadcast.
        number: the constant in front.
        total: whether the output is the sum of all elements, of shape ().
    """

    factors: tuple[tuple[int, str], ...]
    number: float = 1.0
    total: bool = False


#: Derivatives of a step are zero everywhere; at the step itself that is a convention. "filled" takes nothing of
#: its argument but the shape.
FACTORS: dict[str, Callable[[Array], Array]] = {
    "same": lambda x: x,
    "square": np.square,
    "exp": np.exp,
    "tanh": np.tanh,
    "step": lambda x: np.where(x > 0, 1.0, np.zeros_like(x)),
    "filled": np.ones_like,
}


def function(terms: Sequence[Term], *tensors: Array) -> tuple[Array, ...]:
    """The value of every term of a generated function."""
    return tuple(_product(term, tensors) for term in terms)


@algorithm_of(function)
def _from_the_end(terms: Sequence[Term], *tensors: Array) -> tuple[Array, ...]:
    """The number with the first factor, not with the product; terms and factors evaluated from the last to the first,
    so that gradients are added up in the other order."""
    return tuple(_product_of_number_first(term, tensors) for term in reversed(terms))[::-1]


def _product(term: Term, tensors: Sequence[Array]) -> Array:
    value = functools.reduce(operator.mul, [FACTORS[name](tensors[at]) for at, name in term.factors])
    return _reduce(term, value if term.number == 1.0 else term.number * value)


def _product_of_number_first(term: Term, tensors: Sequence[Array]) -> Array:
    first, *others = [FACTORS[name](tensors[at]) for at, name in term.factors[::-1]][::-1]
    return _reduce(term, functools.reduce(operator.mul, others, first if term.number == 1.0 else term.number * first))


def _reduce(term: Term, value: Array) -> Array:
    return np.sum(value) if term.total else value
