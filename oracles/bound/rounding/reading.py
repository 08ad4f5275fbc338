"""The rounding reading of a formula with all its algorithms."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....reference.algorithms import Inapplicable, algorithms
from ....reference.condition import is_open
from ..contract import Contract
from . import affine, rows
from .applications import note_applications
from .ball import Ball, ball, magnitude_of
from .chance import Evaluations
from .choices import joined, without_relations


def balls(function: Callable[..., Any], values: Any, contract: Contract) -> tuple[Ball, ...]:
    """The rounding reading of a formula, its other algorithms included, at float64 inputs: a ball per element."""
    first = _of_one_algorithm(function, values, contract)
    for other in algorithms(function) if contract.others else ():
        try:
            readings = _of_one_algorithm(other, values, contract)
        except Inapplicable:
            continue
        first = tuple(joined(a, b) for a, b in zip(first, readings, strict=True))
    return tuple(without_relations(each) if isinstance(each, Ball) else each for each in first)


def balls_with_systematic(function: Callable[..., Any], values: Any, contract: Contract) -> tuple[Ball, ...]:
    """`balls` with their `systematic` parts: how much of each radius may be the same error in every sample."""
    readings = balls(function, values, contract)
    without = balls(function, values, replace(contract, systematic=False))
    for whole, rest in zip(readings, without, strict=True):
        with np.errstate(all="ignore"):
            # An evaluation without such errors is within the smaller ball; from there to anywhere in the larger one is
            # at most so far.
            apart = magnitude_of(whole.centre - rest.centre) + whole.radii() - rest.radii()
            # Where affine forms have narrowed the whole alone, all of it may be such errors.
            apart = np.where(rest.radii() > 2.0 * whole.radii(), whole.radii(), apart)
        whole.systematic = np.where(apart > 0, apart, 0.0)
    return readings


def _of_one_algorithm(function: Callable[..., Any], values: Any, contract: Contract) -> tuple[Ball, ...]:
    with np.errstate(all="ignore"):
        plan = _plan_of(function, values, contract)
        if plan is not None:
            return plan.run(values, contract)
        inputs = [balls_of_values(v, contract) for v in values]
        with note_applications(inputs) as notes:
            outputs = function(*inputs)
        read = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
        return affine.narrow(read, function, inputs, contract, notes.steps)


def balls_of_values(values: Any, contract: Contract) -> Any:
    """Balls of floating values; integers and truth values are what they are."""
    return values if _is_counted(values) else ball(values, contract)


def _is_counted(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind in "iub"


def _plan_of(function: Callable[..., Any], values: Any, contract: Contract) -> rows.PrimitiveOrder | None:
    """`_by_rows` of large arrays, for which it is worth its time."""
    is_large = max((np.size(v) for v in values), default=0) >= rows.LARGE
    return _by_rows(function, values, contract) if is_large else None


def _by_rows(function: Callable[..., Any], values: Any, contract: Contract) -> rows.PrimitiveOrder | None:
    """How arrays are read by blocks of rows; None where the formula is not known to treat rows one by one."""
    if any(map(_is_counted, values)):
        return None
    try:
        return rows.PrimitiveOrder(function, [np.shape(v) for v in values], contract)
    except Exception:
        # A formula that shapes alone cannot record is evaluated as a whole, and its mistakes are raised there.
        return None


@dataclass(frozen=True)
class BoundQuestion:
    """A function of arrays, its operands as float64, and what an evaluation of it may do."""

    function: Callable[..., Any]
    operands: list[Any]
    contract: Contract

    def read(self, sharp: bool = False) -> tuple[Any, ...]:
        """The outputs as balls; `sharp`: those that are exact in every order of evaluation without a radius."""
        readings = tuple(balls(self.function, self.operands, self.contract))
        return tuple(map(_sharpest, readings, self._exact())) if sharp else readings

    def read_blocks(self) -> Iterator[tuple[slice, Sequence[Ball]]] | None:
        """The outputs as `read` gives them, for some rows after others; None where they are read as a whole."""
        if self.contract.others and algorithms(self.function):
            return None
        plan = _plan_of(self.function, self.operands, self.contract)
        return None if plan is None else plan.blocks(self.operands, self.contract)

    def perturb(self, draws: np.random.Generator) -> Evaluations:
        """Evaluations with random rounding errors."""
        return Evaluations(self.function, self.operands, self.contract, draws)

    def _exact(self) -> tuple[Any, ...]:
        """The reading that knows which elements are exact in every order of evaluation, whatever the algorithm."""
        centres = [np.asarray(values, dtype=self.contract.centre_type) for values in self.operands]
        readings: tuple[Any, ...] = ()
        for algorithm in (self.function, *algorithms(self.function)):
            with np.errstate(all="ignore"), contextlib.suppress(Inapplicable):
                bounds = tuple(algorithm(*(Ball(c, None, self.contract.on_lattice) for c in centres)))
                readings = tuple(map(_joined, readings, bounds)) if readings else bounds
        return readings


def _joined(a: Any, b: Any) -> Any:
    """What holds both readings, of which only balls can be joined; of others one that leaves nothing known."""
    if isinstance(a, Ball) and isinstance(b, Ball):
        return joined(a, b)
    return a if _is_exact(a) and _is_exact(b) and np.array_equal(a, b) else None


def _is_exact(reading: Any) -> bool:
    """Whether a reading is of numbers without errors, or of integers or truth values of which none is open."""
    if isinstance(reading, Ball):
        return not np.any(reading.radii())
    return isinstance(reading, np.ndarray) and not is_open(reading)


def _sharpest(plain: Any, exact: Any) -> Any:
    """The exact reading of an output if all of it is exact: else an evaluation may have folded constants together."""
    return exact if _is_exact(exact) else plain
