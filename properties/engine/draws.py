"""What is drawn for a cell besides its ordinary samples.

Large samples are chosen among drafts by their extents, before any data is drawn: each axis of the op is to be the long
one, and the few large samples of a cell are not to be of one shape. Further samples of a regime of which nothing could
be judged are chosen by their regime.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import hypothesis
from hypothesis import Phase
from hypothesis import strategies as st

from ...oracles.judge import Judge
from ...oracles.op import Draft, Sample
from ...oracles.properties import Property
from ...oracles.tally import LARGE, MORE, PLANNED, regimes_of
from ...oracles.violation import Unsupported, Violation, same_failure
from .. import strategies
from .kinds import DeclarationError, drafts_of, largest_of

#: A sample is large if one of its tensors has more elements than any ordinary sample of the catalog.
ORDINARY_MOST = 72
#: The long axis of the first large samples is longer than this, the longest block that kernels usually work in.
LONG = 4096
#: torch shares work among threads from so many elements on (at::internal::GRAIN_SIZE): DET is about those.
SHARED = 32_768
#: How many drafts may be passed over in search of a large one with a new long axis, and of one of a starved regime.
PATIENCE, STARVED_PATIENCE = 160, 900
#: How many drafts there are for each large sample that is to be judged.
DRAFTS = 200
#: How many drafts one Hypothesis test draws where most are passed over: fewer than 10, from which on the first ones are
#: made as simple as can be. Each of these tests has a seed of its own, because with one seed for all of them they would
#: all draw the same drafts.
AT_ONCE = 9
#: How many further samples are judged of a regime of which nothing could be judged, and of large ones where most could
#: not.
FURTHER = 12
#: Elements of a draft that has few.
FEW = 4
#: Among how many drafts a simpler one is looked for that fails, too.
SIMPLER = 60
#: Seconds for which a failing large sample is made smaller: Hypothesis would go on for as long as it finds a way, and
#: every step with a large sample takes seconds.
SHRINKING = 20.0


class _Enough(BaseException):
    """Ends a Hypothesis test early.

    It is not an Exception, because Hypothesis takes every Exception for a failing sample, which it would shrink.
    """


# ------------------------------------------------------------------------------------------------- which are judged


class Every:
    """Which drafts are judged: every one. What is passed over costs next to nothing: its data is never drawn.

    Attributes:
        picky: whether most drafts are passed over. They are then drawn by many short Hypothesis tests, because of the
            drafts of a long one many are variants of a few.
    """

    picky = False

    def start(self) -> None:
        """A Hypothesis test begins."""

    def wants(self, draft: Draft) -> bool:
        """Whether a draft is judged."""
        return True

    def took(self, draft: Draft, sample: Sample) -> bool:
        """Note that a draft was judged; whether more are wanted."""
        return True


class Large(Every):
    """Some large drafts: for each axis a benign one that is longer than 4096 there, then others, of other extents.

    The first draft of a Hypothesis test is always the simplest one. It is passed over, because a cell with one large
    sample would otherwise judge the same shape for ever.

    Attributes:
        largest: elements of the largest floating tensor that was judged.

    Args:
        count: how many; more, where most of their elements could not be judged. most: elements of the axes together.
        shared: whether every second one is to have the elements from which torch shares work among threads. choosy:
            whether not every draft will do.
    """

    picky = True

    def __init__(self, judge: Judge, count: int, most: int, shared: bool = False, choosy: bool = True) -> None:
        self._judge, self.count, self.most, self.shared = judge, count, most, shared
        self.largest = self.taken = self._passed = 0
        self._first, self._choosy = True, choosy
        self._axes: set[str] = set()
        self._long: set[str] = set()
        self._bands: set[tuple[str, int]] = set()

    def start(self) -> None:
        self._first = True

    def wants(self, draft: Draft) -> bool:
        if not self._choosy:
            return True
        # Every Hypothesis test begins with the simplest draft, which would be the same in every cell.
        if self._first:
            self._first = False
            return False
        wanted = not draft.extents or self._suits(draft)
        self._passed = 0 if wanted else self._passed + 1
        return wanted

    def _suits(self, draft: Draft) -> bool:
        size, (name, extent) = math.prod(draft.extents.values()), _longest(draft)
        if not ORDINARY_MOST < size <= self.most:
            return False
        # Every second sample of DET has so many elements that torch shares the work among threads, because the
        # order of sums may then differ from call to call. Some ops offer no such sample, so the search has an end.
        if self.shared and self.taken % 2 == 0:
            return size > SHARED or self._passed >= PATIENCE
        self._axes |= draft.extents.keys()
        if self._axes <= self._long or self._passed >= PATIENCE:
            self._long |= self._axes  # an axis that is still missing is never long: it is not looked for again
            return (name, _band(extent)) not in self._bands or self._passed >= PATIENCE + PATIENCE // 2
        # The first sample with a new long axis is to be about its length alone: so its data is benign, and where the
        # op has other axes they are not all of length one.
        telling = "benign" in regimes_of(draft.regime) and (len(draft.extents) == 1 or size > extent)
        return telling and extent > LONG and name not in self._long

    def took(self, draft: Draft, sample: Sample) -> bool:
        self.largest = max(self.largest, largest_of(sample))
        if draft.extents:
            name, extent = _longest(draft)
            self._bands.add((name, _band(extent)))
            if extent > LONG:
                self._long.add(name)
        self.taken += 1
        most = self.count + (0 if self._judge.tally.mostly_judged(LARGE) else FURTHER)
        return self.taken < most


def _longest(draft: Draft) -> tuple[str, int]:
    return max(draft.extents.items(), key=lambda item: item[1])


def _band(extent: int) -> int:
    """Which of the blocks that kernels work in an extent goes beyond."""
    # Two extents within the same blocks take the same way through most kernels, so a second sample of one band would
    # say little that is new.
    return sum(extent > block for block in (64, 72, 128, 1024, LONG, SHARED))


class Starved(Every):
    """Drafts of the regimes of which nothing could be judged so far, up to a number of each.

    The second half of them are of few elements: an inner product, for one, is not judged if one element overflows.
    """

    picky = True

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._left = dict.fromkeys(judge.tally.starved(), FURTHER)

    def _wanted(self) -> set[str]:
        return {name for name in self._judge.tally.starved() if self._left.get(name, 0) > 0}

    def wants(self, draft: Draft) -> bool:
        wanted = self._wanted().intersection(regimes_of(draft.regime))
        # The more elements a draft has, the likelier it is that one of them overflows and takes all others of its sum
        # with it.
        few = math.prod(draft.extents.values()) <= FEW
        return any(few or self._left[name] > FURTHER // 2 for name in wanted)

    def took(self, draft: Draft, sample: Sample) -> bool:
        for name in regimes_of(draft.regime):
            self._left[name] = self._left.get(name, 0) - 1
        return bool(self._wanted())


class Ample(Every):
    """So many drafts, of which the first is benign and has two elements or more along every axis, if one is found."""

    picky = True

    def __init__(self, count: int) -> None:
        self._left, self._passed, self._found = count, 0, False

    def wants(self, draft: Draft) -> bool:
        self._passed += not self._found
        # Every Hypothesis test begins with the simplest draft, so that one is passed over where there are no extents.
        ample = min(draft.extents.values(), default=2) > 1 and "benign" in regimes_of(draft.regime)
        self._found |= self._passed > 1 and (ample or self._passed > PATIENCE)
        return self._found

    def took(self, draft: Draft, sample: Sample) -> bool:
        self._left -= 1
        return self._left > 0


def run(
    drafts: st.SearchStrategy[Draft], ask: Callable[[Draft, int], Sample], choice: Every, seed: int,
    limits: hypothesis.settings, seconds: float = math.inf,
) -> None:  # fmt: skip
    """Ask of the drafts that are chosen, until one fails; then of simpler ones, for so many seconds.

    Args:
        ask: (draft, seed of its data) -> the sample that was judged, or raises Violation.
        seed: of the drafts.

    Raises:
        Violation: that of the simplest failing draft, of which `ask` was asked last.
    """
    failed: list[tuple[Draft, int, Violation]] = []
    until: list[float] = []

    def one(draft: Draft, data: int) -> None:
        if not failed and not choice.wants(draft):
            return
        if failed and time.monotonic() > until[0]:
            raise _Enough
        try:
            sample = ask(draft, data)
        except Violation as violation:
            # A simpler sample that fails in another way tells of another fault, so it does not stand for this one.
            if failed and not same_failure(failed[0][2], violation):
                return
            failed.append((draft, data, violation))
            until.append(time.monotonic() + seconds)
            raise
        if not failed and not choice.took(draft, sample):
            raise _Enough

    def search(number: int, **changes: Any) -> None:
        test = hypothesis.seed(seed + number)(hypothesis.given(drafts, strategies.seeds())(one))
        hypothesis.settings(limits, **changes)(test)()

    try:
        if not choice.picky:
            search(0)
            return
        tests = -(-limits.max_examples // AT_ONCE)
        for number in range(tests):
            choice.start()
            try:
                search(number, phases=(Phase.generate,), max_examples=AT_ONCE)
            except Violation:
                # Simpler ones are looked for by a test of its own, in which nothing is passed over: this one would take
                # what was passed over for drafts that held.
                if Phase.shrink in limits.phases:
                    search(tests, max_examples=SIMPLER)
                raise _Enough from None
    except _Enough:
        if failed:
            draft, data, violation = failed[-1]
            ask(draft, data)
            raise violation from None


def stages(judge: Judge, question: Property, examples: int, draw: Callable[[str, int, Every, str], None]) -> None:
    """All samples of a cell: those of the question's kind, large ones, and more of regimes that could not be judged.

    Args:
        draw: (kind, how many drafts, which of them are judged, label of the seed) judges samples.

    Raises:
        Unsupported: the op offers no samples of the question's kind.
        DeclarationError: a sample is not of its kind.
        Violation: as `draw` raises it.
    """
    asks_large = question.kind == "large"
    count = examples if asks_large else question.large_of(examples)
    reason = _without_large(judge, examples, count) if count or question.large else ""
    if reason:
        judge.tally.note(f"no large samples: {reason}")
        count = 0
    kind = "ordinary" if asks_large else question.kind
    # A property that is about large samples is asked of ordinary ones only where the op offers no large ones.
    if question.ample:
        draw(kind, DRAFTS * examples, Ample(examples), "")
    elif not (asks_large and count):
        draw(kind, examples - count, Every(), "")
    # Where overflow has left most elements undecided, as many samples are drawn again. Compiled code gets none of
    # these, because each sample is compiled anew, which takes seconds.
    if not judge.tally.mostly_judged(PLANNED) and not judge.compiled:
        draw(kind, examples, Every(), "more")
    if count:
        _draw_large(judge, Large(judge, count, question.most, shared=asks_large), draw)
    if judge.tally.starved() and not judge.compiled:
        judge.tally.begin(MORE)
        draw(kind, STARVED_PATIENCE, Starved(judge), "starved")


def _without_large(judge: Judge, examples: int, count: int) -> str:
    """Why no large samples are drawn; empty if they are."""
    if not count:
        return f"{examples} sample{'s' * (examples != 1)} in all"
    try:
        drafts_of(judge.op, judge.contract.stores.name, "large")
    except Unsupported as answer:
        return str(answer)
    return ""


def _draw_large(judge: Judge, choice: Large, draw: Callable[[str, int, Every, str], None]) -> None:
    """Judge large samples. The part stays LARGE where one fails, for whoever judges that one again."""
    judge.tally.begin(LARGE)
    draw("large", DRAFTS * choice.count, choice, "large")
    if not choice.taken:  # the strategy has hardly more than one draft, or gives none that suits
        choice = Large(judge, choice.count, choice.most, choosy=False)
        draw("large", choice.count, choice, "large")
    judge.tally.begin(PLANNED)
    if choice.largest <= ORDINARY_MOST:
        raise DeclarationError(
            f"samples: kind 'large' gave floating tensors of at most {choice.largest} elements in {choice.taken}"
            f" samples, need more than {ORDINARY_MOST} in one of them (or raise Unsupported for this kind)"
        )
