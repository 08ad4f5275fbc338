"""Which samples are drawn for a cell besides its ordinary ones.

Large samples are chosen among drafts by their extents, before any data is drawn: each axis of the op is to be the long
one, and the few large samples of a cell are not to be of one shape. Further samples of a regime of which nothing could
be judged are chosen by their regime.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import hypothesis
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase, choices_to_bytes

from ...oracles.judge.judge import Judge
from ...oracles.judge.tally import LARGE, MORE, PLANNED, Tally, regimes_of
from ...oracles.op.declaration import EXECUTED, OWN, Draft, Sample
from ...oracles.verdicts.violation import Unsupported, Violation, same_failure
from ..checks.determinism import SINGLE_SUM
from ..declaring import strategies
from ..declaring.kinds import DeclarationError, drafts_of, largest_of
from ..picking import edges
from ..picking.drafting import DrawnDraft
from ..table import Sampling
from .draft_filters import PATIENCE, Ample, Every, Filled, OneLong, Readable, longest, size_of
from .limits import processor_seconds
from .sizes import Sizes

#: A sample is large if one of its tensors has more elements than any ordinary sample of the catalog.
ORDINARY_MOST = 72
#: The long axis of the first large samples is longer than this, the longest block that kernels usually work in.
LONG = 4096
#: From this many elements on torch shares the work among threads (at::internal::GRAIN_SIZE), which DET asks about.
SHARED = 32_768
#: How many drafts may be passed over in search of one of a starved regime.
STARVED_PATIENCE = 900
#: How many drafts there are for each large sample that is to be judged.
DRAFTS = 200
#: How many drafts of SIZE there are in search of one axis after the other that is longer than a half type counts.
COUNTS = 1000
#: How many further samples are judged of a regime of which nothing could be judged, and how many further large samples
#: where most of their elements could not be judged.
FURTHER = 12
#: In a profile that steers, the most samples of a cell that are drawn alike before steering begins; and the label of
#: samples that a cell is given again.
ALIKE_MOST, AGAIN = 300, "more"
#: How many times a cell in which no element was there to be judged is given as many samples again.
MORE_OFTEN = 4
#: Labels of samples whose data is chosen so that results lie next to a rounding boundary, and of those of `Ample`.
EDGES, AMPLE = "edges", "ample"
#: The most elements of a draft that has few.
FEW = 4
#: The most seconds of the processor for making a failing sample simpler: each try with a large one may take seconds.
SIMPLER_SECONDS = 20.0


class _Enough(BaseException):
    """Ends a Hypothesis test early; no Exception, which Hypothesis would take for a failing sample and shrink."""


class FailingDraft(Exception):
    """A draft that failed, with the seed of its data; the violation is the cause."""

    def __init__(self, entry: DrawnDraft, data: int) -> None:
        super().__init__(entry, data)
        self.entry, self.data = entry, data


#: (draft, seed of its data) -> the sample that was judged, or raises Violation.
Ask = Callable[[Draft, int], Sample]


class Large(Readable):
    """Some large drafts: for each axis a benign one that is longer than 4096 there, then others, of other extents.

    Attributes:
        largest: elements of the largest tensor that was judged.

    Args:
        count: how many drafts; `FURTHER` more where most of their elements could not be judged.
        most: the most elements of a draft, all axes multiplied.
        shared: whether every second draft has so many elements that torch shares the work among threads.
        choosy: whether axes and extents are chosen; else every draft is judged.
    """

    def __init__(self, judge: Judge, count: int, most: int, shared: bool = False, choosy: bool = True) -> None:
        super().__init__(judge)
        self.count, self.most, self.shared = count, most, shared
        self.largest = self.samples = self._passed = 0
        self._choosy = choosy
        #: The axis of a draft that could not be read, in place of which one is taken that is shorter there.
        self._instead = ""
        self._axes: set[str] = set()
        self._long: set[str] = set()
        self._bands: set[tuple[str, int]] = set()

    def wants(self, draft: Draft) -> bool:
        suits = not self._choosy or not draft.extents or self._suits(draft)
        if suits and not self.shared and not self.is_readable(draft):  # DET reads nothing
            (name, extent), suits = longest(draft), False
            if extent < 2 * LONG - 1:  # Else most extents beyond LONG are shorter.
                self._long.add(name)
            else:
                self._instead = name
        self._passed = 0 if suits else self._passed + 1
        return suits

    def _suits(self, draft: Draft) -> bool:
        size, (name, extent) = size_of(draft), longest(draft)
        if not ORDINARY_MOST < size <= self.most:
            return False
        # Every second sample of DET has so many elements that torch shares the work among threads, because the
        # order of sums may then differ from call to call. Some ops offer no such sample, so the search has an end.
        if self.shared and self.samples % 2 == 0:
            return size > SHARED or self._passed >= PATIENCE
        self._axes |= draft.extents.keys()
        if self._axes <= self._long or self._passed >= PATIENCE:
            self._long |= self._axes  # an axis that is still missing is never long: it is not looked for again
            return (name, _band(extent)) not in self._bands or self._passed >= PATIENCE + PATIENCE // 2
        # The first sample with a new long axis is to be about its length alone: so its data is benign, and where the
        # op has other axes they are not all of length one.
        telling = "benign" in regimes_of(draft.regime) and (len(draft.extents) == 1 or size > extent)
        return telling and extent > LONG and name not in self._long and self._instead in ("", name)

    def took(self, draft: Draft, sample: Sample) -> bool:
        self._instead = ""
        self.largest = max(self.largest, largest_of(sample))
        if draft.extents:
            name, extent = longest(draft)
            # A sample of which nothing could be judged, or whose right results are all zero, says nothing of an axis.
            if self._judge.tally.last_share >= 0.5 and not self._judge.tally.last_blank:
                self._bands.add((name, _band(extent)))
                if extent > LONG:
                    self._long.add(name)
        self.samples += 1
        most = self.count + (0 if self._judge.tally.mostly_judged(LARGE) else FURTHER)
        return self.samples < most


def _band(extent: int) -> int:
    """How many of the lengths of blocks that kernels work in an extent exceeds."""
    # Two extents within the same blocks take the same way through most kernels, so a second sample of one band would
    # say little that is new.
    return sum(extent > block for block in (64, 72, 128, 1024, LONG, SHARED))


class Starved(Every):
    """Drafts with a regime, or another declared value, of which nothing could be judged so far: `FURTHER` of each.

    The second half of them have few elements: an inner product, for one, is not judged if one element overflows.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._remaining: dict[tuple[str, str], int] = {}

    def _starved_pairs(self) -> set[tuple[str, str]]:
        return {pair for pair in starved(self._judge.tally) if self._remaining.setdefault(pair, FURTHER) > 0}

    def wants(self, draft: Draft) -> bool:
        # The more elements a draft has, the likelier it is that one of them overflows and takes all others of its sum
        # with it.
        few = size_of(draft) <= FEW
        return any(few or self._remaining[pair] > FURTHER // 2 for pair in self._starved_pairs() & draft.values)

    def took(self, draft: Draft, sample: Sample) -> bool:
        for pair in draft.values:
            self._remaining[pair] = self._remaining.get(pair, FURTHER) - 1
        return bool(self._starved_pairs())


def starved(tally: Tally) -> set[tuple[str, str]]:
    """The regimes and the other declared values of which nothing could be judged."""
    return {*tally.starved_values(), *(("regime", name) for name in tally.starved())}


def run(entries: Iterable[DrawnDraft], ask: Ask, choice: Every, seed_of: Callable[[Draft], int]) -> None:
    """Judge the drafts that `choice` wants, each with a seed for its data.

    Raises:
        FailingDraft: a draft failed.
    """
    for entry in entries:
        if not choice.wants(entry.draft):
            continue
        data = seed_of(entry.draft)
        try:
            sample = ask(entry.draft, data)
        except Violation as violation:
            raise FailingDraft(entry, data) from violation
        if not choice.took(entry.draft, sample):
            return


def ask_steered(drafts: st.SearchStrategy[Draft], ask: Ask, seed: int, limits: hypothesis.settings) -> None:
    """Judge drafts that Hypothesis draws towards the worst input, until one fails, and then simpler ones.

    Raises:
        Violation: that of the simplest failing draft, of which `ask` was asked last.
    """

    def one(draft: Draft, data: int) -> None:
        ask(draft, data)

    hypothesis.settings(limits)(hypothesis.seed(seed)(hypothesis.given(drafts, strategies.seeds())(one)))()


def simplify(
    drafts: st.SearchStrategy[Draft], ask: Ask, failure: FailingDraft, limits: hypothesis.settings, most: int,
    seconds: float = SIMPLER_SECONDS,
) -> None:  # fmt: skip
    """Make a failing draft simpler.

    Args:
        failure: the draft that failed. limits: without the phase of shrinking the draft stays as it was found.
        most: how many drafts are tried; then the simplest so far stands. Hypothesis would go on for as long as it finds
            a simpler one.
        seconds: of processor time, after which the simplest so far stands as well.

    Raises:
        Violation: that of the simplest failing draft, of which `ask` was asked last.
    """
    failing, until, calls = (failure.entry.draft, failure.data), processor_seconds() + seconds, 0
    first = failure.__cause__
    assert isinstance(first, Violation)

    def one(draft: Draft, data: int) -> None:
        nonlocal failing, calls
        if calls >= most or processor_seconds() > until:
            raise _Enough
        # What Hypothesis takes for simpler may be larger, as the first of many sizes need not be the smallest.
        if size_of(draft) > size_of(failing[0]):
            return
        calls += 1
        try:
            ask(draft, data)
        except Violation as violation:
            # A simpler sample that fails in another way tells of another fault, so it does not stand for this one.
            if not same_failure(first, violation):
                return
            failing = draft, data
            raise

    if Phase.shrink in limits.phases:
        # Hypothesis makes those failures simpler that its database has from before. This one stands under the second
        # of the two keys, because Hypothesis takes a failure under the first to be as simple as can be.
        test = hypothesis.seed(failure.data)(hypothesis.given(drafts, strategies.seeds())(one))
        database, key = InMemoryExampleDatabase(), b"failing"
        database.save(key + b".secondary", choices_to_bytes((*failure.entry.choices, failure.data)))
        setattr(test, "_hypothesis_internal_database_key", key)  # noqa: B010 - not an attribute that types know
        with contextlib.suppress(Violation, hypothesis.errors.Flaky, _Enough):
            hypothesis.settings(limits, database=database, phases=(Phase.reuse, Phase.shrink))(test)()
    ask(*failing)
    # A draft that failed once and not again is a failure too; the verdict says that it did not repeat.
    raise first


def stages(judge: Judge, sampling: Sampling, examples: int, draw: Callable[[str, int, Every, str], None]) -> None:
    """All samples of a cell: those of the question's kind, large ones, and more of regimes that could not be judged.

    Args:
        draw: (kind, how many drafts, which of them are judged, label of the seed) judges samples.

    Raises:
        Unsupported: the op offers no samples of the question's kind.
        DeclarationError: a sample is not of its kind.
        Violation: as `draw` raises it.
    """
    if sampling.kind == "sizes":
        _draw_sizes(judge, examples, draw)
        return
    fills = judge.subject_name == EXECUTED and sampling.fills
    asks_large = sampling.kind == "large" and not fills
    count = examples if asks_large or fills else sampling.large_of(examples)
    reason = _without_large(judge, examples, count) if count or sampling.large else ""
    if reason:
        judge.tally.note(f"no large samples: {reason}")
        count = 0
    kind = "ordinary" if sampling.kind == "large" else sampling.kind
    # A property that is about large samples is asked of ordinary ones only where the op offers no large ones.
    if sampling.ample:
        draw(kind, DRAFTS * examples, Ample(examples), AMPLE)
    elif not (asks_large and count):
        draw(kind, max(1, examples // 2) if fills else examples - count, Every(), "")
    # Where overflow has left most elements undecided, as many samples are drawn again. Compiled code gets no further
    # samples, because each one is compiled anew, which takes seconds.
    if not judge.tally.mostly_judged(PLANNED) and not judge.compiled:
        draw(kind, examples, Every(), AGAIN)
    # Some questions do not apply to every sample: of few samples they may apply to none.
    for _ in range(MORE_OFTEN if not judge.compiled else 0):
        if judge.tally.judged or judge.tally.not_judged:
            break
        draw(kind, examples, Every(), AGAIN)
    if sampling.edges_of(examples) and edges.rounds_once_more(judge):
        draw(kind, sampling.edges_of(examples), Every(), EDGES)
    if count:
        choice = Filled(count, sampling.most) if fills else Large(judge, count, sampling.most, shared=asks_large)
        _draw_large(judge, choice, draw)
    if count and asks_large and judge.op.promises.arithmetic.steady and judge.subject_name == OWN:
        judge.tally.part = LARGE
        draw("sizes", DRAFTS, OneLong(SINGLE_SUM), "one long")
        judge.tally.part = PLANNED
    if starved(judge.tally) and not judge.compiled:
        judge.tally.part = MORE
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


def _draw_sizes(judge: Judge, count: int, draw: Callable[[str, int, Every, str], None]) -> None:
    """Judge samples of chosen sizes, in the part LARGE to the cell's end, because none of them is read exactly."""
    judge.tally.part = LARGE
    choice = Sizes(judge, count)
    draw("sizes", DRAFTS * count, choice, "sizes")
    if judge.contract.stores.bits == 16 and not choice.too_long:
        # A count in a half type of p bits goes no further than 2^p, to which it adds one in vain.
        least = 2**judge.contract.stores.precision + 1
        draw("sizes", COUNTS, OneLong(least, alone=False, axes=choice.extents), "counts")
    pieces = judge.op.promises.arithmetic.pieces
    if pieces and judge.contract.stores.bits == 16 and judge.subject_name == OWN and judge.light:
        draw("sizes", DRAFTS, Sizes(judge, 2, frozenset((pieces,))), "pieces")
    for axis, extents in sorted(choice.extents.items()):
        judge.tally.note(f"{axis} of {', '.join(map(str, sorted(extents)))}" if extents else f"{axis} never long")


def _draw_large(judge: Judge, choice: Large | Filled, draw: Callable[[str, int, Every, str], None]) -> None:
    """Judge large samples. The part stays LARGE where one fails, because that one is judged again in the same part."""
    judge.tally.part = LARGE
    draw("large", DRAFTS * choice.count, choice, "large")
    if not choice.samples:  # the strategy has hardly more than one draft, or gives none that suits
        choice = Large(judge, choice.count, choice.most, choosy=False)
        draw("large", choice.count, choice, "large")
    judge.tally.part = PLANNED
    if choice.largest <= ORDINARY_MOST and not (isinstance(choice, Readable) and choice.too_long):
        raise DeclarationError(
            f"samples: kind 'large' gave tensors of at most {choice.largest} elements in {choice.samples}"
            f" samples, need more than {ORDINARY_MOST} in one of them (or raise Unsupported for this kind)"
        )
