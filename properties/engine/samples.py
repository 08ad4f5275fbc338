"""The samples of one cell: which there are, and how the question is asked of one.

What this is for: `cells` says what a verdict is made of; this module gets the samples judged, one after the other, and
remembers the last one and every one that changed the process. Samples are those of drafts that are picked for the
values that they have (`cover`), large ones and more of what could not be judged (`draws`), and in profiles that steer
also what Hypothesis draws towards the worst input.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

import hypothesis
import torch
from hypothesis import strategies as st

from ...oracles import process
from ...oracles.judge.judge import Judge
from ...oracles.op.declaration import INTERPRETED, TURNS, Draft, Sample
from ...oracles.process import interrupt
from ...oracles.verdicts.case import dump_case
from ...oracles.verdicts.verdict import Cell
from ...oracles.verdicts.violation import Unsupported, Violation, raised
from ..checks import CHECKS
from ..declaring import kinds
from ..picking import drafting, edges
from ..picking.cover import Cover, ValueCover, coverage
from ..picking.drafting import DrawnDraft
from ..table import Property
from . import declarations, draws
from .documented_limits import ask
from .draft_filters import Every
from .failure_pattern import Answer, Contrast, facts_of, shapes_of
from .failures import Failures, Spent
from .limits import limits_of, moved_to, seed_of
from .profiles import PROFILES

#: Every cell begins at one of so many places among the drafts of its op, so that not all of them judge the same ones.
ELSEWHERE = 32

#: Takes the case file of a sample that is about to be judged: how ranks in other processes come to judge it too.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How much to ask.

    Attributes:
        profile: its name. seed: of the run. max_examples: a cap on the examples per cell.
        simpler: whether a failing sample is made simpler and compared with samples that pass, which takes seconds. The
            outcome and its code do not depend on it.

    Raises:
        ValueError: there is no such profile, or `max_examples` is less than 1.
    """

    profile: str = "commit"
    seed: int = 0
    max_examples: int | None = None
    simpler: bool = True

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise ValueError(f"profile={self.profile!r}: need one of {', '.join(PROFILES)}")
        if self.max_examples is not None and self.max_examples < 1:
            raise ValueError(f"max_examples={self.max_examples}: need at least 1, or None")

    def examples(self, question: Property, judge: Judge | None = None) -> int:
        """How many samples a cell of a question is asked of; of compiled code and of interpreted kernels, few."""
        profile = PROFILES[self.profile]
        wanted = max(1, round(profile.examples * question.effort))
        if judge is not None and judge.compiled:
            # Each path of each example is compiled anew, which takes seconds.
            wanted = min(wanted, profile.compiled)
        if judge is not None and judge.subject_name == INTERPRETED:
            # Each program of each kernel takes milliseconds, so there are few examples; but of a question of little
            # effort there would be too few to judge anything.
            wanted = profile.interpreted
        return wanted if self.max_examples is None else min(wanted, self.max_examples)


@dataclass(frozen=True)
class Opened:
    """A cell that can be asked here.

    Attributes:
        judge: asks the subject, and tells its tally what the samples show. question: what is asked of each.
        tell: is told every sample before it is judged, where other processes judge it with this one.
    """

    cell: Cell
    judge: Judge
    question: Property
    tell: Tell | None = None


class Samples(Protocol):
    """The samples of a cell: drawn, or given by a case file."""

    def judge(self) -> None:
        """Judge all of them; Violation at the first that breaks a promise."""

    def failing(self) -> tuple[Sample, Violation | None]:
        """After a failure: the sample that it is told by, and what it broke, if that is known."""

    def covered(self) -> ValueCover:
        """Which of the declared values they had."""

    def in_common(self) -> str:
        """What failing samples have in common, in a line; empty if nothing is known of that."""

    @property
    def failures(self) -> Failures:
        """Every kind of failure that they showed."""

    @property
    def contrast(self) -> Contrast:
        """What was so of those that failed, and of those that passed."""


def judge_one(opened: Opened, sample: Sample, values: Iterable[tuple[str, str]] = ()) -> None:
    if opened.tell is not None:
        opened.tell(dump_case(opened.cell, sample))
    for i, argument in enumerate(sample.args):
        if isinstance(argument, torch.Tensor):
            opened.judge.tally.saw(opened.judge.op.label(i), tuple(argument.shape))
    with opened.judge.tally.sample(sample, values):
        ask_watched(opened, sample)


def ask_watched(opened: Opened, sample: Sample) -> None:
    """Ask the question, with the process as it was before and after; SystemExit and its like are the subject's."""
    interrupt.reraise()
    with process.watched(process.SETTINGS):
        try:
            ask(CHECKS[opened.question.code], opened.judge, sample)
        except (Violation, Unsupported):
            raise
        except Exception as err:
            wrong = declarations.fault_of(opened.judge.op, err)
            if wrong:
                raise kinds.DeclarationError(wrong) from err
            raise
        # This is no Exception, so the clause above lets it pass; the last clause must not take it for something that
        # the subject raised.
        except kinds.DeclarationError:
            raise
        except BaseException as err:
            interrupt.reraise()
            raise raised(opened.judge.op.name, err, "call") from err
    interrupt.reraise()


@dataclass(frozen=True)
class Given:
    """One sample."""

    opened: Opened
    sample: Sample
    failures: Failures = field(default_factory=Failures)
    contrast: Contrast = field(default_factory=Contrast)

    def judge(self) -> None:
        judge_one(self.opened, self.sample)

    def failing(self) -> tuple[Sample, Violation | None]:
        return self.sample, None

    def covered(self) -> ValueCover:
        return ValueCover()

    def in_common(self) -> str:
        return ""


@dataclass
class Picked:
    """Samples of drafts that are picked, and in profiles that steer also drawn by Hypothesis, as the settings say."""

    opened: Opened
    settings: Settings
    _last: tuple[Sample, Violation | None] | None = None
    #: Violations that it is enough to see once: a setter may fire only once, so its sample need not fail again.
    _changes: list[tuple[Sample, Violation | None]] = field(default_factory=list)
    _cover: Cover | None = None
    contrast: Contrast = field(default_factory=Contrast)
    failures: Failures = field(default_factory=Failures)
    #: The first failure, once it was made simple, and its sample.
    _first: tuple[Sample, Violation] | None = None
    #: Whether failing samples are counted; those that are tried while one is made simpler are not.
    _counting: bool = True

    def __post_init__(self) -> None:
        self._data_seeds = _different(seed_of(self.opened.cell, self.settings.seed, "data"))

    def judge(self) -> None:
        question, judge = self.opened.question, self.opened.judge
        with contextlib.suppress(Spent):
            draws.stages(judge, question, self.settings.examples(question, judge), self._draw)
        if self._first is not None:
            raise self._first[1]

    def covered(self) -> ValueCover:
        return ValueCover() if self._cover is None else coverage(self._cover, self.opened.judge.tally)

    def failing(self) -> tuple[Sample, Violation | None]:
        if self._first is not None:
            return self._first
        assert self._last is not None
        # If the last sample held, Hypothesis could not repeat a failure. Where an earlier sample broke what need be
        # seen only once, as a change of the process is, that is the failure, and its sample is the one to tell it by.
        return self._changes[0] if self._changes and self._last[1] is None else self._last

    def in_common(self) -> str:
        cell, judge, kind = self.opened.cell, self.opened.judge.again(), self.opened.question.kind
        if self._told_simply and self.contrast.needs_more and kind not in ("large", "sizes"):
            ask = functools.partial(self._judged, replace(self.opened, judge=judge), kind)
            drafts = kinds.drafts_of(judge.op, cell.dtype, kind, self.opened.question.others)
            self.contrast.extend(judge.op, drafts, ask, seed_of(cell, self.settings.seed, "contrast"), self._further)
        worse = self.contrast.worst_beside(self.failing()[1])
        return "\n  ".join(line for line in (worse, self.contrast.told()) if line)

    def _judged(self, opened: Opened, kind: str, draft: Draft, seed: int) -> Answer | None:
        """A further sample and what it broke; None where nothing of it could be judged."""
        sample, before = self._sample(kind, draft, seed), opened.judge.tally.judged
        try:
            judge_one(opened, sample)
        except Violation as violation:
            return sample, violation
        return (sample, None) if opened.judge.tally.judged > before else None

    @property
    def _further(self) -> int:
        """How many samples are worth judging after a failure: those that a cell draws tell what one of them costs."""
        # A cell that draws one sample is given two more, or hardly anything would be tried.
        return self.settings.examples(self.opened.question, self.opened.judge) + 2

    @property
    def _steered(self) -> bool:
        """Whether samples are drawn towards the worst input; else all are drawn alike."""
        return not PROFILES[self.settings.profile].fixed

    @property
    def _told_simply(self) -> bool:
        """Whether further samples are judged after a failure, so that it can be told in simple terms."""
        # Ranks in processes would have to be told of each further sample. They wait for each other until a deadline,
        # and a sample that hangs would do so at every step.
        return self.settings.simpler and self.opened.tell is None

    def _draw(self, kind: str, count: int, choice: Every, label: str = "") -> None:
        cell, op = self.opened.cell, self.opened.judge.op
        pool = drafting.drafts(op, cell.dtype, kind, self.settings.seed, self.opened.question.others)
        ask = functools.partial(self._ask, kind)
        seed = seed_of(cell, self.settings.seed, label)
        limits = limits_of(count, self._steered, shrunk=self._told_simply)
        seeds = self._on_the_edge if label == draws.EDGES else self._any
        if label not in ("", draws.AGAIN):
            start = 0 if kind == "sizes" else seed % ELSEWHERE
            drawn = itertools.islice(pool.after(start), count)
            self._run(kind, iter(drawn), pool.strategy, limits, choice, seeds)
            return
        # Of samples that are steered, half are drawn alike before, because steering leaves most values alone.
        alike = min(count - count // 2, draws.ALIKE_MOST) if self._steered else count
        if self._cover is None:
            self._cover = Cover(pool, alike, seed)
        self._run(kind, iter(self._cover.picks(alike)), pool.strategy, limits, choice, seeds)
        # Towards the largest error is where a failure is already.
        if count > alike and self._first is None:
            self._counting = False
            draws.steered(pool.strategy, ask, seed, hypothesis.settings(limits, max_examples=count - alike))
            self._counting = True

    def _run(
        self, kind: str, drawn: Iterator[DrawnDraft], drafts: st.SearchStrategy[Draft], limits: hypothesis.settings,
        choice: Every, seeds: Callable[[Draft], int],
    ) -> None:  # fmt: skip
        """Judge drafts. The first that fails is made simple; after it the others are judged for a while.

        Args:
            kind: of the samples. drawn: the drafts. drafts: their strategy. limits: how one is made simpler.
            choice: which of them are judged. seeds: (draft) -> the seed of its data.
        """
        ask = functools.partial(self._ask, kind)
        try:
            draws.run(drawn, ask, choice, seeds)
        except draws.Found as found:
            self._counting = False
            try:
                draws.simplest(drafts, ask, found, limits, PROFILES[self.settings.profile].simpler * self._further)
            except Violation as violation:
                # What need be seen once may have come from earlier samples, so further ones would be judged after it.
                last = self._last
                if violation.once or self._changes or not self._told_simply or last is None or last[1] is None:
                    raise
                self._first = (last[0], last[1])
            self._counting = True
            self.failures.go_on()
            draws.run(drawn, ask, choice, seeds)

    def _any(self, draft: Draft) -> int:
        return next(self._data_seeds)

    def _on_the_edge(self, draft: Draft) -> int:
        """Of many seeds that with a result next to a rounding boundary."""
        judge, seeds = self.opened.judge, list(itertools.islice(self._data_seeds, edges.FILLINGS))
        return min(seeds, key=lambda seed: edges.closest(judge, draft.sample(seed)))

    def _sample(self, kind: str, draft: Draft, seed: int) -> Sample:
        sample = moved_to(self.opened.cell.device, kinds.sample_of(draft, seed, self.opened.question.slices, kind))
        declarations.require_arguments(self.opened.judge.op, sample)
        return sample

    def _ask(self, kind: str, draft: Draft, seed: int) -> Sample:
        tally, question = self.opened.judge.tally, self.opened.question
        if self._counting:
            self.failures.require_time()
        with tally.clock("generate"):
            sample, before = self._sample(kind, draft, seed), tally.judged
        # This is noted first, so that the sample is known even if judging it ends with something else than a Violation.
        self._last = (sample, None)
        try:
            judge_one(self.opened, sample, draft.values)
        except Violation as violation:
            self._last = (sample, violation)
            op = self.opened.judge.op
            self.contrast.note(facts_of(op, sample, draft), violation, shapes_of(op, sample))
            if violation.once:
                self._changes.append(self._last)
            if self._counting:
                self.failures.note(sample, violation, tally.part)
                if self.failures.going_on:
                    return sample
            raise
        if tally.judged > before:
            self.contrast.note(facts_of(self.opened.judge.op, sample, draft), None)
        if hypothesis.currently_in_test_context() and kind == question.kind != "large":
            hypothesis.target(tally.ratio_of_sample, label="error / bound")
        return sample


def _different(seed: int) -> Iterator[int]:
    """Seeds of data, all different, whose samples have their turns one after the other (`Sample.turn`)."""
    drawn, given = Random(seed), set[int]()
    while True:
        number = drawn.randrange(2**32 // TURNS) * TURNS + len(given) % TURNS
        if number not in given:
            given.add(number)
            yield number
