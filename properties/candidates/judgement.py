"""The judgement of a candidate: what it says, and how it is told to people and to programs."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...oracles.verdicts.verdict import clean
from .finding import Finding
from .questions import QUESTIONS, Standing


class Ruling(enum.StrEnum):
    """The verdict on a candidate."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    SUSPECT = "suspect"  # nothing is wrong, but an output is farther off than rounding errors are likely to bring it
    WEAK = "weak"  # nothing is wrong, but what was asked says little
    ERROR = "error"  # the spec cannot be read, or the judge is at fault: nothing is said of the candidate


_MARKS = {
    Standing.HELD: "ok",
    Standing.WRONG: "WRONG",
    Standing.VACUOUS: "vacuous",
    Standing.SUSPECT: "suspect",
    Standing.REFUSED: "refused",
    Standing.NOT_ASKED: "-",
}


@dataclass(frozen=True)
class Covered:
    """How many elements of an output were judged at the given inputs, of how many."""

    output: str
    judged: int
    elements: int


@dataclass(frozen=True)
class Judgement:
    """What was found out about a candidate.

    Attributes:
        verdict: see `Ruling`. candidate, spec: their names.
        contract: the terms, in one line. seed: of everything that was drawn.
        findings: one for each question that was reached, in order.
        weaknesses: why a verdict says little, a sentence each.
        arithmetic: the strictest precision that the candidate kept, in words; `kept` is the name of its terms.
        error: why there is no verdict on the candidate; empty where there is one.
        sha256: of the files that were executed, where there are any: "candidate" and "spec".
        coverage: of each output and of what the spec writes, in order; empty where no value was held.
    """

    verdict: Ruling
    candidate: str
    spec: str
    contract: str
    seed: int
    findings: tuple[Finding, ...] = ()
    weaknesses: tuple[str, ...] = ()
    arithmetic: str = ""
    kept: str = ""
    error: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)
    coverage: tuple[Covered, ...] = ()

    @property
    def causes(self) -> tuple[Finding, ...]:
        """The findings that are wrong."""
        return tuple(finding for finding in self.findings if finding.standing is Standing.WRONG)

    @property
    def suspicions(self) -> tuple[Finding, ...]:
        """The findings that are within what is proven, and not likely."""
        return tuple(finding for finding in self.findings if finding.standing is Standing.SUSPECT)

    def as_json(self) -> str:
        """One line for a program."""
        causes = [
            {
                "question": finding.question,
                "code": str(finding.wrong.code),
                "title": QUESTIONS[finding.question].title,
                "text": clean(str(finding.wrong))[:2000],
            }
            for finding in self.causes
            if finding.wrong is not None
        ]
        suspect = [clean(str(finding.wrong))[:2000] for finding in self.suspicions]
        record = {
            "verdict": str(self.verdict),
            "causes": causes,
            "suspect": suspect,
            "arithmetic": self.arithmetic,
            "kept": self.kept,
            "contract": self.contract,
            "weaknesses": list(self.weaknesses),
            "asked": [finding.question for finding in self.findings if finding.standing is not Standing.NOT_ASKED],
            "elements": sum(finding.judged for finding in self.findings),
            "coverage": {each.output: {"judged": each.judged, "elements": each.elements} for each in self.coverage},
            "judged": {
                finding.question: [finding.judged, finding.elements] for finding in self.findings if finding.elements
            },
            "sampled": {finding.question: finding.sampled for finding in self.findings if finding.sampled},
            "left_out": {
                finding.question: clean(finding.left_out)[:2000] for finding in self.findings if finding.left_out
            },
            "seed": self.seed,
            "candidate": self.candidate,
            "spec": self.spec,
            "error": self.error,
            "sha256": dict(self.sha256),
        }
        return json.dumps(record, allow_nan=False)

    def __str__(self) -> str:
        lines = [f"{self.candidate} against {self.spec}, seed {self.seed}", f"allowed: {self.contract}"]
        lines += [f"sha256 of the {name}: {digest}" for name, digest in self.sha256.items() if digest]
        lines += map(report_line, self.findings)
        for finding in (*_distinct(self.causes), *self.suspicions):
            lines += ["", f"{finding.question}: {finding.wrong}"]
        lines += ["", f"{self.verdict}{self._because()}"]
        lines += [
            f"  judged: {each.judged} of {each.elements} elements of {each.output} at the given inputs"
            for each in self.coverage
        ]
        lines += [f"  suspect: {finding.text}" for finding in self.suspicions]
        lines += [f"  weak: {text}" for text in self.weaknesses]
        lines += [f"  keeps the bound of: {self.arithmetic}"] if self.arithmetic else []
        return clean("\n".join(lines))

    def _because(self) -> str:
        if self.error:
            return f": {self.error}"
        codes = ", ".join(finding.question for finding in self.causes or self.suspicions)
        return f": {codes}" if codes else ""


def report_line(found: Finding) -> str:
    """One finding as a line of the report."""
    title = QUESTIONS[found.question].title
    return clean(f"{_MARKS[found.standing]:8}{found.question:10} {title:55} {found.text}".rstrip())


def _distinct(causes: Sequence[Finding]) -> list[Finding]:
    """The first finding of every code: what is wrong on the given inputs is wrong on many others."""
    return list({finding.wrong.code: finding for finding in reversed(causes) if finding.wrong is not None}.values())[
        ::-1
    ]


def ruling(findings: Sequence[Finding], weaknesses: Sequence[str]) -> Ruling:
    """The verdict that findings make."""
    if any(finding.standing is Standing.WRONG for finding in findings):
        return Ruling.REJECTED
    if any(finding.standing is Standing.SUSPECT for finding in findings):
        return Ruling.SUSPECT
    return Ruling.WEAK if weaknesses else Ruling.ACCEPTED
