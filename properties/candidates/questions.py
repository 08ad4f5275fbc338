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
    """One question.

    Attributes:
        code: its name. title: it in a few words, for the report. asks: what is done, and what must be true then.
    """

    code: str
    title: str
    asks: str


#: Questions whose values are read again when all was asked: under every rung of terms, and with random errors. At
#: OFFSET and NEARONE elements cancel.
OF_ARITHMETIC = ("GIVEN", "SEEDS", "SIGNS", "BITS")
#: Questions at inputs that the user gives or that are like them: all of an output has to be judged there.
OF_DATA = ("GIVEN", "SEEDS", "SIGNS")
OF_LIKELY = ("GIVEN", "SEEDS", "OFFSET", "NEARONE")
#: Questions whose outputs say nothing of the spec where they are equal: at special inputs, and at the given ones again.
OF_ITSELF = frozenset({"ZEROS", "SMALL", "AGAIN", "STRIDES", "ALIGN", "POISON", "COMPILED"})
# fmt: off
_TABLE = (
    Question(
        "PROCESS", "torch and the process untouched while the candidate is made",
        "The process is compared before and after the candidate's file is imported: torch's defaults and "
        "functions, Python's modules, the generators of random numbers.",
    ),
    Question(
        "GIVEN", "values on the given inputs",
        "The candidate is called with the given inputs, in the memory layout that they have, and every element is "
        "held against its accept set.",
    ),
    Question(
        "UNTOUCHED", "inputs untouched",
        "The inputs of a call have the same bits after it, but for those that the spec writes.",
    ),
    Question(
        "FRESH", "outputs in memory of their own",
        "No output shares memory with an input or with another output, but for those of the spec that do.",
    ),
    Question(
        "SAME", "the same tensors with other data",
        "The same tensor objects get other values, and the candidate is called again: a result that was "
        "remembered by the object is wrong then.",
    ),
    Question(
        "KEPT", "earlier outputs as they were after a later call",
        "The outputs of a call have the same bits after another call with other values.",
    ),
    Question(
        "REBORN", "other tensors in the same memory",
        "New tensors in the memory of earlier ones are given: a result that was remembered by the address is "
        "wrong then.",
    ),
    Question(
        "AGAIN", "every later call as the first",
        "Many calls are made in a row. One whose bits differ from the first is held against the spec, too, "
        "and the process is compared afterwards.",
    ),
    Question(
        "SEEDS", "values: other seeds",
        "The inputs are drawn anew, between the values that the given ones have.",
    ),
    Question(
        "SIGNS", "values: both signs",
        "The inputs have both signs: random numbers of one sign alone hide a missing absolute value.",
    ),
    Question(
        "OFFSET", "values: around 100",
        "The inputs lie around 100, where exponentials overflow and sums cancel.",
    ),
    Question(
        "NEARONE", "values: around 1",
        "The inputs lie within a few hundredths of 1, where differences cancel.",
    ),
    Question(
        "WIDE", "values: exponents of 24 bits",
        "The inputs are normal numbers, each times a power of two between 2^-16 and 2^8.",
    ),
    Question(
        "SMALL", "values: around 2^-20",
        "The inputs are normal numbers times 2^-20, where a constant such as eps decides.",
    ),
    Question(
        "ZEROS", "values: zeros",
        "All inputs are zero.",
    ),
    Question(
        "INTEGERS", "values: small integers, exact in every order",
        "The inputs are integers from -4 to 4, so that sums and products are exact in every order; what is exact "
        "must be returned exactly.",
    ),
    Question(
        "BITS", "values: integers of 12 bits, which reduced precision rounds",
        "One input in its turn holds integers of twelve bits and all others -1, 0 or 1, so that float32 is exact: "
        "a candidate that rounds its operands to bfloat16 or TF32 is wrong then.",
    ),
    Question(
        "PARAMS", "values: other parameters and buffers",
        "The parameters and buffers that both modules have get other values.",
    ),
    Question(
        "NAN", "values: a few NaNs",
        "One in a thousand of the inputs' elements, and at least one, is NaN.",
    ),
    Question(
        "INF", "values: a few infinities",
        "One in a thousand of the inputs' elements, and at least one, is infinite.",
    ),
    Question(
        "STRIDES", "values: strided inputs",
        "The inputs are rows cut out of a wider tensor, every second element, transposed, and expanded along axis "
        "0, in turn. A clear error is no fault.",
    ),
    Question(
        "ALIGN", "values: inputs at odd addresses",
        "The inputs begin at addresses that are no multiple of 16 bytes. A clear error is no fault.",
    ),
    Question(
        "POISON", "values: memory that was not written reads as NaN",
        "Memory that the candidate allocates and does not write reads as NaN.",
    ),
    Question(
        "GRAD", "gradients of inputs and parameters",
        "The gradients of inputs and parameters are taken with random cotangents and held against the exact ones: "
        "at the given inputs, by a second backward, at others with other parameters, and with operands and "
        "cotangents that are not contiguous. The outputs of a call that records gradients are held, too, and the "
        "inputs must be as before.",
    ),
    Question(
        "COMPILED", "values and gradients under torch.compile",
        "The candidate is traced by torch.compile, and the graph is run. A clear error is no fault.",
    ),
    Question(
        "SIZES", "values: other sizes",
        "Every size of the inputs in its turn becomes one of 129, 1025 and 4099, one of 128, 1024 and 4096, and 1 "
        "or 37, where the spec takes that. A clear error is no fault.",
    ),
    Question(
        "AUTOCAST", "values: under autocast",
        "The candidate is called under torch.autocast to bfloat16, and may round as the spec does there.",
    ),
    Question(
        "LIKELY", "values no farther off than random errors are",
        "The errors of many elements together are no larger, and no more of one sign, than independent "
        "roundings are likely to make them. This is a statistical verdict: it can end in suspect, never in "
        "rejected.",
    ),
    Question(
        "LEFT", "nothing left running, no file written",
        "After the last call no thread or process is running that the candidate began, and no file was "
        "written.",
    ),
)
# fmt: on

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
