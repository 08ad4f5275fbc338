"""What a candidate computed where all was finite, kept for what is read of it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...oracles.bound.rounding.chance import Evaluations
from ...oracles.judge.holding import Reading, Standing
from .arguments import CallArguments, State, Tensor

#: Questions whose values are read again when all was asked: under every rung of terms, and with random errors. At
#: FWD:offset and FWD:nearone elements cancel.
OF_ARITHMETIC = ("FWD:given", "FWD:seeds", "FWD:signs", "DATA:bits")
#: Questions at inputs that the user gives or that are like them: all of an output has to be judged there.
OF_DATA = ("FWD:given", "FWD:seeds", "FWD:signs")
OF_LIKELY = ("FWD:given", "FWD:seeds", "FWD:offset", "FWD:nearone")


@dataclass(frozen=True)
class Evidence:
    """What a candidate computed at inputs where all were finite, outputs or gradients, for questions of it afterwards.

    It is kept of some questions alone, because it takes several times the memory of the operands.

    Attributes:
        question: its code. names, computed, standings: of the outputs.
        native: what torch computes of the spec there; None for gradients, and where torch does not run it.
        read: (terms, ...) -> the spec's readings there. draw: evaluates the spec there with random errors.
        which: of what the spec gives and writes, those that were held.
        cotangents: of which the outputs are gradients, float64 arrays; None for other outputs.
        call: arguments and state of which they are the outputs; None for gradients.
    """

    question: str
    names: tuple[str, ...]
    computed: tuple[Tensor, ...]
    standings: tuple[Standing, ...]
    native: tuple[Tensor | None, ...]
    read: Callable[..., Sequence[Reading]]
    draw: Callable[[np.random.Generator], Evaluations]
    which: tuple[int, ...]
    cotangents: tuple[Any, ...] | None = None
    call: tuple[CallArguments, State] | None = None

    def picked(self, readings: Sequence[Any]) -> tuple[Any, ...]:
        """Of what the spec gives and writes, that which was held."""
        return tuple(readings[i] for i in self.which)
