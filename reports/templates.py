"""Texts that are made of a template, whose file stands beside the module that fills it in.

Names of ops, messages and case files come from strangers. So every text loses its control characters, and on a page for
a browser the template engine escapes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import resources

import jinja2

from .text import clean, code_span, decimal, duration, group_digits, markdown, number, one_line, short_dtype, short_hex

_FILTERS = {
    "number": number,
    "duration": duration,
    "line": one_line,
    "short": short_dtype,
    "hex": short_hex,
    "decimal": decimal,
    "grouped": group_digits,
    "markdown": markdown,
    "code": code_span,
}


def templates_of(package: str, *, escaped: bool = True, **filters: Callable[..., object]) -> jinja2.Environment:
    """The templates in a package's folder, with filters of their own; `escaped`: whether signs of HTML are replaced."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(partial(source_of, package)),
        autoescape=escaped,
        undefined=jinja2.StrictUndefined,  # a misspelt name in the template is an error, not an empty place on the page
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {**_FILTERS, **filters}
    return environment


@cache
def source_of(package: str, name: str) -> str:
    """The text of a file of ours in the folder of a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _finalize(value: object) -> object:
    # What is marked as HTML is of a subclass of str. Cleaned, it would become plain text, and the engine would escape
    # our own style.
    return clean(value) if type(value) is str else value
