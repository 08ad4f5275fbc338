"""Two recordings of one step, compared: the calls at which the programs differ beyond what both bounds allow.

Every call of each program is held by itself. So the programs agree where each call of one has its like in the other:
the same operation, with the same numbers, of the same values (`common_values.py`). Where what gave a value is not the
same in both, it is read as a function of earlier values that are (`segments.py`): balls that do not meet are of two
functions.

What is hard here: of calls that only look alike, as the second product of one formula and the third of another, the
values are not the same, and nothing is wrong. So a pair of calls whose operands differ waits; where a later pair takes
the same values after all, it was none. Where several later pairs differ as well, the programs do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...oracles.verdicts.watched import ProgramComparison, ProgramDifference
from .alignment import align
from .call import Tensor, is_floating, kind_of
from .common_values import OTHER, OWN, CommonValues, PairFinding, ValuePair, form_of
from .differences import describe_difference, find_outside
from .ledger import CallLedger
from .program_graph import GraphCall, ProgramGraph, ValueKey, ValueUse
from .segments import PartDistance
from .views import ElementView
from .watcher import Watcher

#: Later pairs that have to differ as well.
_LATER = 4
#: Differences that are told.
_MOST = 8


class _Waiting(NamedTuple):
    """A pair of calls, by their positions, whose values differ; and what was known before it."""

    there: int
    here: int
    finding: PairFinding
    known: Any


class ProgramPair:
    """Two programs as they are compared.

    Attributes:
        values: that they have in common. pairs: positions of calls here -> there. differences: with positions here.
    """

    def __init__(self, there: ProgramGraph, here: ProgramGraph, contract: str) -> None:
        self.values = CommonValues(there, here, contract)
        self.differences: list[tuple[int, ProgramDifference]] = []
        self._graphs = there, here
        self.pairs = align(there.calls, here.calls)
        self._waiting: list[_Waiting] = []
        self._reports: set[int] = set()
        self._is_settled = False

    def compare(self) -> None:
        """Go through the calls here."""
        calls, position, ended = self._graphs[OWN].calls, 0, 0
        while len(self.differences) < _MOST:
            if position == len(calls):
                self._compare_ends(ended)
                theirs = self._outputs(OTHER)
                for shape, own in self._outputs(OWN).items():
                    if len(own) == len(theirs.get(shape, ())) == 1:
                        self._compare_end(own[0], theirs[shape])
                if not self._waiting:
                    break
                position = self._tell()
                continue
            step = calls[position].step
            if step > ended:
                self._compare_ends(ended)
                ended = step
            self._look_at(position, calls[position])
            position += 1
            if self._is_settled or self._count_dependents() >= _LATER:
                position = self._tell()

    def _look_at(self, position: int, call: GraphCall) -> None:
        """Find the like of a call there."""
        if self.values.add(OWN, position, call):
            return
        partner = self.pairs.get(position)
        if partner is None:
            return
        if position in self._reports:
            self._unite(partner, position)
            return
        finding = self._compare_calls(partner, position)
        if finding.distance.ratio > 1:
            self._waiting.append(_Waiting(partner, position, finding, self.values.save()))
            return
        self._unite(partner, position, is_assumed=math.isnan(finding.distance.ratio))
        self._go_on_from(finding)

    def _go_on_from(self, finding: PairFinding) -> None:
        """Pairs that wait among calls that give the same values after all are no pairs.

        That shows only where a difference like that of the pair would be seen; if it would not, later calls show less.
        """
        passed = set(finding.segments[OWN].calls) if finding.segments else set()
        wide = finding.wide
        for each in [each for each in self._waiting if each.here in passed]:
            if wide.ratio <= 1 and wide.room < each.finding.distance.gap:
                self._waiting.remove(each)
            else:
                self._is_settled |= each is self._waiting[0]

    def _unite(self, partner: int, position: int, *, is_assumed: bool = False) -> None:
        counts = (len(graph.calls[i].call.results) for graph, i in zip(self._graphs, (partner, position), strict=True))
        for i in range(min(counts)):
            self.values.unite((partner, i), (position, i), is_assumed=is_assumed)

    def _compare_calls(self, partner: int, position: int) -> PairFinding:
        """Compare the operands of two calls, or what they give where their numbers differ."""
        calls = self._graphs[OTHER].calls[partner], self._graphs[OWN].calls[position]
        if kind_of(calls[OWN].call) == "random":
            return PairFinding(PartDistance(0.0))
        if form_of(calls[OTHER].call) == form_of(calls[OWN].call):
            tensors = zip(*(call.call.tensors for call in calls), strict=True)
            operands = zip(*(call.operands for call in calls), strict=True)
            rows = [
                ValuePair(one, other, (a.dtype, b.dtype))
                for (one, other), (a, b) in zip(operands, tensors, strict=True)
            ]
        else:
            rows = [self._row((partner, i), (position, i)) for i in range(len(calls[OWN].call.results))]
        return self.values.compare(rows)

    def _row(self, there: ValueKey, here: ValueKey) -> ValuePair:
        """Two whole values."""
        one, other = (graph.values[key] for graph, key in zip(self._graphs, (there, here), strict=True))
        wholes = [ValueUse(key, ElementView.whole(tuple(t.shape))) for key, t in ((there, one), (here, other))]
        return ValuePair(wholes[OTHER], wholes[OWN], (one.dtype, other.dtype))

    def _compare_ends(self, step: int) -> None:
        """Compare what the programs have left at the end of a step in memory that they had before.

        Memory that began as different values, as that of an average that one program begins with zeros and the other
        with the first gradient, may have the same in the end.
        """
        ends = [self._ends(side, step) for side in (OTHER, OWN)]
        rest = [key for home, keys in ends[OTHER].items() if home not in ends[OWN] for key in keys]
        for home, keys in ends[OWN].items():
            for key in keys:
                if home in ends[OTHER]:
                    self._compare_end(key, ends[OTHER][home])
                elif step < self._graphs[OWN].calls[-1].step:  # Later calls take it.
                    self._compare_nearest(key, rest)

    def _compare_nearest(self, here: ValueKey, theirs: Sequence[ValueKey]) -> None:
        """Find out whether a value is the nearest of others; if it is not, nothing is wrong."""
        own, others = self._graphs[OWN].values[here].cpu().double(), self._graphs[OTHER].values
        like = [key for key in theirs if others[key].shape == own.shape]
        if like and not self.values.is_common(OWN, here):
            self.values.compare([self._row(min(like, key=self._by_distance(own)), here)])

    def _by_distance(self, own: Tensor) -> Callable[[ValueKey], float]:
        values = self._graphs[OTHER].values
        return lambda key: float((values[key].cpu().double() - own).abs().sum())

    def _ends(self, side: int, step: int) -> dict[Any, list[ValueKey]]:
        """The last values of memory, by the classes of those that it had before."""
        graph, ends = self._graphs[side], dict[ValueKey, ValueKey]()
        for key, home in graph.homes.items():
            if graph.calls[key[0]].step <= step:
                ends[home] = key
        keys_of: dict[Any, list[ValueKey]] = {}
        for home, key in ends.items():
            keys_of.setdefault(self.values.class_of(side, home), []).append(key)
        return keys_of

    def _compare_end(self, here: ValueKey, theirs: Sequence[ValueKey]) -> None:
        """Compare a value with those that may be the same, the nearest first."""
        worst: _Waiting | None = None
        if self.values.is_common(OWN, here):
            return
        for there in sorted(theirs, key=self._by_distance(self._graphs[OWN].values[here].cpu().double())):
            finding = self.values.compare([self._row(there, here)])
            if not finding.distance.ratio > 1:
                self._go_on_from(finding)
                return
            if worst is None or finding.distance.ratio < worst.finding.distance.ratio:
                worst = _Waiting(there[0], here[0], finding, self.values.save())
        self._waiting += [] if worst is None else [worst]

    def _outputs(self, side: int) -> dict[tuple[int, ...], list[ValueKey]]:
        """Values that no call takes and the programs do not have in common, by their shapes."""
        graph = self._graphs[side]
        uses = {operand.key for call in graph.calls for operand in call.operands}
        keys_of: dict[tuple[int, ...], list[ValueKey]] = {}
        for position, call in enumerate(graph.calls):
            key = position, 0
            if key in uses or key in graph.homes or not call.call.results or self.values.is_common(side, key):
                continue
            if is_floating(call.call.results[0]):
                keys_of.setdefault(tuple(call.call.results[0].shape), []).append(key)
        return keys_of

    def count_same(self) -> int:
        """The calls here whose values the other program has as well."""
        calls = enumerate(self._graphs[OWN].calls)
        return sum(all(self.values.is_common(OWN, (i, k)) for k in range(len(c.call.results))) for i, c in calls)

    def _count_dependents(self) -> int:
        """Of the pairs that wait those whose values are made of the first one."""
        if not self._waiting:
            return 0
        chain = {self._waiting[0].here}
        for each in self._waiting[1:]:
            if each.finding.segments and chain & set(each.finding.segments[OWN].calls):
                chain.add(each.here)
        return len(chain) - 1

    def _tell(self) -> int:
        """Tell the first pair that waits, take its values for the same, and go on from there."""
        first = self._waiting[0]
        self.values.restore(first.known)
        self._waiting, self._is_settled = [], False
        self._reports |= {first.here} if self.pairs.get(first.here) == first.there else set()
        self.values.excused |= {(pair.there.key, pair.here.key) for pair in first.finding.pairs}
        difference = describe_difference(self._graphs, (first.there, first.here), first.finding, self.pairs)
        self.differences.append((first.here, difference))
        return first.here


def compare_programs(program: Watcher, other: Watcher) -> ProgramComparison:
    """Compare two forms of one step: eager and compiled, one dtype and another, two versions of a library.

    As in::

        with opassay.watch(model) as eager:
            step(model)
        with opassay.watch(model) as compiled:
            step(torch.compile(model, backend=opassay.watched("inductor")))
        print(opassay.compare_programs(compiled, eager).differences)

    Told are the calls at which they differ beyond what the bounds of both allow, in order, and which of them is wrong
    by its own bound; neither may be.

    Args:
        program, other: blocks that have ended. The places "here" are those of the first.

    Raises:
        ValueError: a block has not ended.
    """
    ledgers = program.ledger, other.ledger
    if ledgers[0] is None or ledgers[1] is None:
        raise ValueError("program, other: need blocks that have ended")
    return compare_ledgers(ledgers[0], ledgers[1], other.name, program.contract)


def compare_ledgers(here: CallLedger, there: CallLedger, name: str, contract: str) -> ProgramComparison:
    """Compare the judged calls of two programs; the arguments are those of `compare_programs`, and the other's name."""
    graphs = (
        ProgramGraph(there.recording.calls, there.recording.sources),
        ProgramGraph(here.recording.calls, here.recording.sources),
    )
    pair = ProgramPair(*graphs, contract)
    pair.compare()
    numbered: list[tuple[float, ProgramDifference]] = [
        (graphs[OWN].calls[position].number, difference) for position, difference in pair.differences
    ]
    numbers = sorted((graphs[OTHER].calls[i].number, graphs[OWN].calls[j].number) for j, i in pair.pairs.items())
    numbered += find_outside((there, here), numbers)
    differences = tuple(difference for _, difference in sorted(numbered, key=lambda each: each[0]))
    counts = [len(graph.calls) for graph in graphs]
    unknown = tuple(pair.values.unknown.most_common())
    return ProgramComparison(name, differences, counts[OWN], counts[OTHER], pair.count_same(), unknown)
