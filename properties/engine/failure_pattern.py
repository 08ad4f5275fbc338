"""What the failing samples of a cell have in common that those which passed lack.

What this is for: a user who reads "all 4 failing kinds of samples: weight=None; none of the 31 passing ones" knows
where to look, before a number has been read.

What is hard here: few samples have much in common by chance. So every sample counts that was judged, also those that
were tried while the first failure was made simpler; one fact that tells all of them apart is preferred to a pair.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable

import hypothesis
import torch
from hypothesis import strategies as st

from ...oracles.judge.tally import regimes_of
from ...oracles.op.declaration import Draft, Op, Sample, dtype_name
from ...oracles.verdicts.violation import Violation, same_failure
from ..declaring import strategies
from ..declaring.kinds import DeclarationError
from .limits import limits_of, processor_seconds

#: With fewer kinds of samples that passed, so many further samples at most are judged after a failure, for so many
#: seconds of the processor.
ENOUGH, FURTHER, SECONDS = 6, 20, 5.0
#: Another failure is told beside the simplest one if it is so many times as far beyond its bound.
MUCH_WORSE = 4.0
#: Facts that are told, and characters of one: the value of an argument may be a long text.
MOST, LONGEST = 3, 60

Facts = frozenset[str]
#: A sample that was judged, and what it broke, if anything.
Answer = tuple[Sample, Violation | None]
Ask = Callable[[Draft, int], Answer | None]


def facts_of(op: Op, sample: Sample, draft: Draft | None = None) -> Facts:
    """What can be said of a sample in a few words: of each argument, of the regime, and of the long axes."""
    found = [f"regime {name}" for name in regimes_of(sample.regime)]
    for i, value in enumerate(sample.args):
        found += _of_argument(op.label(i), value)
    for name, extent in () if draft is None else draft.extents.items():
        found.append(f"{name} > 1" if extent > 1 else f"{name} = {extent}")
    return frozenset(found)


def shapes_of(op: Op, sample: Sample) -> str:
    """The shapes of a sample's tensors, by name."""
    tensors = [(op.label(i), tuple(a.shape)) for i, a in enumerate(sample.args) if isinstance(a, torch.Tensor)]
    return ", ".join(f"{name} {shape}" for name, shape in tensors[:MOST])


def _of_argument(name: str, value: object) -> Iterable[str]:
    if isinstance(value, torch.Tensor):
        yield f"{name} given"
        yield f"{name} of dtype {dtype_name(value.dtype)}"
        yield f"{name} of {value.ndim} dims"
        if not value.numel():
            yield f"{name} without elements"
        return
    text = str(value).removeprefix("torch.")
    if len(text) <= LONGEST:
        yield f"{name}={text}"


class Contrast:
    """The samples of a cell, those that failed and those that passed; samples of equal facts are of one kind."""

    def __init__(self) -> None:
        self._seen: list[tuple[Facts, Violation | None]] = []
        self._shapes: dict[int, str] = {}

    def note(self, facts: Facts, violation: Violation | None, shapes: str = "") -> None:
        """A sample was judged: what is so of it, what it broke, if anything, and its shapes in words."""
        self._seen.append((facts, violation))
        if violation is not None:
            self._shapes[id(violation)] = shapes

    def worst_beside(self, told: Violation | None) -> str:
        """The worst of the failures like the one that is told, if it is much worse: that one is the simplest."""
        if told is None or told.worst is None or not math.isfinite(told.worst.ratio):
            return ""
        alike = [v for _, v in self._seen if v is not None and v.worst is not None and same_failure(told, v)]
        worst = max(alike, key=lambda v: 0.0 if v.worst is None else v.worst.ratio, default=told)
        if worst.worst is None or worst.worst.ratio < MUCH_WORSE * told.worst.ratio:
            return ""
        at = f"{worst.worst.where} of {self._shapes.get(id(worst), '')}"
        return f"elsewhere {worst.worst.ratio:.4g} times its bound at {at}; the case is a simpler one"

    @property
    def needs_more(self) -> bool:
        """Whether too few kinds of samples passed to tell anything: the first samples may all have failed."""
        return len({facts for facts, violation in self._seen if violation is None}) < ENOUGH

    def extend(self, op: Op, drafts: st.SearchStrategy[Draft], ask: Ask, seed: int, most: int) -> None:
        """Judge further samples for the contrast alone.

        Args:
            op: whose samples they are. drafts: of the samples.
            ask: (draft, seed of its data) -> the sample, and what it broke, if anything; or None where nothing
                of it could be judged. seed: of the drafts. most: how many.
        """
        until = processor_seconds() + SECONDS

        def one(draft: Draft, data: int) -> None:
            if processor_seconds() < until:
                answer = ask(draft, data)
                if answer is not None:
                    sample, violation = answer
                    self.note(facts_of(op, sample, draft), violation, shapes_of(op, sample))

        limits = limits_of(min(most, FURTHER), steered=False, shrunk=False)
        # Whatever else these samples would tell, that the question is not asked of one, say, the cell has its verdict.
        with contextlib.suppress(Exception, DeclarationError):
            hypothesis.seed(seed)(limits(hypothesis.given(drafts, strategies.seeds())(one)))()

    def told(self) -> str:
        """What is so of every sample that failed as the first did, and of none that passed; empty where nothing is."""
        first = next((violation for _, violation in self._seen if violation is not None), None)
        passed = {facts for facts, violation in self._seen if violation is None}
        if first is None or not passed:
            return ""
        telling, failed = self.telling(first)
        if not telling:
            return ""
        said = "; ".join(" and ".join(facts) for facts in telling)
        failing = "the one failing kind" if failed == 1 else f"all {failed} failing kinds"
        passing = "the passing one lacks it" if len(passed) == 1 else f"none of the {len(passed)} passing ones"
        return f"in common {failing} of samples: {said}; {passing}"

    def telling(self, first: Violation) -> tuple[list[tuple[str, ...]], int]:
        """Facts, or pairs of them, of all samples that failed as one did and of none that passed; and how many kinds.

        Nothing is telling where no sample passed.
        """
        passed = {facts for facts, violation in self._seen if violation is None}
        failed = {facts for facts, violation in self._seen if violation is not None and same_failure(first, violation)}
        if not passed or not failed:
            return [], len(failed)
        shared = sorted(frozenset.intersection(*failed))
        telling: list[tuple[str, ...]] = [(fact,) for fact in shared if not any(fact in facts for facts in passed)]
        if not telling:
            pairs: Iterable[tuple[str, ...]] = itertools.combinations(shared, 2)
            telling = [pair for pair in pairs if not any(facts.issuperset(pair) for facts in passed)][:1]
        return telling[:MOST], len(failed)
