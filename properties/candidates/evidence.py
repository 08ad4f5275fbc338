"""What is kept of what was held: for questions asked of it afterwards, and for what a verdict says of itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...oracles.bound.rounding.chance import Evaluations
from .arguments import CallArguments, State, Tensor
from .comparing import Held


@dataclass(frozen=True)
class Evidence:
    """What a candidate computed at inputs where all were finite, for questions that are asked of it afterwards.

    It is kept of some questions alone, because it takes several times the memory of the operands.

    Attributes:
        native: what torch computes of the spec there; None where it is not run by torch.
    """

    question: str
    arguments: CallArguments
    state: State
    names: tuple[str, ...]
    computed: tuple[Tensor, ...]
    held: tuple[Held, ...]
    which: tuple[int, ...]
    native: tuple[Tensor | None, ...]

    def picked(self, readings: Sequence[Any]) -> tuple[Any, ...]:
        """Of what the spec gives and writes, that which was held."""
        return tuple(readings[i] for i in self.which)


@dataclass(frozen=True)
class OutputDigest:
    """What is kept of the outputs at a set of inputs, a word for each output.

    Attributes:
        question, names: which outputs.
        judged, elements: how many elements were judged, of how many.
        missed, reasons: how many were not whose exact value is finite and in range, and why.
        vacuous: whether the bound says little.
        meets: whether its ball has a value in common with that of the first question, in every element; None for the
            first, and where they cannot be compared.
    """

    question: str
    names: tuple[str, ...]
    judged: tuple[int, ...]
    elements: tuple[int, ...]
    missed: tuple[int, ...]
    reasons: tuple[str, ...]
    vacuous: tuple[bool, ...]
    meets: tuple[bool | None, ...]


@dataclass(frozen=True)
class Gradients:
    """What a candidate gave as gradients, as `Evidence`; `drawn` evaluates them with random errors.

    Attributes:
        cotangents: what they were asked for, float64 arrays.
    """

    names: tuple[str, ...]
    computed: tuple[Tensor, ...]
    held: tuple[Held, ...]
    drawn: Callable[[np.random.Generator], Evaluations]
    cotangents: tuple[Any, ...] = ()
