"""What evaluations give for a factor or a solution, element by element: for what a spec computes from it.

A number that is computed from a factor or a solution has an exact value, and an evaluation gives that of some A + E,
with |E| no larger than the law of its residual allows. So here is what holds the results of all A + E that elimination
and substitution, or Cholesky's method, may have, and products with an inverse from these.

|(A + E)⁻¹| ≤ (I − |I − Y A| − |Y| |E|)⁻¹ |Y| for any Y, and a solution is off by that times what E, and the ends of A
and B, leave of the equation. A factor of A + E is L (I + H), where I + H is that of I + L⁻¹ E L⁻ᵀ. Each step takes
more from I − G at each step, with G ≥ |L⁻¹| |E| |L⁻ᵀ|, so |H| ≤ I − N where N is the factor of I − G.
Where E is not symmetric, with K half of E − Eᵀ, the symmetric half of (A + E)⁻¹ is the inverse of
A + (E + Eᵀ) / 2 + Kᵀ M K, where M is the inverse of A + (E + Eᵀ) / 2.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import numpy as np

from .elimination import SAFETY
from .factors import middle_of
from .residual import CholeskyResidual, Ends, MatrixResidual, Residual, SubstitutionErrors
from .solutions import SolutionResidual
from .spectral import SpectralResidual
from .substitutions import SubstitutionResidual

#: The middle of the results, and how far they may be from it.
_Near = tuple[Any, Any]


def enclose(result: Residual) -> Ends | None:
    """The least and the largest value of each element, infinite where none is known; None for what has no numbers."""
    ends = _ends_of(result.source)
    if ends is None:
        return None
    places = places_of(result)
    return ends[0].reshape(-1)[places], ends[1].reshape(-1)[places]


@functools.lru_cache(maxsize=8)
def _ends_of(source: Residual) -> Ends | None:
    is_open = isinstance(source, SpectralResidual) and source.role != "S"
    if is_open or not isinstance(source, MatrixResidual) or _hold.dispatch(type(source)) is _hold.dispatch(object):
        return None
    low, high = np.full(source.shape, -np.inf), np.full(source.shape, np.inf)
    for at in np.ndindex(source.shape[:-2]):
        with np.errstate(all="ignore"), contextlib.suppress(np.linalg.LinAlgError):
            middle, radius = _hold(source, at) or (0.0, np.inf)
            if np.max(np.abs(middle) + radius, initial=0.0) < source.errors.largest:
                low[at], high[at] = middle - radius * SAFETY, middle + radius * SAFETY
    return low, high


def places_of(result: Residual) -> Any:
    """Of each element, which one of its source it is, counted through."""
    own = np.arange(int(np.prod(result.shape)))
    places = np.empty_like(own)
    places[np.asarray(result.put_back(own.reshape(result.shape)), dtype=np.int64).reshape(-1)] = own
    return places.reshape(result.shape)


@functools.singledispatch
def _hold(result: Any, at: tuple[int, ...]) -> _Near | None:
    """The results of all evaluations, of one matrix of a stack."""
    raise NotImplementedError


@_hold.register
def _(result: SolutionResidual, at: tuple[int, ...]) -> _Near | None:
    moves, right = _moves_of(result, at), _middle_and_radius(result.right, at)
    return None if moves is None else _solve(_middle_and_radius(result.matrix, at)[0], moves, right, result.errors)


@_hold.register
def _(result: SubstitutionResidual, at: tuple[int, ...]) -> _Near | None:
    near: _Near | None = _middle_and_radius(result.right, at)
    for each in result.factors:
        a, radius = _middle_and_radius(each, at)
        near = near and _solve(a, float(result.gamma or 1) * (np.abs(a) + radius) + radius, near, result.errors)
    return near


@_hold.register
def _(result: SpectralResidual, at: tuple[int, ...]) -> _Near | None:
    return result.near(at)


@_hold.register
def _(result: CholeskyResidual, at: tuple[int, ...]) -> _Near | None:
    ends, errors, n = (result.low, result.high), result.errors, result.shape[-1]
    (a, radius), gamma = _middle_and_radius(ends, at), errors.gamma(3 * n + 3 * max(errors.root, errors.division), 3)
    if gamma is None or not result.never_fails(at):
        return None
    factor, most = np.linalg.cholesky(a), np.sqrt(np.diag(a) + np.diag(radius))
    inverse, sizes = _size_of_inverse(factor, np.zeros((n, n))), most[:, None] * most * SAFETY
    if inverse is None:
        return None
    moves, pivoted = float(gamma) * sizes + radius, _moves_of(SolutionResidual(ends, ends, errors), at)
    moves = moves if pivoted is None else np.maximum(moves, pivoted)
    moves = np.maximum(moves, moves.T) + np.abs(a - factor @ factor.T) + _own(n) * sizes
    moves = moves + 2 * moves @ inverse.T @ inverse @ moves
    share = inverse @ moves @ inverse.T * SAFETY
    if not share.sum(1).max(initial=0.0) < 0.5:
        return None
    off = np.abs(factor) @ (np.abs(np.eye(n) - np.linalg.cholesky(np.eye(n) - share)) + _own(n) * np.tri(n))
    return (factor.T, off.T) if result.upper else (factor, off)


def _moves_of(result: SolutionResidual, at: tuple[int, ...]) -> Any:
    """The largest |E| of an elimination, the ends of A included; None where no bound is known."""
    bounds = result.facts(at)
    if bounds is None:
        return None
    lost = 4 * result.errors.underflow * bounds.lost
    return bounds.eliminated + _middle_and_radius(result.matrix, at)[1] + lost


def _solve(a: Any, moves: Any, right: _Near, errors: SubstitutionErrors) -> _Near | None:
    """What all evaluations give for X of (A + E) X = B with |E| ≤ `moves`, by a product with an inverse perhaps."""
    (b, spread), n = right, len(a)
    inverse, gamma = _size_of_inverse(a, moves), errors.gamma(n)
    if inverse is None or gamma is None:
        return None
    x, reach = np.linalg.solve(a, b), inverse @ (np.abs(b) + spread)
    residual = np.abs(a @ x - b) + _own(n) * (np.abs(a) @ np.abs(x) + np.abs(b)) + moves @ reach + spread
    residual += 4 * errors.underflow * (2 * n + 2) * (1 + np.abs(a).max(initial=0.0) + reach.max(initial=0.0))
    return x, inverse @ residual + float(gamma) * reach


def _size_of_inverse(a: Any, moves: Any) -> Any:
    """A bound of |(A + E)⁻¹| for all |E| ≤ `moves`; None where none is known."""
    own, inverse = np.eye(len(a)), np.linalg.inv(a)
    size = np.abs(inverse)
    share = np.abs(own - inverse @ a) + size @ (_own(len(a)) * np.abs(a) + moves)
    # A bound that is not finite is none, either.
    return np.linalg.solve(own - share, size) * SAFETY if share.sum(1).max(initial=0.0) < 0.5 else None


def _own(n: int) -> float:
    """What sums of n products here, in float64, are off by at most, as a share of the sum of their sizes."""
    return (n + 4) * 2.0**-52


def _middle_and_radius(ends: Any, at: tuple[int, ...]) -> _Near:
    low, high = (each[at].astype(np.float64) for each in ends)
    return middle_of(ends, at), (high - low) * (0.5 * SAFETY)
