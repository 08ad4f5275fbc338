"""Words for the differences of two programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...oracles.verdicts.watched import CallPlace, ProgramDifference
from .call import DispatcherCall, Tensor
from .common_values import OTHER, OWN, PairFinding, form_of
from .compiled import GraphRegion
from .judging import CallFinding
from .ledger import CallLedger
from .operand_facts import describe, list_operands
from .program_graph import THERE, GraphCall, ProgramGraph, ValueUse

#: Calls of one program alone that are named.
_MOST = 3


def place_of(call: DispatcherCall) -> CallPlace:
    """Where a program makes a call."""
    return CallPlace(call.name, call.origin.module, call.origin.line, call.origin.node)


def describe_difference(
    graphs: Sequence[ProgramGraph], at: tuple[int, int], finding: PairFinding, pairs: Mapping[int, int]
) -> ProgramDifference:  # fmt: skip
    """What differs at a pair of calls.

    Args:
        graphs: of the other program and of this one. at: the positions of the calls. finding: about them.
        pairs: positions of calls here -> there.
    """
    calls = [graph.calls[i] for graph, i in zip(graphs, at, strict=True)]
    there, here = calls
    numbers = _numbers_that_differ(there.call, here.call)
    if not finding.segments:
        pair = finding.pairs[0]
        name = _name_of(here, pair.here)
        facts = [describe(name, graph.values[each.key]) for graph, each in zip(graphs, pair[:2], strict=True)]
        text = f"takes other numbers: {facts[OWN]} here; {facts[OTHER].removeprefix(f'{name}: ')} there"
    elif numbers and pairs.get(at[OWN]) == at[OTHER]:
        text = f"takes {', '.join(numbers[OWN])} here and {', '.join(numbers[OTHER])} there"
    else:
        text = _describe_segments(graphs, finding, pairs) or f"takes {_givers(graphs, finding)}"
    rest = "; both calls are within their bounds, and the programs differ"
    return ProgramDifference(place_of(here.call), place_of(there.call), f"{text}{rest}", ratio=finding.distance.ratio)


def _describe_segments(graphs: Sequence[ProgramGraph], finding: PairFinding, pairs: Mapping[int, int]) -> str:
    """The calls of one program alone."""
    paired = set(pairs.values()), set(pairs)
    parts = []
    for side, words in ((OWN, "here alone"), (OTHER, "there alone")):
        alone = [i for i in finding.segments[side].calls if i not in paired[side]]
        names = [place_of(graphs[side].calls[i].call).text for i in alone]
        more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
        parts += [f"{', '.join(names[-_MOST:])}{more} is called {words}"] if names else []
    return "; ".join(parts)


def _givers(graphs: Sequence[ProgramGraph], finding: PairFinding) -> str:
    """What gave the values that differ."""
    pair = finding.pairs[0]
    texts = [
        "what was there before" if operand.key[0] == THERE else
        f"what {place_of(graph.calls[operand.key[0]].call).text} gave"
        for graph, operand in zip(graphs, pair[:2], strict=True)
    ]  # fmt: skip
    same = "" if texts[0] != texts[1] else ", other elements of it" if pair.here.view != pair.there.view else ""
    return f"{texts[OWN]} here and {texts[OTHER]} there{same}"


def _numbers_that_differ(there: DispatcherCall, here: DispatcherCall) -> list[list[str]]:
    """The operands that are no tensors and differ, there and here, by their names."""
    if form_of(there) == form_of(here):
        return []
    lines = [
        [f"{name}={value}" for name, value in list_operands(call) if not isinstance(value, Tensor)]
        for call in (there, here)
    ]
    own = [[line for line in lines[i] if line not in lines[1 - i]] for i in (OTHER, OWN)]
    return [each or ["no such number"] for each in own] if any(own) else []


def _name_of(call: GraphCall, operand: ValueUse) -> str:
    names = [name for name, value in list_operands(call.call) if isinstance(value, Tensor)]
    return next((name for name, own in zip(names, call.operands, strict=False) if own == operand), "operand")


def find_outside(
    ledgers: Sequence[CallLedger], numbers: Sequence[tuple[int, int]]
) -> Iterator[tuple[float, ProgramDifference]]:  # fmt: skip
    """The calls that are outside of their own bounds, with the numbers of where they are here.

    Args:
        ledgers: of the other program and of this one. numbers: of calls there and here that are one, in order.
    """
    calls = [{call.number: call for call in ledger.recording.calls} for ledger in ledgers]
    for side, ledger in enumerate(ledgers):
        partners = {pair[side]: pair[1 - side] for pair in numbers}
        for number, finding in ledger.findings.items():
            if finding.wrong is None:
                continue
            is_graph = isinstance(calls[side][number].op, GraphRegion)
            partner = None if is_graph else calls[1 - side].get(partners.get(number, -1))
            places = [place_of(calls[side][number]), None if partner is None else place_of(partner)]
            here, there = places if side == OWN else reversed(places)
            word, rest = ("here", "there") if side == OWN else ("there", "here")
            like = "" if partner is None else _say_of_partner(ledgers[1 - side].findings.get(partner.number), rest)
            text = f"outside of its bound {word}{like}: {finding.wrong.title}"
            before = number if side == OWN else max((own for other, own in numbers if other <= number), default=-1)
            yield before, ProgramDifference(here, there, text, word, finding.ratio)


def _say_of_partner(finding: CallFinding | None, word: str) -> str:
    if finding is None or not finding.is_read:
        return ""
    return f", and {word} as well" if finding.wrong is not None else f", and held {word}"
