"""Sums, products, quotients and squares of balls, and the rounding that every operation ends with.

Radii are arrays as large as the centres, and the time of an operation is that of its passes over these arrays. So new
arrays are written in place, and a factor of the radius that comes from an operand of few elements, such as a scale of a
row, is computed from that operand alone. Radii of the form share · |c| + part, where share and part have few elements,
are not computed at all (`scaled`). Balls also have a bound on all of their elements (`most`), by which an operation
knows without a pass that no result overflows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..contract import Contract
from .ball import RULES, Ball, magnitude_of, scaled
from .beyond import mark
from .spread import SLACK, largest_of

#: An operand has "few" elements where the result has at least this many times as many.
_FEW = 8
#: A bound on magnitudes is computed in floating point; this relative excess covers the roundings of one operation.
_EXCESS = 1.0 + 2.0**-40
#: A reciprocal of less than this might overflow.
_TINY = 2.0**-1000


def rounded(
    contract: Contract, centre: Any, radius: Any, times: float = 1.0, eta: bool = True, nonnegative: bool = False,
    most: float = math.inf, owned: bool = True,
) -> Ball:  # fmt: skip
    """The ball after `times` roundings of the evaluation and one of the centre.

    Args:
        radius: before these roundings. owned: whether nothing else reads that array, so that it may be overwritten.
        eta: whether a rounding may underflow. A sum never does, unless subnormal results are flushed.
        nonnegative: whether no centre is negative.
        most: a bound on |c| + r before these roundings; infinite where none is known.
    """
    u, limit, relative = contract.roundoff * times, contract.limit, _relative(contract, times)
    growth, lost = 1.0 + u + SLACK, contract.underflow if eta or contract.flush else 0.0
    bounded = most <= limit
    if bounded:
        most = most * (growth + relative) * _EXCESS + lost
        if radius is None and relative <= 1.0:
            return scaled(centre, relative, lost, contract, most)
    if nonnegative and centre.dtype == np.float64:
        total = centre * relative
    else:
        total = magnitude_of(centre)
        total *= relative
    if radius is not None:
        radius = np.multiply(radius, growth, out=radius if owned and np.ndim(radius) else None)
        total += radius
    if lost:
        total += lost
    out = Ball(centre, total, contract)
    if bounded:
        out.bounded, out.most = True, most
        return out
    # Every radius is at least `relative` times its centre: where all radii are so small, so are all centres.
    largest = float(total.max(initial=0.0))
    if largest <= 0.5 * relative * limit:
        out.bounded, out.most = True, largest * (1.0 + 1.0 / relative) * _EXCESS
    else:
        before = 0.0 if radius is None else radius / growth
        inside = magnitude_of(centre) + before <= limit
        if not np.all(inside):
            out.radius = np.where(inside, total, np.inf)
            mark(out, np.abs(centre) * (1.0 - relative) - before * growth - lost)
    return out


def _is_power_of_two(x: Ball) -> bool:
    return x.centre.ndim == 0 and x.exact and abs(math.frexp(float(x.centre))[0]) == 0.5


def _plus(part: Any, other: Any) -> Any:
    """Sum of a new array and another, None meaning zero; in the memory of the new one where it has room."""
    if other is None:
        return part
    own, its = np.shape(part), np.shape(other)
    if own == its or own == np.broadcast_shapes(own, its):
        part += other
        return part
    return part + other


def _add(contract: Contract, a: Ball, b: Ball) -> Ball:
    return _bound_sum(contract, a.centre + b.centre, a, b)


def _subtract(contract: Contract, a: Ball, b: Ball) -> Ball:
    return _bound_sum(contract, a.centre - b.centre, a, b)


def _bound_sum(contract: Contract, centre: Any, a: Ball, b: Ball) -> Ball:
    """A sum or difference: radii add up, and nothing underflows."""
    most = (_most_of(a, b) + _most_of(b, a)) * _EXCESS
    if b.exact:
        a, b = b, a
    if not a.exact:
        return rounded(contract, centre, a.radius + b.radius, eta=False, most=most)
    if b.exact:
        return rounded(contract, centre, None, eta=False, most=most)
    if most <= contract.limit and b.centre.size * _FEW <= centre.size:
        # The operand of many elements has no errors, so the radius is that of the few and of the rounding.
        relative, growth = _relative(contract, 1.0), 1.0 + contract.roundoff + SLACK
        part = b.radius * growth + (contract.underflow if contract.flush else 0.0)
        return _make_ball(contract, centre, relative, part, most * (growth + relative))
    return rounded(contract, centre, b.radius, eta=False, most=most, owned=False)


def _times_power_of_two(x: Ball, factor: Any) -> Ball:
    """Times a power of two: exact but for underflow and overflow."""
    centre, contract, lost = x.centre * factor, x.contract, 0.0
    if factor < 1.0 and not np.min(np.abs(centre), initial=np.inf) >= contract.accumulate.smallest_normal:  # or a NaN
        lost = contract.underflow
    most = x.most * abs(float(factor)) * _EXCESS + lost
    if x.parts is not None and most <= contract.limit:
        return scaled(centre, x.parts[0], x.parts[1] * abs(factor) + lost, contract, most)
    radius = None if x.radius is None else x.radius * abs(factor)
    if lost:
        radius = lost if radius is None else radius + lost
    if not (most <= contract.limit or np.max(np.abs(centre), initial=0.0) <= contract.limit):
        radius = np.where(np.abs(centre) <= contract.limit, 0.0 if radius is None else radius, np.inf)
    out = Ball(centre, radius, contract)
    out.most = most if most <= contract.limit else math.inf
    return out


def _multiply(contract: Contract, a: Ball, b: Ball) -> Ball:
    """The ball of a product: exact by a power of two, cheap where one operand has far fewer elements (`_is_few`)."""
    if _is_power_of_two(b):
        return _times_power_of_two(a, b.centre)
    if _is_power_of_two(a):
        return _times_power_of_two(b, a.centre)
    if _is_few(a, b):
        a, b = b, a
    # For all points of the balls, |a b - c_a c_b| <= |c_a| r_b + r_a (|c_b| + r_b).
    centre, most = a.centre * b.centre, _most_of(a, b) * _most_of(b, a) * _EXCESS
    if _is_few(b, a) and most <= contract.limit:
        out = _times_few(contract, centre, a, b, most)
        if out is not None:
            return out
    reach = magnitude_of(b.centre)
    radius = None
    if not b.exact:
        radius = magnitude_of(a.centre) * b.radius
    if not a.exact:
        reach = reach if b.exact else reach + b.radius
        radius = _plus(a.radius * reach, radius)
    return rounded(contract, centre, radius, most=most)


def _times_few(contract: Contract, centre: Any, a: Ball, b: Ball, most: float) -> Ball | None:
    """A product with a factor of few elements; None where one of them may be zero.

    With |c_a| = |c| / |c_b|, the radius |c_a| r_b + r_a (|c_b| + r_b) is a share of |c| and what r_a adds.
    """
    relative, growth = _relative(contract, 1.0), 1.0 + contract.roundoff + 4.0 * SLACK
    size = whole = magnitude_of(b.centre)
    off: Any = 0.0  # r_b relative to the factor
    if not b.exact:
        if not np.min(size - b.radius, initial=1.0) > 0:
            return None
        off, whole = b.radius / size, size + b.radius
    if a.exact:
        share, part = relative + off * growth, contract.underflow
    elif a.parts is None:
        share, part = relative + off * growth, a.radius * (whole * growth)
        part += contract.underflow
    else:
        share, part = relative + (off + a.parts[0] * (1.0 + off)) * growth, a.parts[1] * (whole * growth)
        part += contract.underflow
    return _make_ball(contract, centre, share, part, most * (growth + relative) + contract.underflow)


def _make_ball(contract: Contract, centre: Any, share: Any, part: Any, most: float) -> Ball:
    """The ball with the radii share · |c| + part; these are computed at once where share or part has many elements."""
    if max(np.size(share), np.size(part)) * _FEW <= centre.size and largest_of(share) <= 1.0:
        return scaled(centre, share, part, contract, most * _EXCESS)
    radius = magnitude_of(centre)
    radius *= share
    radius += part
    out = Ball(centre, radius, contract)
    out.bounded, out.most = True, most * _EXCESS
    return out


def _divide(contract: Contract, a: Ball, b: Ball) -> Ball:
    if _is_power_of_two(b):
        return _times_power_of_two(a, 1.0 / b.centre)
    quotient = a.centre / b.centre
    # An evaluation may multiply with the rounded reciprocal: two roundings, and the first one is the same in every
    # sample for a constant. The reciprocal itself, and its product with a power of two, are rounded once.
    constant = b.exact and b.centre.ndim == 0
    # A fast quotient (`Contract.division` above 2) is off by more than one rounding, whatever the dividend.
    alone = _is_power_of_two(a) and contract.division <= 2.0
    times = 1.0 if alone or (constant and not contract.systematic) else contract.division
    # With q = c_a / c_b, |a / b - q| = |(a - c_a) - q (b - c_b)| / |b|; a divisor that may be zero leaves no bound.
    reach = magnitude_of(b.centre) if b.exact else magnitude_of(b.centre) - b.radius
    nearest = float(np.minimum.reduce(reach, axis=None, initial=math.inf))
    most = _most_of(a, b) / nearest * _EXCESS if nearest > _TINY else math.inf
    if most <= contract.limit and _is_few(b, a):
        return _over_few(contract, quotient, a, b, reach, times, most)
    if b.exact:
        radius = None if a.exact else a.radius / reach
        return rounded(contract, quotient, radius, times, most=most)
    distance = magnitude_of(quotient) * b.radius
    if not a.exact:
        distance = _plus(distance, a.radius)
    if nearest > 0:
        distance *= (1.0 + 2.0 * SLACK) / reach
        return rounded(contract, quotient, distance, times, most=most)
    return rounded(contract, quotient, np.where(reach > 0, distance / reach, np.inf), times)


def _over_few(contract: Contract, quotient: Any, a: Ball, b: Ball, reach: Any, times: float, most: float) -> Ball:
    """A quotient by a divisor of few elements: the radius (r_a + |q| r_b) / (|c_b| - r_b), with |c_a| = |q| |c_b|.

    Args:
        reach: |c_b| - r_b. times: roundings. most: a bound on |c| + r before those.
    """
    relative, growth = _relative(contract, times), 1.0 + contract.roundoff * times + 4.0 * SLACK
    over = growth / reach
    share = relative if b.exact else relative + b.radius * over
    if a.exact:
        part = contract.underflow
    else:
        if a.parts is not None:
            share = share + a.parts[0] * (magnitude_of(b.centre) * over)
        part = (a.radius if a.parts is None else a.parts[1]) * over
        part += contract.underflow
    return _make_ball(contract, quotient, share, part, most * (growth + relative) + contract.underflow)


def _most_of(x: Ball, beside: Ball) -> float:
    """A bound on |c| + r of an operand; infinite where it is not known and takes a pass over many elements."""
    if x.most == math.inf and (x.centre.ndim == 0 or x.centre.size * _FEW <= beside.centre.size):
        largest = float(largest_of(magnitude_of(x.centre) + x.radii()))
        x.most = largest if largest < math.inf else math.inf
    return x.most


def _is_few(a: Ball, b: Ball) -> bool:
    """Whether `a` has so few elements beside `b` that a computation on `a` alone costs nothing.

    The result must have the shape of `b`. The product of a column and a row has another one, which may be empty.
    """
    if a.centre.size * _FEW > b.centre.size or a.centre.dtype != np.float64:
        return False
    return a.centre.ndim == 0 or bool(np.broadcast_shapes(a.centre.shape, b.centre.shape) == b.centre.shape)


def _relative(contract: Contract, times: float) -> float:
    """The radius that `times` roundings of the evaluation and one of the centre add, relative to the centre."""
    return (contract.roundoff * times + contract.centre_roundoff) * (1.0 + SLACK)


def _square(contract: Contract, a: Ball) -> Ball:
    centre, most = np.square(a.centre), a.most * a.most * _EXCESS
    if a.parts is not None and most <= contract.limit:
        return _square_of_scaled(contract, centre, a, most)
    radius = None
    if not a.exact:
        radius = magnitude_of(a.centre)
        radius *= 2.0
        radius = _plus(radius, a.radius)
        radius *= a.radius
    return rounded(contract, centre, radius, nonnegative=True, most=most)


def _square_of_scaled(contract: Contract, centre: Any, a: Ball, most: float) -> Ball:
    """A square where r = s |c| + p: then (2 |c| + r) r is a polynomial in |c|."""
    assert a.parts is not None
    share, part = a.parts
    relative, growth = _relative(contract, 1.0), 1.0 + contract.roundoff + 8.0 * SLACK
    size = magnitude_of(a.centre)
    radius = size * (growth * share * (2.0 + share) + relative)
    radius += growth * 2.0 * (1.0 + share) * part
    radius *= size
    radius += growth * np.square(part) + contract.underflow
    out = Ball(centre, radius, contract)
    out.bounded, out.most = True, most * (growth + relative) * _EXCESS + contract.underflow
    return out


RULES.update({"add": _add, "subtract": _subtract, "multiply": _multiply, "divide": _divide, "square": _square})
