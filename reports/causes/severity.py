"""How severe a failure is, on a scale that cannot explode.

An error over its bound may be infinite beside an exact zero, where an error of 1e-17 in a tensor of ones harms nobody.
So what counts is the error's share of the largest number of its tensor and of what is summed (`Signs.share`).
"""

from __future__ import annotations

import enum
import math

from ...oracles.verdicts.verdict import Code, Failure
from ...reference.dtypes import BINARY64, FORMATS


class Severity(enum.StrEnum):
    """From the gravest to the least."""

    CRASH = "crash"  # the process died
    WRONG = "wrong"  # no digit is right on the scale of the tensor, or a NaN, an infinity, another dtype or shape
    RAISES = "raises"  # an exception on valid input: nothing wrong was computed
    INACCURATE = "inaccurate"  # half of the format's digits or more are lost
    PROMISE = "promise"  # not about values: bits, memory, an error that was expected
    NOT_FINITE = "not finite"  # NaN in place of an infinity, or the reverse
    DIGITS = "last digits"  # fewer digits are lost
    NEGLIGIBLE = "negligible"  # less than one rounding of the largest number


#: From this share on no decimal digit of an element is right, on the scale of its tensor.
NO_DIGIT = 0.1
_ALWAYS_WRONG = frozenset({Code.ATTRIBUTE, Code.MUTATED, Code.ALIASED, Code.OUT_OF_BOUNDS, Code.RACE, Code.BIAS})


def severity_of(failure: Failure, dtype: str) -> Severity:
    """How severe a failure is in a cell of a dtype, which is a name of torch's."""
    share = failure.signs.share
    if failure.code is Code.CRASHED:
        return Severity.CRASH
    if failure.code is Code.RAISED:
        return Severity.RAISES
    if failure.code in _ALWAYS_WRONG:
        return Severity.WRONG
    if share is None or math.isnan(share):
        return Severity.INACCURATE if failure.code in (Code.VALUE, Code.ADJOINT) else Severity.PROMISE
    if failure.code is Code.SPECIAL and share == 0:
        return Severity.NOT_FINITE
    roundoff = FORMATS.get(dtype, BINARY64).unit_roundoff
    # From the square root of the roundoff on, half of the digits are lost: of 2^-24, from 2^-12.
    limits = ((NO_DIGIT, Severity.WRONG), (math.sqrt(roundoff), Severity.INACCURATE), (roundoff, Severity.DIGITS))
    return next((severity for least, severity in limits if share >= least), Severity.NEGLIGIBLE)


def gravity(severity: Severity) -> int:
    """For sorting: 0 for the gravest."""
    return list(Severity).index(severity)
