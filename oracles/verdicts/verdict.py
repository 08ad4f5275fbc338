"""What a judgement says: cells, outcomes, measures, verdicts. Standard library only.

Everything here is plain data, so that a report can be read on a machine without torch.
"""

from __future__ import annotations

import builtins
import enum
import hashlib
import html
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .cleaning import CARD_CHARACTERS, CARD_LINES
from .cleaning import REPORT_FOLDER as REPORT_FOLDER
from .cleaning import clean as clean
from .cleaning import join_runs as join_runs
from .cleaning import quantity as quantity
from .cleaning import replaying as replaying
from .cleaning import shorten as shorten
from .cleaning import without_requests as without_requests
from .explanations import Code as Code
from .explanations import explanation_of


class Outcome(enum.StrEnum):
    """The closed list of outcomes; each verdict has one and a reason."""

    VERIFIED = "verified"  # the bound held, with enough effort
    WEAK = "weak"  # held, but too few samples or too many elements not judged
    FAIL = "fail"  # violated, and violated again when repeated
    UNSTABLE = "unstable"  # violated, but not at every repetition
    REFUSED = "refused"  # outside of what the subject documents, and it said so by a clear error
    UNSUPPORTED = "unsupported"  # outside the op's declared contract
    NOT_RUN = "not run"  # deselected, no device, interrupted
    CRASH = "crash"  # the process died
    TIMEOUT = "timeout"  # the process was stopped
    ERROR = "error"  # the framework or the reference raised


#: Outcomes of a promise that held, of one that was broken, and of a question that was asked and answered.
HELD = frozenset({Outcome.VERIFIED, Outcome.WEAK})
FAILED = frozenset({Outcome.FAIL, Outcome.UNSTABLE})
CHECKED = HELD | FAILED
#: The subject of the cells of a judgement.
CANDIDATE = "candidate"


#: What a cell is made of, in the order of its fields.
AXES = ("op", "property", "dtype", "device", "subject")


@dataclass(frozen=True, slots=True)
class Cell:
    """One question: op x property x dtype x device x subject."""

    op: str
    property: str
    dtype: str
    device: str
    subject: str

    @builtins.property  # the field `property` hides the builtin here
    def key(self) -> str:
        return f"{self.op}::{self.property}[{self.dtype}-{self.device}-{self.subject}]"

    @builtins.property  # the field `property` hides the builtin here
    def id(self) -> str:
        """First 8 hex digits of the SHA-256 of the key: stable across edits of the code."""
        return hashlib.sha256(self.key.encode("utf-8", "replace")).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Worst:
    """The judged element with the largest error/bound."""

    where: str  # "d_weight[3]"
    path: str  # "vjp"
    computed: str  # hexadecimal float
    exact: str  # decimal
    ulp: float  # NaN where the exact value is near zero, so that an ulp of it says nothing
    ratio: float
    #: The error relative to the largest number of its tensor and to what is summed; the largest of all elements
    #: outside. A record of before it existed has none.
    share: float | None = None
    roundoffs: float | None = None  # the same in unit roundoffs of the output's format


def _brief(error: float) -> str:
    """A finite error in hexadecimal, rounded up to eight bits."""
    mantissa, exponent = math.frexp(error)
    head, _, power = math.ldexp(math.ceil(mantissa * 256), exponent - 8).hex().partition("p")
    return f"{head.rstrip('0').rstrip('.') if '.' in head else head}p{power}"


@dataclass(frozen=True, slots=True)
class Bin:
    """The outputs of a cell whose operands, or whose sums, have one order of magnitude, and their largest errors."""

    kind: str  # "magnitude": by the largest operand; "length": by the terms of the longest sum
    low: int  # log2 of the lower end
    outputs: int
    scaled: float  # as `Measure.scaled_max`
    ratio: float  # as `Measure.max_ratio`

    @property
    def text(self) -> str:
        """In one line, as a record keeps it."""
        return f"{self.kind} {self.low} {self.outputs} {_brief(self.scaled)} {_brief(self.ratio)}"

    @classmethod
    def of(cls, text: str) -> Bin:
        kind, low, outputs, scaled, ratio = text.split()
        return cls(kind, int(low), int(outputs), float.fromhex(scaled), float.fromhex(ratio))

    def joined(self, other: Bin) -> Bin:
        """The outputs of both, which are of one bin."""
        outputs, scaled = self.outputs + other.outputs, max(self.scaled, other.scaled)
        return replace(self, outputs=outputs, scaled=scaled, ratio=max(self.ratio, other.ratio))


@dataclass(frozen=True, slots=True)
class Closeness:
    """How many elements were judged, and how close their errors came to the bounds.

    Errors in ulp are of elements whose exact value is not near zero, by cancellation or in itself.
    """

    samples: int = 0
    discarded: int = 0
    judged: int = 0  # elements
    not_judged: int = 0  # elements outside the domain of the bound
    max_ulp: float = 0.0
    max_ratio: float = 0.0  # error / bound
    detect_median: float = math.nan  # half-width of the accept set, ulp
    detect_worst: float = math.nan
    worst: Worst | None = None
    ulp_median: float = math.nan
    ulp_p99: float = math.nan


@dataclass(frozen=True, slots=True)
class Measure(Closeness):
    """What was measured of a cell: how close errors came, of which inputs, and the scaled errors.

    These are of all elements: relative to the largest number of the tensor and of what is summed, in unit roundoffs of
    the output's format. A record of before these existed has none, and its largest error in ulp has no limit.
    """

    regimes: tuple[tuple[str, int, int], ...] = ()  # of inputs: name, elements judged, elements not judged
    refused: int = 0  # samples of which the subject refused something that it documents as outside
    sizes: tuple[str, ...] = ()  # extents of the samples, by argument and dim: "input dim 0: 1 to 5, 4097"
    scaled_median: float = math.nan
    scaled_p99: float = math.nan
    scaled_max: float = math.nan
    bins: tuple[str, ...] = ()  # `Bin.text` of how errors go with magnitudes and lengths, where that is kept

    def reaching(self, worst: Worst | None) -> Measure:
        """The measure of a cell that failed at an element; this measure itself where `worst` is None."""
        if worst is None:
            return self
        ulp, ratio = max(self.max_ulp, worst.ulp), max(self.max_ratio, worst.ratio)
        errors = [value for value in (self.scaled_max, worst.roundoffs) if value is not None and not math.isnan(value)]
        largest = max(errors, default=math.nan)
        return replace(self, max_ulp=ulp, max_ratio=ratio, worst=worst, scaled_max=largest)


def steps_of(path: str) -> list[str]:
    """The derivatives of a path, "vjp" or "jvp", the innermost last: two of "jvp∘vjp (func)", none of "forward"."""
    return re.findall(r"jvp|vjp", path)


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs that tell a failure from other failures, and how severe it is."""

    path: str = ""  # that showed it, without the numbers of the sample: "vjp (func)"
    output: str = ""  # "d_weight"
    kernel: str = ""  # the op of torch that does the work, where there is one
    calls: tuple[str, ...] = ()  # the ops of torch that are called, with those of the path's innermost derivative
    error: str = ""  # of an exception: its type and its first line, without numbers
    samples: int = 0  # of the cell that showed it
    common: tuple[str, ...] = ()  # facts of arguments and regime that all samples share that showed it
    share: float | None = None  # `Worst.share`


@dataclass(frozen=True, slots=True)
class Failure:
    """A violated promise, with what is needed to see it again."""

    code: Code
    title: str  # one line: what was violated
    message: str  # several lines: computed, exact, bound, where
    case_id: str = ""
    case: str = ""  # the case file's JSON text
    snippet: str = ""  # self-contained program; or, in a comment, why there is none
    signs: Signs = field(default_factory=Signs)

    @property
    def program(self) -> str:
        """A program of torch and the implementation alone, which exits with 1 while the fault is there; or empty."""
        code = any(line.strip() and not line.startswith("#") for line in self.snippet.splitlines())
        return self.snippet if code else ""

    def text(self) -> str:
        """The title and the message, the title only once."""
        begins = self.message == self.title or self.message.startswith(f"{self.title}\n")
        return self.message if begins else f"{self.title}\n{self.message}"

    def details(self) -> list[str]:
        """The message's lines without the title, if it begins with that."""
        lines = self.message.splitlines()
        return lines[1:] if lines[:1] == [self.title] else lines


@dataclass(frozen=True, slots=True, repr=False)
class Verdict:
    """The outcome of a cell."""

    cell: Cell
    outcome: Outcome
    code: Code
    reason: str  # one sentence
    measure: Measure = field(default_factory=Measure)
    failure: Failure | None = None
    seconds: float = 0.0
    timing: tuple[tuple[str, float], ...] = ()  # ("generate", s), ("reference", s), ("op", s), ...
    title: str = ""  # the property in words
    changed: tuple[str, ...] = ()  # of the process, by the subject: "default dtype: torch.float32 -> torch.float64"
    others: tuple[Failure, ...] = ()  # further failures of the cell, each of another kind than those before it

    @property
    def causes(self) -> tuple[Failure, ...]:
        """Every failure of the cell that differs from the others: the first one found, then the others."""
        return () if self.failure is None else (self.failure, *self.others)

    @property
    def holds(self) -> bool:
        """Whether the promise held: outcome "verified" or "weak"."""
        return self.outcome in HELD

    def __str__(self) -> str:
        """One line for a promise that held or was not asked; else the card: what is wrong, where, and a replay."""
        if self.holds or self.outcome in (Outcome.UNSUPPORTED, Outcome.NOT_RUN, Outcome.REFUSED):
            return f"{self._head()}: {' '.join(shorten(self.reason, 1, 300))}"
        return failure_text(self)

    def __repr__(self) -> str:
        return f"<Verdict {self._head()}>"

    def _head(self) -> str:
        return clean(f"{self.cell.key[:1000]}: {self.outcome}, {self.code}")

    def _repr_html_(self) -> str:
        """The same for a notebook, as HTML: the first line with a sign, and the card beneath it as it is."""
        head, _, card = str(self).partition("\n")
        name, _, text = head.partition(": ")
        sign = "✓" if self.holds else "·" if not card and self.failure is None else "✕"
        body = f"<pre>{html.escape(textwrap.dedent(card))}</pre>" if card else ""
        return f"<div>{sign} <code>{html.escape(name)}</code> {html.escape(text)}{body}</div>"

    def with_seconds(self, seconds: float) -> Verdict:
        return replace(self, seconds=seconds)


def changed_failure(op: str, lines: Sequence[str], observer: str = "") -> Failure:
    """The failure of an op that changed the state of the process.

    Args:
        op: its name. lines: the changes, one a line. observer: the other cell in which they were observed, if any.
    """
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    title = f"{op}: changed the process: {lines[0]}{more}{f', seen in {observer}' if observer else ''}"
    return Failure(Code.MUTATED, title, "\n".join([title, *(f"  {line}" for line in lines)]))


def charged(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts, in their order, with every change of the process's state held against the op that made it.

    A change counts in whichever cell it was observed, because a setter may fire only once. It makes the verdict of PURE
    on the same op, subject and device a failure: the verdict of PURE in the observer's dtype; else the first of PURE
    that passed; else, where PURE was not asked, the observer's own verdict. A verdict that is a failure stays as it is.
    """
    answers = list(verdicts)
    for observer in verdicts:
        if not observer.changed:
            continue
        at = _answerable(answers, observer)
        if at is not None:
            where = "" if answers[at].cell == observer.cell else f"{observer.cell.property}[{observer.cell.dtype}]"
            failure = changed_failure(observer.cell.op, observer.changed, where)
            answers[at] = replace(
                answers[at], outcome=Outcome.FAIL, code=Code.MUTATED, reason=failure.title, failure=failure
            )
    return answers


_ANSWERED = HELD | {Outcome.UNSTABLE}


def _answerable(verdicts: Sequence[Verdict], observer: Verdict) -> int | None:
    """The position of the verdict that answers for a change; None where one has failed for it already."""
    who = (observer.cell.op, observer.cell.subject, observer.cell.device)
    pure = [
        i
        for i, v in enumerate(verdicts)
        if v.cell.property == "PURE" and (v.cell.op, v.cell.subject, v.cell.device) == who
    ]
    own = [i for i in pure if verdicts[i].cell.dtype == observer.cell.dtype]
    for candidates in (own, pure):
        if any(verdicts[i].outcome is Outcome.FAIL for i in candidates):
            return None
        passed = [i for i in candidates if verdicts[i].outcome in _ANSWERED]
        if passed:
            return passed[0]
    return next((i for i, v in enumerate(verdicts) if v.cell == observer.cell and v.outcome in _ANSWERED), None)


def explanation_lines(code: Code) -> list[str]:
    """The last lines of a card: what a code usually means, and what explains it."""
    usual = textwrap.wrap(explanation_of(code).look_at, 100)
    lines = [f"{'usually' if i == 0 else '':<11}{line}" for i, line in enumerate(usual)]
    return [*lines, f"explain    opassay explain {code}"]


def failure_text(verdict: Verdict, *, lines: int = CARD_LINES, characters: int = CARD_CHARACTERS) -> str:
    """What was violated, how to see it again, and what it usually means, in lines; the same text in every report.

    Args:
        verdict: not held.
        lines: the most lines of the failure; where some are cut, a last line says how long the whole is.
        characters: the same, in characters.
    """
    head = f"{verdict.cell.key[:1000]}: {verdict.outcome}, {verdict.code}"
    failure, measure = verdict.failure, verdict.measure
    text = verdict.reason if failure is None else failure.text()
    body = shorten(text, lines, characters)
    if measure.samples:
        judged = f"{quantity(measure.judged, 'element')} in {quantity(measure.samples, 'sample')}"
        body.append(f"judged     {judged} ({measure.not_judged} not judged)")
    if failure is not None and failure.case_id:
        body.append(f"replay     {replaying(verdict.cell.op, failure.case_id)}")
    for other in verdict.others:
        again = f"; {replaying(verdict.cell.op, other.case_id)}" if other.case_id else ""
        body.append(f"also       {shorten(other.title, 1, 300)[0]} ({quantity(other.signs.samples, 'sample')}){again}")
    body += explanation_lines(verdict.code)
    return clean("\n".join([head, *(f"  {line}" for line in body if line.strip())]))


#: Characters that a text field and a case file or snippet may have in a record: a large sample has some tensors of up
#: to 70,000 elements, of which each is 16 characters in float64.
MAX_TEXT = 2**16
MAX_CASE = 2**23
