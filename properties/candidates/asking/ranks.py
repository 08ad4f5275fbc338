"""COMM: what several ranks alone can have wrong: when they read and write, how axes are cut, who hears of errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ....oracles.verdicts.verdict import Code, Outcome
from ..arguments import CallArguments
from ..call_history import CallHistory
from ..domain.copies import safe_calls
from ..finding import Finding, not_asked, passing, raised, with_lines, wrong
from ..host.apart import CandidateError
from ..host.calls import Manner
from ..inputs import WAYS, keep
from ..rank_specs import spec_of_world
from ..rank_world import RankGroup
from ..records import Records
from ..session import Asking, Session
from ..specification import SpecError
from .gradient_call import gradients_at
from .gradient_request import GradientPlace
from .gradients import mark_as_given

_ALONE = "the candidate is one process; --world N asks it on N ranks"


def late(session: Session) -> Finding:
    """COMM:late: values and gradients where operands of collectives are read as late as they may."""
    if not isinstance(session.candidate, RankGroup):
        return not_asked("COMM:late", _ALONE)
    if session.candidate.is_real:
        return not_asked("COMM:late", f"not asked on {session.candidate.wire}, which is late as it likes")
    finding = session.values("COMM:late", session.arguments, manner=Manner.LATE)
    return _with_gradients(session, finding, session.arguments, GradientPlace(manner=Manner.LATE))


def parts(session: Session) -> Finding:
    """COMM:parts: sharded axes that the ranks do not divide, and that have fewer elements than there are ranks."""
    if not isinstance(session.candidate, RankGroup):
        return not_asked("COMM:parts", _ALONE)
    findings = []
    for arguments in safe_calls(session.spec, _calls_of_parts(session, session.candidate)):
        try:
            finding = session.values("COMM:parts", arguments, refusable=True)
        except SpecError:  # it has no reading there
            continue
        finding = _with_gradients(session, finding, arguments, GradientPlace(other=True))
        if finding.is_wrong:
            return finding
        findings.append(finding)
        session.candidate.is_uneven |= finding.outcome in (Outcome.VERIFIED, Outcome.WEAK)
    return _sum_up("COMM:parts", findings, "no axis of an argument is sharded, or the spec takes no other sizes")


def _calls_of_parts(session: Session, ranks: RankGroup) -> Iterator[CallArguments]:
    """The arguments with other sizes of each axis that is sharded."""
    shapes, rng, first = session.domain.shapes, session.generator("RANKS parts"), session.arguments
    for symbol in shapes.symbols:
        count = max((_count_parts(ranks, i, axis, first) for i, axis in symbol.axes), default=1)
        if count < 2:
            continue
        for extent in (count * max(shapes.extent(symbol) // count, 1) + 1, count - 1):
            new = shapes.resized({symbol: extent})
            if session.domain.allows(new) and new != shapes.start:
                others = session.filled(session.domain.at(first, new), WAYS["FWD:signs"], rng)
                yield mark_as_given(session, keep(others, session.domain, rng))


def _count_parts(ranks: RankGroup, i: int, axis: int, arguments: CallArguments) -> int:
    """In how many parts an axis of a tensor argument is cut."""
    ndim = arguments.tensors[i].ndim if i < len(arguments.tensors) else 0
    lying = ranks.parts.placements.of(ranks.parts.names.tensor(i))
    sizes = zip(lying, ranks.parts.placements.mesh, strict=True)
    return math.prod(size for each, size in sizes if each.is_shard() and ndim and each.dim % ndim == axis)


def worlds(session: Session) -> Finding:
    """COMM:worlds: values and gradients on other numbers of ranks."""
    if not isinstance(session.candidate, RankGroup):
        return not_asked("COMM:worlds", _ALONE)
    findings = []
    for size, begin in session.candidate.others.items():
        if not (session.candidate.is_uneven or _divides(session, session.candidate, size)):
            continue  # That is no question of how many ranks there are.
        try:
            other = begin()
        except CandidateError as err:
            findings.append(raised("COMM:worlds", str(err), refusable=True))
            continue
        spec = spec_of_world(session.spec, size)
        fresh: dict[str, Any] = {"records": Records(), "packed": {}, "history": CallHistory(), "readings": {}}
        there = replace(session, spec=spec, candidate=other, **fresh)
        finding = there.values("COMM:worlds", session.arguments, refusable=True)
        finding = _with_gradients(there, finding, session.arguments, GradientPlace(other=True))
        session.candidate.parts.replicas += [f"of {size} ranks, {text}" for text in other.parts.replicas]
        if finding.is_wrong:
            return with_lines(finding, f"ranks      {size}")
        findings.append(finding)
    return _sum_up("COMM:worlds", findings, "the mesh has several axes, or no other number divides what is sharded")


def _divides(session: Session, ranks: RankGroup, size: int) -> bool:
    """Whether a number of ranks divides every axis that is sharded."""
    tensors = session.arguments.tensors
    axes = (
        (t.shape[d], _count_parts(ranks, i, d, session.arguments)) for i, t in enumerate(tensors) for d in range(t.ndim)
    )
    return all(extent % size == 0 for extent, count in axes if count > 1)


def _with_gradients(session: Session, finding: Finding, arguments: CallArguments, place: GradientPlace) -> Finding:
    """The finding of values, or that of gradients at the same call where values are right and it has gradients."""
    offers = any(g is not None for g in session.history.gradients.values()) or place.other
    if finding.outcome not in (Outcome.VERIFIED, Outcome.WEAK) or not offers:
        return finding
    try:
        slopes = gradients_at(session, arguments, "VJP:grad", place)
    except SpecError:
        return finding
    if slopes.is_wrong:
        return replace(slopes, question=finding.question)
    judged = slopes.judged if slopes.outcome in (Outcome.VERIFIED, Outcome.WEAK) else 0
    return replace(finding, judged=finding.judged + judged, elements=finding.elements + judged)


def _sum_up(question: str, findings: list[Finding], without: str) -> Finding:
    """One finding for several calls: refused where all were refused."""
    others = [each for each in findings if each.outcome is not Outcome.REFUSED]
    if not findings:
        return not_asked(question, without)
    judged, elements = sum(each.judged for each in others), sum(each.elements for each in others)
    return replace(others[0], judged=judged, elements=elements) if others else findings[0]


def errors(session: Session) -> Finding:
    """COMM:errors: whoever is told that a rank is lost ends with an error."""
    ranks, call = session.candidate, session.history.plain
    if not isinstance(ranks, RankGroup):
        return not_asked("COMM:errors", _ALONE)
    if call is None or ranks.size < 2:
        return not_asked("COMM:errors", "there is one rank, or no call has been made")
    waits = 0
    for rank in ranks.lost_ranks(session.generator("RANKS lost")):
        answers, victims = ranks.ask_broken(call, rank)
        waits += bool(victims)
        silent = next((each for each in sorted(victims) if not answers[each].raised), None)
        if silent is not None:
            title = f"rank {silent} returned a result, though rank {rank} was lost to the others"
            return wrong("COMM:errors", Code.NOT_RAISED, title, f"input      {session.arguments.text}")
    return passing("COMM:errors") if waits else not_asked("COMM:errors", "no rank waits for another")


def replicas(session: Session) -> Finding:
    """COMM:replicas: what several ranks must have alike had the same bits in all calls."""
    ranks = session.candidate
    if not isinstance(ranks, RankGroup):
        return not_asked("COMM:replicas", _ALONE)
    if ranks.parts.replicas:
        first, *more = ranks.parts.replicas
        return wrong("COMM:replicas", Code.BITS, first, *[f"also       {text}" for text in more[:3]])
    if not ranks.parts.compared:
        return not_asked("COMM:replicas", "nothing is on several ranks")
    return replace(passing("COMM:replicas", ranks.parts.compared), elements=ranks.parts.compared)


ASKING: dict[str, Asking] = {
    "COMM:late": late, "COMM:parts": parts, "COMM:worlds": worlds, "COMM:errors": errors, "COMM:replicas": replicas,
}  # fmt: skip
