"""The accept set of every output element, and the decision whether the element is in it.

What this is for: with y the exact value and δ the bound on the error of the evaluation, an output is accepted iff
RN(y − δ) ≤ out ≤ RN(y + δ), rounded once to the output's format. All errors and widths of the report come from here.

What is hard here: the decision must be exact, and float64 arithmetic is not. So y is a pair of float64 numbers, and a
filter with directed slack decides all elements that are clearly inside or clearly outside (`_inside`). The few elements
that the filter leaves open are decided with mpmath's integers, which round once (`_decide_element`). An element that is
NaN, infinite or beyond its format has no distance from y. Whether such an element must match or is not judged at all
depends on whether the operands were finite, and on the order of the derivative (`place_in_accept_sets`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from mpmath import libmp

from ...reference.exact import Exact, to_float_pair
from ...reference.formats import BINARY64, Format, round_array, round_to, ulp_array
from .rounding import Ball

# The limits of an accept set are computed in float64, by a few operations with a relative error of at most 2^-53 each.
# This excess covers eight of them, so that the filter leaves an element open rather than decide it wrongly.
SLACK = 2.0**-50


#: 2 to this power is beyond every format's largest number, and 2 to minus this power below half of its smallest.
_FARTHEST = 4096


class ReadingError(ArithmeticError):
    """Two readings of one formula contradict each other: the framework's fault, never the subject's."""


#: The number of elements that are judged at a time, so that their intermediate arrays stay in the cache.
BLOCK = 2**14


class Edges(NamedTuple):
    """The accept set of one element: `low` to `high`; NaN if both are NaN; NaN and infinities if `not_finite`."""

    low: float
    high: float
    not_finite: bool = False


@dataclass(frozen=True)
class Elements:
    """The decisions on an output's elements, and their errors: arrays of its shape.

    The measures (errors, widths, bounds) are computed at their first use. An ulp is one of the exact value y.

    Attributes:
        accepted: whether the element is in its accept set; true where it is not judged.
        judged: whether the element is in the domain of the bound.
        special: whether the exact value is NaN or infinite, or overflows the format.
        ulp: |out − y| in ulp. ratio: |out − y| over the bound, at most 1 for accepted elements. signed: the ratio
            with the sign of the error, zero where there is no ratio.
        width: half the width of the accept set in ulp, the smallest fault that this element can show.
        bound: the largest |out − y| that is accepted. value: y rounded to float64.
        of: (numbers in the flat output, or a slice of these) -> the measures of these elements.
        edges: (index) -> the smallest and the largest accepted number of the element.
    """

    accepted: Any
    judged: Any
    special: Any
    value: Any
    of: Callable[[Any], Measures]
    edges: Callable[[tuple[int, ...]], Edges]

    def without(self, some: Any) -> Elements:
        """The same, in which some elements are not judged."""

        def measure(part: Any) -> Measures:
            left = np.reshape(some, -1)[part]
            return Measures(*(np.where(left, 0.0, each) for each in self.of(part)))

        return replace(self, accepted=self.accepted | some, judged=self.judged & ~some, of=measure)

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
    """Errors, widths and bounds; see the attributes of `Elements`."""

    ulp: Any
    ratio: Any
    signed: Any
    width: Any
    bound: Any


class _Decisions(NamedTuple):
    """The decisions on the elements (see `Elements`), the exact values y as pairs of numbers, and the bounds δ."""

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
    """Decide for each element of an output whether it is in its accept set.

    Args:
        computed: float64 array with the output's values, exactly.
        fmt: the output's format.
        ball: the rounding reading of the output.
        exact: the exact reading, or None. Without it the centre, whose error is part of the radius, stands for the
            exact value, and elements whose centre is not finite are not judged.
        finite_inputs: whether all operands were finite. If so, a NaN or infinite exact value is a singularity of the
            formula. A rounded evaluation may miss a singularity by one rounding, so such elements are not judged.
        order: of the derivative. A NaN or infinite value (order 0) must be that of the exact reading. A derivative at
            an infinite argument is a limit, and the order of evaluation decides whether it is NaN or infinite, so only
            a finite result is wrong there.

    Raises:
        ReadingError: an exact value is outside its ball.
    """
    # A format without infinities has NaN for what overflows, and that overflow has the sign of the centre.
    if not fmt.has_infinities:
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
    """Whether all results are certainly within the radii of their centres, which are finite: then all are accepted.

    `_decide` begins with the same test, but takes twice as long. In a large output this decides nearly all blocks.
    """
    if centre.dtype != np.float64:
        return False
    with np.errstate(all="ignore"):
        off = computed - centre
        np.abs(off, out=off)
        off *= 1 + SLACK
        return bool((off <= radius).all() and np.max(radius) < np.inf and _below_overflow(fmt, centre))


def _decide(computed: Any, fmt: Format, ball: Ball, exact: Exact | None, finite_inputs: bool, order: int) -> _Decisions:
    """Decide every element of an output, or of a block of one.

    Args:
        computed, fmt, ball, exact, finite_inputs, order: as for `place_in_accept_sets`.
    """
    with np.errstate(all="ignore"):
        high, low, delta = _centre(ball, exact)
        if not fmt.computes:  # A cast of a number that has no error gives one result, also at a tie.
            delta = np.where(ball.radii() == 0, 0.0, delta)
        finite_bound = np.isfinite(delta)
        finite = np.isfinite(high)
        # A result within δ of y is in every accept set, because it is its own rounding.
        near = np.abs(computed - high) * (1 + SLACK) + np.abs(low) <= delta * (1 - SLACK)
        if near.all() and finite.all() and finite_bound.all() and _below_overflow(fmt, high):
            return _Decisions(near, near, ~near, high, low, delta)
        inside, open_ = _inside(computed, fmt, high, low, delta)
        if not fmt.computes:  # One in sixteen bfloat16 numbers is a tie of e4m3, and the filter leaves ties open.
            alone = (delta == 0) & (low == 0)
            inside, open_ = np.where(alone, computed == round_array(fmt, high), inside), open_ & ~alone
        accepted = np.array(inside)  # An array also for an output without axes, so that elements can be set.
        # A NaN or an infinity has no distance from a number, so only elements with a finite value and a finite bound
        # are decided by their distance; the others are decided below.
        for i in map(tuple, np.argwhere(open_ & finite & finite_bound)):
            value = exact.values[i] if exact is not None else _pair(high[i], low[i])
            accepted[i] = _decide_element(computed[i], fmt, value, float(delta[i]))
        # Only the exact reading proves that an element must be NaN or infinite. A centre is a floating-point result, so
        # an intermediate of it may have overflowed although the formula is finite.
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
    if ball.stray is not None:  # The exact reading forms products of infinities and zeros that are only a means.
        formed = ball.stray & np.isnan(high) & np.isfinite(ball.centre)
        high, low = np.where(formed, ball.centre, high), np.where(formed, 0.0, low)
    offset = np.abs((ball.centre - high) - low)
    # The comparison is "not larger", because a NaN on either side is no contradiction.
    inside = ~(offset > radius * (1 + SLACK))
    if not inside.all():
        worst = np.unravel_index(int(np.argmax(~inside)), inside.shape)
        raise ReadingError(
            f"exact value outside its ball: got |c − y|={float(offset[worst]):.3g} at {worst}, "
            f"need at most r={float(radius[worst]):.3g}"
        )
    # The radius bounds the distance of an evaluation from the centre. δ bounds its distance from y, so the distance
    # between centre and y is added.
    return high, low, _upward(radius + offset)


def _upward(values: Any) -> Any:
    # The factor covers the conversion from a wider centre type and the additions before it, and the smallest number
    # covers the conversion of a subnormal. Without them a bound could be too small, and a correct output would fail.
    return values.astype(np.float64, copy=False) * (1 + 2 * SLACK) + 5e-324


def _inside(computed: Any, fmt: Format, high: Any, low: Any, delta: Any) -> tuple[Any, Any]:
    """The float64 filter: which elements may be in their accept sets, and which of these are undecided.

    Args:
        computed, fmt: the output, and its format. high, low: the exact value y as a pair of numbers.
        delta: the bound on |evaluation − y|.
    """
    # The sum `high + t` rounds once. For binary64 this is the rounding to the output's format, so only t needs slack.
    # For the other formats `round_array` rounds a second time, so the sum needs slack, too.
    slack = (np.abs(low) + delta) * SLACK + 5e-324
    if fmt != BINARY64:
        slack = slack + np.abs(high) * SLACK
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
    """The ends of the accept set around an exact value, rounded to a format, as raw numbers of mpmath."""
    sign, mantissa, exponent, bits = exact
    # A sum of two numbers has as many bits as their exponents differ. So an exact value beyond, or below, the numbers
    # of every format is replaced by a power of two, which gives the same ends.
    if mantissa and abs(exponent + bits) > _FARTHEST:
        exact = (sign, 1, _FARTHEST if exponent > 0 else -_FARTHEST, 1)
    bound = libmp.from_float(delta)
    return round_to(fmt, libmp.mpf_sub(exact, bound)), round_to(fmt, libmp.mpf_add(exact, bound))


def _decide_element(computed: float, fmt: Format, exact: Any, delta: float) -> bool:
    """Whether one element is in its accept set, decided exactly: in mpmath's integers, which are rounded once."""
    out = libmp.from_float(float(computed))
    lower, upper = _limits(fmt, exact, delta)
    return bool(libmp.mpf_le(lower, out) and libmp.mpf_le(out, upper))


def _edges(fmt: Format, decisions: _Decisions, exact: Exact | None, order: int, at: tuple[int, ...]) -> Edges:
    """The accept set of one element.

    Args:
        fmt: of the output. decisions: on its elements. exact: the exact reading, or None.
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
    # The evaluation gives a number within δ of y, which is then rounded to the output by at most half an ulp of that
    # number. The number may be in the next binade above y, where an ulp is twice as large.
    bound = delta + 0.5 * ulp_array(fmt, np.abs(high) + delta)
    plain = judged & ~special & np.isfinite(delta)
    ratio = np.where(plain & np.isfinite(computed), error / bound, np.where(accepted, 0.0, np.inf))
    ratio = np.where(accepted, np.minimum(ratio, 1.0), ratio)  # The quotient is rounded, and that may be above 1.
    ulps = np.where(plain & np.isfinite(computed), error / unit, np.where(accepted, 0.0, np.inf))
    width = np.where(plain, (delta + 0.5 * unit) / unit, np.nan)
    bias = np.where(plain & np.isfinite(computed), signed / bound, 0.0)
    return Measures(ulps, ratio, bias, width, bound)
