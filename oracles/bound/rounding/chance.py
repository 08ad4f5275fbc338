"""How far rounding errors are likely to bring a result: evaluations with random errors, beside the worst case.

What this is for: where a graph is deep, or a sum long, all errors of the worst case point the same way, and its bound
says little of an evaluation whose errors do not. Here every primitive adds the radius that its own roundings have in
`rules.py`, with random signs, to what the values have become so far: no radius travels, and errors cancel as they may.
`likeness` says how far from the centre such evaluations are, and how far a candidate is.

A candidate need not compute what the spec writes: exp(x - lse) is a softmax, and a variance may be that of x - x_0. Its
roundings are others, and they are of the size of what it rounds. So the model is that of all rewritings together:
- A term, and the argument of a function, has been rounded once on its way there, by u of its own size: x - max may
  have been x - lse, in which max and lse, which are larger than the difference, were rounded.
- Errors are shared, or are not: a sign is drawn for every element, or one for all along an axis, by chance for each
  axis. The error of an lse is in all of its row, and a function may lean to one side. What is stored in a half type is
  rounded to nearest there, and each element has an error of its own.
- A value that is used twice does not have the same error twice. E / ΣE has none of E's errors where one term is all of
  the sum; but a rewriting that computes E in another way for the sum has. So each use takes the error with its sign or
  with the other one. That keeps how large it is, and what errors have in common within one use, and forgets what only
  the spec's text makes cancel.

The error of an element is Σ_j J_j d_j with |d_j| <= r_j, but for products of two errors, and its variance is at most
s² = Σ_j J_j² r_j², where a sign that is shared counts with the sum of its J_j. A sum of n terms has n roundings of at
most u Σ|x_i| each, so the squares of those add up to n (u Σ|x_i|)²: a factor of √n below the radius n u Σ|x_i|.

This is a model and no proof: a long sum of equal terms, all of whose roundings go one way, is outside of it, for one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....reference.algorithms import Inapplicable, algorithms
from ....reference.array import Array, Operands, Params
from ....reference.formats import FORMATS
from ..contract import CPU_FUNCTIONS, Contract
from .ball import RULES, Ball, ball, magnitude_of
from .rows import is_plain
from .rules import ways_of

#: Primitives whose operands another formula may have rounded at a size that the result does not show.
_OF_ROUNDED_TERMS = frozenset({"add", "subtract", "logaddexp", "float_power"}) | CPU_FUNCTIONS.keys()
#: What a primitive costs beside its elements, counted in elements.
_OF_ITSELF = 2**11
#: Arrays of so many elements are compared by their bytes.
_FEW = 2**12


@dataclass
class Known:
    """What all evaluations of one formula share.

    Attributes:
        contract: of the evaluations. draws: what errors are drawn from.
        still: what primitives make of values without errors, with the radius that they add to it, by what they are
            called with; and a number for each that names it.
        work: elements that primitives have computed so far, and `_OF_ITSELF` more for each of them.
    """

    contract: Contract
    draws: np.random.Generator
    still: dict[Any, tuple[int, Ball]] = field(default_factory=dict)
    work: int = 0

    def of(self, key: Any, make: Callable[[], Ball]) -> tuple[int | None, Ball]:
        """A name, and what is made once for it; a key that is None has no name, and is made anew."""
        if key is None:
            return None, make()
        if key not in self.still:
            self.still[key] = (len(self.still), make())
        return self.still[key]


class Chance(Array):
    """Values of an evaluation with random errors.

    Attributes:
        values: the evaluation's. still: the same without any error, and the same array where none has moved it.
        name: of `still`; None where it cannot be named.
    """

    __slots__ = ("known", "name", "still", "values")
    is_repeatable = False

    def __init__(self, values: Any, still: Any, known: Known, name: int | None) -> None:
        self.values, self.still, self.known, self.name = values, still, known, name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape  # type: ignore[no-any-return]

    def base(self) -> Array:
        return self

    def comparable(self) -> Any:
        return self.values

    def lift(self, value: Any) -> Chance:
        known = self.known
        key = _key(value)
        none = ball(np.zeros(()), known.contract)
        name, read = known.of(None if key is None else ("constant", key), lambda: none.lift(value))
        return Chance(_perturb(read.centre, read.radius, known.draws), read.centre, known, name)

    def may_store(self, dtype: str) -> bool:
        return dtype in FORMATS and self.known.contract.may_store(FORMATS[dtype])

    def apply(self, primitive: str, operands: Operands, params: Params) -> Chance:
        if primitive == "among":
            return self._one_of(operands, params["ways"])
        known = self.known
        read = [x if isinstance(x, Chance) else self.lift(x) for x in operands]

        def still() -> Ball:
            given = [Ball(x.still, _rounding(primitive, x.still, known.contract), known.contract) for x in read]
            found = RULES[primitive](known.contract, *given, **params)
            if found.radius is None:
                return Ball(found.centre, None, known.contract)
            share = math.sqrt(_roundings(primitive, given, found, known.contract))
            return Ball(found.centre, found.radius / share, known.contract)

        name, found = known.of(_call(primitive, read, params), still)
        values = found.centre
        if any(x.values is not x.still for x in read):
            values = RULES[primitive](
                known.contract, *(Ball(x._used(), None, known.contract) for x in read), **params
            ).centre
        known.work += _OF_ITSELF + max(int(np.size(values)), *(int(np.size(x.values)) for x in read))
        moved = _perturb(values, found.radius, known.draws, shared=primitive != "store")
        return Chance(moved, found.centre, known, name)

    def _used(self) -> Any:
        """The values for one use: their errors as they are, or with the other sign."""
        if self.values is self.still or self.known.draws.random() < 0.5:
            return self.values
        other = 2.0 * self.still - self.values
        return np.where(np.isfinite(other), other, self.values)

    def _one_of(self, operands: Operands, ways: Sequence[Any]) -> Chance:
        """What one of the ways gives that the contract allows, drawn for this evaluation."""
        allowed = ways_of(ways, self.known.contract)
        way = allowed[int(self.known.draws.integers(len(allowed)))]
        read = [x if isinstance(x, Chance) else self.lift(x) for x in operands]
        try:
            found: Chance = way.formula(*read)
        except Inapplicable:
            found = ways[0].formula(*read)
        return found


def _perturb(values: Any, radius: Any, draws: np.random.Generator, *, shared: bool = True) -> Any:
    """Values and their errors: the radii, with signs that may be shared along axes, or are not."""
    if radius is None:
        return values
    shape = np.shape(values)
    signs = draws.random(tuple(np.where(draws.random(len(shape)) < 0.5, 1, shape)) if shared else shape)
    signs -= 0.5
    return values + np.copysign(np.where(np.isfinite(radius), radius, 0.0), signs)


def _rounding(primitive: str, values: Any, contract: Contract) -> Any:
    """By how much an operand may have been rounded on its way to a primitive; None for nothing."""
    return magnitude_of(values) * contract.roundoff if primitive in _OF_ROUNDED_TERMS else None


def _call(primitive: str, operands: Sequence[Chance], params: Params) -> Any:
    """What a primitive is called with, if that can be compared; else None."""
    names = [x.name for x in operands]
    keys = [(name, _key(value)) for name, value in params.items()]
    return None if None in names or any(key is None for _, key in keys) else (primitive, *names, *keys)


def _key(value: Any) -> Any:
    """A value by which it is compared; None for what cannot be."""
    if isinstance(value, np.ndarray):
        few = value.size <= _FEW and value.dtype.kind != "O"
        return (type(value).__name__, value.shape, value.dtype.str, value.tobytes()) if few else None
    if isinstance(value, (tuple, list)):
        keys = tuple(map(_key, value))
        return None if None in keys else (type(value).__name__, keys)
    return (type(value).__name__, repr(value)) if is_plain(value) else None


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


class Evaluations:
    """Evaluations of a formula and its algorithms with random errors, without end: an array for each output."""

    def __init__(
        self, function: Callable[..., Any], values: Sequence[Any], contract: Contract, draws: np.random.Generator
    ) -> None:
        """
        Args:
            function: of arrays of a reading. values: of its arguments. contract, draws: of the errors.
        """
        self._arrays = [np.asarray(v, dtype=contract.centre_type) for v in values]
        self._function, self._ways = function, [function, *algorithms(function)]
        self._known = Known(contract, draws)
        self._names = [
            self._known.of(("input", i), functools.partial(Ball, array, None, contract))[0]
            for i, array in enumerate(self._arrays)
        ]

    @property
    def work(self) -> int:
        """What all evaluations so far have cost: a count, and so the same on every machine."""
        return self._known.work

    def __iter__(self) -> Evaluations:
        return self

    def __next__(self) -> tuple[Any, ...]:
        for way in (self._ways[int(self._known.draws.integers(len(self._ways)))], self._function):
            given = (
                Chance(array, array, self._known, name) for array, name in zip(self._arrays, self._names, strict=True)
            )
            try:
                with np.errstate(all="ignore"):
                    outputs = way(*given)
                break
            except Inapplicable:
                continue
        leaves = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        return tuple(leaf.values if isinstance(leaf, Chance) else leaf for leaf in leaves)
