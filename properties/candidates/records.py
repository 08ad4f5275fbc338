"""What a session keeps of what it held: for questions asked afterwards, and for what a verdict says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...oracles.bound.rounding import Ball
from ...oracles.judge.holding import Standing
from .call_history import UnchangedArguments
from .evidence import OF_DATA, Evidence
from .finding import Finding
from .host.calls import BackwardCall
from .judgement import Covered

#: Questions whose outputs say nothing of the spec where they are equal: at special inputs, and at the given ones again.
OF_ITSELF = frozenset(
    {"SPECIAL:zeros", "FWD:small", "CALLS:again", "LAYOUT:strides", "LAYOUT:align", "POISON", "COMP:compiled"}
)


@dataclass(frozen=True)
class OutputDigest:
    """What is kept of the outputs at a set of inputs.

    Attributes:
        question: its code. names, outcomes: of the outputs; the outcomes without balls, which take memory.
        meets: whether an output's ball has a value in common with that of the first question, in every element; None
            for the first, and where they cannot be compared.
    """

    question: str
    names: tuple[str, ...]
    outcomes: tuple[Standing, ...]
    meets: tuple[bool | None, ...]


@dataclass
class RowNotes:
    """Of rows: which axis somebody wants, what is declared of the gradients that they share, the axes (`rows.rows_of`)
    or why there are none, zeros of other signs, and how there are sequences (`ragged.Packing`).
    """

    wanted: str = ""
    shared: Sequence[str] = ()
    axes: Any = None
    signs: int = 0
    packing: Any = None


@dataclass
class Records:
    """What a session keeps of what was held.

    Attributes:
        evidence: of the values and gradients that others read again. digests: of all values that were asked.
        firsts: by output, the ball that later ones are compared with.
        missing_gradients: gradients that the candidate does not give, and may owe, a sentence each.
        lacking: what the spec writes and the candidate does not have, so that it could not be held.
        sampled: positions of outputs that are drawn, of which many calls are distributed as the spec's. Bounds say
            little of those.
        open_gradients: the backward whose gradients depend on draws that outputs leave open, and by operand the widths
            of their accept sets; None for none.
        unchanged: the arguments that had one value in all calls. rows: what is known of rows.
    """

    evidence: list[Evidence] = field(default_factory=list)
    digests: list[OutputDigest] = field(default_factory=list)
    firsts: dict[int, Ball] = field(default_factory=dict)
    missing_gradients: list[str] = field(default_factory=list)
    lacking: set[str] = field(default_factory=set)
    sampled: frozenset[int] = frozenset()
    open_gradients: tuple[BackwardCall, Mapping[int | str, Any]] | None = None
    unchanged: UnchangedArguments = field(default_factory=UnchangedArguments)
    rows: RowNotes = field(default_factory=RowNotes)

    def remember(self, question: str, names: Sequence[str], outcomes: Sequence[Standing]) -> None:
        """Keep a digest of outputs that were held."""
        if question in OF_ITSELF:
            return
        balls = [each.ball if each.judged else None for each in outcomes]
        meets = tuple(balls_meet(self.firsts.get(i), one) for i, one in enumerate(balls))
        for i, one in enumerate(balls):
            if one is not None:
                self.firsts.setdefault(i, one)
        small = tuple(replace(each, ball=None) for each in outcomes)
        self.digests.append(OutputDigest(question, tuple(names), small, meets))

    def coverage(self) -> tuple[Covered, ...]:
        """How much of each output was judged at the given inputs."""
        first = next((each for each in self.digests if each.question == "FWD:given"), None)
        if first is None:
            return ()
        return tuple(
            Covered(n, each.judged, each.elements) for n, each in zip(first.names, first.outcomes, strict=True)
        )

    def weaknesses(self, findings: Sequence[Finding]) -> list[str]:
        """Why what was asked says little."""
        texts = []
        for i, name in enumerate(self.digests[0].names if self.digests else ()):
            rows = [each for each in self.digests if i < len(each.outcomes) and each.outcomes[i].judged]
            if i in self.sampled:
                continue
            if rows and all(each.outcomes[i].vacuous for each in rows):
                texts.append(f"the bound of {name} is wider than half of its elements for all inputs")
            meets = [each.meets[i] for each in rows if each.meets[i] is not None]
            if meets and all(meets):
                values = np.unique(np.asarray(self.firsts[i].centre, dtype=np.float64))
                value = f": {values[0]:.6g}" if values.size == 1 else ""
                texts.append(f"the right value of {name} is the same for all inputs that were tried{value}")
            if not rows:
                texts.append(f"no element of {name} could be judged")
            texts += self._describe_unbounded(i)
        texts += self.missing_gradients
        texts += [f"{name} could not be judged: the candidate has no such tensor" for name in sorted(self.lacking)]
        wrong = any(each.is_wrong for each in findings)
        if not wrong and not sum(each.judged for each in findings):
            texts.append("no value was judged")
        return texts

    def _describe_unbounded(self, i: int) -> list[str]:
        """That elements of an output could not be judged at inputs where all of it should be; a sentence or none."""
        rows = [each for each in self.digests if each.question in OF_DATA and i < len(each.outcomes)]
        rows = [each for each in rows if each.outcomes[i].missed]
        if not rows:
            return []
        first, *others = rows
        also = ", ".join(dict.fromkeys(each.question for each in others if each.question != first.question))
        one = first.outcomes[i]
        return [
            f"{one.missed} of {one.elements} elements of {first.names[i]} could not be judged at {first.question}"
            f"{also and f' (others at {also})'}: {one.reason}"
        ]


def balls_meet(first: Ball | None, other: Ball | None) -> bool | None:
    """Whether two balls have a value in common in every element; None where one is missing, or of another shape."""
    if first is None or other is None or first.shape != other.shape:
        return None
    with np.errstate(all="ignore"):
        return bool(np.all(np.abs(first.centre - other.centre) <= first.radii() + other.radii()))
