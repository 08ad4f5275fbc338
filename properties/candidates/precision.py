"""The precision audit: the strictest terms that a candidate keeps, by name."""

from __future__ import annotations

from collections.abc import Sequence

from ...oracles.bound.accept import ReadingError
from ...oracles.bound.terms import LADDER, Terms
from ...oracles.op.declaration import dtype_name
from ...reference.formats import FORMATS
from .arguments import OperandFacts
from .comparing import Held, hold_all
from .evidence import OF_ARITHMETIC, Evidence
from .session import Session
from .specification import SpecError

UNKNOWN = "none that is known"


def arithmetic(session: Session) -> tuple[str, str]:
    """The strictest terms of the ladder that the candidate kept wherever it was asked, and what they say of it.

    The first is empty where it kept none. Where the bound of those terms is wider than half of the elements, that is
    said: nothing is known of the precision then.
    """
    evidence = [each for each in session.records.evidence if each.question in OF_ARITHMETIC and not _out_of_range(each)]
    if not evidence:
        return "", "not known"
    dtypes = [dtype_name(y.dtype) for each in evidence for y in each.computed if dtype_name(y.dtype) in FORMATS]
    if not dtypes:
        return "", "no output is floating"
    for terms, words in LADDER:
        outcomes = _hold_under(evidence, terms)
        if outcomes:
            precision = words.format(dtype=dtypes[0], sums=terms.contract(dtypes[0]).accumulate.name)
            wide = sum(outcome.vacuous for outcome in outcomes) > len(outcomes) / 2
            return terms.name, f"not known: the bound of {precision} is wider than the elements" if wide else precision
    return "", UNKNOWN


def _hold_under(evidence: Sequence[Evidence], terms: Terms) -> list[Held]:
    """All evidence held under some terms, an outcome for each output; empty if one is outside, or cannot be read."""
    outcomes: list[Held] = []
    for each in evidence:
        try:
            outcomes += _hold_again(each, terms)
        except (SpecError, ReadingError):
            # A wider ball may decide less, an index that is chosen by values, say. Nothing is known of such terms.
            return []
        if any(outcome.wrong is not None for outcome in outcomes):
            return []
    return outcomes


def _out_of_range(each: Evidence) -> bool:
    """Whether an output is wrong and not finite: a format of a smaller range would allow that in any precision."""
    # torch does not look for infinities in eight bits.
    wrong = [y for y, outcome in zip(each.computed, each.held, strict=False) if outcome.wrong is not None]
    return not all(bool((y if y.is_complex() else y.double()).isfinite().all()) for y in wrong)


def _hold_again(each: Evidence, terms: Terms) -> list[Held]:
    """The outputs of one question held under other terms.

    BITS has operands with exact products and sums in every order, unless the terms give sums or factors fewer digits.
    """
    sharp = each.question == "BITS" and not terms.accumulate and not terms.factors
    read = each.picked(each.read(terms, sharp))
    return hold_all(each.names, each.computed, read, terms, None, OperandFacts.FINITE, told=False)
