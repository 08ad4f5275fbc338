"""What a reason code and an outcome mean, what a profile costs, what a subject is, and what a severity says.

All texts stand in pages of docs/, which people read, too; `tests/reports/test_explain.py` holds them against the code.
"""

from __future__ import annotations

import functools
import textwrap
from pathlib import Path

from ..oracles.verdicts.explanations import Page, explanation_of, outcomes_page
from ..oracles.verdicts.verdict import Code

#: Columns of a terminal that texts are wrapped to.
WIDTH = 96

_QUESTIONS = Page(Path(__file__).with_name("properties.md"))

#: What outcomes, severities and subjects mean, what profiles are for, what is done for a question, and an example of a
#: mistake that a property sees.
TEXTS: dict[str, dict[str, str]] = {
    **{headline.lower(): outcomes_page().rows(headline) for headline in ("Outcomes", "Severities", "Subjects")},
    "profiles": Page(Path(__file__).with_name("profiles.md")).rows("What each is for"),
    "questions": _QUESTIONS.rows("What is asked"),
    "faults": _QUESTIONS.rows("What is asked", 2),
}


def paragraphs(head: str, *texts: str) -> str:
    """A headline and texts below it, wrapped for a terminal."""
    return "\n\n".join([head, *(textwrap.fill(text, WIDTH, break_on_hyphens=False) for text in texts)])


def explain(code: Code) -> str:
    """The explanation of a code as lines for a terminal."""
    explanation = explanation_of(code)
    return paragraphs(
        f"{code} {code.name}: {explanation.title}", explanation.meaning, f"Look at: {explanation.look_at}"
    )


@functools.cache
def read_glossary() -> dict[str, str]:
    """The text of every word of docs/glossary.md, of which the wheel has a copy, without links.

    Two words that share a text have it each.
    """
    sections = Page(Path(__file__).with_name("glossary.md")).sections
    return {word: " ".join(text.split()) for words, text in sections.items() for word in words.split(", ")}
