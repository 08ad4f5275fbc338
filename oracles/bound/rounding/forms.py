"""Affine forms: coefficients of noise symbols for every element of an array.

The symbols of one reading are numbered. A form has the numbers of those that some element depends on, ascending, and
the coefficients along a last axis. Coefficients are computed in the format below the judged one; what that rounds is
bounded by whoever makes them (`slopes.Slope.off`).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..contract import Contract

#: Coefficients that one reading computes at most, for their time.
MOST = 1.0e9
#: Coefficients that all arrays have at a time, and one of them, for their memory. A form of more is forgotten.
MOST_ALIVE, LARGEST = 2.0**26, 2.0**24

#: Sums of alike coefficients are in different groups if they are so far apart.
_APART = 2.0**-14
#: What is computed of coefficients in float64 is off by less than this factor.
_GROWN = 1.0 + 2.0**-20

#: Numbers of symbols, and their coefficients, which broadcast to an array's shape and one more axis.
Part = tuple[Any, Any]


class Symbols:
    """The format of coefficients, and how many symbols and coefficients a reading has made.

    Attributes:
        dtype: of coefficients. eps, eta: its unit roundoff, and its smallest number above zero.
        symbols: how many there are.
    """

    def __init__(self, contract: Contract) -> None:
        self.dtype: Any = np.float32 if contract.accumulate.precision <= 24 else np.float64
        facts = np.finfo(self.dtype)
        self.eps, self.eta = float(facts.eps) / 2, float(facts.smallest_subnormal)
        self.symbols, self._work, self._alive = 0, 0.0, 0

    @property
    def has_room(self) -> bool:
        """Whether more coefficients may be computed."""
        return self._work < MOST and self._alive < MOST_ALIVE

    def keep(self, form: AffineForm) -> AffineForm:
        """Count the coefficients of a form for as long as it is there."""
        size = form.part[1].size
        self._alive += size
        weakref.finalize(form, self._drop, size)
        return form

    def _drop(self, size: int) -> None:
        self._alive -= size

    def spend(self, coefficients: float) -> None:
        """Count coefficients that are computed."""
        self._work += coefficients

    def number(self, count: int) -> Any:
        """Numbers of new symbols."""
        self.symbols += count
        return np.arange(self.symbols - count, self.symbols)


@dataclass(frozen=True)
class AffineForm:
    """The coefficients of an array.

    Attributes:
        part: numbers and coefficients. radius: a bound on the sum of the magnitudes, for every element.
        sums: the numbers, from one up to another, of symbols that are roundings of a sum to which more may be added.
    """

    part: Part
    radius: Any
    sums: tuple[tuple[int, int], ...] = ()

    @property
    def ids(self) -> Any:
        return self.part[0]

    def renew_symbols(self, symbols: Sequence[tuple[int, int]], limits: Symbols) -> AffineForm:
        """The form with other symbols in place of some."""
        ids, terms = self.part
        old = functools.reduce(np.logical_or, [(ids >= first) & (ids < end) for first, end in symbols])
        limits.spend(terms.size)
        ids = np.concatenate([ids[~old], limits.number(int(np.count_nonzero(old)))])
        return AffineForm((ids, np.concatenate([terms[..., ~old], terms[..., old]], axis=-1)), self.radius)

    def split(self, ids: Any) -> tuple[Part, Any]:
        """What belongs to some symbols, and the coefficients of all others."""
        own, terms = self.part
        among = np.isin(own, ids, assume_unique=True)
        return (own[among], terms[..., among]), terms[..., ~among]


def _sum_of_magnitudes(terms: Any) -> Any:
    count = terms.shape[-1]
    grown = 1.0 + (count + 2) * float(np.finfo(terms.dtype).eps)
    return np.sum(np.abs(terms), axis=-1).astype(np.float64) * grown


def collect(
    limits: Symbols, shape: tuple[int, ...], parts: Sequence[Part], own: Any, most: Any = None, instead: Any = None
) -> AffineForm:
    """The form that is the sum of parts, and for each element a new symbol with a coefficient.

    Args:
        limits: of the reading. shape: of the array. parts: the summands; the sums of their coefficients are rounded.
        own: the coefficients of new symbols, of this shape.
        most: where the sum of magnitudes exceeds it, all coefficients are forgotten. instead: is the coefficient there.
    """
    ids = functools.reduce(np.union1d, [ids for ids, _ in parts]) if parts else np.zeros(0, np.int64)
    count, size = len(ids), int(np.prod(shape))
    needs = own > 0 if instead is None else (own > 0) | (instead > 0)
    new = int(np.count_nonzero(needs))
    if instead is not None and parts and size * (count + new) > LARGEST:
        return collect(limits, shape, [], instead)
    limits.spend(2.0 * size * (count + new))
    if len(parts) == 1 and not new:
        moved = np.broadcast_to(parts[0][1], (*shape, count))
        return AffineForm((ids, moved), _sum_of_magnitudes(moved))
    terms: Any = np.zeros((*shape, count + new), limits.dtype)
    for its, coefficients in parts:
        places: Any = np.searchsorted(ids, its)
        starts = np.flatnonzero(np.diff(places, prepend=-2) != 1)
        # Symbols stand side by side in long runs, and to add those as slices takes a tenth of the time.
        for start, end in zip(starts, [*starts[1:], len(its)], strict=False):
            terms[..., places[start] : places[start] + end - start] += coefficients[..., start:end]
    radius = _sum_of_magnitudes(terms)
    if most is not None:
        beyond = ~(radius + own <= most)
        if beyond.any():
            terms[beyond] = 0.0
            radius, own = np.where(beyond, 0.0, radius), np.where(beyond, instead, own)
    upper = own.astype(limits.dtype)
    upper = np.where(upper < own, np.nextafter(upper, np.array(np.inf, limits.dtype)), upper)
    places = np.flatnonzero(needs)
    terms.reshape(size, -1)[places, count + np.arange(new)] = upper.reshape(-1)[places]
    ids = np.concatenate([ids, limits.number(new)])
    return limits.keep(AffineForm((ids, terms), (radius + upper) * (1.0 + 4.0 * limits.eps)))


def merge_multiples(terms: Any, limits: Symbols) -> tuple[Any, Any]:
    """Coefficients of symbols that no other array has, with those in one that are multiples of each other.

    Args:
        terms: coefficients. limits: of the reading.

    Returns:
        The coefficients of fewer symbols, and a bound on what is not in them, for every element.
    """
    shape = terms.shape[:-1]
    flat = terms.reshape(-1, terms.shape[-1])
    limits.spend(4.0 * flat.size)
    several = np.count_nonzero(flat, axis=0) > 1
    single = np.sum(np.abs(flat[:, ~several]), axis=1, dtype=np.float64)
    flat = flat[:, several].astype(np.float64)
    if not flat.size:
        return np.zeros((*shape, 0), terms.dtype), single.reshape(shape) * _GROWN
    largest = np.argmax(np.abs(flat), axis=0)
    scales = flat[largest, np.arange(flat.shape[1])]
    alike = flat / scales
    # Multiples have the same sum with any weights, but for roundings; others rarely have, and then the rest is large.
    sums = np.cos(np.arange(len(flat))) @ alike
    order = np.argsort(sums, kind="stable")
    groups = np.concatenate([[0], np.cumsum(np.diff(sums[order]) > _APART)])
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    like = alike[:, order[starts]]
    rest = np.sum(np.abs(flat[:, order] - like[:, groups] * scales[order]), axis=1)
    sizes = np.add.reduceat(np.abs(scales[order]), starts)
    ways = like * sizes
    upper = ways.astype(terms.dtype)
    off = np.sum(np.abs(ways - upper), axis=1)
    return upper.reshape(*shape, -1), ((single + rest + off) * _GROWN).reshape(shape)
