"""The judgement of a candidate: what it says, and how it is told to people and to programs."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from ...oracles.verdicts.verdict import Code, Outcome, clean, explanation_lines
from ..table import TABLE, former_name, property_of
from .finding import Finding
from .host.isolation import Isolation
from .host.operations import Operations
from .host.timing import Timing
from .judge_draws import Draws


class Ruling(enum.StrEnum):
    """The verdict on a candidate."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    SUSPECT = "suspect"  # nothing is wrong, but an output is farther off than rounding errors are likely to bring it
    WEAK = "weak"  # nothing is wrong, but what was asked says little
    ERROR = "error"  # the spec cannot be read, or the judge is at fault: nothing is said of the candidate


#: The number of what `Judgement.as_json` gives.
SCHEMA = 2
#: What is asked at calls unlike the given one.
OF_OTHER_CALLS = ("VJP:grad", "SIZE:sizes")
#: The marks of outcomes that reject nothing.
_MARKS = {Outcome.VERIFIED: "ok", Outcome.WEAK: "vacuous", Outcome.REFUSED: "refused"}
#: Codes whose findings say all that there is to say: what these usually mean for ops is of no use beside it.
_TOLD = (Code.RAISED, Code.ATTRIBUTE, Code.CRASHED, Code.TIMED_OUT)
#: What a program is told of the elements outside.
_OF_OUTLIERS = (
    *("output", "index", "computed", "exact", "bound", "ratio"),
    *("outside", "elements", "box", "place", "relation", "share"),
)
#: Outcomes of what was not asked.
_NOT_ASKED = (Outcome.UNSUPPORTED, Outcome.NOT_RUN, Outcome.ERROR)


@dataclass(frozen=True)
class Covered:
    """How many elements of an output were judged at the given inputs, of how many."""

    output: str
    judged: int
    elements: int


@dataclass(frozen=True)
class Assignment:
    """What is judged, and by what.

    Attributes:
        candidate, spec: their names. contract: the terms, in one line. draws: from what everything was drawn.
        dtype: of the first floating tensor of the given inputs, "none" where there is none.
        sha256: of the files that were executed, where there are any: "candidate" and "spec".
        isolation: of the candidate's process, where it has one.
        device: where the given inputs are, "cpu" or "cuda".
        others: which calls unlike the given one were asked, in one line; empty where none was.
        domain: what is known of the arguments of all calls, in lines.
    """

    candidate: str
    spec: str
    contract: str
    draws: Draws
    dtype: str = "none"
    sha256: Mapping[str, str] = field(default_factory=dict)
    isolation: Isolation | None = None
    device: str = "cpu"
    others: str = ""
    domain: Sequence[str] = ()


@dataclass(frozen=True)
class Judgement:
    """What was found out about a candidate.

    Attributes:
        assignment: what was judged, and by what. verdict: see `Ruling`.
        findings: one for each question that was reached, in order.
        weaknesses: why a verdict says little, a sentence each.
        arithmetic: the strictest precision that the candidate kept, in words; `kept` is the name of its terms.
        error: why there is no verdict on the candidate; empty where there is one.
        coverage: of each output and of what the spec writes, in order; empty where no value was held.
        execution: how kernels were executed as PTX, and where, in lines; empty where none was.
        seconds: how long the questions took. timing: of spec and candidate; no part of the verdict.
        operations: what a call runs, as its process tells it; no part of the verdict. None where that was not asked.
    """

    assignment: Assignment
    verdict: Ruling
    findings: tuple[Finding, ...] = ()
    weaknesses: tuple[str, ...] = ()
    arithmetic: str = ""
    kept: str = ""
    error: str = ""
    coverage: tuple[Covered, ...] = ()
    seconds: float = 0.0
    execution: tuple[str, ...] = ()
    timing: Timing | None = None
    operations: Operations | None = None

    @property
    def causes(self) -> tuple[Finding, ...]:
        """The findings that are wrong."""
        return tuple(finding for finding in self.findings if finding.is_wrong)

    @property
    def suspicions(self) -> tuple[Finding, ...]:
        """The findings that are within what is proven, and not likely."""
        return tuple(finding for finding in self.findings if finding.is_suspect)

    @property
    def spreads(self) -> tuple[Finding, ...]:
        """The findings that a NaN or an infinity reaches other elements than in the spec, which are not counted."""
        return tuple(finding for finding in self.findings if finding.is_spread)

    @property
    def difference(self) -> str:
        """Why another candidate, that was asked beside this one, has other values; a card, empty where none was."""
        return next((str(each.wrong) for each in self.findings if each.question == "PARITY" and each.wrong), "")

    def as_json(self, schema: int = SCHEMA) -> str:
        """One line for a program; of schema 1 with the names that kinds had before, until 0.2."""
        name = str if schema == SCHEMA else former_name
        of = self.assignment
        isolation = of.isolation or Isolation()
        record = {
            "schema": schema,
            "verdict": str(self.verdict),
            "causes": [cause_data(finding) | {"question": name(finding.question)} for finding in self.causes],
            "suspect": [clean(str(finding.wrong))[:2000] for finding in self.suspicions],
            "spread": [clean(str(finding.wrong))[:2000] for finding in self.spreads],
            "parity": clean(self.difference)[:2000],
            "arithmetic": self.arithmetic,
            "kept": self.kept,
            "contract": of.contract,
            "weaknesses": list(self.weaknesses),
            "asked": [name(finding.question) for finding in self.findings if finding.outcome not in _NOT_ASKED],
            "elements": sum(finding.judged for finding in self.findings),
            "coverage": {each.output: {"judged": each.judged, "elements": each.elements} for each in self.coverage},
            "judged": {
                name(finding.question): [finding.judged, finding.elements]
                for finding in self.findings
                if finding.elements
            },
            "sampled": {name(finding.question): finding.sampled for finding in self.findings if finding.sampled},
            "left_out": {
                name(finding.question): clean(finding.unasked)[:2000] for finding in self.findings if finding.unasked
            },
            "executed": [clean(line)[:2000] for line in self.execution],
            "seed": of.draws.seed,
            "draws": of.draws.digits,
            "isolation": isolation.by,
            "isolated": list(isolation.holds),
            "seconds": round(self.seconds, 3),
            "candidate": of.candidate,
            "spec": of.spec,
            "error": self.error,
            "ran": None if self.operations is None else msgspec.to_builtins(self.operations),
            "sha256": dict(of.sha256),
            "asked_with": of.others,
            "domain": [clean(line)[:2000] for line in of.domain],
        }
        if self.timing is not None:
            record["time"] = self.timing.record
        return json.dumps(record, allow_nan=False)

    def __str__(self) -> str:
        return self.report()

    def report(self, *, verbose: bool = False) -> str:
        """The whole text: a line for every property, a card for the first cause of every code, and the verdict.

        A kind that is not all right has a line of its own. With `verbose` every kind has one, and every cause has its
        card, and every question that the candidate refuses by an exception.
        """
        of = self.assignment
        known = "" if of.draws.secret else f", {of.draws}"
        lines = [f"{of.candidate} against {of.spec}{known}", f"allowed: {of.contract}"]
        lines += [f"sha256 of the {name}: {digest}" for name, digest in of.sha256.items() if digest]
        lines += map(report_line, self.findings if verbose else _by_property(self.findings))
        refusals = [finding for finding in self.findings if finding.outcome is Outcome.REFUSED]
        every: list[tuple[Finding, list[Finding]]] = [(finding, []) for finding in (*self.causes, *refusals)]
        for finding, others in every if verbose else _first_of_each(self.causes):
            lines += ["", f"{finding.question}: {finding.wrong}", *_advice(finding, others)]
        for finding in (*self.suspicions, *self.spreads[:1]):
            lines += ["", f"{finding.question}: {finding.wrong}"]
        has_card = any(each.question == "PARITY" for each in (*self.causes, *self.suspicions))
        lines += ["", f"PARITY: {self.difference}"] if self.difference and not has_card else []
        lines += ["", self.summary]
        return clean("\n".join(lines))

    @property
    def summary(self) -> str:
        """The verdict with its reasons, in lines."""
        lines = [f"{self.verdict}{self._because()}"]
        lines += [
            f"  judged: {each.judged} of {each.elements} elements of {each.output} at the given inputs"
            for each in self.coverage
        ]
        lines += [f"  asked with: {self.assignment.others}"] if self.assignment.others else []
        lines += [f"  suspect: {finding.text}" for finding in self.suspicions]
        lines += [f"  spread, not counted: {finding.text}" for finding in self.spreads]
        lines += [f"  parity: {line}" for line in self.difference.splitlines()[:1]]
        lines += [f"  weak: {text}" for text in self.weaknesses]
        lines += [f"  executed{'' if line.startswith('on ') else ' as PTX'}: {line}" for line in self.execution]
        lines += [f"  keeps the bound of: {self.arithmetic}"] if self.arithmetic else []
        lines += [f"  time: {self.timing}"] if self.timing is not None else []
        of = self.assignment
        lines += [f"  isolation: {of.isolation}"] if of.isolation is not None and of.isolation.lacks else []
        lines += [f"  drawn anew: --draws {of.draws.digits} draws the same"] if of.draws.secret else []
        return clean("\n".join(lines))

    def _because(self) -> str:
        if self.error:
            return f": {self.error}"
        codes = ", ".join(finding.question for finding in self.causes or self.suspicions)
        return f": {codes}" if codes else ""


def _by_property(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, of which those of a property's kinds that say no more than how much was right become one."""
    alike: dict[str, list[Finding]] = {}
    for each in findings:
        is_plain = each.outcome is Outcome.VERIFIED and each.wrong is None and not each.sampled and not each.left_out
        alike.setdefault(property_of(each.question) if is_plain else each.question, []).append(each)
    return [
        replace(every[0], question=" ".join(each.question for each in every),
                judged=sum(each.judged for each in every), elements=sum(each.elements for each in every))
        for every in alike.values()
    ]  # fmt: skip


def report_line(finding: Finding) -> str:
    """One finding as a line of the report; of several kinds of a property, all of which are right, too."""
    code, *others = finding.question.split()
    kinds = [each.partition(":")[2] or "samples" for each in (code, *others)]
    title, code = (", ".join(kinds), property_of(code)) if others else (TABLE[code].title, code)
    mark = "suspect" if finding.is_suspect else "WRONG" if finding.is_wrong else _MARKS.get(finding.outcome, "-")
    mark = "spread" if finding.is_spread else mark
    return clean(f"{mark:8}{code:15} {title:59} {finding.text}".rstrip())


def _first_of_each(causes: Sequence[Finding]) -> list[tuple[Finding, list[Finding]]]:
    """The first finding of every code, with those that follow: what is wrong on the given inputs is wrong on many."""
    groups: dict[Code, list[Finding]] = {}
    for finding in causes:
        if finding.wrong is not None:
            groups.setdefault(finding.wrong.code, []).append(finding)
    return [(first, others) for first, *others in groups.values()]


def _advice(finding: Finding, others: Sequence[Finding]) -> list[str]:
    """The end of a card: which other questions show the same, what it usually means, and what explains more."""
    assert finding.wrong is not None
    alike = ", ".join(each.question for each in others)
    lines = [f"also       {len(others)} more alike: {alike}"] if others else []
    explained = explanation_lines(finding.wrong.code)
    explained = explained[-1:] if finding.wrong.code in _TOLD else explained
    return [f"  {line}" for line in [*lines, *explained]]


def cause_data(finding: Finding) -> dict[str, Any]:
    """A finding that is wrong, for a program; numbers that JSON does not have are texts."""
    wrong = finding.wrong
    assert wrong is not None
    data: dict[str, Any] = {
        "question": finding.question,
        "code": str(wrong.code),
        "title": TABLE[finding.question].title,
        "text": clean(str(wrong))[:2000],
    }
    if wrong.outlier is not None:
        numbers = {name: getattr(wrong.outlier, name) for name in _OF_OUTLIERS}
        data |= {
            name: repr(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in numbers.items()
        }
    return data


def ruling(findings: Sequence[Finding], weaknesses: Sequence[str]) -> Ruling:
    """The verdict that findings make."""
    if any(finding.is_wrong for finding in findings):
        return Ruling.REJECTED
    if any(finding.is_suspect for finding in findings):
        return Ruling.SUSPECT
    return Ruling.WEAK if weaknesses else Ruling.ACCEPTED
