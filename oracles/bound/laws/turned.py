"""Products with eigenvectors or singular vectors, until the vectors meet again.

A vector may have either sign, and those of equal values any basis of their space, so no number of one is known. What a
spec makes of them is a function of the matrix in most cases: V diag(d) Vᵀ, times other matrices on its sides, in any
order. So X V diag(d) is kept as its parts until it meets the vectors again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....reference.array import Array, constant
from ....reference.whole import interval
from .enclosures import places_of
from .residual import Residual
from .spectral import SpectralResidual


class OpenBasisError(Exception):
    """What a spec computes depends on which vectors an evaluation chooses, or is not known not to."""

    def __str__(self) -> str:
        what = "what is read of them is V diag(d) V^T, times other matrices perhaps; give the vectors as a result"
        return f"eigenvectors or singular vectors, whose signs and bases an evaluation chooses; {what}"


@dataclass(frozen=True)
class Turned(Residual):
    """Elements of X V diag(d), at any places.

    Attributes:
        vectors: V, by columns, or their transposes. x: rows of the reading, (r, n).
        parts: of each element: which matrix of the stack V is of, the row of X, the vector, and the ends of d.
    """

    vectors: SpectralResidual
    x: Any
    parts: Any

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.parts.shape[1:]  # type: ignore[no-any-return]

    def moved(self, move: Callable[[Any], Any]) -> Turned:
        return replace(self, parts=np.stack([np.asarray(move(part)) for part in self.parts]))

    def scaled(self, other: Any, divides: bool = False) -> Turned:
        """Times an array, or divided by it; d has the roundings of that."""
        low, high = map(np.asarray, constant(other).ends() if isinstance(other, Array) else (other, other))
        if divides:
            low, high = np.where(low * high > 0, 1 / high, -np.inf), np.where(low * high > 0, 1 / low, np.inf)
        ends, errors = _times(self.parts[3:], (low, high)), self.vectors.errors
        lost = (4 + errors.division) * errors.unit * np.abs(ends).max(0)
        return replace(self, parts=np.stack(np.broadcast_arrays(*self.parts[:3], ends[0] - lost, ends[1] + lost)))

    def in_matrices(self) -> Any:
        """The parts of a stack of matrices, with one axis for the stack: (5, b, p, q)."""
        return self.parts.reshape(5, -1, *self.shape[-2:])


def _times(first: Any, second: Any) -> Any:
    every = np.stack(np.broadcast_arrays(*(a * b for a in first for b in second))).astype(np.float64)
    return np.stack([every.min(0), every.max(0)])


def are_vectors(value: Any) -> bool:
    """Whether a value is eigenvectors or singular vectors, or such products with them."""
    source = value.source if isinstance(value, Residual) else None
    return isinstance(source, Turned) or (isinstance(source, SpectralResidual) and source.role != "S")


def turned(result: Residual, reading: Any) -> Turned:
    """Vectors, or those at other places, as I V; `reading`: an array of the reading."""
    vectors = result.source
    if isinstance(vectors, Turned):
        return vectors
    assert isinstance(vectors, SpectralResidual)
    *stack, rows, columns = vectors.shape
    matrix, row, vector = np.unravel_index(places_of(result), (int(np.prod(stack)), rows, columns))
    if vectors.role == "Vh":
        row, vector, rows = vector, row, columns
    ones = np.ones(result.shape)
    return Turned(vectors, reading.lift(np.eye(rows)), np.stack([matrix, row, vector, ones, ones]))  # type: ignore[abstract]


def multiply(a: Any, b: Any, reading: Any) -> Any:
    """The product of matrices, of which one at least is `Turned`.

    Raises:
        OpenBasisError: it depends on the choice of vectors.
    """
    if not isinstance(a, Turned):
        return _mirror(multiply(_mirror(b), _mirror(a), reading))
    if isinstance(b, Turned):
        return _meet(a, _mirror(b), reading)
    (matrix, row, vector, low, high), own = a.in_matrices(), np.eye(*np.shape(b)[-2:])
    if _is_same([matrix, vector], -1) and _is_same([row], -2):  # diag(d) (Bᵀ X V)ᵀ
        b = np.reshape(_mirror(b), (len(row), -1, row.shape[-1]))
        x = np.matmul(b, _rows_of(a, row[:, 0]))
        rows = np.arange(len(b) * b.shape[1]).reshape(len(b), 1, -1)
        ends = low.min(-1, keepdims=True), high.max(-1, keepdims=True)
        every = np.broadcast_arrays(matrix[..., :1], rows, vector[..., :1], *ends)
        parts = np.stack(every).reshape(5, *a.shape[:-1], b.shape[1])
        return replace(a, x=np.reshape(x, (-1, x.shape[-1])), parts=parts)
    if own.shape[0] != own.shape[1] or any((end * (1 - own)).any() for end in constant(b).ends()):
        raise OpenBasisError
    return a.scaled(np.diagonal(b, axis1=-2, axis2=-1)[..., None, :])  # V times a diagonal is V with another d.


def _meet(a: Turned, b: Turned, reading: Any) -> Any:
    """The product of X V diag(d) with the transpose of Y V diag(e)."""
    (matrix, row, vector, *ends), (matrix_of_b, row_of_b, vector_of_b, *ends_of_b) = (x.in_matrices() for x in (a, b))
    own, vectors, count = vector[:, 0].astype(int), a.vectors, min(a.vectors.ends[0].shape[-2:])
    same = _is_same([vector, matrix, vector_of_b, matrix_of_b], -2) and _is_same([row, matrix, row_of_b], -1)
    pairs = same and np.array_equal(own, vector_of_b[:, 0]) and np.array_equal(matrix[:, 0, 0], matrix_of_b[:, 0, 0])
    distinct = all(len({*each}) == len(each) and max(each, default=0) < count for each in own.tolist())
    if vectors.spectrum is not b.vectors.spectrum or not (pairs and distinct):
        raise OpenBasisError
    function = np.empty((2, len(own), a.x.shape[-1], b.x.shape[-1]))
    places = list(np.ndindex(vectors.shape[:-2]))
    for i, columns in enumerate(own):
        d = np.zeros((2, count))
        d[:, columns] = _times(*((low[i].min(0), high[i].max(0)) for low, high in (ends, ends_of_b)))
        function[:, i] = vectors.combine(b.vectors, places[int(matrix[i, 0, 0])], d)
    x, y = _rows_of(a, row[:, :, 0]), _rows_of(b, row_of_b[:, :, 0])
    return np.reshape(
        np.matmul(np.matmul(x, interval(function[0], function[1], reading)), _mirror(y)), (*a.shape[:-1], b.shape[-2])
    )


def _rows_of(a: Turned, rows: Any) -> Any:
    return np.take(a.x, rows.astype(int), 0)


def _is_same(parts: Any, axis: int) -> bool:
    return all((part == np.take(part, [0], axis)).all() for part in parts)


def _mirror(x: Any) -> Any:
    return x.moved(_mirror) if isinstance(x, Turned) else np.swapaxes(x, -1, -2)
