"""The words of a formula that are products of matrices and of higher arrays.

All of them are one primitive, `matmul`, whose terms may be summed in any order: so a bound on it holds for every
evaluation. What contracts no axis, or leaves no axis free, is elementwise products and a sum, which is bounded alike.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..missing import NoReadingError
from .kind import WORDS, Array, bind
from .reductions import total_of
from .shapes import diagonal


def contract_pair(a: Any, of_a: str, b: Any, of_b: str, output: str) -> Any:
    """Sum of the products of two arrays over all letters that `output` lacks.

    Args:
        a, b: arrays, at least one of a reading; of_a, of_b: a letter per axis, none twice in one operand.
        output: letters of the result, in order.
    """
    lengths: dict[str, int] = {}
    for c, n in (*zip(of_a, np.shape(a), strict=True), *zip(of_b, np.shape(b), strict=True)):
        lengths[c] = n if lengths.get(c, 1) == 1 else lengths[c]
    batch = [c for c in output if c in of_a and c in of_b]
    left, right = ([c for c in output if c in own and c not in batch] for own in (of_a, of_b))
    inner = sorted({*of_a, *of_b} - set(output))
    if not inner or not (left and right):
        letters = output + "".join(inner)
        products: Any = _align(a, of_a, letters) * _align(b, of_b, letters)
        return total_of(products, tuple(range(len(output), len(letters)))) if inner else products
    rows, terms, columns = (math.prod(lengths[c] for c in part) for part in (left, inner, right))
    shape = [lengths[c] for c in batch]
    # A letter that one operand alone has is summed over with the others: the other operand is repeated along it.
    first = np.reshape(_spread(a, of_a, [*batch, *left, *inner], lengths), (*shape, rows, terms))
    second = np.reshape(_spread(b, of_b, [*batch, *inner, *right], lengths), (*shape, terms, columns))
    matrices: Any = bind("matmul", (first, second), {})
    product: Any = np.reshape(matrices, [lengths[c] for c in (*batch, *left, *right)])
    return np.transpose(product, [[*batch, *left, *right].index(c) for c in output])


def _align(x: Any, names: str, letters: str) -> Any:
    """`x` with its axes in the order of `letters`, and length 1 for those that it lacks."""
    order = [names.index(c) for c in letters if c in names]
    shape = iter([np.shape(x)[i] for i in order])
    return np.reshape(np.transpose(x, order), [next(shape) if c in names else 1 for c in letters])


def _spread(x: Any, names: str, letters: Sequence[str], lengths: dict[str, int]) -> Any:
    return np.broadcast_to(_align(x, names, "".join(letters)), tuple(lengths[c] for c in letters))


def _einsum(subscripts: str, *operands: Any) -> Array:
    """`numpy.einsum` of one to three operands; of three, the first two are contracted first."""
    if not 1 <= len(operands) <= 3:
        raise NoReadingError(f"einsum: got {len(operands)} operands, need 1 to 3; contract them one after another")
    inputs, output = _parse_subscripts(subscripts, [np.ndim(x) for x in operands])
    terms = [_without_repeats(x, names) for x, names in zip(operands, inputs, strict=True)]
    x: Any
    x, names = terms[0]
    for i, (y, its) in enumerate(terms[1:], start=2):
        later = output + "".join(names for _, names in terms[i:])
        letters = output if i == len(terms) else "".join(c for c in dict.fromkeys(names + its) if c in later)
        x, names = contract_pair(x, names, y, its, letters), letters
    if len(terms) == 1:
        summed = tuple(i for i, c in enumerate(names) if c not in output)
        x, names = (total_of(x, summed) if summed else x), "".join(c for c in names if c in output)
        x = np.transpose(x, [names.index(c) for c in output])
    result: Array = x
    return result


def _parse_subscripts(subscripts: str, ndims: Sequence[int]) -> tuple[list[str], str]:
    """Letters of every operand and of the result, with letters in place of dots."""
    left, arrow, output = subscripts.replace(" ", "").partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ndims):
        raise ValueError(f"einsum: got subscripts={subscripts!r} for {len(ndims)} operands, need one term for each")
    unused = [c for c in string.ascii_letters if c not in subscripts]
    dotted = [n - len(term.replace("...", "")) for term, n in zip(inputs, ndims, strict=True)]
    if any(n < 0 or (n and "..." not in term) for term, n in zip(inputs, dotted, strict=True)):
        raise ValueError(f"einsum: got subscripts={subscripts!r} for ndim={list(ndims)}, need a letter for each axis")
    most = max((n for term, n in zip(inputs, dotted, strict=True) if "..." in term), default=0)
    dots = "".join(unused[:most])
    terms = [term.replace("...", dots[most - n :]) for term, n in zip(inputs, dotted, strict=True)]
    if not arrow:
        letters = left.replace(",", "").replace("...", "")
        output = "..." * ("..." in left) + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return terms, output.replace("...", dots)


def _without_repeats(x: Any, names: str) -> tuple[Any, str]:
    """The diagonal along letters that occur twice in one operand."""
    for c in dict.fromkeys(names):
        while names.count(c) > 1:
            first, second = names.index(c), names.rindex(c)
            rest = [i for i in range(len(names)) if i not in (first, second)]
            moved: Any = np.transpose(x, [*rest, first, second])
            x = diagonal(moved)
            names = "".join(names[i] for i in rest) + c
    return x, names


def _matmul(a: Any, b: Any) -> Any:
    """`numpy.matmul`: vectors on either side, and axes before the last two that broadcast."""
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        raise ValueError(f"matmul: got ndim={np.ndim(a)}, {np.ndim(b)}, need at least 1; use numpy.multiply")
    left = np.reshape(a, (1, -1)) if np.ndim(a) == 1 else a
    right = np.reshape(b, (-1, 1)) if np.ndim(b) == 1 else b
    rows, columns = np.shape(left)[:-1], np.shape(right)[-1:]
    if np.shape(left)[-1] != np.shape(right)[-2]:
        raise ValueError(f"matmul: got shapes {np.shape(a)}, {np.shape(b)}, need the same number of terms in both")
    if np.ndim(right) == 2:
        # One matrix for all: the rows of every batch are rows of one matrix, and so the gradient of `b` is one sum.
        left = np.reshape(left, (math.prod(rows), np.shape(left)[-1])) if np.ndim(left) > 2 else left
        flat: Any = bind("matmul", (left, right), {})
        product: Any = np.reshape(flat, (*rows, *columns))
    else:
        product = bind("matmul", (left, right), {})
    shape = np.shape(product)[:-2] + (() if np.ndim(a) == 1 else rows[-1:]) + (() if np.ndim(b) == 1 else columns)
    return np.reshape(product, shape)


def _dot(a: Any, b: Any) -> Any:
    """`numpy.dot`: over the last axis of `a` and the last but one of `b`."""
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return a * b
    if np.ndim(b) < 2:
        return _matmul(a, b)
    right = np.moveaxis(b, -2, 0)
    product = _matmul(a, np.reshape(right, (np.shape(right)[0], math.prod(np.shape(right)[1:]))))
    return np.reshape(product, (*np.shape(a)[:-1], *np.shape(right)[1:]))


WORDS.update({np.einsum: _einsum, np.matmul: _matmul, np.dot: _dot})
