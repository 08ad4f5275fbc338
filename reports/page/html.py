"""One HTML file of a run: offline, readable without scripts, safe with hostile names.

Whoever opens the page may not have run what it reports: names of ops, messages and case files come from strangers. So
every text is escaped by the template engine and loses its control characters, and the browser is told to run no script
but ours.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from functools import cache
from importlib import resources

import jinja2
from markupsafe import Markup

from ...oracles.verdicts.explanations import EXPLANATIONS
from ...oracles.verdicts.verdict import Code, Outcome, Verdict
from ..explain import OUTCOMES
from ..record import Run
from ..text import clean, decimal, duration, group_digits, has_ulps, number, one_line, short_dtype, short_hex
from .matrix import SIGNS, Gated
from .view import make_view

_BOUNDED = frozenset({Code.VALUE, Code.SPECIAL, Code.ADJOINT})


def render(run: Run, gated: Gated | None = None, histories: Mapping[str, str] | None = None) -> str:
    """The page of a run; about 0.4 KiB per cell, and a few KiB per failure card.

    Args:
        run: the record. gated: what a gate said of it. histories: key of a cell -> that of its failure, in words.
    """
    # Both are files of ours and not text from a run, so they alone are not escaped.
    style, script = _source("report.css"), _source("report.js")
    return (
        _templates()
        .get_template("report.html")
        .render(
            run=run,
            view=make_view(run, gated, histories or {}),
            gated=gated,
            glyphs=SIGNS,
            outcomes=OUTCOMES,
            codes=EXPLANATIONS,
            style=Markup(style),
            script=Markup(script),
            policy=_policy(script),
        )
    )


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,  # a misspelt name in the template is an error, not an empty place on the page
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {
        "number": number,
        "duration": duration,
        "line": one_line,
        "clean": clean,
        "short": short_dtype,
        "judged": _has_elements,
        "ulps": lambda verdict: has_ulps(verdict.measure),
        "ratio": _ratio,
        "hex": short_hex,
        "decimal": decimal,
        "kind": lambda outcome: str(outcome).replace(" ", "-"),
        "grouped": group_digits,
    }
    return environment


def _finalize(value: object) -> object:
    """Text from a run loses its control characters wherever it is printed."""
    # Markup is a subclass of str. Cleaned, it would become plain text, and the template
    # engine would escape our own style.
    return clean(value) if type(value) is str else value


def _has_elements(verdict: Verdict) -> bool:
    return verdict.measure.judged > 0


def _ratio(verdict: Verdict) -> str:
    """error/bound; `> 1` where the violation itself was not measured, `–` where nothing has a bound."""
    ratio = verdict.measure.max_ratio
    # Some violations are found without measuring them; the largest ratio is then that of the elements that were inside.
    if verdict.code in _BOUNDED and verdict.outcome is Outcome.FAIL and not ratio > 1:
        return "> 1"
    return number(math.nan if ratio == 0 and not has_ulps(verdict.measure) else ratio)


@cache
def _source(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Content security policy: nothing from anywhere, but this one script and inline styles."""
    # The hash admits this text alone: a script that a hostile name brought in past the escaping would not run.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    sources = f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    return f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
