"""Whether the errors of an output are as small as those of evaluations with random errors, and have both signs.

The risk: with many roundings the error e and its models (`chance`) are nearly normal. The estimate σ² of its variance
from `RUNS` runs has `RUNS` degrees of freedom, and |e| / σ is at most Student's t with so many. A candidate is suspect
if something less probable than `RISK` happens. Each of three tests has a third of that risk:
- the largest |e_i| / σ_i of N elements exceeds the two-sided quantile of RISK / 3N. The probability that one or more of
  N events happen is at most the sum of their probabilities, whether or not they are independent (Bonferroni);
- the root mean square of |e_i| / σ_i exceeds the quantile of RISK / 12. The mean of variables F with the same tail
  exceeds x with probability at most E max(F - a, 0) / (x - a), for any a < x, whether or not they are independent
  (Markov); for the square of Student's t with 32 degrees, near that quantile, a = 9x/10 makes it less than 4 P(F > x);
- in half types, whose sums are float32, the output is on one side of the exact result rounded to nearest more often
  than the quantile of RISK / 6 allows, for each of two directions: up, and away from zero.

The third test detects what no single element shows: a result that is cut off and not rounded has an error of less than
one ulp, but always of the same sign. The test sums S = Σ w_i (y_i - c_i) / h_i, with y_i the output, c_i the exact
result rounded to nearest, h_i half the width of its accept set, and w_i = 1 or the sign of c_i. A kernel that computes
in float32 and rounds to nearest once has y_i = c_i, except for the few elements next to the middle of two numbers: the
error of this rounding, whose mean need not be 0 (x times 1.001 in bfloat16 is x, and always too small), is in y_i and
in c_i. Intermediates that a contract lets a kernel store are also stored in the random evaluations, which are rounded
to the output's format at the end. So S has their standard deviation divided by √3, because errors of roundings to
nearest are uniform, and those of the model are as large as they may be. The mean error of stores need not be 0 either,
so S is measured from the nearest value between 0 and the S of torch's own evaluation of the spec. By Bernstein's
inequality a sum of independent terms of size at most b that are rarely other than 0 exceeds a multiple of its standard
deviation by up to 2/3 b ln(2/p), with b = 2 here. All elements of a row may have the error of its scale, and rows are
few; so the sums of several calls are added up before they are compared with their standard deviation.

Another formula may measure the elements of a row from one of them: a norm of x - x_0, a sum of exp(x - max) whose
largest element changes during the sum. The gradient of that element has terms of all others, which cancel except for
their errors. This happens where a shift of the elements along some axes does not change the result, or shifts it as
well: the gradient then sums to 0 along these axes, or to the cotangent. There the variance of an element is the sum of
its own and of that of the sum of all errors.

This is a model and no proof. Its results are never mixed with those of the worst case.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

from ....reference.formats import Format, round_array, ulp_array
from .ball import Ball

#: The number of evaluations with random errors.
RUNS = 32
#: The probability that a candidate within the model is called suspect at one output.
RISK = 1e-6
#: The term of Bernstein's inequality in the third test: 2/3 b ln(2/p) with b = 2 and p = RISK / 6.
_RARE = 4 / 3 * math.log(12 / RISK)
#: The largest number of axes along which `_totals` forms sums.
_MOST_AXES = 4


@dataclass(frozen=True)
class Spread:
    """The distances of evaluations with random errors from the centre of an output.

    Attributes:
        sigma: standard deviation of every element, an array. sides: variance of the two sums of the third test.
    """

    sigma: Any
    sides: Any


@dataclass(frozen=True)
class Leaning:
    """The sums S of the third test, up and away from zero, over the elements of one call or several.

    Attributes:
        computed, native: S of an output, and of torch's own output. variance: of S in the model. elements: how many.
    """

    computed: Any
    native: Any
    variance: Any
    elements: int

    def __add__(self, other: Leaning) -> Leaning:
        sums = (getattr(self, name) + getattr(other, name) for name in ("computed", "native", "variance", "elements"))
        return Leaning(*sums)

    @property
    def beyond(self) -> tuple[float, float]:
        """By how much the two means exceed their limits, with their sign; 0 if they do not."""
        nearest = np.clip(self.computed, np.minimum(self.native, 0.0), np.maximum(self.native, 0.0))
        off = self.computed - nearest
        most = quantile(RISK / 6) * np.sqrt(self.variance) + _RARE
        up, away = np.maximum(np.abs(off) - most, 0.0) * np.sign(off) / max(self.elements, 1)
        return float(up), float(away)


@dataclass(frozen=True)
class Likeness:
    """The comparison of an output with evaluations that have random errors.

    Attributes:
        largest, overall: the values of the first two tests, in standard deviations of the model.
        most: the limits of both.
        at: the index of the element with the largest error. elements: the number of compared elements.
    """

    largest: float
    overall: float
    most: tuple[float, float]
    at: tuple[int, ...]
    elements: int

    @property
    def suspect(self) -> bool:
        return self.largest > self.most[0] or self.overall > self.most[1]


def spreads(
    balls: Sequence[Any], formats: Sequence[Any], runs: Iterator[Sequence[Any]], cotangents: Sequence[Any] | None = None
) -> list[Spread | None]:
    """The distances of `RUNS` evaluations with random errors from the centres of outputs.

    Args:
        balls: of the outputs; an output without a ball has another object in its place. formats: of the outputs with
            a ball; None for the others.
        runs: the evaluations; `RUNS` of them are used.
        cotangents: where the outputs are gradients, the cotangents of these; None for other outputs.

    Returns:
        A spread for each ball, and None for an output without one.
    """
    # One evaluation is in memory at a time, because all of them together need more than the rest of a judgement.
    squares: list[Any] = [0.0] * len(balls)
    sides: list[Any] = [np.zeros(2)] * len(balls)
    totals = [{} if cotangents is None or not isinstance(ball, Ball) else _totals(ball, cotangents) for ball in balls]
    sums: list[dict[tuple[int, ...], Any]] = [dict.fromkeys(own, 0.0) for own in totals]
    with np.errstate(all="ignore"):
        for outputs in itertools.islice(runs, RUNS):
            for i, (read, values) in enumerate(zip(balls, outputs, strict=False)):
                if not isinstance(read, Ball):
                    continue
                error = np.asarray(values - read.centre, dtype=np.float64)
                squares[i] = squares[i] + np.square(error) / RUNS
                sides[i] = sides[i] + np.square(_sides(values, formats[i], read)) / (3 * RUNS)
                for axes in sums[i]:
                    sums[i][axes] = sums[i][axes] + np.square(np.sum(error, axes, keepdims=True)) / RUNS
        answers: list[Spread | None] = []
        for i, (read, total, side) in enumerate(zip(balls, squares, sides, strict=True)):
            if not isinstance(read, Ball):
                answers.append(None)
                continue
            for axes, variance in sums[i].items():
                remainder = np.sum(read.centre, axes, keepdims=True) - totals[i][axes]
                if np.all(np.square(remainder) <= variance):
                    total = total + variance
            answers.append(Spread(np.sqrt(total), side))
        return answers


def _totals(ball: Ball, cotangents: Sequence[Any]) -> dict[tuple[int, ...], Any]:
    """The smallest sets of axes over which the sum of a gradient is zero or a cotangent, as far as its bounds say.

    Args:
        ball: of the gradient. cotangents: arrays; one with as many elements as the sum is compared with it.

    Returns:
        Axes -> the exact sum over them, an array with these axes kept.
    """
    totals: dict[tuple[int, ...], Any] = {}
    axes = [i for i, length in enumerate(ball.shape) if length > 1][:_MOST_AXES]
    for count in range(1, len(axes) + 1):
        for subset in itertools.combinations(axes, count):
            total = np.sum(ball.centre, subset, keepdims=True)
            same_size = [np.reshape(each, total.shape) for each in cotangents if np.size(each) == total.size]
            radius = np.sum(ball.radii(), subset, keepdims=True)
            for exact in (np.zeros(total.shape), *same_size):
                if not any(set(smaller) <= set(subset) for smaller in totals) and np.all(
                    np.abs(total - exact) <= radius
                ):
                    totals[subset] = exact
    return totals


def likeness(computed: Any, fmt: Format, ball: Ball, spread: Spread) -> Likeness | None:
    """Compare an output with evaluations that have random errors.

    Args:
        computed: float64 values of the output. fmt: its format. ball: its ball. spread: of the evaluations.

    Returns:
        None if no element has an error in the model.
    """
    centre = np.asarray(ball.centre, dtype=np.float64)
    radius, sigma = np.asarray(ball.radii(), dtype=np.float64), spread.sigma
    with np.errstate(all="ignore"):
        usable = np.isfinite(centre) & np.isfinite(radius) & (radius > 0) & np.isfinite(sigma) & (sigma > 0)
        usable &= np.isfinite(computed)  # An accepted infinity is an overflow of the output's own format.
        if not usable.any():
            return None
        # The model does not include the rounding to the output's own format, so its largest error is subtracted.
        error = np.abs(computed - centre) - 0.5 * ulp_array(fmt, np.abs(centre) + radius)
        error = np.where(usable, np.maximum(error, 0.0), 0.0)
        scores = np.where(usable, error / np.where(usable, sigma, 1.0), 0.0)
    count = int(np.count_nonzero(usable))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(scores)), scores.shape))
    overall = float(np.sqrt(np.sum(np.square(scores)) / count))
    most = (quantile(RISK / 3 / count), quantile(RISK / 12))
    return Likeness(float(scores.max()), overall, most, at, count)


def leaning(computed: Any, fmt: Format, ball: Ball, spread: Spread, native: Any) -> Leaning | None:
    """The sums S of an output; None if the contract's sums are in the output's own format.

    Args:
        computed, fmt, ball, spread: as for `likeness`. native: torch's own output, as float64 values.
    """
    if fmt.precision >= ball.contract.accumulate.precision:
        return None
    with np.errstate(all="ignore"):
        return Leaning(_sides(computed, fmt, ball), _sides(native, fmt, ball), spread.sides, computed.size)


def _sides(values: Any, fmt: Format, ball: Ball) -> Any:
    """The two sums S of the third test; zeros for a format without that test."""
    if fmt.precision >= ball.contract.accumulate.precision:
        return np.zeros(2)
    centre = np.asarray(ball.centre, dtype=np.float64)
    off = (round_array(fmt, values) - round_array(fmt, centre)) / ball.half_widths(fmt)
    off = np.where(np.isfinite(off), off, 0.0)
    return np.asarray([np.sum(off), np.sum(off * np.sign(centre))])


@functools.lru_cache(maxsize=256)
def quantile(risk: float) -> float:
    """The number that Student's |t| with `RUNS` degrees of freedom exceeds with this probability."""
    low, high = 0.0, 1.0e6
    for _ in range(64):
        middle = 0.5 * (low + high)
        beyond = mpmath.betainc(RUNS / 2, 0.5, 0, RUNS / (RUNS + middle**2), regularized=True)
        low, high = (middle, high) if beyond > risk else (low, middle)
    return high
