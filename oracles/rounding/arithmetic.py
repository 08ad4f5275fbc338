"""Sums, products, quotients and squares of balls, and the rounding that every operation ends with.

Radii are arrays as large as the centres, and an operation is as fast as it walks through them seldom: so new arrays are
written in place, and what belongs to an operand of few elements, a scale of a row, is computed of that one alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..contract import Contract
from .ball import RULES, Ball
from .spread import SLACK


def magnitude_of(centre: Any) -> Any:
    """|c| as a new array for a radius: float64, for `SLACK` covers what a wider centre loses by it."""
    size = np.abs(centre)
    return size if size.dtype == np.float64 else size.astype(np.float64)


def rounded(
    contract: Contract, centre: Any, radius: Any, times: float = 1.0, eta: bool = True, nonnegative: bool = False
) -> Ball:
    """The ball after `times` roundings of the evaluation and one of the centre.

    Args:
        radius: before those roundings; it is overwritten.
        eta: whether a rounding may underflow. A sum never does, unless subnormal results are flushed.
        nonnegative: whether no centre is negative.
    """
    u, limit, relative = contract.roundoff * times, contract.limit, _relative(contract, times)
    if nonnegative and centre.dtype == np.float64:
        out = centre * relative
    else:
        out = magnitude_of(centre)
        out *= relative
    if radius is not None:
        radius *= 1.0 + u + SLACK
        out += radius
    if eta or contract.flush:
        out += contract.underflow
    found = Ball(centre, out, contract)
    # Every radius is at least `relative` times its centre: where all radii are so small, so are all centres.
    found.bounded = bool(out.max(initial=0.0) <= 0.5 * relative * limit)
    if not found.bounded:
        given = 0.0 if radius is None else radius / (1.0 + u + SLACK)
        found.radius = np.where(magnitude_of(centre) + given <= limit, out, np.inf)
    return found


def _is_power_of_two(x: Ball) -> bool:
    return x.centre.ndim == 0 and x.radius is None and abs(math.frexp(float(x.centre))[0]) == 0.5


def _total(a: Any, b: Any) -> Any:
    """Sum of two radii, None meaning zero; always a new array."""
    if a is None:
        return None if b is None else np.array(b)
    return np.array(a) if b is None else a + b


def _plus(part: Any, other: Any) -> Any:
    """Sum of a new array and another, None meaning zero; in the memory of the new one where it has room."""
    if other is None:
        return part
    if np.shape(part) == np.broadcast_shapes(np.shape(part), np.shape(other)):
        part += other
        return part
    return part + other


def _add(contract: Contract, a: Ball, b: Ball) -> Ball:
    return rounded(contract, a.centre + b.centre, _total(a.radius, b.radius), eta=False)


def _subtract(contract: Contract, a: Ball, b: Ball) -> Ball:
    return rounded(contract, a.centre - b.centre, _total(a.radius, b.radius), eta=False)


def _times_power_of_two(x: Ball, factor: Any) -> Ball:
    """Times a power of two: exact but for underflow and overflow."""
    radius = None if x.radius is None else x.radius * abs(factor)
    centre = x.centre * factor
    contract = x.contract
    if factor < 1.0 and not np.min(np.abs(centre), initial=np.inf) >= contract.accumulate.smallest_normal:  # or a NaN
        radius = contract.underflow if radius is None else radius + contract.underflow
    if not np.max(np.abs(centre), initial=0.0) <= contract.limit:
        radius = np.where(np.abs(centre) <= contract.limit, 0.0 if radius is None else radius, np.inf)
    return Ball(centre, radius, contract)


def _multiply(contract: Contract, a: Ball, b: Ball) -> Ball:
    if _is_power_of_two(b):
        return _times_power_of_two(a, b.centre)
    if _is_power_of_two(a):
        return _times_power_of_two(b, a.centre)
    if _is_few(a, b):
        a, b = b, a
    # For all points of the balls, |a b - c_a c_b| <= |c_a| r_b + r_a (|c_b| + r_b).
    centre, reach = a.centre * b.centre, magnitude_of(b.centre)
    if _is_few(b, a):
        relative, growth = _relative(contract, 1.0), 1.0 + contract.roundoff + SLACK
        by = reach * relative if b.radius is None else reach * relative + b.radius * growth
        whole = reach if b.radius is None else reach + b.radius
        part = None if a.radius is None else a.radius * (whole * growth)
        found = _of_few(contract, centre, magnitude_of(a.centre), by, part, relative)
        if found.bounded:
            return found
    radius = None
    if b.radius is not None:
        radius = magnitude_of(a.centre) * b.radius
    if a.radius is not None:
        reach = reach + b.radius if b.radius is not None else reach
        radius = _plus(a.radius * reach, radius)
    return rounded(contract, centre, radius)


def _divide(contract: Contract, a: Ball, b: Ball) -> Ball:
    if _is_power_of_two(b):
        return _times_power_of_two(a, 1.0 / b.centre)
    quotient = a.centre / b.centre
    # Dividing may be done by multiplying with the rounded reciprocal: two roundings, of which that of a constant is the
    # same in every sample. The reciprocal itself, and a power of two times it, is rounded once.
    constant = b.radius is None and b.centre.ndim == 0
    # A fast quotient is off by more than a rounding, whatever is divided.
    alone = _is_power_of_two(a) and contract.division <= 2.0
    times = 1.0 if alone or (constant and not contract.systematic) else contract.division
    if b.radius is None:
        radius = None if a.radius is None else a.radius / magnitude_of(b.centre)
        return rounded(contract, quotient, radius, times)
    # With q = c_a / c_b, |a / b - q| = |(a - c_a) - q (b - c_b)| / |b|; a divisor that may be zero leaves no bound.
    reach = magnitude_of(b.centre) - b.radius
    apart = np.min(reach, initial=1.0) > 0
    if apart and _is_few(b, a):
        relative, growth = _relative(contract, times), 1.0 + contract.roundoff * times + SLACK
        over = (growth * (1.0 + 2.0 * SLACK)) / reach
        part = None if a.radius is None else a.radius * over
        found = _of_few(contract, quotient, magnitude_of(quotient), relative + b.radius * over, part, relative)
        if found.bounded:
            return found
    distance = magnitude_of(quotient) * b.radius
    if a.radius is not None:
        distance = _plus(distance, a.radius)
    if apart:
        distance *= (1.0 + 2.0 * SLACK) / reach
        return rounded(contract, quotient, distance, times)
    return rounded(contract, quotient, np.where(reach > 0, distance / reach, np.inf), times)


def _is_few(a: Ball, b: Ball) -> bool:
    """Whether one operand has so few elements beside another that what can be computed of it alone costs nothing.

    The result must have the shape of the other: of a column and a row it is larger than both, and may be empty.
    """
    if a.centre.size * 8 > b.centre.size or a.centre.dtype != np.float64:
        return False
    return bool(np.broadcast_shapes(a.centre.shape, b.centre.shape) == b.centre.shape)


def _relative(contract: Contract, times: float) -> float:
    """What `times` roundings of the evaluation and one of the centre add to a radius, relative to the centre."""
    return (contract.roundoff * times + contract.centre_roundoff) * (1.0 + SLACK)


def _of_few(contract: Contract, centre: Any, sizes: Any, by: Any, part: Any, relative: float) -> Ball:
    """The ball with the radius `sizes` · `by` + `part`, which counts if all its centres turn out to be bounded.

    Args:
        sizes: magnitudes of many elements; they are overwritten. by: of few elements.
        part: of the radius, None for zero. relative: of roundings, as `rounded` has it.
    """
    sizes *= by
    sizes = sizes if part is None else _plus(sizes, part)
    sizes += contract.underflow
    found = Ball(centre, sizes, contract)
    found.bounded = bool(sizes.max(initial=0.0) <= 0.5 * relative * contract.limit)
    return found


def _square(contract: Contract, a: Ball) -> Ball:
    radius = None
    if a.radius is not None:
        radius = magnitude_of(a.centre)
        radius *= 2.0
        radius = _plus(radius, a.radius)
        radius *= a.radius
    return rounded(contract, np.square(a.centre), radius, nonnegative=True)


RULES.update({"add": _add, "subtract": _subtract, "multiply": _multiply, "divide": _divide, "square": _square})
