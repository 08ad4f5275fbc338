"""One HTML file of a run: offline, readable without scripts, safe with hostile names.

Whoever opens the page may not have run what it reports. So every text is escaped, as `templates` says, and the browser
is told to run no script but ours.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from functools import cache

import jinja2
from markupsafe import Markup

from ...oracles.verdicts.explanations import explanation_of
from ...oracles.verdicts.verdict import FAILED, Code, Outcome, Verdict, quantity
from ..explain import TEXTS
from ..record import Run
from ..templates import source_of, templates_of
from ..text import count_checked, counts, has_ulps, number, one_line
from .matrix import SIGNS, Gated
from .view import make_view

_BOUNDED = frozenset({Code.VALUE, Code.SPECIAL, Code.ADJOINT})


def render(run: Run, gated: Gated | None = None, histories: Mapping[str, str] | None = None) -> str:
    """The page of a run and what a gate said of it; about 0.4 KiB per cell, and a few KiB per failure card.

    `histories`: key of a cell -> the history of its failure, in words.
    """
    # Both are files of ours and not text from a run, so they alone are not escaped.
    script = "".join(source_of(__package__, name) for name in ("tables.js", "report.js"))
    template = _templates().get_template("report.html")
    return template.render(
        run=run,
        view=make_view(run, gated, histories or {}),
        title=title_of(run),
        gated=gated,
        glyphs=SIGNS,
        outcomes=TEXTS["outcomes"],
        codes={code: explanation_of(code) for code in Code},
        style=Markup(source_of(__package__, "report.css")),
        script=Markup(script),
        policy=policy_of(script),
    )


@cache
def _templates() -> jinja2.Environment:
    return templates_of(
        __package__, judged=lambda verdict: verdict.measure.judged > 0, ulps=lambda verdict: has_ulps(verdict.measure),
        kind=lambda outcome: str(outcome).replace(" ", "-"),
        ratio=_ratio, reach=_reach, checked=count_checked, counts=counts,
    )  # fmt: skip


def title_of(run: Run) -> str:
    """What a judgement found, "mine.py:kernel rejected: 4 of 29 questions"; empty for a run of cells."""
    if run.profile != "judge" or len(run.command) < 3:
        return ""
    wrong, ruling = sum(v.outcome in FAILED for v in run.verdicts), next(iter(run.exit_reasons), "accepted")
    answers, of = quantity(count_checked(run.verdicts)[0], "question"), f"{wrong} of " if wrong else ""
    return one_line(f"{run.command[2]} {ruling.partition(':')[0]}: {of}{answers}", 200)


def _reach(verdict: Verdict) -> float:
    """How far the bar of an error goes, in percent: of doublings, from 2^-10 to 2^20 of the bound."""
    ratio = verdict.measure.max_ratio
    return round(100 * min(max((math.log2(ratio) + 10) / 30, 0.01), 1.0), 2) if ratio > 0 else 0.0


def _ratio(verdict: Verdict) -> str:
    """error/bound; `> 1` where the violation itself was not measured, `–` where nothing has a bound."""
    ratio = verdict.measure.max_ratio
    # Some violations are found without measuring them; the largest ratio is then that of the elements that were inside.
    if verdict.code in _BOUNDED and verdict.outcome is Outcome.FAIL and not ratio > 1:
        return "> 1"
    return number(math.nan if ratio == 0 and not has_ulps(verdict.measure) else ratio)


def policy_of(script: str) -> str:
    """Content security policy: nothing from anywhere, but this one script and inline styles."""
    # The hash admits this text alone: a script that a hostile name brought in past the escaping would not run.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    sources = f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    return f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
