"""The words of a formula that are products of matrices and of higher arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..missing import NoReadingError
from .kind import WORDS, Array
from .reductions import total_of


def _einsum(subscripts: str, a: Any, b: Any) -> Array:
    """Two-operand einsum as products and one sum: n terms, n roundings, as a dot product has."""
    # Letters of the output come first and those that are summed over come last. With both operands in that order, and
    # with length 1 where an operand lacks a letter, the products are an ordinary broadcast.
    inputs, output = subscripts.replace(" ", "").split("->")
    letters = output + "".join(sorted(set(inputs) - set(output) - {","}))

    def aligned(x: Any, names: str) -> Any:
        order = [names.index(c) for c in letters if c in names]
        shape = iter([np.shape(x)[i] for i in order])
        return np.reshape(np.transpose(x, order), [next(shape) if c in names else 1 for c in letters])

    left, right = inputs.split(",")
    axes = tuple(range(len(output), len(letters)))
    product = aligned(a, left) * aligned(b, right)
    return total_of(product, axes) if axes else product


def _matmul(a: Any, b: Any) -> Array:
    # A vector on the left has only the letter that is summed over, and so has a vector on the right: "b,bc->c",
    # "ab,b->a".
    left, right = "ab"[2 - np.ndim(a) :], "bc"[: np.ndim(b)]
    if np.ndim(a) > 2 or np.ndim(b) > 2:
        raise NoReadingError(f"matmul: got ndim={np.ndim(a)}, {np.ndim(b)}, need at most 2; use einsum")
    return _einsum(f"{left},{right}->{(left + right).replace('b', '')}", a, b)


WORDS.update({np.einsum: _einsum, np.matmul: _matmul, np.dot: _matmul})
