"""Facts that all failing samples of a cell have in common and that no passing sample has.

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
from .limits import limits_of, processor_seconds, without_source_numbers

#: If fewer kinds of samples than ENOUGH passed, FURTHER samples at most are judged after a failure, for at most SECONDS
#: of processor time.
ENOUGH, FURTHER, SECONDS = 6, 20, 5.0
#: Another failure is reported beside the simplest one if it is at least this many times as far beyond its bound.
MUCH_WORSE = 4.0
#: The most facts that are reported, and the most characters of one: the value of an argument may be a long text.
MOST, LONGEST = 3, 60

Facts = frozenset[str]
#: A judged sample, and the promise that it broke, if any.
Answer = tuple[Sample, Violation | None]
Ask = Callable[[Draft, int], Answer | None]


def facts_of(op: Op, sample: Sample, draft: Draft | None = None) -> Facts:
    """What can be said of a sample in a few words: of the regime, of each argument, and of each axis of the draft."""
    facts = [f"regime {name}" for name in regimes_of(sample.regime)]
    for i, value in enumerate(sample.args):
        facts += _of_argument(op.label(i), value)
    for name, extent in () if draft is None else draft.extents.items():
        facts.append(f"{name} > 1" if extent > 1 else f"{name} = {extent}")
    return frozenset(facts)


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
        self._samples: list[tuple[Facts, Violation | None]] = []
        self._shapes: dict[int, str] = {}

    def note(self, facts: Facts, violation: Violation | None, shapes: str = "") -> None:
        """Take in a judged sample: its facts, the promise that it broke, if any, and its shapes in words."""
        self._samples.append((facts, violation))
        if violation is not None:
            self._shapes[id(violation)] = shapes

    def describe_worst(self, simplest: Violation | None) -> str:
        """A sentence on the worst failure that is like the simplest one, if it is much worse; else empty."""
        if simplest is None or simplest.outlier is None or not math.isfinite(simplest.outlier.ratio):
            return ""
        alike = [(v.outlier, v) for _, v in self._samples if v and v.outlier and same_failure(simplest, v)]
        worst, violation = max(alike, key=lambda pair: pair[0].ratio, default=(simplest.outlier, simplest))
        if worst.ratio < MUCH_WORSE * simplest.outlier.ratio:
            return ""
        at = f"{worst.worst.where} of {self._shapes.get(id(violation), '')}"
        return f"elsewhere {worst.ratio:.4g} times its bound at {at}; the case is a simpler one"

    @property
    def needs_more(self) -> bool:
        """Whether too few kinds of samples passed to tell anything: the first samples may all have failed."""
        return len({facts for facts, violation in self._samples if violation is None}) < ENOUGH

    def extend(self, op: Op, drafts: st.SearchStrategy[Draft], ask: Ask, seed: int, most: int) -> None:
        """Judge further samples for the contrast alone.

        Args:
            op: whose samples they are. drafts: of the samples.
            ask: (draft, seed of its data) -> the sample, and the promise that it broke, if any; None where nothing of
                the sample could be judged. seed: of the drafts. most: how many drafts.
        """
        until = processor_seconds() + SECONDS

        def one(draft: Draft, data: int) -> None:
            if processor_seconds() < until:
                answer = ask(draft, data)
                if answer is not None:
                    sample, violation = answer
                    self.note(facts_of(op, sample, draft), violation, shapes_of(op, sample))

        limits = limits_of(min(most, FURTHER), steered=False, shrunk=False)
        # The cell has failed already, so any other error of these samples is ignored, such as one that says that the
        # question is not asked of a sample.
        with contextlib.suppress(Exception, DeclarationError), without_source_numbers():
            hypothesis.seed(seed)(limits(hypothesis.given(drafts, strategies.seeds())(one)))()

    def describe(self) -> str:
        """A sentence on the facts of all samples that failed as the first did and of none that passed; else empty."""
        first = next((violation for _, violation in self._samples if violation is not None), None)
        passed = {facts for facts, violation in self._samples if violation is None}
        if first is None or not passed:
            return ""
        telling, failed = self.telling(first)
        if not telling:
            return ""
        text = "; ".join(" and ".join(facts) for facts in telling)
        failing = "the one failing kind" if failed == 1 else f"all {failed} failing kinds"
        passing = "the passing one lacks it" if len(passed) == 1 else f"none of the {len(passed)} passing ones"
        return f"in common {failing} of samples: {text}; {passing}"

    def telling(self, first: Violation) -> tuple[list[tuple[str, ...]], int]:
        """The facts, or pairs of facts, of all samples that failed as `first` did and of none that passed.

        Nothing is telling where no sample passed. The second value is the number of kinds of samples that failed so.
        """
        passed = {facts for facts, violation in self._samples if violation is None}
        failed = {
            facts for facts, violation in self._samples if violation is not None and same_failure(first, violation)
        }
        if not passed or not failed:
            return [], len(failed)
        shared = sorted(frozenset.intersection(*failed))
        telling: list[tuple[str, ...]] = [(fact,) for fact in shared if not any(fact in facts for facts in passed)]
        if not telling:
            pairs: Iterable[tuple[str, ...]] = itertools.combinations(shared, 2)
            telling = [pair for pair in pairs if not any(facts.issuperset(pair) for facts in passed)][:1]
        return telling[:MOST], len(failed)
