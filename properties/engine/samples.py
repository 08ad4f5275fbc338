"""The samples of one cell: where they come from, and how the question is asked of one.

What this is for: `cells` makes a verdict; this module judges its samples, one after the other, and remembers the last
one and every one that changed the process. Samples come from drafts that are picked for the values
that they have (`cover`), from large drafts and more of regimes that could not be judged (`draws`), and, in profiles
that steer, from drafts that Hypothesis draws towards the worst input.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

import hypothesis
import torch
from hypothesis import strategies as st

from ...oracles import process
from ...oracles.judge.judge import Judge
from ...oracles.op.declaration import EXECUTED, INTERPRETED, TURNS, Draft, Sample
from ...oracles.process import interrupt
from ...oracles.verdicts.case import dump_case
from ...oracles.verdicts.verdict import Cell
from ...oracles.verdicts.violation import Unsupported, Violation, raised
from ..checks import CHECKS
from ..declaring import kinds
from ..names import require_known
from ..picking import drafting, edges
from ..picking.cover import Cover, ValueCover, coverage
from ..picking.drafting import DrawnDraft
from ..table import Property
from . import declarations, draws
from .documented_limits import ask
from .draft_filters import Every
from .failure_pattern import Answer, Contrast, facts_of, shapes_of
from .failures import Failures, Spent
from .limits import limits_of, seed_of
from .profiles import PROFILES

#: At how many places among the drafts of an op its cells begin, so that not all of them judge the same drafts.
ELSEWHERE = 32

#: Called with the case file of a sample before it is judged, which sends the file to ranks in other processes.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How much to ask.

    Attributes:
        profile: the name of a profile. seed: of the run. max_examples: a cap on the examples per cell.
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
        require_known("profile", [self.profile], PROFILES)
        if self.max_examples is not None and self.max_examples < 1:
            raise ValueError(f"max_examples={self.max_examples}: need at least 1, or None")

    @classmethod
    def of(cls, settings: Settings | str | None, profile: str) -> Settings:
        """
        Args:
            settings: as they are, or the name of a profile, which has seed 0. profile: that of None.

        Raises:
            TypeError: `settings` is something else. ValueError: there is no such profile.
        """
        if not isinstance(settings, Settings | str | None):
            need = 'need opassay.Settings, or the name of a profile, as "brief"'
            raise TypeError(f"settings: got {type(settings).__name__}, {need}")
        return settings if isinstance(settings, Settings) else cls(profile if settings is None else settings)

    def examples(self, question: Property, judge: Judge | None = None) -> int:
        """How many samples a cell of a question has; few where code is compiled or kernels run on a CPU."""
        profile = PROFILES[self.profile]
        count = max(1, round(profile.examples * question.sampling.effort))
        if judge is not None and judge.compiled:
            # Each path of each example is compiled anew, which takes seconds.
            count = min(count, profile.compiled)
        if judge is not None and (machine := judge.op.production.machine(judge.subject_name)):
            # Each program of each kernel takes milliseconds, so there are few examples; but of a question of little
            # effort there would be too few to judge anything.
            count = profile.interpreted if machine == INTERPRETED else profile.executed
        return count if self.max_examples is None else min(count, self.max_examples)


@dataclass(frozen=True)
class Opened:
    """A cell that can be asked here.

    Attributes:
        judge: calls the subject, and counts the results in its tally. question: what is asked of each sample.
        tell: called with each sample before it is judged, where other processes judge it as well; else None.
    """

    cell: Cell
    judge: Judge
    question: Property
    tell: Tell | None = None


def judge_one(opened: Opened, sample: Sample, values: Iterable[tuple[str, str]] = ()) -> None:
    """Judge one sample; `values` are (name, value) of the declared values that it has, for the tally.

    Raises:
        Violation: the sample breaks a promise.
    """
    if opened.tell is not None:
        opened.tell(dump_case(opened.cell, sample))
    for i, argument in enumerate(sample.args):
        if isinstance(argument, torch.Tensor):
            opened.judge.tally.saw(opened.judge.op.label(i), tuple(argument.shape))
    with opened.judge.tally.sample(sample, values):
        ask_watched(opened, sample)


def ask_watched(opened: Opened, sample: Sample) -> None:
    """Ask the question, and compare the state of the process after it; SystemExit and its like are the subject's."""
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
        # A DeclarationError is no Exception, so the clause above lets it pass; the last clause must not take it for an
        # error of the subject.
        except kinds.DeclarationError:
            raise
        except BaseException as err:
            interrupt.reraise()
            raise raised(opened.judge.op.name, err, "call") from err
    interrupt.reraise()


@dataclass(frozen=True)
class OneSample:
    """The sample of a case file, as the only one of its cell.

    Attributes:
        failures: every kind of failure. contrast: the facts of the samples that failed, and of those that passed.
    """

    opened: Opened
    sample: Sample
    failures: Failures = field(default_factory=Failures)
    contrast: Contrast = field(default_factory=Contrast)

    def judge(self) -> None:
        """Judge all samples; Violation at the first that breaks a promise."""
        judge_one(self.opened, self.sample)

    def failing(self) -> tuple[Sample, Violation | None]:
        """After a failure: the sample that stands for it, and the promise that it broke, if that is known."""
        return self.sample, None

    def covered(self) -> ValueCover:
        """Which of the declared values the samples had."""
        return ValueCover()

    def in_common(self) -> str:
        """What failing samples have in common, in lines of a message; empty if nothing is known of that."""
        return ""


@dataclass
class Picked:
    """Samples of drafts that are picked, and, in profiles that steer, of drafts that Hypothesis draws.

    Attributes and methods are those of `OneSample`.
    """

    opened: Opened
    settings: Settings
    _last: tuple[Sample, Violation | None] | None = None
    #: Violations that count even once: a setter may fire only once, so its sample need not fail again.
    _changes: list[tuple[Sample, Violation | None]] = field(default_factory=list)
    _cover: Cover | None = None
    contrast: Contrast = field(default_factory=Contrast)
    failures: Failures = field(default_factory=Failures)
    #: The first failure, once it was made simple, and its sample.
    _first: tuple[Sample, Violation] | None = None
    #: Whether failing samples are counted; those that are tried while one is made simpler are not.
    _counting: bool = True

    def __post_init__(self) -> None:
        self._data_seeds = _distinct_seeds(seed_of(self.opened.cell, self.settings.seed, "data"))

    def judge(self) -> None:
        question, judge = self.opened.question, self.opened.judge
        with contextlib.suppress(Spent):
            draws.stages(judge, question.sampling, self.settings.examples(question, judge), self._draw)
        if self._first is not None:
            raise self._first[1]

    def covered(self) -> ValueCover:
        return ValueCover() if self._cover is None else coverage(self._cover, self.opened.judge.tally)

    def failing(self) -> tuple[Sample, Violation | None]:
        if self._first is not None:
            return self._first
        assert self._last is not None
        # If the last sample held, Hypothesis could not repeat a failure. Where an earlier sample broke a promise that
        # counts even once, such as a change of the process, that is the failure, and its sample stands for it.
        return self._changes[0] if self._changes and self._last[1] is None else self._last

    def in_common(self) -> str:
        cell, judge, kind = self.opened.cell, self.opened.judge.again(), self.opened.question.sampling.kind
        if self._simplifies and self.contrast.needs_more and kind not in ("large", "sizes"):
            ask = functools.partial(self._judge_further, replace(self.opened, judge=judge), kind)
            drafts = kinds.drafts_of(judge.op, cell.dtype, kind, self.opened.question.sampling.others)
            self.contrast.extend(judge.op, drafts, ask, seed_of(cell, self.settings.seed, "contrast"), self._further)
        worse = self.contrast.describe_worst(self.failing()[1])
        return "\n  ".join(line for line in (worse, self.contrast.describe()) if line)

    def _judge_further(self, opened: Opened, kind: str, draft: Draft, seed: int) -> Answer | None:
        """A further sample and the promise that it broke, if any; None where nothing of it could be judged."""
        sample, before = self._sample(kind, draft, seed), opened.judge.tally.judged
        try:
            judge_one(opened, sample)
        except Violation as violation:
            return sample, violation
        return (sample, None) if opened.judge.tally.judged > before else None

    @property
    def _further(self) -> int:
        """How many samples may be judged after a failure: about as many as the cell draws, few where they cost much."""
        # Two more are added, because a cell that draws one sample would otherwise try hardly anything.
        return self.settings.examples(self.opened.question, self.opened.judge) + 2

    @property
    def _steered(self) -> bool:
        """Whether samples are drawn towards the worst input; else all are drawn alike."""
        return not PROFILES[self.settings.profile].fixed

    @property
    def _simplifies(self) -> bool:
        """Whether further samples are judged after a failure, to make it simpler."""
        # Ranks in processes would have to be told of each further sample. They wait for each other until a deadline,
        # and a sample that hangs would cost that deadline at every step.
        return self.settings.simpler and self.opened.tell is None

    def _draw(self, kind: str, count: int, choice: Every, label: str = "") -> None:
        cell, op, clock = self.opened.cell, self.opened.judge.op, self.opened.judge.tally.clock
        with clock("generate"):
            pool = drafting.drafts(op, cell.dtype, kind, self.settings.seed, self.opened.question.sampling.others)
        ask = functools.partial(self._ask, kind)
        # Each shape is compiled, which takes longest: so the cells of PTX differ in their numbers, not in their shapes.
        common = replace(cell, property="") if cell.subject == EXECUTED else cell
        seed = seed_of(common, self.settings.seed, label)
        limits = limits_of(count, self._steered, shrunk=self._simplifies)
        seeds = self._edge_seed if label == draws.EDGES else self._next_seed
        if label not in ("", draws.AGAIN):
            start = 0 if kind == "sizes" else seed % ELSEWHERE
            self._run(
                kind,
                self._clock_drawing(itertools.islice(pool.after(start), count)),
                pool.strategy,
                limits,
                choice,
                seeds,
            )
            return
        # Before samples are steered, half of them are drawn alike, because steering leaves most values alone.
        alike = min(count - count // 2, draws.ALIKE_MOST) if self._steered else count
        if self._cover is None:
            with clock("generate"):
                self._cover = Cover(pool, alike, seed)
        self._run(kind, iter(self._cover.picks(alike)), pool.strategy, limits, choice, seeds)
        # A cell that has failed needs no steering towards the largest error.
        if count > alike and self._first is None:
            self._counting = False
            draws.ask_steered(pool.strategy, ask, seed, hypothesis.settings(limits, max_examples=count - alike))
            self._counting = True

    def _clock_drawing(self, entries: Iterator[DrawnDraft]) -> Iterator[DrawnDraft]:
        """The drafts, of which each is drawn when it is needed."""
        while True:
            with self.opened.judge.tally.clock("generate"):
                one = next(entries, None)
            if one is None:
                return
            yield one

    def _run(
        self, kind: str, entries: Iterator[DrawnDraft], drafts: st.SearchStrategy[Draft], limits: hypothesis.settings,
        choice: Every, seeds: Callable[[Draft], int],
    ) -> None:  # fmt: skip
        """Judge drafts; simplify the first that fails, and then judge the others for a limited time.

        Args:
            entries: the drafts. drafts, limits: where simpler ones are drawn from. choice: says which entries to judge.
            seeds: the seed of a draft's data.
        """
        ask = functools.partial(self._ask, kind)
        try:
            draws.run(entries, ask, choice, seeds)
        except draws.FailingDraft as failure:
            self._counting = False
            try:
                draws.simplify(drafts, ask, failure, limits, PROFILES[self.settings.profile].simpler * self._further)
            except Violation as violation:
                # A violation that counts even once, such as a changed process, may come from an earlier sample; further
                # samples would be judged after that change, so the cell ends here.
                last = self._last
                if violation.once or self._changes or not self._simplifies or last is None or last[1] is None:
                    raise
                self._first = (last[0], last[1])
            self._counting = True
            self.failures.go_on()
            draws.run(entries, ask, choice, seeds)

    def _next_seed(self, draft: Draft) -> int:
        return next(self._data_seeds)

    def _edge_seed(self, draft: Draft) -> int:
        """Of many seeds the one whose data has a result closest to a rounding boundary."""
        judge, seeds = self.opened.judge, list(itertools.islice(self._data_seeds, edges.FILLINGS))
        return min(seeds, key=lambda seed: edges.closest(judge, draft.sample(seed)))

    def _sample(self, kind: str, draft: Draft, seed: int) -> Sample:
        on_host = kinds.sample_of(draft, seed, self.opened.question.sampling.slices, kind)
        sample = on_host.on(self.opened.cell.device)
        declarations.require_arguments(self.opened.judge.op, sample)
        return sample

    def _ask(self, kind: str, draft: Draft, seed: int) -> Sample:
        tally, question = self.opened.judge.tally, self.opened.question
        if self._counting:
            self.failures.require_time()
        with tally.clock("generate"):
            sample, before = self._sample(kind, draft, seed), tally.judged
        # The sample is noted first, so that it is known even if judging it ends with another error than a Violation.
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
        if hypothesis.currently_in_test_context() and kind == question.sampling.kind != "large":
            hypothesis.target(tally.ratio_of_sample, label="error / bound")
        return sample


#: The samples of a cell: that of a case file, or those that are drawn.
Samples = OneSample | Picked


def _distinct_seeds(seed: int) -> Iterator[int]:
    """Seeds of data, all different, whose samples have their turns one after the other (`Sample.turn`)."""
    generator, numbers = Random(seed), set[int]()
    while True:
        number = generator.randrange(2**32 // TURNS) * TURNS + len(numbers) % TURNS
        if number not in numbers:
            numbers.add(number)
            yield number
