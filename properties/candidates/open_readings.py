"""Readings of a spec that computes from choices which rounding leaves open, and the choice that a candidate made.

What this is for: a routed layer multiplies by the experts that its scores choose. Where two scores differ by less than
their errors, two kernels may take different experts, and both are right. So the outputs are read given the candidate's
choice. If the candidate returns the indices, they are its choice. If not, all choices that an evaluation may make are
tried, and one of them must explain all elements that depend on it.

What is hard here are many open choices at the same time. Choices of rows on which no element depends in common share
readings (`oracles/specs/dependence.py`), others are tried in every combination. After `MOST` readings the search ends.
Elements that none of the readings explains are then not judged, and the verdict says so.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from ...oracles.bound.rounding import Ball
from ...oracles.judge.holding import Reading
from ...oracles.specs.decisions import Decisions
from ...oracles.specs.dependence import Dependence
from ...reference.choice import AnswerSet, Choice, Decidable, answers_of
from ...reference.draw import Draw
from .arguments import Tensor

#: The largest number of readings of one spec in the search for a candidate's choice.
MOST = 32
#: The message about an element that is right with none of these readings.
BEYOND = f"it is right with none of {MOST} choices of indices that were tried, and rounding leaves more of them open"
#: The largest number of rows whose choices are combined: with two choices each they have more combinations than `MOST`.
_ROWS = MOST.bit_length()

#: (position of an output, the output, its reading) -> which elements are right.
Accepts = Callable[[int, Tensor, Reading], Any]


@dataclass(frozen=True)
class Decision:
    """The reading of a spec given the choice of a candidate.

    Attributes:
        readings: of all outputs. picks: operation that chooses -> rows of indices. count: of choices tried.
        beyond: output -> elements that no tried choice explains, if not all choices were tried.
        is_unique: whether only one of the tried choices explains the outputs.
        open_rows: by operation the rows of draws of 0 or 1 of which either explains them, each alone; None where
            another choice is open.
    """

    readings: Sequence[Reading]
    picks: Mapping[str, Any]
    count: int = 1
    beyond: Mapping[int, Any] = field(default_factory=dict)
    is_unique: bool = True
    open_rows: Mapping[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class OpenReading:
    """One output, or one gradient, that may depend on open choices.

    Attributes:
        choices: those of all outputs. position: of the output among them. first: its reading with the likely choice.
    """

    choices: OpenChoices
    position: int
    first: Reading

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.first.shape)


class OpenChoices:
    """The readings of a spec by the choices that an evaluation may make."""

    def __init__(
        self, reader: Callable[[Decisions], Sequence[Reading]], first: Sequence[Reading], decisions: Decisions,
        graph: torch.fx.GraphModule | None = None,
    ) -> None:  # fmt: skip
        """
        Args:
            reader: reads the spec with decisions. first, decisions: what it gave, and for which decisions.
            graph: of the spec, whose outputs are read; None where something else is read, as gradients are.
        """
        self._read, self._first, self._picks = reader, first, decisions.picks
        self._open = dict(decisions.open)
        # By output the group of choices that each element depends on, and by choice that of each row, or None for 0.
        self._labels: Sequence[Any] = [np.zeros(y.shape, dtype=np.int64) for y in first]
        self._groups: Mapping[str, Any] | None = None
        if graph is not None:
            # What cannot be followed through the graph leaves everything to depend on everything.
            with contextlib.suppress(Exception):
                dependence = Dependence(graph, decisions.open)
                self._labels, self._groups = dependence.of_outputs(), dependence.groups

    @property
    def are_drawn(self) -> bool:
        """Whether some of the choices are draws."""
        return any(isinstance(each, Draw) for each in self._open.values())

    @property
    def readings(self) -> tuple[OpenReading, ...]:
        return tuple(OpenReading(self, i, reading) for i, reading in enumerate(self._first))

    def named_by(self, computed: Mapping[int, Tensor]) -> dict[str, Any]:
        """The indices that outputs name, by the operation that chooses; `computed`: outputs by their positions."""
        picks = {}
        for position, output in computed.items():
            choice: Any = self._first[position]
            source = choice.source if isinstance(choice, Choice) else None
            if not isinstance(source, Decidable) or tuple(output.shape) != choice.shape or output.is_floating_point():
                continue
            indices = np.full(source.likely().size, -1)
            places = slice(None) if choice.places is None else choice.places.reshape(-1)
            indices[places] = output.detach().cpu().numpy().reshape(-1)
            if (indices >= 0).all():
                picks[source.name] = source.as_rows(indices.reshape(source.shape))
        return picks

    def decide(self, computed: Mapping[int, Tensor], accepts: Accepts, every: bool = False) -> Decision:
        """The readings with the choice that outputs name, or else with one that explains them.

        Args:
            computed: outputs by their positions. accepts: which of their elements are right by a reading.
            every: whether all choices are tried, though one explains the outputs.
        """
        labels = {i: self._labels[i] for i in computed if self._labels[i] is not None}
        search, complete = _Search(labels, computed, accepts), False
        attempts = self._try({**self._picks, **self.named_by(computed)})
        for readings, picks, is_known in attempts:
            search.compare(readings, picks)
            complete = is_known and (complete or search.count == 1)
            if (search.explains and not every) or search.count == MOST:
                break
        complete = search.explains or (complete and next(attempts, None) is None)
        picks = search.best(self._groups)
        readings = search.first if search.count == 1 else self._read(Decisions(picks))
        beyond = {} if complete else search.find_refusals(readings)
        readings = [without_some(y, beyond[i]) if i in beyond else y for i, y in enumerate(readings)]
        open_rows = search.find_open(self._groups, self._open)
        return Decision(readings, picks, search.count, beyond, search.is_unique, open_rows)

    def _try(self, picks: Mapping[str, Any]) -> Iterator[tuple[Sequence[Reading], Mapping[str, Any], bool]]:
        """Readings by all choices, in turn, and the choices; and whether those rows are open that were so at first."""
        decisions = Decisions(picks)
        readings = self._read(decisions)
        name = next((name for name in decisions.open if name not in picks), None)
        if name is None:
            yield readings, picks, True
            return
        source = decisions.open[name]
        rows = source.open_rows()
        groups = np.zeros(source.as_rows(source.likely()).shape[0], dtype=np.int64)
        groups = groups if self._groups is None else self._groups.get(name, groups - 1)
        is_known = bool(np.all(groups[rows] >= 0))
        for indices in _side_by_side(source, rows, groups[rows]):
            for each, others, were_known in self._try({**picks, name: indices}):
                yield each, others, is_known and were_known


def _side_by_side(source: Decidable, rows: Any, groups: Any) -> Iterator[Any]:
    """All choices of every group of rows, those of several groups at the same time, until each has had all of its own.

    Args:
        source: the choice. rows: the numbers of its rows that are open. groups: of these rows.
    """
    tables = source.tables() if len(np.unique(groups)) == len(rows) else None
    if tables is not None:
        yield from tables
        return
    likely = source.as_rows(source.likely())
    ordered = rows[np.argsort(groups, kind="stable")]
    ends = np.cumsum(np.unique(groups, return_counts=True)[1])[:-1]
    ways = [_combinations(source, own.tolist()) for own in np.split(ordered, ends)]
    for picks in itertools.zip_longest(*ways, fillvalue={}) if rows.size else [()]:
        indices = likely.copy()
        pairs = [pair for each in picks for pair in each.items()]
        if pairs:
            indices[[row for row, _ in pairs]] = [sequence for _, sequence in pairs]
        yield indices


def _combinations(source: Decidable, rows: Sequence[int]) -> Iterator[dict[int, Any]]:
    """Every combination of sequences of some rows; first some in which all rows have theirs of the same number."""
    if len(rows) == 1:
        yield from ({rows[0]: sequence} for sequence in source.sequences(rows[0]))
        return
    if rows:
        for sequences in itertools.islice(zip(*map(source.sequences, rows), strict=False), 1, 4):
            yield dict(zip(rows, sequences, strict=True))
    yield from _products(source, rows[:_ROWS])


def _products(source: Decidable, rows: Sequence[int]) -> Iterator[dict[int, Any]]:
    if not rows:
        yield {}
        return
    for sequence in source.sequences(rows[0]):
        for others in _products(source, rows[1:]):
            yield {rows[0]: sequence, **others}


class _Search:
    """How well readings by several choices explain outputs: for each group of rows the best choice so far.

    Attributes:
        count: how many readings were compared. first: the first of them.
    """

    def __init__(self, labels: Mapping[int, Any], computed: Mapping[int, Tensor], accepts: Accepts) -> None:
        self.first: Sequence[Reading] = ()
        self._labels, self._computed, self._accepts = labels, computed, accepts
        count = 1 + max((label.max(initial=-1) for label in labels.values()), default=-1)
        # For each group: the fewest wrong elements, the choice that gives them, and how many choices give none.
        self._fewest, self._best = np.full(count, np.inf), np.zeros(count, dtype=np.int64)
        self._explanations = np.zeros(count, dtype=np.int64)
        self._picks: list[Mapping[str, Any]] = []

    @property
    def count(self) -> int:
        return len(self._picks)

    @property
    def explains(self) -> bool:
        """Whether the best choices explain all elements that depend on a choice."""
        return not self._fewest.any()

    @property
    def is_unique(self) -> bool:
        """Whether for every group exactly one of the tried choices is right."""
        return bool((self._explanations == 1).all())

    def find_open(self, groups: Mapping[str, Any] | None, sources: Mapping[str, Decidable]) -> Mapping[str, Any] | None:
        """See `Decision.open_rows`."""
        several = self._explanations > 1
        if groups is None or not several.size or not self._explanations.all():
            return None
        rows = {name: (of >= 0) & several[np.maximum(of, 0)] for name, of in groups.items()}
        labels = np.concatenate([groups[name][mask] for name, mask in rows.items()])
        alone = len(np.unique(labels)) == len(labels) == np.count_nonzero(several)
        for name, mask in rows.items():
            source = sources.get(name)
            alone &= not mask.any() or (isinstance(source, Draw) and source.tosses(mask))
        return rows if alone else None

    def compare(self, readings: Sequence[Reading], picks: Mapping[str, Any]) -> None:
        """Compare the outputs with readings; `picks`: the choice that they are given."""
        self.first = self.first or readings
        counts = np.zeros(len(self._fewest))
        for i, wrong in self.find_refusals(readings).items():
            counts += np.bincount(self._labels[i][wrong], minlength=len(counts))
        self._best[counts < self._fewest] = self.count
        self._explanations += counts == 0
        self._fewest = np.minimum(self._fewest, counts)
        self._picks.append(picks)

    def find_refusals(self, readings: Sequence[Reading]) -> dict[int, Any]:
        """output -> the wrong elements that depend on a choice."""
        wrong = {}
        for i, label in self._labels.items():
            mask = (label >= 0) & ~np.asarray(self._accepts(i, self._computed[i], readings[i]))
            if mask.any():
                wrong[i] = mask
        return wrong

    def best(self, groups: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """The indices of every row, from the best choice for its group; all rows are one group if `groups` is None."""
        if groups is None:
            return self._picks[self._best[0] if len(self._best) else 0]
        best = dict(self._picks[0])
        for name, indices in best.items():
            if name not in groups or not len(self._best):
                continue
            of_rows = groups[name]
            numbers = np.where(of_rows >= 0, self._best[np.minimum(of_rows, len(self._best) - 1)], 0)
            for number in np.unique(numbers).tolist():
                other = self._picks[number].get(name, indices)
                indices = np.where((numbers == number)[:, None], other, indices)
            best[name] = indices
        return best


def without_some(reading: Reading, beyond: Any) -> Reading:
    """A copy of a reading in which some elements are not judged."""
    if isinstance(reading, Ball):
        ball = Ball(reading.centre, np.where(beyond, np.nan, reading.radii()), reading.contract, True)
        ball.stray = reading.stray
        return ball
    return PartOfAnswerSet(answers_of(reading), beyond)


class PartOfAnswerSet(AnswerSet):
    """Answers of which some elements are not judged."""

    def __init__(self, whole: AnswerSet, beyond: Any) -> None:
        super().__init__(whole.shape)
        self._whole, self._beyond, self.by_residual = whole, beyond, whole.by_residual

    def accepts(self, values: Any) -> Any:
        return self._whole.accepts(values) | self._beyond

    def refutable(self, values: Any) -> Any:
        return self._whole.refutable(values) & ~self._beyond

    def likely(self) -> Any:
        return self._whole.likely()


def decide(readings: Sequence[Reading], computed: Sequence[Tensor], accepts: Accepts, every: bool = False) -> Decision:
    """Readings given the choice of who computed these outputs; readings that depend on no open choice as they are.

    Args:
        readings: a reading for each output. computed: the outputs.
        accepts, every: as for `OpenChoices.decide`, by position here.
    """
    open_ = {i: each for i, each in enumerate(readings) if isinstance(each, OpenReading)}
    if not open_:
        return Decision(readings, {})
    if any(tuple(computed[i].shape) != each.shape for i, each in open_.items()):
        return Decision([each.first if isinstance(each, OpenReading) else each for each in readings], {})
    here = {each.position: i for i, each in open_.items()}
    outputs = {each.position: computed[i] for i, each in open_.items()}
    choices = next(iter(open_.values())).choices
    decision = choices.decide(outputs, lambda position, y, reading: accepts(here[position], y, reading), every)
    readings = [decision.readings[open_[i].position] if i in open_ else each for i, each in enumerate(readings)]
    beyond = {here[i]: mask for i, mask in decision.beyond.items()}
    return replace(decision, readings=readings, beyond=beyond)


def with_choices(
    reader: Callable[[Decisions], Sequence[Reading]], graph: Callable[[], torch.fx.GraphModule | None],
    picks: Mapping[str, Any] | None = None,
) -> tuple[Reading, ...]:  # fmt: skip
    """Readings of a spec; each an `OpenReading` where more is computed from choices that are open and not picked.

    Args:
        reader: reads the spec. graph: of what is read, where it is known. picks: the choices that are known.
    """
    decisions = Decisions(picks or {})
    first = reader(decisions)
    if decisions.open.keys() <= decisions.picks.keys():
        return tuple(first)
    return OpenChoices(reader, first, decisions, graph()).readings
