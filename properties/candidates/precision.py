"""The precision audit: the strictest terms that a candidate keeps, by name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ...oracles.bound.accept import ReadingError
from ...oracles.bound.terms import LADDER, PRESETS, Terms, terms
from ...oracles.judge.holding import OperandFacts, Standing
from ...oracles.op.declaration import dtype_name
from ...reference.formats import EVERY_FORMAT, FORMATS
from .comparing import hold_all
from .conformance import DEFAULT
from .evidence import OF_ARITHMETIC, Evidence
from .specification import SpecError

UNKNOWN = "none that is known"
#: Seconds of the processor after which no other contract is tried.
_SECONDS = 0.5
#: Allowances that are tried by themselves, beside the ladder, and a contract that has all of them.
_ALONE, _WIDEST = ("exp2", "lse", "flush", "approximate"), terms("fast_math+lse")


def arithmetic(evidence: Sequence[Evidence]) -> tuple[str, str]:
    """The strictest terms of the ladder that the candidate kept wherever it was asked, and what they say of it.

    The first is empty where it kept none. Where the bound of those terms is wider than half of the elements, that is
    said: nothing is known of the precision then.
    """
    evidence = [each for each in evidence if each.question in OF_ARITHMETIC and not _out_of_range(each)]
    if not evidence:
        return "", "not known"
    rung = strictest_rung(evidence)
    if rung is None:
        return "", "no output is floating"
    return (rung.name, rung.text) if rung.number < len(LADDER) else ("", UNKNOWN)


@dataclass(frozen=True)
class Rung:
    """The strictest terms of a ladder that results keep.

    Attributes:
        number: on the ladder; its length where they keep none. name: of the terms, and empty then. words: of the
            precision. wide: whether its bound is wider than half of the elements, and says nothing.
    """

    number: int
    name: str
    words: str
    wide: bool = False

    @property
    def text(self) -> str:
        """The words, or that nothing is known."""
        return f"not known: the bound of {self.words} is wider than the elements" if self.wide else self.words


def strictest_rung(evidence: Sequence[Evidence], ladder: Sequence[tuple[Terms, str]] = LADDER) -> Rung | None:
    """The strictest terms within which all evidence is; None where no output is floating."""
    names = [dtype_name(y.dtype) for each in evidence for y in each.computed]
    # What is stored in few bits is computed in float32.
    dtypes = [name if name in FORMATS else "float32" for name in names if name in EVERY_FORMAT]
    if not dtypes:
        return None
    for number, (rung, words) in enumerate(ladder):
        outcomes = _hold_under(evidence, rung)
        if outcomes:
            precision = words.format(dtype=dtypes[0], sums=rung.contract(dtypes[0]).accumulate.name)
            return Rung(number, rung.name, precision, sum(outcome.vacuous for outcome in outcomes) > len(outcomes) / 2)
    return Rung(len(ladder), "", UNKNOWN)


def accepting_contract(evidence: Sequence[Evidence], allowed: Terms, contract: str, least: str = "") -> str:
    """The least contract that allows the values that are wrong, as `--contract` takes it; empty where none does.

    Args:
        evidence: what the candidate gave. allowed: the terms that it was held to.
        contract: the name of the strictest terms that were kept, see `arithmetic`.
        least: the name of terms of the ladder below which none is tried; empty for none.
    """
    start = time.process_time()
    if any(_out_of_range(each) for each in evidence):
        return ""
    own = allowed.name if PRESETS.get(allowed.name.partition("+")[0]) else DEFAULT
    names = [f"{own}+{allowance}" for allowance in _ALONE] if _hold_under(evidence[:1], _WIDEST) else []
    rungs = [rung.name for rung, _ in LADDER]
    first = max(rungs.index(name) if name else 0 for name in (contract, least)) if contract else len(rungs)
    names += [name if name in PRESETS else f"{DEFAULT}+{name}" for name in rungs[max(first, 1) :]]
    for name in names:
        outcomes = _hold_under(evidence, terms(name))
        # What is flushed to zero has a bound as wide as itself.
        narrow = name.endswith("+flush") or sum(outcome.vacuous for outcome in outcomes) <= len(outcomes) / 2
        if outcomes and narrow:
            return name
        if time.process_time() - start > _SECONDS:
            break
    return ""


def _hold_under(evidence: Sequence[Evidence], terms: Terms) -> list[Standing]:
    """All evidence held under some terms, an outcome for each output; empty if one is outside, or cannot be read."""
    outcomes: list[Standing] = []
    for each in evidence:
        try:
            outcomes += _compare_under(each, terms)
        except (SpecError, ReadingError):
            return []
        if any(outcome.wrong is not None for outcome in outcomes):
            return []
    # Under terms by which less than half of the elements are judged nothing is known.
    return outcomes if sum(one.judged for one in outcomes) > sum(one.left for one in outcomes) else []


def _out_of_range(each: Evidence) -> bool:
    """Whether an output is wrong and not finite: a format of a smaller range would allow that in any precision."""
    # torch does not look for infinities in eight bits.
    wrong = [y for y, outcome in zip(each.computed, each.standings, strict=False) if outcome.wrong is not None]
    return not all(bool((y if y.is_complex() else y.double()).isfinite().all()) for y in wrong)


def _compare_under(each: Evidence, terms: Terms) -> list[Standing]:
    """The outputs of one question compared with the bounds of other terms.

    DATA:bits has operands with exact products and sums in every order, unless terms give sums or factors few digits.
    """
    sharp = each.question == "DATA:bits" and not terms.accumulate and not terms.factors
    read = each.picked(each.read(terms, sharp) if sharp else each.read(terms))
    order = int(each.cotangents is not None)
    return hold_all(each.names, each.computed, read, None, None, OperandFacts.FINITE, order)
