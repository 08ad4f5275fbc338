"""Reason codes and outcomes in words, for a terminal."""

from __future__ import annotations

import textwrap

from ..oracles.verdicts.explanations import EXPLANATIONS
from ..oracles.verdicts.verdict import Code, Outcome

OUTCOMES: dict[Outcome, str] = {
    Outcome.VERIFIED: "the bound held, with enough effort",
    Outcome.WEAK: "held, but on too few samples or too few judged elements",
    Outcome.FAIL: "violated, and violated again when repeated",
    Outcome.UNSTABLE: "violated, but not at every repetition",
    Outcome.REFUSED: "the subject documents that it does not offer this, and said so by a clear error",
    Outcome.UNSUPPORTED: "outside the op's declared contract",
    Outcome.NOT_RUN: "deselected, no device, or interrupted",
    Outcome.CRASH: "the process died",
    Outcome.TIMEOUT: "the process was stopped",
    Outcome.ERROR: "the framework or the reference raised; says nothing about the op",
}


def explain(code: Code) -> str:
    """The explanation of a code as lines for a terminal."""
    explanation = EXPLANATIONS[code]
    head = f"{code} {code.name}: {explanation.title}"
    return "\n\n".join(
        [head, textwrap.fill(explanation.meaning, 96), textwrap.fill(f"Look at: {explanation.look_at}", 96)]
    )
