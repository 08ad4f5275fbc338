"""How far rounding errors are likely to bring a result: evaluations with random errors, beside the worst case.

What this is for: where a graph is deep, or a sum long, all errors of the worst case point the same way, and its bound
says little of an evaluation whose errors do not. Here every primitive adds the radius that its own roundings have in
`rules.py`, with a random sign, to what the values have become so far: no radius travels, and errors cancel as they may.

The model: the errors of the roundings are independent and lean to no side. Then the error of an element is, but for
products of two errors, Σ_j J_j d_j with |d_j| <= r_j, and its variance is at most s² = Σ_j J_j² r_j², which is exactly
the variance of what the random signs give. A sum of n terms has n roundings of at most u Σ|x_i| each, so the squares of
those add up to n (u Σ|x_i|)²: a factor of √n below the radius n u Σ|x_i|.

How sure: with many roundings the error e and its models are nearly normal. Of `RUNS` runs the estimate σ² of s² has as
many degrees of freedom, and |e| / σ is at most Student's t with so many. A candidate is suspect beyond what is less
likely than `RISK`, half of which is each of two tests':
- the largest |e_i| / σ_i of N elements, beyond the quantile of RISK / 2N on both sides, for the chance that one of N
  events happens is at most the sum of their chances (Bonferroni), whatever they have to do with each other;
- the root mean square of |e_i| / σ_i, beyond the quantile of RISK / 8. The mean of variables F with one tail exceeds x
  with probability E max(F - a, 0) / (x - a) at most, for any a < x and whatever they have to do with each other
  (Markov); for the square of Student's t with 32 degrees, near that quantile, a = 9x/10 makes it less than 4 P(F > x).

This is a model and no proof: a library function whose errors lean to one side is outside of it, and so is a long sum of
equal terms. What it says is never mixed with what the worst case says.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

from ...reference.algorithms import Inapplicable, algorithms
from ...reference.array import Array, Operands, Params
from ...reference.formats import Format, ulp_array
from ..contract import Contract
from .ball import RULES, Ball, ball
from .rows import is_plain

#: Evaluations with random errors.
RUNS = 32
#: How likely a candidate within the model is called suspect at one output.
RISK = 1e-6


class Chance(Array):
    """Values of an evaluation with random errors; what they are drawn from.

    Attributes:
        name: of values that no error has moved yet, which are those of every evaluation; None for others.
        known: what primitives make of such values, by what they are called with. All evaluations share it: the products
            of matrices that a spec begins with are computed once.
    """

    __slots__ = ("contract", "draws", "known", "name", "values")

    def __init__(
        self, values: Any, contract: Contract, draws: np.random.Generator, known: dict[Any, Ball], name: Any = None
    ) -> None:
        self.values, self.contract, self.draws = values, contract, draws
        self.known, self.name = known, name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape  # type: ignore[no-any-return]

    def base(self) -> Array:
        return self

    def comparable(self) -> Any:
        return self.values

    def lift(self, value: Any) -> Chance:
        read = ball(np.zeros(()), self.contract).lift(value)
        return Chance(self._moved(read.centre, read.radius), self.contract, self.draws, self.known)

    def apply(self, primitive: str, operands: Operands, params: Params) -> Chance:
        if primitive == "among":
            return self._one_of(operands, params["ways"])
        name = _name_of(primitive, operands, params)
        found = None if name is None else self.known.get(name)
        if found is None:
            read = [x if isinstance(x, Chance) else self.lift(x) for x in operands]
            given = [Ball(x.values, None, self.contract) for x in read]
            found = RULES[primitive](self.contract, *given, **params)
            if found.radius is not None:
                share = math.sqrt(_roundings(primitive, given, found, self.contract))
                found = Ball(found.centre, found.radius / share, self.contract)
            if name is not None:
                self.known[name] = found
        moved = self._moved(found.centre, found.radius)
        return Chance(moved, self.contract, self.draws, self.known, name if found.radius is None else None)

    def _one_of(self, operands: Operands, ways: Sequence[Any]) -> Chance:
        """What one of the ways gives that the contract allows, drawn for this evaluation."""
        allowed = [way for way in ways[1:] if not way.name or way.name in self.contract.algorithms]
        way = ([ways[0], *allowed])[int(self.draws.integers(1 + len(allowed)))]
        read = [x if isinstance(x, Chance) else self.lift(x) for x in operands]
        try:
            found: Chance = way.formula(*read)
        except Inapplicable:
            found = ways[0].formula(*read)
        return found

    def _moved(self, values: Any, radius: Any) -> Any:
        if radius is None:
            return values
        signs = self.draws.random(np.shape(values))
        signs -= 0.5
        moved = np.copysign(np.where(np.isfinite(radius), radius, 0.0), signs)
        # New memory costs as much as the sum does, so the sum takes the place of what it adds, where it fits there.
        if isinstance(moved, np.ndarray) and np.result_type(moved, values) == moved.dtype:
            moved += values
            return moved
        return values + moved


def _name_of(primitive: str, operands: Operands, params: Params) -> Any:
    """What a primitive is called with, if no error has moved that and it can be compared; else None."""
    names = [x.name if isinstance(x, Chance) else None for x in operands]
    if None in names or not all(map(is_plain, params.values())):
        return None
    return (primitive, *names, repr(params))


def _roundings(primitive: str, given: Sequence[Ball], found: Ball, contract: Contract) -> int:
    """How many roundings of one size a radius is the sum of."""
    if primitive == "sum":
        return max(int(given[0].centre.size) // max(int(found.centre.size), 1) - 1, 1)
    if contract.factors or contract.partials is not None:
        return 1  # The error of a factor is no rounding of the sum.
    if primitive == "matmul":
        return max(int(given[0].shape[-1]), 1)
    if primitive == "correlate":
        return max(math.prod(given[1].shape[2:]), 1)
    return 1


def evaluations(
    function: Callable[..., Any], values: Sequence[Any], contract: Contract, draws: np.random.Generator
) -> Iterator[tuple[Any, ...]]:
    """Evaluations of a formula and its algorithms with random errors, without end: an array for each output."""
    arrays = [np.asarray(v, dtype=contract.centre_type) for v in values]
    ways = [function, *algorithms(function)]
    known: dict[Any, Ball] = {}
    while True:
        for way in (ways[int(draws.integers(len(ways)))], function):
            given = (Chance(array, contract, draws, known, f"input {i}") for i, array in enumerate(arrays))
            try:
                with np.errstate(all="ignore"):
                    outputs = way(*given)
                break
            except Inapplicable:
                continue
        leaves = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        yield tuple(leaf.values if isinstance(leaf, Chance) else leaf for leaf in leaves)


@dataclass(frozen=True)
class Likeness:
    """Where an output stands among evaluations with random errors.

    Attributes:
        largest, overall: of the two tests, in standard deviations of the model. most: beyond which each is suspect.
        at: the element whose error is the largest. elements: that were looked at.
    """

    largest: float
    overall: float
    most: tuple[float, float]
    at: tuple[int, ...]
    elements: int

    @property
    def suspect(self) -> bool:
        return self.largest > self.most[0] or self.overall > self.most[1]


def spreads(balls: Sequence[Any], runs: Iterator[Sequence[Any]]) -> list[Any]:
    """Standard deviations of outputs from their centres, over `RUNS` evaluations with random errors.

    Args:
        balls: of the outputs, or what is none. runs: the evaluations; no more are taken than are needed.

    Returns:
        An array for each ball, and None for what is none.
    """
    # One evaluation at a time, because all of them take more memory than everything else that is judged.
    squares: list[Any] = [0.0 if isinstance(read, Ball) else None for read in balls]
    with np.errstate(all="ignore"):
        for outputs in itertools.islice(runs, RUNS):
            for i, (read, values) in enumerate(zip(balls, outputs, strict=False)):
                if isinstance(read, Ball):
                    squares[i] = squares[i] + np.square(np.asarray(values - read.centre, dtype=np.float64))
        return [None if total is None else np.sqrt(total / RUNS) for total in squares]


def likeness(computed: Any, fmt: Format, read: Ball, sigma: Any) -> Likeness | None:
    """Hold an output against evaluations with random errors.

    Args:
        computed: float64 values of the output, in a format. read: its ball. sigma: its `spreads`.

    Returns:
        None where no element has an error that the model knows.
    """
    centre = np.asarray(read.centre, dtype=np.float64)
    radius = np.asarray(read.radii(), dtype=np.float64)
    with np.errstate(all="ignore"):
        known = np.isfinite(centre) & np.isfinite(radius) & (radius > 0) & np.isfinite(sigma) & (sigma > 0)
        if not known.any():
            return None
        # The rounding to the output's own format is no error of the model's: it is taken off, at its most.
        error = np.abs(computed - centre) - 0.5 * ulp_array(fmt, np.abs(centre) + radius)
        error = np.where(known, np.maximum(error, 0.0), 0.0)
        scores = np.where(known, error / np.where(known, sigma, 1.0), 0.0)
    count = int(np.count_nonzero(known))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(scores)), scores.shape))
    overall = float(np.sqrt(np.sum(np.square(scores)) / count))
    most = (quantile(RISK / 2 / count), quantile(RISK / 8))
    return Likeness(float(scores.max()), overall, most, at, count)


@functools.lru_cache(maxsize=256)
def quantile(risk: float) -> float:
    """What Student's |t| with `RUNS` degrees of freedom exceeds with this probability."""
    low, high = 0.0, 1.0e6
    for _ in range(64):
        middle = 0.5 * (low + high)
        beyond = mpmath.betainc(RUNS / 2, 0.5, 0, RUNS / (RUNS + middle**2), regularized=True)
        low, high = (middle, high) if beyond > risk else (low, middle)
    return high
