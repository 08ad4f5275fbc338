"""Words and numbers as every report shows them; the only place where a verdict becomes text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ..oracles.verdict import CHECKED, Outcome, Verdict, clean, failure_text

__all__ = [
    "GLYPHS",
    "clean",
    "counts",
    "duration",
    "failure_text",
    "github_command",
    "headline",
    "markdown",
    "number",
    "one_line",
    "verdict_line",
]

#: One sign per outcome, so that colour is never the only one.
GLYPHS: dict[Outcome, str] = {
    Outcome.VERIFIED: "■",
    Outcome.WEAK: "◧",
    Outcome.FAIL: "✕",
    Outcome.UNSTABLE: "≈",
    Outcome.UNSUPPORTED: "·",
    Outcome.NOT_RUN: "–",
    Outcome.CRASH: "↯",
    Outcome.TIMEOUT: "◷",
    Outcome.ERROR: "!",
}


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line of at most `limit` characters."""
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def number(value: float, digits: int = 3) -> str:
    """A measure for reading: three significant digits, `–` for none, `∞`."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
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
    found = Counter(verdict.outcome for verdict in verdicts)
    return {outcome: found[outcome] for outcome in Outcome if found[outcome]}


def headline(verdicts: Sequence[Verdict]) -> str:
    """`12 verified, 1 fail, 3 unsupported; checked 13 of 16 planned (81.2 %)`."""
    parts = ", ".join(f"{count} {outcome}" for outcome, count in counts(verdicts).items())
    checked = sum(verdict.outcome in CHECKED for verdict in verdicts)
    share = f" ({100 * checked / len(verdicts):.1f} %)" if verdicts else ""
    return f"{parts or 'nothing'}; checked {checked} of {len(verdicts)} planned{share}"


def verdict_line(verdict: Verdict) -> str:
    """One line: sign, cell, outcome, the largest error, or the reason where there is none."""
    measure = verdict.measure
    said = one_line(verdict.failure.title if verdict.failure else verdict.reason, 120)
    if verdict.outcome in (Outcome.VERIFIED, Outcome.WEAK) and measure.judged:
        said = f"{number(measure.max_ulp)} ulp, error/bound {number(measure.max_ratio)}"
    glyph = GLYPHS[verdict.outcome]
    return f"{glyph} {one_line(verdict.cell.key)}  {verdict.outcome}  {verdict.code}  {said}"


def markdown(text: str) -> str:
    """One line that markdown shows as it stands: no mark-up, mentions, links or HTML."""
    flat = one_line(text, 300).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    flat = "".join("\\" + sign if sign in "\\`*_{}[]()#+-!|~" else sign for sign in flat)
    return flat.replace("@", "@\N{WORD JOINER}").replace("://", ":\N{WORD JOINER}//")


def github_command(level: str, title: str, message: str) -> str:
    """A workflow command line of GitHub Actions, `::error title=..::..`."""

    def escape(text: str, extra: str = "") -> str:
        for sign in "%\r\n" + extra:
            text = text.replace(sign, f"%{ord(sign):02X}")
        return text

    head = escape(one_line(title), ":,")
    return f"::{level} title={head}::{escape(clean(message))}"
