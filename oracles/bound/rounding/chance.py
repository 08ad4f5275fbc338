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
from .applications import is_plain
from .ball import RULES, Ball, ball, centre_of, magnitude_of
from .choices import ways_of

#: Primitives whose operands another formula may have rounded at a size that the result does not show.
_OF_ROUNDED_TERMS = frozenset({"add", "subtract", "logaddexp", "float_power"}) | CPU_FUNCTIONS.keys()
#: The fixed cost of calling a primitive, counted in elements.
_OF_ITSELF = 2**11
#: Arrays of at most this many elements are compared by their bytes; larger ones are never equal.
_FEW = 2**12


@dataclass
class Workspace:
    """The state that all evaluations of one formula share.

    Attributes:
        contract: of the evaluations. draws: the generator of errors.
        still: the results of primitives at values without errors, by the key of the call: a number, which names the
            result, and a ball, whose radius is the error that the primitive adds.
        work: the number of elements that primitives have computed so far, and `_OF_ITSELF` more for each primitive.
    """

    contract: Contract
    draws: np.random.Generator
    still: dict[Any, tuple[int, Ball]] = field(default_factory=dict)
    work: int = 0

    def of(self, key: Any, make: Callable[[], Ball]) -> tuple[int | None, Ball]:
        """The name and the result of a key, made at its first use; without a key, no name and a new result."""
        if key is None:
            return None, make()
        if key not in self.still:
            self.still[key] = (len(self.still), make())
        return self.still[key]


class Chance(Array):
    """Values of an evaluation with random errors.

    Attributes:
        values: the evaluation's. still: the values without any error; the same array where no error has moved them.
        name: of `still`; None where its operation has no key (`_call`).
    """

    __slots__ = ("name", "still", "values", "workspace")
    is_repeatable = False

    def __init__(self, values: Any, still: Any, workspace: Workspace, name: int | None) -> None:
        self.values, self.still, self.workspace, self.name = values, still, workspace, name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape  # type: ignore[no-any-return]

    @property
    def contract(self) -> Contract:
        """The contract of the evaluation."""
        return self.workspace.contract

    def comparable(self) -> Any:
        return self.values

    def lift(self, value: Any) -> Chance:
        workspace = self.workspace
        key = _key(value)
        none = ball(np.zeros(()), workspace.contract)
        name, read = workspace.of(None if key is None else ("constant", key), lambda: none.lift(value))
        return Chance(_perturb(read.centre, read.radius, workspace.draws), read.centre, workspace, name)

    def may_store(self, dtype: str) -> bool:
        return dtype in FORMATS and self.workspace.contract.may_store(FORMATS[dtype])

    def apply(self, primitive: str, operands: Operands, params: Params) -> Chance:
        if primitive == "among":
            return self._one_of(operands, params["ways"])
        workspace, contract = self.workspace, self.workspace.contract
        chances = [x if isinstance(x, Chance) else self.lift(x) for x in operands]

        def make_still() -> Ball:
            still_operands = [Ball(x.still, _rounding(primitive, x.still, contract), contract) for x in chances]
            out = RULES[primitive](contract, *still_operands, **params)
            if out.radius is None:
                return Ball(out.centre, None, contract)
            share = math.sqrt(_roundings(primitive, still_operands, out, params, contract))
            return Ball(out.centre, out.radius / share, contract)

        name, still_ball = workspace.of(_call(primitive, chances, params), make_still)
        values = still_ball.centre
        if any(x.values is not x.still for x in chances):
            values = centre_of(primitive, params, contract, *(x._with_random_sign() for x in chances))
        workspace.work += _OF_ITSELF + max(int(np.size(values)), *(int(np.size(x.values)) for x in chances))
        moved = _perturb(values, still_ball.radius, workspace.draws, shared=primitive != "store")
        return Chance(moved, still_ball.centre, workspace, name)

    def _with_random_sign(self) -> Any:
        """The values for one use: their errors as they are, or with the other sign."""
        if self.values is self.still or self.workspace.draws.random() < 0.5:
            return self.values
        other = 2.0 * self.still - self.values
        return np.where(np.isfinite(other), other, self.values)

    def _one_of(self, operands: Operands, ways: Sequence[Any]) -> Chance:
        """The result of one of the ways that the contract allows, drawn for this evaluation."""
        allowed = ways_of(ways, self.workspace.contract)
        way = allowed[int(self.workspace.draws.integers(len(allowed)))]
        chances = [x if isinstance(x, Chance) else self.lift(x) for x in operands]
        try:
            out: Chance = way.formula(*chances)
        except Inapplicable:
            out = ways[0].formula(*chances)
        return out


def _perturb(values: Any, radius: Any, draws: np.random.Generator, *, shared: bool = True) -> Any:
    """Values and their errors: the radii, with signs that may be shared along axes, or are not."""
    if radius is None:
        return values
    shape = np.shape(values)
    signs = draws.random(tuple(np.where(draws.random(len(shape)) < 0.5, 1, shape)) if shared else shape)
    signs -= 0.5
    return values + np.copysign(np.where(np.isfinite(radius), radius, 0.0), signs)


def _rounding(primitive: str, values: Any, contract: Contract) -> Any:
    """The error that an operand may have from a rounding on its way to a primitive; None for no error."""
    return magnitude_of(values) * contract.roundoff if primitive in _OF_ROUNDED_TERMS else None


def _call(primitive: str, operands: Sequence[Chance], params: Params) -> Any:
    """The key of a primitive's call: its name, operands and parameters; None where one of these cannot be compared."""
    names = [x.name for x in operands]
    keys = [(name, _key(value)) for name, value in params.items()]
    return None if None in names or any(key is None for _, key in keys) else (primitive, *names, *keys)


def _key(value: Any) -> Any:
    """The key by which a value is compared; None where it has none."""
    if isinstance(value, np.ndarray):
        few = value.size <= _FEW and value.dtype.kind != "O"
        return (type(value).__name__, value.shape, value.dtype.str, value.tobytes()) if few else None
    if isinstance(value, (tuple, list)):
        keys = tuple(map(_key, value))
        return None if None in keys else (type(value).__name__, keys)
    return (type(value).__name__, repr(value)) if is_plain(value) else None


def _roundings(primitive: str, operands: Sequence[Ball], out: Ball, params: Params, contract: Contract) -> int:
    """The number of roundings of equal size that add up to the radius of a primitive's result.

    Args:
        primitive, params: which one. operands, out: its balls. contract: of the evaluation.
    """
    if primitive == "sum":
        return max(contract.tree.height(int(operands[0].centre.size) // max(int(out.centre.size), 1)), 1)
    products = contract.products
    if products.factors or products.partials is not None or products.accumulators is not None or products.sums != 1.0:
        return 1  # The error of a factor, of an accumulator, or of a cut is no rounding of the sum.
    if primitive == "matmul":
        return contract.tree.height(int(operands[0].shape[-1])) + 1
    if primitive == "fourier":
        return max(int(math.prod(out.shape[axis] for axis in params["axes"])), 1)
    if primitive == "correlate":
        return contract.tree.height(math.prod(operands[1].shape[2:])) + 1
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
        self._workspace = Workspace(contract, draws)
        self._names = [
            self._workspace.of(("input", i), functools.partial(Ball, array, None, contract))[0]
            for i, array in enumerate(self._arrays)
        ]

    @property
    def work(self) -> int:
        """The cost of all evaluations so far, as a count that is the same on every machine (`Workspace.work`)."""
        return self._workspace.work

    def __iter__(self) -> Evaluations:
        return self

    def __next__(self) -> tuple[Any, ...]:
        for way in (self._ways[int(self._workspace.draws.integers(len(self._ways)))], self._function):
            inputs = (
                Chance(array, array, self._workspace, name)
                for array, name in zip(self._arrays, self._names, strict=True)
            )
            try:
                with np.errstate(all="ignore"):
                    outputs = way(*inputs)
                break
            except Inapplicable:
                continue
        leaves = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        return tuple(leaf.values if isinstance(leaf, Chance) else leaf for leaf in leaves)
