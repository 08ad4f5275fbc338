"""What was found about a program's calls, added up by call site: the data of the page and of the record."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...oracles.verdicts.verdict import Outcome
from ...oracles.verdicts.watched import CallPlace, CallRecord, LossFacts, Site, SiteTotals, Watched
from .call import DispatcherCall, kind_of
from .compiled import GraphRegion
from .first_special import find_first_special
from .judging import CallFinding, CallJudge
from .judging_queue import JudgingQueue
from .mapped_memory import note_read
from .operand_facts import describe_operands
from .recording import Recording, SiteKey
from .recording_files import FindingsFile
from .regions import TABLE

#: Kinds of calls that are judged.
JUDGED = ("computes", "casts", "moves", "integers", "region")
#: Of which a program's arithmetic consists.
COMPUTING = ("computes", "casts", "region")
#: Why calls of the other kinds are not.
_UNHELD = {
    "random": "it draws numbers, and one draw has no right value; what follows is held with the numbers that it drew",
    "memory": "it takes memory, which has no values yet",
    "silent": "it gives no numbers",
}
_NOT_KEPT = "no call of it was kept"
#: Namespaces of torch's own operators.
TORCHS = frozenset(("aten", "prims", "prim", "quantized", "inductor", "profiler", "c10d", "_c10d_functional", "mkldnn"))
#: (calls judged, calls in all) -> None.
Progress = Callable[[int, int], None]


class CallLedger:
    """The calls of a recording as they are judged.

    Attributes:
        cases: name of a case -> the call that it is about, for whoever writes it into a file. graphs: name of a
            program -> the call of a compiled graph of which it is to be a piece.
        recording: that is judged. findings: about its calls, by number.
    """

    def __init__(self, recording: Recording, judge: CallJudge) -> None:
        self.cases: dict[str, DispatcherCall] = {}
        self.graphs: dict[str, DispatcherCall] = {}
        self.recording, self._judge = recording, judge
        self._calls = recording.calls
        self.findings: dict[int, CallFinding] = {}
        self._is_known = not math.isnan(recording.error.value)

    def judge_calls(self, progress: Progress | None = None, folder: Path | None = None, jobs: int = 1) -> None:
        """Judge what was kept; an interrupt ends it, and leaves what is known so far.

        Args:
            progress: told how many calls are judged, of how many. folder: that has the recording: what is found is
                kept there, and what is there already is not judged again. jobs: processes, of which this one is one.
        """
        wanted = [call for call in self._calls if kind_of(call) in JUDGED]
        covered = {call.number for call in wanted if call.covered}
        with contextlib.nullcontext() if folder is None else FindingsFile(folder) as file:
            shares = self.recording.error.shares

            def note(number: int, finding: CallFinding) -> None:
                # What a call adds to the error of a region around it is in the region's own.
                own = replace(finding, contribution=shares.get(number, math.nan))
                own = own if self._is_known or number in covered else finding
                self.findings[number] = own
                note_read(8 * own.elements)
                if file is not None:
                    file.add(number, own)
                if progress is not None:
                    progress(len(self.findings), len(wanted))

            self.findings |= file.findings if file is not None else {}
            pending = [call for call in wanted if call.number not in self.findings]
            JudgingQueue(pending, self._judge, note).judge(folder, jobs - 1 if folder is not None else 0)

    def regions(self) -> list[DispatcherCall]:
        """The calls of regions: of those with a spec, and of compiled graphs."""
        return [call for call in self._calls if kind_of(call) == "region"]

    def result(self, program: str) -> Watched:
        """What is known of the program."""
        order = self.recording.order
        firsts: dict[SiteKey, int] = {}
        for number, key in enumerate(order):
            firsts.setdefault(key, number)
        positions = {key: position for position, key in enumerate(firsts)}
        sites = self._sites(firsts)
        kinds = Counter(kind_of(call) for call in self._calls) + Counter(view=self.recording.views)
        by_number = {call.number: call for call in self._calls}
        records = tuple(self._record(positions[key], by_number.get(i)) for i, key in enumerate(order))
        of_calls = [positions[call.name, call.origin] for call in self._calls]
        special = find_first_special(self._calls, of_calls)
        return Watched(
            program, sites, records, self._loss(), special, tuple(kinds.items()), self.recording.choice,
            tuple(self._regions_without_spec().items()),
        )  # fmt: skip

    def _regions_without_spec(self) -> Counter[str]:
        """Operators that are not torch's, and autograd functions, of which there is no spec -> how many calls."""
        names = Counter(self.recording.functions)
        if any(isinstance(call.op, GraphRegion) for call in self._calls):
            del names["CompiledFunction"]  # the function around compiled graphs that are held
        for (name, _), count in self.recording.counts.items():
            if "::" in name and name.partition("::")[0] not in TORCHS and name not in TABLE:
                names[name] += count
        return names

    def _record(self, site: int, call: DispatcherCall | None) -> CallRecord:
        finding = self.findings.get(call.number) if call is not None else None
        return CallRecord(site) if finding is None else CallRecord(site, finding.ratio, finding.contribution)

    def _sites(self, firsts: Mapping[SiteKey, int]) -> tuple[Site, ...]:
        numbers: Counter[tuple[str, str, bool]] = Counter()
        calls: dict[SiteKey, list[DispatcherCall]] = {key: [] for key in firsts}
        for call in self._calls:
            calls[call.name, call.origin].append(call)
        sites, counts = [], self.recording.counts
        for key, first in firsts.items():
            op, origin = key
            among = (op, origin.module, bool(origin.node))
            place = CallPlace(op, origin.module, origin.line, origin.node, numbers[among])
            numbers[among] += 1
            sites.append(replace(self._site(place, calls[key], counts[key]), first=first))
        return tuple(sites)

    def _site(self, place: CallPlace, calls: Sequence[DispatcherCall], count: int) -> Site:
        if not calls:
            return Site(place, "none", "unkept", Outcome.NOT_RUN, _NOT_KEPT, totals=SiteTotals(count))
        kind, dtype = kind_of(calls[0]), calls[0].dtype
        seconds = sum(call.seconds for call in calls)
        pairs = [(call, self.findings[call.number]) for call in calls if call.number in self.findings]
        if not pairs:
            reason = _UNHELD.get(kind, "it was not judged before the end")
            return Site(place, dtype, kind, Outcome.NOT_RUN, reason, totals=SiteTotals(count, seconds=seconds))
        contributions = [finding.contribution for _, finding in pairs if not math.isnan(finding.contribution)]
        totals = SiteTotals(
            count, sum(finding.is_read for _, finding in pairs), sum(finding.elements for _, finding in pairs), seconds,
            sum(contributions) if contributions else math.nan, sum(map(abs, contributions), 0.0),
        )  # fmt: skip
        worst, finding = max(pairs, key=lambda pair: (pair[1].wrong is not None, pair[1].ratio, bool(pair[1].reason)))
        outcome, reason = _outcome_of(pairs, finding)
        site = Site(place, dtype, kind, outcome, reason, finding.ratio, totals)
        if outcome is Outcome.VERIFIED:
            return site
        site = replace(site, operands=describe_operands(worst))
        if finding.wrong is None:
            return site
        digest = hashlib.sha256(place.text.encode("utf-8", "replace")).hexdigest()
        case = f"{digest[:8]}-{worst.number:06x}"
        if isinstance(worst.op, GraphRegion):
            self.graphs[f"{case}.py"] = worst
            return replace(site, card=str(finding.wrong), case=f"{case}.py")
        if kind == "region":  # which no operation of a file computes
            return replace(site, card=str(finding.wrong))
        self.cases[case] = worst
        return replace(site, card=str(finding.wrong), case=case)

    def _loss(self) -> LossFacts | None:
        of, losses = self.recording.followed, self.recording.losses
        if of is None and not losses:
            return None
        # Calls of an inner backward pass, as of a gradient that is part of the loss, are among them.
        earlier = [call for call in self._calls if call.number < self.recording.last]
        findings = (self.findings.get(call.number, CallFinding()) for call in earlier)
        parts = [finding.contribution for finding in findings if not math.isnan(finding.contribution)]
        name = "loss" if len(losses) == 1 else f"sum of {len(losses)} losses"
        facts = LossFacts(name, float(sum(losses)), sum(parts, 0.0), sum(map(abs, parts), 0.0))
        facts = facts if of is None else replace(facts, name=of.name, value=of.value, about=of.about)
        unknown = () if self._is_known else self._unknown(earlier)
        return replace(facts, error=self.recording.error.value, unknown=unknown)

    def _unknown(self, earlier: Sequence[DispatcherCall]) -> tuple[str, ...]:
        """Operations before the end that round, and of which no derivative is known; or are not read."""
        names, of, lost = dict[str, None](), self.recording.followed, self.recording.error.lost
        for call in earlier:
            finding, is_known = self.findings.get(call.number), _has_derivative(call)
            if finding is None or call.covered or kind_of(call) not in COMPUTING:
                continue
            # A sweep from the number itself reaches every call that the number depends on; autograd none of backward.
            is_apart = call.origin.node if of is None else not (is_known or call.number in lost)
            if not is_apart and (not finding.is_read or (finding.ratio and not (is_known and _is_whole(finding)))):
                names[call.name] = None
        return tuple(list(names)[:64])


def _is_whole(finding: CallFinding) -> bool:
    """Whether the contribution of a call is of all its elements: of some rows alone there is none."""
    return not finding.reason or not math.isnan(finding.contribution)


def _has_derivative(call: DispatcherCall) -> bool:
    """Whether the derivative of the loss by a result of a call is known: also that it is zero."""
    return any(call.tracked) or any(each is not None for each in call.adjoints)


def _outcome_of(pairs: Sequence[tuple[DispatcherCall, CallFinding]], worst: CallFinding) -> tuple[Outcome, str]:
    """The outcome of a site, and a sentence; `worst`: what was found about its worst call."""
    if worst.wrong is not None:
        return Outcome.FAIL, worst.wrong.title
    unread = [finding.reason for _, finding in pairs if not finding.is_read]
    if len(unread) == len(pairs):
        return Outcome.UNSUPPORTED, unread[0]
    unbounded = sum(finding.unbounded for _, finding in pairs)
    if unread or unbounded:
        why = unread[0] if unread else next(finding.reason for _, finding in pairs if finding.unbounded)
        return (
            Outcome.WEAK,
            f"{len(unread)} of {len(pairs)} calls were not read, {unbounded} elements have no bound: {why}",
        )
    return Outcome.VERIFIED, f"held{worst.reason and f', {worst.reason}'}"
