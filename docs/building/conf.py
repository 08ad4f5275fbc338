"""Sphinx's settings for the documentation. `docs/building/build.py` prepares the sources and calls it."""

from __future__ import annotations

from typing import Any

import opassay

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
root_doc = "index"
highlight_language = "none"  # of blocks that name no language: commands and output


def setup(app: Any) -> None:
    """Registers what makes plain docstrings into the markup that Sphinx reads; before napoleon reads their sections."""
    app.connect("autodoc-process-docstring", _escape, priority=400)


def _escape(app: Any, what: str, name: str, items: Any, options: Any, lines: list[str]) -> None:
    """Outside of code, stars and bars are mathematics here and no markup."""
    for number, line in enumerate(lines):
        parts = line.split("`")
        parts[::2] = [part.replace("*", "\\*").replace("|", "\\|") for part in parts[::2]]
        lines[number] = "`".join(parts)
