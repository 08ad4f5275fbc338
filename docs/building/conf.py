"""Sphinx's settings for the documentation. `docs/building/build.py` prepares the sources and calls it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import opassay

sys.path.insert(0, str(Path(__file__).resolve().parent))  # Sphinx reads this file as a program, from another folder
import tables

project = "opassay"
author = "the opassay authors"
release = version = opassay.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"opassay {release}"
# The pages have headings as anchors, as GitHub makes them, so that a link works on both.
myst_heading_anchors = 4
# A single backquote in a docstring means code, as in the pages.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_use_rtype = False
autodoc_inherit_docstrings = False  # those of torch's classes refer to torch's own documentation
html_static_path = ["static"]
html_js_files = ["site.js"]
html_theme_options = {"top_of_page_buttons": []}  # their words stand outside of all landmarks
PAGES_WITH_ROWS = frozenset(tables.page_names())
root_doc = "index"
highlight_language = "none"  # of blocks that name no language: commands and output


def setup(app: Any) -> None:
    """Registers what makes plain docstrings into the markup that Sphinx reads; before napoleon reads their sections."""
    app.connect("autodoc-process-docstring", _escape, priority=400)
    app.connect("html-page-context", _add_rows)
    app.connect("build-finished", _write_rows)


def _add_rows(app: Any, pagename: str, templatename: str, context: Any, doctree: Any) -> None:
    """A page with a table to filter loads its rows, and what filters them."""
    if pagename in PAGES_WITH_ROWS:
        for name in (f"{pagename}.rows.js", "rows.js"):
            app.add_js_file(name)
        app.add_css_file("rows.css")


def _write_rows(app: Any, error: Exception | None) -> None:
    if error is None:
        tables.write_scripts(Path(app.outdir) / "_static")


def _escape(app: Any, what: str, name: str, items: Any, options: Any, lines: list[str]) -> None:
    """Outside of code, stars and bars are mathematics here and no markup."""
    for number, line in enumerate(lines):
        parts = line.split("`")
        parts[::2] = [part.replace("*", "\\*").replace("|", "\\|") for part in parts[::2]]
        lines[number] = "`".join(parts)
