"""Properties of ops asked of a candidate: first by the questions of the same matter, then by the engine.

The engine draws samples of the given shapes alone and calls the candidate some times before it looks at anything. What
a property's name promises beyond that, other sizes say, or a process that is as before, the questions ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ...oracles.verdicts.verdict import Verdict
from .asking import ASKING
from .finding import Finding, of_property
from .session import Session
from .specification import SpecError

#: Property -> the questions about a candidate that ask the same.
SAME_MATTER: Mapping[str, tuple[str, ...]] = {
    "FWD": ("GIVEN", "SEEDS", "SIGNS", "OFFSET", "NEARONE", "WIDE", "SMALL", "PARAMS"),
    "VJP": ("GRAD",),
    "NEEDS": ("GRAD",),
    "DATA": ("INTEGERS", "BITS"),
    "SPECIAL": ("ZEROS", "SMALL", "NAN", "INF"),
    "LAYOUT": ("STRIDES", "ALIGN"),
    "SIZE": ("SIZES",),
    "PURE": ("PROCESS", "UNTOUCHED", "FRESH"),
    "CALLS": ("SAME", "KEPT", "REBORN", "AGAIN", "POISON"),
    "COMP": ("COMPILED",),
}


def ask_by_name(session: Session, code: str, answers: dict[str, Finding], ask: Callable[[str], Verdict]) -> Finding:
    """The finding of a property: of the first question of its matter that is wrong, or else of the engine.

    Args:
        session: of the candidate. code: of the property. ask: asks the engine.
        answers: findings of questions by their codes; those that are asked here are added.
    """
    _ = session.first  # the process is compared before and after this call, and before the engine makes any
    judged = elements = 0
    for question in SAME_MATTER.get(code, ()):
        try:
            finding = answers[question] = answers.get(question) or ASKING[question](session)
        except SpecError:
            continue  # the spec does not take the inputs of this question
        if finding.is_wrong and finding.wrong is not None:
            return replace(finding, question=code, wrong=finding.wrong.with_lines(f"question   {question}"))
        judged, elements = judged + finding.judged, elements + max(finding.judged, finding.elements)
    finding = of_property(ask(code))
    return replace(finding, judged=finding.judged + judged, elements=finding.elements + elements)
