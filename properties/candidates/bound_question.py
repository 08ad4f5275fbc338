"""A function of arrays at some operands, as balls, or as evaluations with random rounding errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...oracles.bound.contract import Contract
from ...oracles.bound.rounding import Ball, balls, joined
from ...oracles.bound.rounding.chance import Evaluations
from ...oracles.judge.holding import Reading
from ...reference.algorithms import Inapplicable, algorithms
from ...reference.condition import Condition


@dataclass(frozen=True)
class BoundQuestion:
    """A function of arrays, its operands as float64, and what an evaluation of it may do."""

    function: Callable[..., Any]
    operands: list[Any]
    contract: Contract

    def read(self, sharp: bool = False) -> tuple[Reading, ...]:
        """The outputs as balls; `sharp`: those that are exact in every order of evaluation without a radius."""
        readings = tuple(balls(self.function, self.operands, self.contract))
        return tuple(map(_sharpest, readings, self._exact())) if sharp else readings

    def perturb(self, draws: np.random.Generator) -> Evaluations:
        """Evaluations with random rounding errors."""
        return Evaluations(self.function, self.operands, self.contract, draws)

    def _exact(self) -> tuple[Reading, ...]:
        """The reading that knows which elements are exact in every order of evaluation, whatever the algorithm."""
        centres = [np.asarray(values, dtype=self.contract.centre_type) for values in self.operands]
        readings: tuple[Reading, ...] = ()
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


def _is_exact(reading: Reading) -> bool:
    """Whether a reading is of numbers without errors, or of integers or truth values of which none is open."""
    if isinstance(reading, Ball):
        return not np.any(reading.radii())
    return isinstance(reading, np.ndarray) and not isinstance(reading, Condition)


def _sharpest(plain: Reading, exact: Reading) -> Reading:
    """The exact reading of an output if all of it is exact: else an evaluation may have folded constants together."""
    return exact if _is_exact(exact) else plain
