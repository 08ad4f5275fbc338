"""Words and numbers as every report shows them; the only place where a verdict becomes text."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..oracles.verdicts.verdict import CHECKED, HELD, Cell, Measure, Outcome, Verdict, quantity, replaying
from ..oracles.verdicts.verdict import clean as clean
from ..oracles.verdicts.verdict import failure_text as failure_text
from ..reference.dtypes import FORMATS
from .exit_codes import is_incomplete

_T = TypeVar("_T")
_K = TypeVar("_K")

#: Outcomes that a reader has to look at, in the order of the lists.
BAD = (Outcome.FAIL, Outcome.UNSTABLE, Outcome.CRASH, Outcome.TIMEOUT, Outcome.ERROR)

#: One sign per outcome, so that colour is never the only one.
GLYPHS: dict[Outcome, str] = {
    Outcome.VERIFIED: "■",
    Outcome.WEAK: "◧",
    Outcome.FAIL: "✕",
    Outcome.UNSTABLE: "≈",
    Outcome.REFUSED: "⊘",
    Outcome.UNSUPPORTED: "·",
    Outcome.NOT_RUN: "–",
    Outcome.CRASH: "↯",
    Outcome.TIMEOUT: "◷",
    Outcome.ERROR: "!",
}


def series_name(cell: Cell) -> str:
    """The name of a series of marks: those of one subject on one device."""
    return f"{cell.subject} {cell.device}"


def short_dtype(dtype: str) -> str:
    """A dtype in six characters at most."""
    return FORMATS[dtype].short if dtype in FORMATS else dtype[:6]


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line of at most `limit` characters."""
    window = max(16 * limit, 4096)  # a text of megabytes is not gone through for one line
    flat = " ".join(clean(text[:window]).split())
    return flat if len(flat) <= limit and len(text) <= window else flat[: limit - 1] + "…"


def short_hex(text: str) -> str:
    """A hexadecimal float without zeros at its end, `0x1.8000000000000p+1` as `0x1.8p+1`; other text as it is."""
    plain = clean(text)
    head, point, exponent = plain.partition("p")
    if not head.startswith(("0x", "-0x")) or "." not in head:
        return plain
    return head.rstrip("0").rstrip(".") + point + exponent


def number(value: float, digits: int = 3) -> str:
    """A measure for reading: three significant digits, `–` for none, `∞`."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    # Python writes exponents with two digits at least, `1e-07`; a column of numbers is easier to read without the zero.
    if "e" not in text:
        return text
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}"


def duration(seconds: float) -> str:
    """`340 ms`, `12.3 s`, `14 m 03 s`, `2 h 05 m`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} m"


def counts(verdicts: Sequence[Verdict]) -> dict[Outcome, int]:
    """How many verdicts each outcome has; outcomes without one are left out."""
    tally = Counter(verdict.outcome for verdict in verdicts)
    return {outcome: tally[outcome] for outcome in Outcome if tally[outcome]}


def headline(verdicts: Sequence[Verdict]) -> str:
    """`12 verified, 1 fail, 3 unsupported; checked 13 of 16 planned (81.2 %)`."""
    parts = ", ".join(f"{count} {outcome}" for outcome, count in counts(verdicts).items())
    checked = sum(verdict.outcome in CHECKED for verdict in verdicts)
    share = f" ({100 * checked / len(verdicts):.1f} %)" if verdicts else ""
    return f"{parts or 'nothing'}; checked {checked} of {len(verdicts)} planned{share}"


@dataclass(frozen=True)
class SubjectStanding:
    """What a run found about one subject."""

    subject: str
    summary: str  # "all 81 verified", "47 findings"
    rest: str  # the other counts
    tone: str  # "good"; "poor": a finding; "open": nothing wrong was found, yet not all is decided
    verdicts: tuple[Verdict, ...]

    @property
    def line(self) -> str:
        return f"{self.subject}: {self.summary}" + (f"; {self.rest}" if self.rest else "")


def is_measured(verdict: Verdict) -> bool:
    """Whether a verdict has a largest error: an element was judged, or a failing element is known."""
    return verdict.measure.judged > 0 or verdict.measure.worst is not None


def standings(verdicts: Sequence[Verdict]) -> tuple[SubjectStanding, ...]:
    """The standing of each subject, in the order of the plan, so that a reader sees at once which is not right."""
    subjects = dict.fromkeys(verdict.cell.subject for verdict in verdicts)
    return tuple(_standing(name, tuple(v for v in verdicts if v.cell.subject == name)) for name in subjects)


def _standing(subject: str, verdicts: tuple[Verdict, ...]) -> SubjectStanding:
    tally = counts(verdicts)
    wrong = tally.get(Outcome.FAIL, 0) + tally.get(Outcome.UNSTABLE, 0)
    verified, weak = tally.get(Outcome.VERIFIED, 0), tally.get(Outcome.WEAK, 0)
    # An error of the framework says nothing about the subject, so it leaves the standing
    # open and does not make it poor.
    undecided = sum(verdict.outcome is Outcome.ERROR or is_incomplete(verdict) for verdict in verdicts)
    tone, in_summary = "good", HELD
    if wrong:
        # The summary has the number of failures. Where all are of one outcome, the rest need not repeat it.
        in_summary = frozenset({Outcome.FAIL}) if Outcome.UNSTABLE not in tally else frozenset[Outcome]()
        tone, summary = "poor", f"{wrong} of {quantity(len(verdicts), 'cell')} failed"
    elif undecided:
        tone, in_summary, summary = "open", frozenset[Outcome](), f"{undecided} of {len(verdicts)} not decided"
    elif not verified + weak:
        tone, in_summary, summary = "open", frozenset[Outcome](), "nothing checked"
    else:
        every = f"all {verified + weak}" if verified + weak > 1 else "1"
        summary = f"{every} held, {weak} of them weakly" if weak else f"{every} verified"
    rest = ", ".join(f"{count} {outcome}" for outcome, count in tally.items() if outcome not in in_summary)
    return SubjectStanding(one_line(subject, 60), summary, rest, tone, verdicts)


def complaints(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Bad verdicts, those of one op, property, device, subject and outcome together, the gravest first."""
    subjects = list(dict.fromkeys(verdict.cell.subject for verdict in verdicts))
    bad = [verdict for verdict in verdicts if verdict.outcome in BAD]
    # The sort is stable: cells of one outcome and subject stay in the order of the plan.
    bad.sort(key=lambda verdict: (BAD.index(verdict.outcome), subjects.index(verdict.cell.subject)))
    groups = by_key(bad, lambda v: (v.outcome, v.cell.op, v.cell.property, v.cell.device, v.cell.subject))
    return list(groups.values())


def by_key(items: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    """The items in groups of one key each, in the order in which the keys come."""
    groups: dict[_K, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def group_digits(value: int) -> str:
    """A count for reading: digits in groups of three."""
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def has_ulps(measure: Measure) -> bool:
    """Whether values were compared with exact ones; else an error of 0 says nothing."""
    has_figures = not (math.isnan(measure.ulp_p99) and math.isnan(measure.scaled_max))
    return measure.judged > 0 and (measure.max_ulp > 0 or has_figures)


def have_same_samples(one: Measure, other: Measure) -> bool:
    """Whether two measures are of samples of the same sizes and regimes, so that their errors may be compared.

    The samples of a cell follow from its name, so two subjects get the same ones only where a property fixes them; and
    a subject that fails is asked of more samples around its failure, or of fewer.
    """
    same = ("samples", "discarded", "regimes", "sizes")
    counts = (measure.judged + measure.not_judged for measure in (one, other))
    return all(getattr(one, name) == getattr(other, name) for name in same) and len(set(counts)) == 1


def decimal(hexadecimal: str) -> str:
    """A hexadecimal float in decimal, to the digits that tell it from its neighbours; empty for other text."""
    try:
        return repr(float.fromhex(hexadecimal)) if "0x" in hexadecimal[:3] else ""
    except (ValueError, OverflowError):
        return ""


def describe_error(measure: Measure) -> str:
    """The largest error in words: on the scale of its tensor, or in ulp where an older record has no such figure."""
    if math.isnan(measure.scaled_max):
        return f"largest error {number(measure.max_ulp)} ulp"
    return f"largest error {number(measure.scaled_max, 2)} u of the scale"


def wrap_lines(text: str, width: int, indent: str = "    ") -> str:
    """The lines of a text broken at spaces to a width; continuation lines are indented further."""
    lines = []
    for line in clean(text).split("\n"):
        # Words are never broken, because keys of cells and commands are there to be copied.
        lead = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(
            line,
            max(width, 40),
            subsequent_indent=lead + indent,
            replace_whitespace=False,
            drop_whitespace=True,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines)


def what_of(verdict: Verdict) -> str:
    """What a verdict says, in a line: the title of its failure, or its reason."""
    return verdict.failure.title if verdict.failure else verdict.reason


def replay_of(verdict: Verdict) -> str:
    """The command that judges the case of a verdict again; empty where it has none."""
    failure = verdict.failure
    return replaying(verdict.cell.op, failure.case_id) if failure and failure.case_id else ""


def verdict_line(verdict: Verdict) -> str:
    """One line: sign, cell, outcome, the largest error, or the reason where there is none."""
    measure = verdict.measure
    text = one_line(what_of(verdict), 120)
    if verdict.outcome in HELD and measure.judged:
        text = f"{describe_error(measure)}, error/bound {number(measure.max_ratio)}"
    glyph = GLYPHS[verdict.outcome]
    return f"{glyph} {one_line(verdict.cell.key)}  {verdict.outcome}  {verdict.code}  {text}"


def markdown(text: str) -> str:
    """One line that markdown shows as it stands: no mark-up, mentions, links or HTML."""
    flat = one_line(text, 300).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    flat = "".join("\\" + sign if sign in "\\`*_{}[]()#+-!|~" else sign for sign in flat)
    # A word joiner behind `@` and `:` keeps GitHub from notifying people and making links of
    # what stands in a run's names.
    return flat.replace("@", "@\N{WORD JOINER}").replace("://", ":\N{WORD JOINER}//")


@dataclass(frozen=True)
class TextTable:
    """Cells of text under headings, and sentences after them."""

    headings: tuple[str, ...]
    cells: Sequence[tuple[str, ...]]
    remarks: list[str]

    def lines(self) -> list[str]:
        """The table for a terminal."""
        lines = [self.headings, *self.cells] if self.cells else []
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return [
            *("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in lines),
            *self.remarks,
        ]

    def markdown(self) -> list[str]:
        """The table for a page."""
        lines = [self.headings, tuple("---" for _ in self.headings), *self.cells] if self.cells else []
        return [*("| " + " | ".join(row) + " |" for row in lines), "", *(f"- {remark}" for remark in self.remarks)]


def code_span(text: str) -> str:
    """Text as code in markdown, also in a row of a table."""
    return "`" + one_line(text).replace("`", "'").replace("|", "\\|") + "`"


def github_command(level: str, title: str, message: str) -> str:
    """A workflow command line of GitHub Actions, `::error title=..::..`."""

    def escape(text: str, extra: str = "") -> str:
        # The runner reads a command up to the end of the line. `%` comes first, or the other
        # replacements would be escaped again.
        for sign in "%\r\n" + extra:
            text = text.replace(sign, f"%{ord(sign):02X}")
        return text

    # A property of the command ends at `,` or `::`, so a title, which holds the key of a cell,
    # needs these two escaped too.
    head = escape(one_line(title), ":,")
    return f"::{level} title={head}::{escape(clean(message))}"
