"""The tools that are held against each other: three tolerances, and the judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import opassay
from opassay.properties.candidates.question_plan import USUAL

from .wrong import Candidate

#: Draws of arguments that the tolerances see, a new tensor each.
DRAWS = 3
#: What is asked first of a candidate that is thought to be wrong; the rest only where this finds nothing.
_FIRST = ("FWD:given", "PURE:untouched", "PURE:fresh", "CALLS:same", "CALLS:kept", "CALLS:reborn", "FWD:seeds")
TOLERANCES = ("allclose 1e-2", "allclose 1e-4", "assert_close")


@dataclass(frozen=True)
class Outcome:
    """What the tools say of a candidate.

    Attributes:
        accepted: tool -> whether it takes the candidate; the judge's is "opassay".
        verdict: of the judge.
        causes: codes of the questions that are wrong, or suspect. text: of the first cause.
    """

    accepted: dict[str, bool]
    verdict: str
    causes: tuple[str, ...]
    text: str


def judged_by_all(candidate: Candidate, *, wrong: bool) -> Outcome:
    """Ask all tools.

    Args:
        candidate: that is asked. wrong: whether it is thought to be; the judge then stops at what it finds first.
    """
    accepted = _by_tolerance(candidate)
    # What is likely is asked of the values that were accepted in the same judgement.
    rest = [code for code in USUAL if code not in _FIRST or code in ("FWD:given", "FWD:seeds")]
    result: Any = None
    for codes in (_FIRST, rest) if wrong else ((),):
        result = opassay.judge(candidate.make(), candidate.task.spec, candidate.task.draw(0), questions=codes)
        if result.verdict in ("rejected", "error"):
            break
    causes = result.causes or result.suspicions
    text = str(causes[0].wrong) if causes else result.error or "; ".join(result.weaknesses)
    accepted["opassay"] = result.verdict == "accepted"
    return Outcome(accepted, str(result.verdict), tuple(cause.question for cause in causes), text)


def _by_tolerance(candidate: Candidate) -> dict[str, bool]:
    """What a comparison of outputs with torch's own says, at drawn arguments."""
    accepted = dict.fromkeys(TOLERANCES, True)
    function = candidate.make()
    for seed in range(DRAWS):
        args = candidate.task.draw(seed)
        with torch.no_grad():
            right = candidate.task.spec(*args)
            try:
                result = function(*args)
            except RuntimeError:
                return dict.fromkeys(TOLERANCES, False)
        for tool, tolerance in zip(TOLERANCES, (1e-2, 1e-4), strict=False):
            accepted[tool] &= result.shape == right.shape and torch.allclose(result, right, tolerance, tolerance)
        try:
            torch.testing.assert_close(result, right)
        except AssertionError:
            accepted["assert_close"] = False
    return accepted
