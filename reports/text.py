"""Words and numbers as all reports show them: only this module turns a verdict into text."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..oracles.verdicts.verdict import CANDIDATE, CHECKED, HELD, Cell, Measure, Outcome, Verdict, quantity, replaying
from ..oracles.verdicts.verdict import clean as clean
from ..oracles.verdicts.verdict import failure_text as failure_text
from ..reference.dtypes import FORMATS
from .exit_codes import is_incomplete

_T = TypeVar("_T")
_K = TypeVar("_K")

#: Outcomes that a reader must look into, the gravest first, as lists show them.
BAD = (Outcome.FAIL, Outcome.UNSTABLE, Outcome.CRASH, Outcome.TIMEOUT, Outcome.ERROR)

#: One sign per outcome, so that an outcome is never shown by its colour alone.
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
    """The name of a series of marks in a figure: the subject and the device of its cells."""
    return f"{cell.subject} {cell.device}"


def short_dtype(dtype: str) -> str:
    """A dtype in six characters at most."""
    return FORMATS[dtype].short if dtype in FORMATS else dtype[:6]


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line of at most `limit` characters."""
    window = max(16 * limit, 4096)  # only this part of a text of megabytes is cleaned
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
    """A number with three significant digits; `–` for NaN, which means that there is none, and `∞`."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    # Python writes exponents with at least two digits, `1e-07`; without the zero a column of numbers is easier to read.
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
    """`12 verified, 1 fail, 1 crash, 3 unsupported; checked 13 of 14 that apply (92.9 %)`."""
    parts = ", ".join(f"{count} {outcome}" for outcome, count in counts(verdicts).items())
    checked, planned = count_checked(verdicts)
    share = f" ({100 * checked / planned:.1f} %)" if planned else ""
    return f"{parts or 'nothing'}; checked {checked} of {planned} that apply{share}"


def count_checked(verdicts: Sequence[Verdict]) -> tuple[int, int]:
    """How many cells were checked, and how many could be: a question that does not apply is no gap."""
    outcomes = [verdict.outcome for verdict in verdicts]
    return sum(each in CHECKED for each in outcomes), len(outcomes) - outcomes.count(Outcome.UNSUPPORTED)


@dataclass(frozen=True)
class SubjectStanding:
    """The result of a run for one subject."""

    subject: str
    summary: str  # "all 81 verified", "47 findings"
    rest: str  # the other counts
    tone: str  # "good"; "poor": some cell failed; "open": no cell failed, but some are not decided
    verdicts: tuple[Verdict, ...]

    @property
    def line(self) -> str:
        return f"{self.subject}: {self.summary}" + (f"; {self.rest}" if self.rest else "")


def is_measured(verdict: Verdict) -> bool:
    """Whether a verdict has a largest error, because an element was judged or a failing element is known."""
    return verdict.measure.judged > 0 or verdict.measure.worst is not None


def standings(verdicts: Sequence[Verdict]) -> tuple[SubjectStanding, ...]:
    """The standing of each subject, in the order of the plan, so that a reader sees at once which one fails."""
    subjects = dict.fromkeys(verdict.cell.subject for verdict in verdicts)
    return tuple(_standing(name, tuple(v for v in verdicts if v.cell.subject == name)) for name in subjects)


def _standing(subject: str, verdicts: tuple[Verdict, ...]) -> SubjectStanding:
    tally = counts(verdicts)
    wrong = tally.get(Outcome.FAIL, 0) + tally.get(Outcome.UNSTABLE, 0)
    verified, weak = tally.get(Outcome.VERIFIED, 0), tally.get(Outcome.WEAK, 0)
    # An error of the framework says nothing about the subject, so the standing is open, and not poor.
    undecided = sum(verdict.outcome is Outcome.ERROR or is_incomplete(verdict) for verdict in verdicts)
    tone, in_summary, one = "good", HELD, "cell"
    if subject == CANDIDATE:
        subject, one = verdicts[0].cell.op, "question"
    if wrong:
        # The summary has the number of failures. If all of them have one outcome, the rest need not repeat it.
        in_summary = frozenset({Outcome.FAIL}) if Outcome.UNSTABLE not in tally else frozenset[Outcome]()
        tone, summary = "poor", f"{wrong} of {quantity(count_checked(verdicts)[1], one)} failed"
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
    """Groups of bad verdicts of one op, property, device, subject and outcome; the gravest groups first."""
    subjects = list(dict.fromkeys(verdict.cell.subject for verdict in verdicts))
    bad = [verdict for verdict in verdicts if verdict.outcome in BAD]
    # The sort is stable: cells of one outcome and subject stay in the order of the plan.
    bad.sort(key=lambda verdict: (BAD.index(verdict.outcome), subjects.index(verdict.cell.subject)))
    groups = by_key(bad, lambda v: (v.outcome, v.cell.op, v.cell.property, v.cell.device, v.cell.subject))
    return list(groups.values())


def by_key(items: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    """The items in one group per key; groups are in the order in which their keys first occur."""
    groups: dict[_K, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def group_digits(value: int) -> str:
    """A count with its digits in groups of three."""
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def has_ulps(measure: Measure) -> bool:
    """Whether values were compared with exact ones; otherwise an error of 0 has no meaning."""
    has_figures = not (math.isnan(measure.ulp_p99) and math.isnan(measure.scaled_max))
    return measure.judged > 0 and (measure.max_ulp > 0 or has_figures)


def have_same_samples(one: Measure, other: Measure) -> bool:
    """Whether two measures come from samples of the same sizes and regimes, so that their errors may be compared.

    The samples of a cell depend on its name, so two subjects get the same ones only where a property fixes them. And a
    subject that fails is judged at more samples like the failing one, or at fewer samples.
    """
    same = ("samples", "discarded", "regimes", "sizes")
    counts = (measure.judged + measure.not_judged for measure in (one, other))
    return all(getattr(one, name) == getattr(other, name) for name in same) and len(set(counts)) == 1


def decimal(hexadecimal: str) -> str:
    """A hexadecimal float as the shortest decimal that rounds to it; empty for other text."""
    try:
        return repr(float.fromhex(hexadecimal)) if "0x" in hexadecimal[:3] else ""
    except (ValueError, OverflowError):
        return ""


def describe_error(measure: Measure) -> str:
    """The largest error in words: relative to the scale of its tensor, or in ulp if an older record lacks that."""
    if math.isnan(measure.scaled_max):
        return f"largest error {number(measure.max_ulp)} ulp"
    return f"largest error {number(measure.scaled_max, 2)} u of the scale"


def wrap_lines(text: str, width: int, indent: str = "    ") -> str:
    """The lines of a text broken at spaces to a width; continuation lines are indented further."""
    lines = []
    for line in clean(text).split("\n"):
        # Words are never broken, because users copy keys of cells and commands.
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
    """One line about a verdict: the title of its failure, or its reason."""
    return verdict.failure.title if verdict.failure else verdict.reason


def replay_of(verdict: Verdict) -> str:
    """The command that judges the case of a verdict again; empty if the verdict has no case."""
    failure = verdict.failure
    return replaying(verdict.cell.op, failure.case_id) if failure and failure.case_id else ""


def verdict_line(verdict: Verdict) -> str:
    """One line: sign, cell, outcome and code, and the largest error, or else the reason."""
    measure = verdict.measure
    text = one_line(what_of(verdict), 120)
    if verdict.outcome in HELD and measure.judged:
        text = f"{describe_error(measure)}, error/bound {number(measure.max_ratio)}"
    glyph = GLYPHS[verdict.outcome]
    return f"{glyph} {one_line(verdict.cell.key)}  {verdict.outcome}  {verdict.code}  {text}"


def markdown(text: str) -> str:
    """One line that markdown shows unchanged: without mark-up, mentions, links or HTML."""
    flat = one_line(text, 300).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    flat = "".join("\\" + sign if sign in "\\`*_{}[]()#+-!|~" else sign for sign in flat)
    # A word joiner after `@` and `:` keeps GitHub from notifying people and from making links of a run's names.
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


def github_command(level: str, title: str, message: str, at: tuple[str, int] | None = None) -> str:
    """A workflow command line of GitHub Actions, `::error file=..,line=..,title=..::..`.

    Args:
        level, title, message: of the annotation. at: the file and the line where it is shown; None for beside the job.
    """

    def escape(text: str, extra: str = "") -> str:
        # The runner reads a command up to the end of the line. `%` is replaced first, because the other replacements
        # contain it.
        for sign in "%\r\n" + extra:
            text = text.replace(sign, f"%{ord(sign):02X}")
        return text

    # A property of the command ends at `,` or `::`, so these two are also escaped in a title, which has a cell's key.
    head = escape(one_line(title), ":,")
    place = "" if at is None else f"file={escape(one_line(at[0]), ':,')},line={at[1]},"
    return f"::{level} {place}title={head}::{escape(clean(message))}"
