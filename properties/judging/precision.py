"""The precision audit: the strictest terms that a candidate keeps, by name."""

from __future__ import annotations

from collections.abc import Sequence

from ...oracles.op import dtype_name
from ...oracles.terms import LADDER, Terms
from .comparing import hold_all
from .session import Evidence, Session

#: What is read again under each of the terms: values as they come, and those that reduced precision rounds.
_QUESTIONS = ("GIVEN", "SEEDS", "SIGNS", "BITS")
UNKNOWN = "none that is known"


def arithmetic(session: Session) -> tuple[str, str]:
    """The strictest terms of the ladder that the candidate kept wherever it was asked, and what they say of it.

    The first is empty where it kept none. Terms are no evidence where they allow anything, so those under which half of
    the elements have a bound wider than themselves are passed over.
    """
    evidence = [each for each in session.evidence if each.question in _QUESTIONS]
    if not evidence:
        return "", "not known"
    dtypes = [dtype_name(y.dtype) for each in evidence for y in each.computed if y.dtype.is_floating_point]
    for terms, words in LADDER:
        if _kept(session, evidence, terms):
            return terms.name, words.format(dtype=dtypes[0] if dtypes else "the dtype")
    return "", UNKNOWN


def _kept(session: Session, evidence: Sequence[Evidence], terms: Terms) -> bool:
    for each in evidence:
        sharp = each.question == "BITS" and not terms.accumulate and not terms.factors
        read = session.spec.read(each.arguments, each.state, terms, sharp)[: len(each.computed)]
        found = hold_all(each.run.names[: len(read)], each.computed, read, terms, None, finite=True)
        if any(one.wrong is not None for one in found):
            return False
        if each.question == "GIVEN" and any(one.vacuous for one in found):
            return False
    return True
