"""The table of questions that are asked of a candidate, in words. `asking` has a function for each.

LIKELY is a statistical verdict beside the worst case: how many standard deviations of rounding an output is off, and to
which side. It has an outcome of its own, `Standing.SUSPECT`, and is never mixed with what is proven.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Asks = TypeVar("Asks", bound=Callable[..., object])


class Standing(enum.StrEnum):
    """What came of a question."""

    HELD = "held"
    WRONG = "wrong"
    VACUOUS = "vacuous"  # held, but half of the elements have a bound wider than themselves, or none has a bound
    SUSPECT = "suspect"  # within the bound, but farther off than independent rounding errors are likely to be
    REFUSED = "refused"  # the candidate raised where it may: at another size, at other strides
    NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Question:
    """One question: its code, and its title for the report."""

    code: str
    title: str


#: Questions whose values are read again when all was asked: under every rung of terms, and with random errors. At
#: OFFSET and NEARONE elements cancel.
OF_ARITHMETIC = ("GIVEN", "SEEDS", "SIGNS", "BITS")
#: Questions at inputs that the user gives or that are like them: all of an output has to be judged there.
OF_DATA = ("GIVEN", "SEEDS", "SIGNS")
OF_LIKELY = ("GIVEN", "SEEDS", "OFFSET", "NEARONE")
#: Questions whose outputs say nothing of the spec where they are equal: at special inputs, and at the given ones again.
OF_ITSELF = frozenset({"ZEROS", "SMALL", "AGAIN", "STRIDES", "ALIGN", "POISON"})
_TABLE = (
    Question("PROCESS", "torch and the process untouched while the candidate is made"),
    Question("GIVEN", "values on the given inputs"),
    Question("UNTOUCHED", "inputs untouched"),
    Question("FRESH", "outputs in memory of their own"),
    Question("SAME", "the same tensors with other data"),
    Question("KEPT", "earlier outputs as they were after a later call"),
    Question("REBORN", "other tensors in the same memory"),
    Question("AGAIN", "every later call as the first"),
    Question("SEEDS", "values: other seeds"),
    Question("SIGNS", "values: both signs"),
    Question("OFFSET", "values: around 100"),
    Question("NEARONE", "values: around 1"),
    Question("WIDE", "values: exponents of 24 bits"),
    Question("SMALL", "values: around 2^-20"),
    Question("ZEROS", "values: zeros"),
    Question("INTEGERS", "values: small integers, exact in every order"),
    Question("BITS", "values: integers of 12 bits, which reduced precision rounds"),
    Question("PARAMS", "values: other parameters and buffers"),
    Question("NAN", "values: a few NaNs"),
    Question("INF", "values: a few infinities"),
    Question("STRIDES", "values: strided inputs"),
    Question("ALIGN", "values: inputs at odd addresses"),
    Question("POISON", "values: memory that was not written reads as NaN"),
    Question("GRAD", "gradients of inputs and parameters"),
    Question("SIZES", "values: other sizes"),
    Question("AUTOCAST", "values: under autocast"),
    Question("LIKELY", "values no farther off than random errors are"),
    Question("LEFT", "nothing left running, no file written"),
)

#: code -> question; the order is that in which they are asked.
QUESTIONS: dict[str, Question] = {row.code: row for row in _TABLE}


def bind_questions(asking: Mapping[str, Asks]) -> dict[str, Asks]:
    """What asks each question, in the table's order.

    Raises:
        ValueError: a question that nothing asks, or a function for none; the text names them.
    """
    missing = [code for code in QUESTIONS if code not in asking]
    unknown = [code for code in asking if code not in QUESTIONS]
    if missing or unknown:
        raise ValueError(f"questions: got none for codes={missing}, and unknown codes={unknown}")
    return {code: asking[code] for code in QUESTIONS}
