"""Pages about several runs, each one HTML file: offline, without scripts, and safe with hostile names."""

from __future__ import annotations

from functools import cache
from importlib import resources

import jinja2
from markupsafe import Markup

from ..record import Run
from ..text import clean, duration, number, one_line
from .comparison import ABOUT, Comparison, Kind

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def comparison_page(found: Comparison, before: Run, now: Run) -> str:
    """The page of two runs: what is new, worse, lost, fixed, better, slower, and what else differs.

    Args:
        found: of these two runs. before, now: the records, for the head of the page.
    """
    kinds = [(kind, ABOUT[kind], found.of(kind)) for kind in Kind]
    poor = sum(len(found.of(kind)) for kind in (Kind.NEW, Kind.WORSE, Kind.LOST))
    return _page("comparison.html", found=found, kinds=kinds, poor=poor, runs={"before": before, "now": now})


def _page(name: str, **values: object) -> str:
    # The style is a file of ours and not text from a run, so it alone is not escaped.
    style = Markup(_text_of("over_time.css"))
    return _environment().get_template(name).render(style=style, policy=_POLICY, **values)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text_of),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_cleaned,
    )
    environment.filters |= {"number": number, "duration": duration, "line": one_line}
    return environment


def _cleaned(value: object) -> object:
    """Text without control characters; what is marked as HTML stays as it is."""
    return clean(value) if type(value) is str else value


@cache
def _text_of(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
