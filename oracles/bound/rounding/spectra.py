"""Errors of transforms that are bounded together, and of what is computed from transforms, as a convolution is.

What this is for. Each output of a transform may be off by a share of Σ|x_j|, and not all of them at once: transforms
are unitary but for a factor, so an error made on the way has one norm wherever it comes out. A transform back adds up
what outputs are off by, and of radii alone that is up to √n times what it can be.

The rule. A ball says that element i is Σ_s Re(a_si ε_sp(i)) + ρ_i from its centre in every evaluation, where s is a
transform and ε_sp the error of its output p, a complex number with |ε_sp| <= 1 and Σ_p |ε_sp|² <= κ_s² in each row, and
|ρ_i| <= rest_i. Sums, differences and products are linear in ε but for what their rules add; the terms of a complex
product have one ε, so their coefficients add up. A number with parts of the coefficients a and b is off by at most
(|a + ib| + |a - ib|) / 2 |ε_p|, and a sum with weights of modulus 1 by Σ_p G_p |ε_p| <= κ (Σ G_p²)^½, where G_p is the
sum of those of p.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....reference.array import Params
from .ball import FOLLOW, RULES, Ball, centre_of
from .spread import SLACK

#: A ball that would have more parts forgets them; their errors are in its radius as well.
_MOST = 32
_FOLLOWED = {"add", "subtract", "multiply", "negative"}
_FOLLOWED |= {"getitem", "reshape", "transpose", "broadcast", "concatenate", "store"}


class TransformError(NamedTuple):
    """What a ball has of a transform's errors: κ of its rows, and outputs in a row; a and p, over all rows."""

    norms: Any
    bins: int
    factors: Any
    places: Any


def begin(out: Ball, radius: Any, norm: Any, axes: tuple[int, ...]) -> None:
    """Give the result of a transform, (*shape, 2), its error: bounds on an element, and on the norm of a row."""
    order = [*(i for i in range(out.centre.ndim - 1) if i not in axes), *axes]
    places = np.arange(out.centre.size // 2).reshape([out.shape[i] for i in order]).transpose(np.argsort(order))
    norms = np.transpose(norm / np.where(radius > 0, radius, 1.0), order).ravel()
    factors = np.broadcast_to(radius[..., None] * np.array([1.0, -1j]), out.shape)
    part = TransformError(norms, places.size // max(norms.size, 1), factors, np.stack([places, places], -1))
    out.spectrum = (np.zeros(out.shape), [part]) if np.isfinite(radius).all() else None


def sum_errors(x: Ball, axes: tuple[int, ...], sums: Any) -> Any:
    """A bound on the errors of Σ w (x_0 + i x_1) along axes with |w| = 1; `sums` is one, of length 1 along `axes`."""
    order = [*(i for i in range(x.centre.ndim - 1) if i not in axes), *axes]
    count = max(sums.size, 1)

    def by_rows(values: Any) -> Any:
        """(2, rows, elements of a row)."""
        return np.transpose(values, [x.centre.ndim - 1, *order]).reshape(2, count, -1)

    rest, parts = x.spectrum
    total = np.hypot(*by_rows(rest)).sum(-1)
    for norms, bins, factors, places in parts:
        (a, b), (first, second) = by_rows(factors), by_rows(places)
        sizes, at = (np.abs(a + 1j * b) + np.abs(a - 1j * b)) / 2, np.where(a == 0, second, first)
        row = np.where(sizes > 0, at // bins, -1)
        last = row.max(-1, initial=-1)
        if not (((first == second) | (a == 0) | (b == 0)) & ((row == last[:, None]) | (row < 0))).all():
            total += (np.abs(a) + np.abs(b)).sum(-1)
            continue
        together = np.zeros((count, bins))
        np.add.at(together, (np.arange(count)[:, None], at % bins), sizes)
        total += np.minimum(sizes.sum(-1), norms[last] * np.sqrt(np.square(together).sum(-1)))
    total = total.reshape(np.transpose(sums, order).shape).transpose(np.argsort(order))
    return np.minimum(sums, total * (1.0 + (x.centre.size + 8) * SLACK))


def _follow(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    """Give a result the errors of transforms that its operands have, and narrow its radius where they cancel."""
    if not any(x.spectrum for x in operands) or any(x is out for x in operands) or primitive not in _FOLLOWED:
        return
    parts = list(_parts(primitive, out, operands, params))
    whole = [Ball(x.centre, x.spectrum[0] + _reach(x.spectrum[1]), x.contract) if x.spectrum else x for x in operands]
    radius = RULES[primitive](out.contract, *whole, **params).radii()
    rest = np.maximum(radius - _reach(parts), 0.0) + radius * (8.0 * SLACK)
    merged: list[TransformError] = []
    for part in parts:
        for i, (norms, _, a, places) in enumerate(merged):
            b, its = part.factors, part.places
            if norms is part.norms and ((its == places) | (a == 0) | (b == 0)).all():
                part = merged.pop(i)._replace(factors=a + b, places=np.where(a == 0, its, places))
                break
        merged.append(part)
    if np.isfinite(radius).all() and len(merged) <= _MOST:
        out.spectrum = rest, merged
        out.radius = np.minimum(out.radii(), rest + _reach(merged)) if primitive in ("add", "subtract") else out.radius


def _reach(parts: Sequence[TransformError]) -> Any:
    return sum(np.abs(each.factors) for each in parts)


def _parts(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> Iterator[TransformError]:
    """What each operand's errors add to those of a result."""
    factors: list[Any] = {"subtract": [1.0, -1.0], "add": [1.0, 1.0], "negative": [-1.0]}.get(primitive, [])
    if primitive == "multiply":
        factors = [np.asarray(x.centre, dtype=np.float64) for x in operands[::-1]]
    for i, x in enumerate(operands):
        for part in x.spectrum[1] if x.spectrum else ():
            if factors:
                values: Any = np.broadcast_arrays(part.factors * factors[i], part.places, np.empty(out.shape))[:2]
            else:  # What moves elements, among those of others.
                none = [np.zeros(each.shape, int) for each in operands]
                arrays = ([*none[:i], each, *none[i + 1 :]] for each in part[2:])
                values = [centre_of(primitive, params, out.contract, *each) for each in arrays]
            yield TransformError(*part[:2], *values)


FOLLOW.append(_follow)
