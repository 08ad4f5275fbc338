"""One output held against its reading: which elements are in their accept sets, and what is wrong with the others.

Whoever asks, an op's check or the question of a candidate, has its outputs held here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...reference.choice import Choice
from ...reference.condition import EITHER, Condition, possibly, surely
from ...reference.exact import Exact
from ...reference.formats import EVERY_FORMAT
from ...reference.residual import Residual
from ..bound import accept
from ..bound.rounding import Ball
from ..bound.rounding.casts import before_cast
from ..op.declaration import Tensor, dtype_name, is_float, to_array
from ..specs.storage import format_of
from ..verdicts.verdict import Code
from ..verdicts.violation import Violation

#: An output as the rounding reading has it: a ball, an array of integers or truth values, or what a residual says.
Reading = Any


class OperandFacts(enum.Enum):
    """What is known of the operands of a call, for what a NaN or an infinity in the output may be."""

    FINITE = enum.auto()
    WITH_NANS = enum.auto()  # and no infinity
    WITH_INFINITIES = enum.auto()
    IN_ONE_ORDER = enum.auto()  # some are not finite, and there is one order only to compute with them
    UNKNOWN = enum.auto()  # some are not finite, and an exact reading alone says what must follow


@dataclass(frozen=True)
class Standing:
    """Where one output stands.

    Attributes:
        wrong: what is wrong with it. Of floating elements that are outside nothing is said before a card is made.
        judged, left: how many elements were judged, and how many were not.
        vacuous: whether half of the judged elements have a bound that is wider than the element itself; of floating
            ones that is not looked at, nor what is `missed`.
        missed: of those left, elements whose exact value is finite and in the format's range. reason: why, and where.
        ball: the reading it was held against; None for an output that is not floating.
        in_sets: its elements in their accept sets; None for an output that is not floating.
        picks: the choices that a candidate was seen to make where rounding leaves them open.
        by_residual: whether it was judged by its residual.
    """

    wrong: Violation | None
    judged: int
    left: int
    vacuous: bool = False
    ball: Ball | None = None
    missed: int = 0
    reason: str = ""
    in_sets: accept.Elements | None = None
    picks: Mapping[str, Any] | None = None
    by_residual: bool = False

    @property
    def elements(self) -> int:
        """Of the output."""
        return self.judged + self.left

    @property
    def is_outside(self) -> bool:
        """Whether a floating element is outside of its accept set."""
        return self.in_sets is not None and not np.all(self.in_sets.accepted)


def hold(
    name: str, computed: Tensor, reading: Reading, facts: OperandFacts, order: int = 0, *,
    native: Tensor | None = None, exact: Exact | None = None,
) -> Standing:  # fmt: skip
    """Hold one output against its reading.

    Args:
        name: of the output, for messages. computed: the output.
        reading: its rounding reading. exact: its exact one, where that was made.
        facts: what the operands were. order: of the derivative.
        native: what torch computes of it, where that is known. Its shape and dtype are required. Where an operand is
            not finite, a NaN or an infinity that it has is accepted, too, but for what `facts` rules out where the
            reading and torch agree, and for an infinity of the other sign.
    """
    mismatch = _mismatch(name, computed, reading, native)
    if mismatch:
        return Standing(Violation(Code.ATTRIBUTE, mismatch), 0, 0)
    if not isinstance(reading, Ball):
        return _hold_whole(name, computed, reading)
    values, fmt = to_array(computed), format_of(computed.dtype)
    ball = reading if fmt.computes else before_cast(reading, fmt)
    elements = accept.place_in_accept_sets(values, fmt, ball, exact, facts is OperandFacts.FINITE, order)
    if facts not in (OperandFacts.FINITE, OperandFacts.UNKNOWN):
        accepted, judged = _special(values, ball, native, elements, facts, order)
        elements = replace(elements, accepted=accepted, judged=judged)
    count = int(np.count_nonzero(elements.judged))
    return Standing(None, count, elements.judged.size - count, ball=ball, in_sets=elements)


def _mismatch(name: str, computed: Tensor, reading: Reading, native: Tensor | None) -> str:
    """An attribute of an output that is not as it has to be, in words; empty for none."""
    for shape in (reading.shape, computed.shape if native is None else native.shape):
        if computed.shape != shape:
            return f"{name} has shape {tuple(computed.shape)}, need {tuple(shape)}"
    dtype = dtype_name(computed.dtype)
    if native is not None and computed.dtype != native.dtype:
        return f"{name} has dtype {dtype}, need {dtype_name(native.dtype)}"
    if isinstance(reading, Ball) and (not is_float(computed) or dtype not in EVERY_FORMAT):
        return f"{name} has dtype {dtype}, need a floating one"
    return ""


def _special(
    values: Any, ball: Ball, native: Tensor | None, elements: accept.Elements, facts: OperandFacts, order: int
) -> tuple[Any, Any]:
    """Which elements are accepted, and which are judged, where some inputs are not finite.

    Where every evaluation meets a NaN or an infinity the output must have one. Which of them may follow from the order
    of evaluation, and then of torch's own order nothing is required.
    """
    surely = ~np.isfinite(ball.centre) & (ball.radii() == 0)
    own = None if native is None else to_array(native)
    theirs = np.zeros(values.shape, bool) if own is None else ~np.isfinite(own)
    accepted = np.where(surely, ~np.isfinite(values) | (~theirs & (native is not None)), elements.accepted)
    accepted |= theirs & ~np.isfinite(values)
    if ball.stray is not None:  # A product with a zero that the spec does not ask for may be formed, or left out.
        accepted |= ball.stray & np.isnan(values)
    if order == 0:  # A derivative at an infinite argument is a limit of either kind.
        # An infinity that is sure, and that torch finds, too, has its sign.
        agreed = surely & (True if own is None else own == ball.centre)
        accepted &= ~(agreed & (values == -ball.centre))
        if facts is OperandFacts.IN_ONE_ORDER:
            accepted &= ~(agreed & np.isnan(values))
        if own is not None and facts is not OperandFacts.WITH_INFINITIES:
            # Arithmetic makes no number and no infinity of a NaN.
            accepted &= ~(surely & np.isnan(ball.centre) & np.isnan(own) & ~np.isnan(values))
    return accepted, elements.judged | surely


def _hold_whole(name: str, computed: Tensor, need: Reading) -> Standing:
    """Hold an output that is no ball; of what rounding leaves open, anything that it allows is right."""
    values, right, expected = _place_whole(computed, need)
    by_residual = isinstance(need, Residual)
    every = np.ones(values.shape, dtype=bool)
    judged = need.refutable(values) if by_residual else need.refutable() if isinstance(need, Choice) else every
    not_judged = values.size - int(np.count_nonzero(judged))
    wrong, is_open = None, False
    if not right.all():
        at = tuple(int(i) for i in np.argwhere(~right)[0])
        why = need.explain(values) if isinstance(need, (Choice, Residual)) else ""
        lines = [f"why        {why}"] if why else []
        lines.append(f"outside    {np.count_nonzero(~right)} of {right.size} elements")
        need_there = (
            f"need what leaves less of its equation, as {expected[at]}" if by_residual else f"need {expected[at]}"
        )
        wrong = Violation(Code.VALUE, f"{name}{list(at) or ''} is {values[at]}, {need_there}", tuple(lines))
    elif isinstance(need, Condition):
        # A truth value that rounding leaves open is as wide as it can be.
        is_open = 2 * int(np.count_nonzero(np.asarray(need) == EITHER)) > values.size
    return Standing(wrong, values.size - not_judged, not_judged, is_open, by_residual=by_residual)


def _place_whole(computed: Tensor, need: Reading) -> tuple[Any, Any, Any]:
    """An output that is no ball as an array, which elements are right, and what they are likely to be."""
    # NumPy has not all of torch's floating dtypes; float64 has all of their values.
    values = (computed.detach().double() if computed.dtype.is_floating_point else computed.detach()).cpu().numpy()
    if isinstance(need, (Choice, Residual)):  # integers that hang on floating values, and laws of an equation
        right, expected = need.accepts(values), need.likely()
    elif isinstance(need, Condition):
        expected = np.asarray(possibly(need))
        right = (values == expected) | (expected & ~np.asarray(surely(need)))
    else:
        expected = np.asarray(need)
        right = values == expected
    return values, np.asarray(right), expected


def are_right(computed: Tensor, reading: Reading, facts: OperandFacts, order: int, native: Tensor | None) -> Any:
    """Which elements of an output `hold` does not refuse; all where it is no such output. Arguments as for `hold`."""
    if not isinstance(reading, Ball):
        return _place_whole(computed, reading)[1]
    standing = hold("", computed, reading, facts, order, native=native)
    return np.ones(reading.shape, dtype=bool) if standing.in_sets is None else standing.in_sets.accepted
