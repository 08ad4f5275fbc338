"""The accept set of every output element, and the place of an output in it.

What this is for: with y the exact value and δ the bound on the error of the evaluation, an output is accepted iff
RN(y − δ) ≤ out ≤ RN(y + δ), rounded once to the output's format. All errors and widths of the report come from here.

What is hard here: the decision must be exact, and float64 is not. So y is a pair of float64 numbers, and a filter
with directed slack decides all elements that are clearly inside or clearly outside (`_inside`). The few elements that
the filter leaves open are decided with mpmath's integers, which round once (`_decide_element`). And an element that is
NaN, infinite or beyond its format has no distance from y: whether it must match, or is not judged at all, depends on
whether the operands were finite, and on the order of the derivative (`place_in_accept_sets`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from mpmath import libmp

from ...reference.exact import Exact, to_float_pair
from ...reference.formats import BINARY64, Format, round_array, round_to, ulp_array
from .rounding import Ball

# The limits of an accept set are computed in float64, by a few operations with an error of at most 2^-53 each. This
# excess covers eight of them, so the filter leaves an element open rather than settle it wrongly.
_SLACK = 2.0**-50


#: A power of two with a larger exponent is beyond every format, and one with minus that exponent is below half of the
#: last place of every format.
_FARTHEST = 4096


class ReadingError(ArithmeticError):
    """Two readings of one formula contradict each other: the framework's fault, never the subject's."""


#: The number of elements that are judged at a time, so that their intermediate arrays stay in the cache.
BLOCK = 2**14


class Edges(NamedTuple):
    """The accept set of one element: `low` to `high`; NaN where both are NaN; with `not_finite`, NaN and infinities."""

    low: float
    high: float
    not_finite: bool = False


@dataclass(frozen=True)
class Elements:
    """An output in its accept sets: arrays of its shape, errors and widths in ulp of the exact value.

    The measures (errors, widths, bounds) are computed at their first use.

    Attributes:
        accepted: in the accept set (true where not judged).
        judged: inside the domain of the bound.
        special: the exact value is NaN or infinite, or overflows the format.
        ulp: |out − y| in ulp. ratio: |out − y| over the bound, at most 1 for accepted elements. signed: the ratio
            with the error's sign, zero where there is none.
        width: half-width of the accept set in ulp, the smallest fault that this element can show.
        bound: the largest |out − y| that is accepted. value: the exact value, nearest float64.
        of: the measures of some elements, by their numbers in the flat output, or by a slice of these.
        edges: the least and the largest accepted number of the element at an index.
    """

    accepted: Any
    judged: Any
    special: Any
    value: Any
    of: Callable[[Any], Measures]
    edges: Callable[[tuple[int, ...]], Edges]

    def worst(self) -> tuple[Any, ...]:
        """The index of the worst element that is not accepted."""
        inside = np.reshape(self.accepted, -1)
        worst, at = -1.0, 0
        for part in _blocks(inside.size):
            if inside[part].all():
                continue
            ratio = np.where(inside[part], -1.0, self.of(part).ratio)
            largest = int(np.argmax(ratio))
            if ratio[largest] > worst:
                worst, at = float(ratio[largest]), part.start + largest
        return np.unravel_index(at, np.shape(self.accepted))

    @functools.cached_property
    def _measures(self) -> Measures:
        shape = np.shape(self.accepted)
        arrays = np.empty((5, math.prod(shape)))
        for part in _blocks(arrays.shape[1]):
            for array, own in zip(arrays, self.of(part), strict=True):
                array[part] = own
        return Measures(*(array.reshape(shape) for array in arrays))

    @property
    def ulp(self) -> Any:
        return self._measures.ulp

    @property
    def ratio(self) -> Any:
        return self._measures.ratio

    @property
    def signed(self) -> Any:
        return self._measures.signed

    @property
    def width(self) -> Any:
        return self._measures.width

    @property
    def bound(self) -> Any:
        return self._measures.bound


class Measures(NamedTuple):
    """Errors, widths and bounds, as attributes of `Elements` describe them."""

    ulp: Any
    ratio: Any
    signed: Any
    width: Any
    bound: Any


class _Decisions(NamedTuple):
    """The decision of every element (`Elements`); the exact value y as a pair of numbers, and the bound δ."""

    accepted: Any
    judged: Any
    special: Any
    high: Any
    low: Any
    delta: Any


def _blocks(size: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]


def place_in_accept_sets(
    computed: Any, fmt: Format, ball: Ball, exact: Exact | None, finite_inputs: bool = True, order: int = 0
) -> Elements:
    """Place a computed output in its accept set.

    Args:
        computed: float64 array holding the output's values exactly.
        fmt: the output's format.
        ball: the rounding reading of the same output.
        exact: the exact reading, or None: then the centre stands for the exact value, its own error being part of
            the radius, and elements whose centre is not finite are not judged.
        finite_inputs: whether all operands were finite. Only then is a NaN or infinite exact value a singularity of
            the formula, which a rounded evaluation may miss by a hair: not judged.
        order: of the derivative. A value must be the very NaN or infinity of the exact reading. A derivative at an
            infinite argument is a limit, NaN or infinite by the order of evaluation: it must only not be finite.

    Raises:
        ReadingError: an exact value outside its ball.
    """
    if not fmt.has_infinities:  # There is NaN in place of what is beyond; a ball reaches farthest on its centre's side.
        computed = np.where(np.isnan(computed), np.copysign(np.inf, ball.centre), computed)
    flat = np.ascontiguousarray(computed).reshape(-1)
    if exact is not None or computed.size <= BLOCK:
        decisions = _decide(computed, fmt, ball, exact, finite_inputs, order)

        def measure(some: Any) -> Measures:
            return _measure(flat[some], fmt, _Decisions(*(np.reshape(array, -1)[some] for array in decisions)))

        edges = functools.partial(_edges, fmt, decisions, exact, order)
        return Elements(decisions.accepted, decisions.judged, decisions.special, decisions.high, measure, edges)
    centre = ball.centre.reshape(-1)
    radius = None if ball.radius is None else ball.radii().reshape(-1)

    def decide_part(part: Any) -> _Decisions:
        block = Ball(centre[part], None if radius is None else radius[part], ball.contract, ball.special)
        block.stray = None if ball.stray is None else ball.stray.reshape(-1)[part]
        return _decide(flat[part], fmt, block, None, finite_inputs, order)

    answers = np.empty((3, computed.size), dtype=bool)
    for part in _blocks(computed.size):
        if _all_near(flat[part], fmt, centre[part], 0.0 if radius is None else radius[part]):
            answers[:2, part], answers[2, part] = True, False
            continue
        for answer, own in zip(answers, decide_part(part), strict=False):
            answer[part] = own

    def measure_part(some: Any) -> Measures:
        return _measure(flat[some], fmt, decide_part(some))

    value = ball.centre.astype(np.float64, copy=False)
    accepted, judged, special = (answer.reshape(computed.shape) for answer in answers)

    def edges_at(at: tuple[int, ...]) -> Edges:
        number = int(np.ravel_multi_index(at, computed.shape))
        start = number - number % BLOCK
        return _edges(fmt, decide_part(slice(start, start + BLOCK)), None, order, (number - start,))

    return Elements(accepted, judged, special, value, measure_part, edges_at)


def _all_near(computed: Any, fmt: Format, centre: Any, radius: Any) -> bool:
    """Whether all results are surely within the radii of their centres, all of which are finite: then all are accepted.

    `_decide` asks the same first, in twice the time. In a large output nearly all blocks need no more than this.
    """
    if centre.dtype != np.float64:
        return False
    with np.errstate(all="ignore"):
        off = computed - centre
        np.abs(off, out=off)
        off *= 1 + _SLACK
        return bool((off <= radius).all() and np.max(radius) < np.inf and _below_overflow(fmt, centre))


def _decide(computed: Any, fmt: Format, ball: Ball, exact: Exact | None, finite_inputs: bool, order: int) -> _Decisions:
    """Decide every element of an output, or of a block of one.

    Args:
        computed, fmt, ball, exact, finite_inputs, order: as for `place_in_accept_sets`.
    """
    with np.errstate(all="ignore"):
        high, low, delta = _centre(ball, exact)
        if not fmt.computes:  # Of a number without any error a cast has one result, at a tie as well.
            delta = np.where(ball.radii() == 0, 0.0, delta)
        finite_bound = np.isfinite(delta)
        finite = np.isfinite(high)
        # A result within δ of y is in every accept set, because it is its own rounding.
        near = np.abs(computed - high) * (1 + _SLACK) + np.abs(low) <= delta * (1 - _SLACK)
        if near.all() and finite.all() and finite_bound.all() and _below_overflow(fmt, high):
            return _Decisions(near, near, ~near, high, low, delta)
        inside, open_ = _inside(computed, fmt, high, low, delta)
        if not fmt.computes:  # Of bfloat16 numbers one in sixteen is a tie of e4m3, which the filter leaves open.
            alone = (delta == 0) & (low == 0)
            inside, open_ = np.where(alone, computed == round_array(fmt, high), inside), open_ & ~alone
        accepted = np.array(inside)  # An array also for an output without axes, so that elements can be set.
        # A NaN or an infinity has no distance from anything, so only elements with a finite value and a finite bound
        # are decided by numbers; the others are settled below.
        for i in map(tuple, np.argwhere(open_ & finite & finite_bound)):
            value = exact.values[i] if exact is not None else _pair(high[i], low[i])
            accepted[i] = _decide_element(computed[i], fmt, value, float(delta[i]))
        # Only the exact reading proves that an element must be NaN or infinite. A centre is floating point itself, and
        # may have overflowed on the way where the formula is finite.
        must_match = ~finite & (exact is not None and not finite_inputs) & (ball.radii() == 0)
        judged = (finite & finite_bound) | must_match
        same = (computed == high) | (np.isnan(computed) & np.isnan(high))
        if order:
            same = ~np.isfinite(computed)
        accepted = np.where(judged, np.where(finite, accepted, same), True)
        if ball.stray is not None:
            accepted |= ball.stray & np.isnan(computed)
        # A finite value that rounds to infinity has no ulp to measure its error in, so it counts as special, too.
        special = ~finite | np.isinf(round_array(fmt, np.where(finite, high, 0.0)))
        return _Decisions(accepted, judged, special, high, low, delta)


def _below_overflow(fmt: Format, values: Any) -> bool:
    return bool(np.max(values, initial=0.0) <= fmt.max and np.min(values, initial=0.0) >= -fmt.max)


def _centre(ball: Ball, exact: Exact | None) -> tuple[Any, Any, Any]:
    """y as a pair of float64 arrays, and δ such that |evaluation − y| ≤ δ."""
    radius = np.asarray(ball.radii(), dtype=ball.centre.dtype)
    if exact is None:
        # Where the centre is wider than float64, the second number of the pair has the digits that float64 lacks.
        high = ball.centre.astype(np.float64, copy=False)
        if high is ball.centre:
            return high, np.zeros(high.shape), _upward(radius)
        return high, (ball.centre - high).astype(np.float64), _upward(radius)
    high, low = to_float_pair(exact)
    offset = np.abs((ball.centre - high) - low)
    # Written as "not larger", because a NaN on either side is no contradiction.
    inside = ~(offset > radius * (1 + _SLACK))
    if not inside.all():
        worst = np.unravel_index(int(np.argmax(~inside)), inside.shape)
        raise ReadingError(
            f"exact value outside its ball: got |c − y|={float(offset[worst]):.3g} at {worst}, "
            f"need at most r={float(radius[worst]):.3g}"
        )
    # The radius says how far an evaluation may be from the centre, but δ is measured from y: their distance is added.
    return high, low, _upward(radius + offset)


def _upward(values: Any) -> Any:
    # The factor covers the conversion from a wider centre type and the additions before it, and the smallest number
    # covers the error of converting a subnormal. A bound that was too small would fail a correct output.
    return values.astype(np.float64, copy=False) * (1 + 2 * _SLACK) + 5e-324


def _inside(computed: Any, fmt: Format, high: Any, low: Any, delta: Any) -> tuple[Any, Any]:
    """The float64 filter: which elements are accepted for now, and which of them are undecided.

    Args:
        computed, fmt: the output, and its format. high, low: the exact value y as a pair of numbers.
        delta: the bound on |evaluation − y|.
    """
    # The sum `high + t` rounds once. For binary64 that is the very rounding of the output's format, so only t itself
    # needs slack; for the other formats `round_array` rounds a second time, so the sum needs slack, too.
    slack = (np.abs(low) + delta) * _SLACK + 5e-324
    if fmt != BINARY64:
        slack = slack + np.abs(high) * _SLACK
    lower, upper = low - delta, low + delta
    surely = (round_array(fmt, high + (lower + slack)) <= computed) & (
        computed <= round_array(fmt, high + (upper - slack))
    )
    possibly = (round_array(fmt, high + (lower - slack)) <= computed) & (
        computed <= round_array(fmt, high + (upper + slack))
    )
    return surely | possibly, possibly & ~surely


def _pair(high: float, low: float) -> Any:
    return libmp.mpf_add(libmp.from_float(float(high)), libmp.from_float(float(low)))


def _limits(fmt: Format, exact: Any, delta: float) -> tuple[Any, Any]:
    """The ends of the accept set around an exact value, rounded to a format, as numbers of mpmath."""
    sign, mantissa, exponent, bits = exact
    # A sum of numbers of very different exponents has as many bits as lie between these exponents. So an exact value
    # that is larger, or smaller, than any number of any format is replaced by a power of two: the ends are the same.
    if mantissa and abs(exponent + bits) > _FARTHEST:
        exact = (sign, 1, _FARTHEST if exponent > 0 else -_FARTHEST, 1)
    bound = libmp.from_float(delta)
    return round_to(fmt, libmp.mpf_sub(exact, bound)), round_to(fmt, libmp.mpf_add(exact, bound))


def _decide_element(computed: float, fmt: Format, exact: Any, delta: float) -> bool:
    """The exact decision for one element: mpmath integers, one rounding."""
    out = libmp.from_float(float(computed))
    lower, upper = _limits(fmt, exact, delta)
    return bool(libmp.mpf_le(lower, out) and libmp.mpf_le(out, upper))


def _edges(fmt: Format, decisions: _Decisions, exact: Exact | None, order: int, at: tuple[int, ...]) -> Edges:
    """The accept set of one element.

    Args:
        fmt: of the output. decisions: of its elements. exact: the exact reading, if one was made.
        order: of the derivative. at: the index of the element.
    """
    value, delta = float(decisions.high[at]), float(decisions.delta[at])
    if not decisions.judged[at]:
        return Edges(-math.inf, math.inf)
    if not math.isfinite(value):
        return Edges(value, value, not_finite=bool(order))
    centre = exact.values[at] if exact is not None else _pair(value, decisions.low[at])
    lower, upper = _limits(fmt, centre, delta)
    return Edges(libmp.to_float(lower), libmp.to_float(upper))


@np.errstate(all="ignore")
def _measure(computed: Any, fmt: Format, decisions: _Decisions) -> Measures:
    """The distance of each element from its exact value, in ulp and relative to its bound."""
    accepted, judged, special, high, low, delta = decisions
    unit = ulp_array(fmt, high)
    signed = (computed - high) - low
    error = np.abs(signed)
    # The evaluation ends within δ of y, and then the output is rounded once, by at most half an ulp of the evaluation's
    # end. That end may be in the next binade above y, where an ulp is twice as large.
    bound = delta + 0.5 * ulp_array(fmt, np.abs(high) + delta)
    plain = judged & ~special & np.isfinite(delta)
    ratio = np.where(plain & np.isfinite(computed), error / bound, np.where(accepted, 0.0, np.inf))
    ratio = np.where(accepted, np.minimum(ratio, 1.0), ratio)  # The quotient itself rounds, maybe above 1.
    ulps = np.where(plain & np.isfinite(computed), error / unit, np.where(accepted, 0.0, np.inf))
    width = np.where(plain, (delta + 0.5 * unit) / unit, np.nan)
    bias = np.where(plain & np.isfinite(computed), signed / bound, 0.0)
    return Measures(ulps, ratio, bias, width, bound)
