"""The comparison of outputs with their readings: first number, shape, dtype and device, then every element.

The checks of ops and the questions about candidates both compare outputs here.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from ...reference.choice import answers_of
from ...reference.exact import Exact
from ...reference.formats import EVERY_FORMAT
from ..bound import accept
from ..bound.rounding import Ball
from ..bound.rounding.casts import before_cast
from ..op.declaration import Tensor, dtype_name, is_float, to_array
from ..specs.storage import format_of
from ..verdicts.violation import Code, Violation

#: Elements that say how wide bounds are.
_LOOKED_AT = 2**17
#: Attribute -> its value, a sentence about a wrong one, and an expression of a program's `outputs`.
_ATTRIBUTES: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "shape": (lambda y: tuple(y.shape), "has shape {}, need {}", "tuple(outputs[{}].shape)"),
    "dtype": (lambda y: dtype_name(y.dtype), "has dtype {}, need {}", "str(outputs[{}].dtype)[6:]"),
    "device": (lambda y: str(y.device), "is on {}, need {}", "str(outputs[{}].device)"),
}


class Reading(Protocol):
    """The rounding reading of an output: a ball, answers, or an array of integers or truth values."""

    @property
    def shape(self) -> tuple[int, ...]: ...


class OperandFacts(enum.Enum):
    """What is known about the operands of a call; it decides which NaNs and infinities an output may have."""

    FINITE = enum.auto()
    WITH_NANS = enum.auto()  # and no infinity
    WITH_INFINITIES = enum.auto()
    IN_ONE_ORDER = enum.auto()  # some are not finite, and there is only one order of evaluation
    UNKNOWN = enum.auto()  # some are not finite, and only an exact reading says which results are right


@dataclass(frozen=True)
class Standing:
    """The result of comparing one output with its reading.

    Attributes:
        wrong: the fault, or None. `hold` leaves it None for floating elements outside their accept sets
            (`is_outside`), until a card is made.
        judged, left: how many elements were judged, and how many were not.
        vacuous: whether half of the judged elements have a bound that is wider than the element itself. `hold` does
            not compute this for floating outputs, nor `missed`.
        missed: how many of the elements that were not judged have a finite exact value in the format's range.
            reason: why they were not judged, with the place of one; where all were, what they owe less of.
        ball: the reading; None for an output that is not floating.
        in_sets: the decisions on its elements; None for an output that is not floating.
        picks: the choices that the candidate made where rounding leaves them open.
        by_residual: whether the output was judged by its residual.
        outside: the elements outside their accept sets, where `in_sets` is not kept.
        spread: that a NaN or an infinity of an operand reaches other elements than in the spec, which is no fault.
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
    outside: Any = None
    spread: Violation | None = None

    @property
    def elements(self) -> int:
        """The number of elements of the output."""
        return self.judged + self.left

    @property
    def is_outside(self) -> bool:
        """Whether a floating element is outside of its accept set."""
        return self.in_sets is not None and not np.all(self.in_sets.accepted)


def hold(
    name: str, computed: Tensor, reading: Reading, facts: OperandFacts, order: int = 0, *,
    native: Tensor | None = None, exact: Exact | None = None,
) -> Standing:  # fmt: skip
    """Compare one output with its reading.

    Args:
        name: of the output, for messages. computed: the output.
        reading: its rounding reading. exact: its exact reading, or None.
        facts: about the operands. order: of the derivative.
        native: torch's own output, or None. The output must have its shape and dtype. If an operand is not finite, an
            element may also be NaN or infinite where torch's is, except for an infinity of the other sign, and for what
            `facts` excludes where the reading and torch agree.
    """
    wrong = find_mismatch([computed], [reading], "shape", names=[name])
    wrong = wrong or find_mismatch([computed], [computed if native is None else native], "shape", "dtype", names=[name])
    text, dtype = "" if wrong is None else wrong.text, dtype_name(computed.dtype)
    if not text and isinstance(reading, Ball) and (not is_float(computed) or dtype not in EVERY_FORMAT):
        text = f"{name} has dtype {dtype}, need a floating one"
    if text:
        return Standing(Violation(Code.ATTRIBUTE, text), 0, 0)
    if not isinstance(reading, Ball):
        return _hold_whole(name, computed, reading)
    values, fmt = to_array(computed), format_of(computed.dtype)
    ball = reading if fmt.computes else before_cast(reading, fmt)
    elements = accept.place_in_accept_sets(values, fmt, ball, exact, facts is OperandFacts.FINITE, order)
    if facts is OperandFacts.FINITE and order == 0 and native is not None and not elements.judged.all():
        # No rounding leads to this infinity, or away from it: it is a mask's, or log(0), and so the only right value.
        surely = np.isinf(ball.centre) & (ball.radii() == 0) & (to_array(native) == ball.centre)
        accepted = np.where(surely, values == ball.centre, elements.accepted)
        elements = replace(elements, accepted=accepted, judged=elements.judged | surely)
    elif facts not in (OperandFacts.FINITE, OperandFacts.UNKNOWN):
        accepted, judged = _special(values, ball, native, elements, facts, order)
        elements = replace(elements, accepted=accepted, judged=judged)
    count = int(np.count_nonzero(elements.judged))
    return Standing(None, count, elements.judged.size - count, ball=ball, in_sets=elements)


def _special(
    values: Any, ball: Ball, native: Tensor | None, elements: accept.Elements, facts: OperandFacts, order: int
) -> tuple[Any, Any]:
    """Which elements are accepted, and which are judged, if some inputs are not finite.

    If every evaluation gives a NaN or an infinity, the output must have one of the two. The order of evaluation may
    decide which, and if torch's own order gives a finite number there, the element may have any value.
    """
    surely = ~np.isfinite(ball.centre) & (ball.radii() == 0)
    own = None if native is None else to_array(native)
    theirs = np.zeros(values.shape, bool) if own is None else ~np.isfinite(own)
    accepted = np.where(surely, ~np.isfinite(values) | (~theirs & (native is not None)), elements.accepted)
    accepted |= theirs & ~np.isfinite(values)
    if ball.stray is not None:  # An evaluation may form or leave out products with zeros that are only a means.
        accepted |= ball.stray & np.isnan(values)
    if order == 0:  # A derivative at an infinite argument is a limit, which may be NaN or infinite.
        # If the reading and torch give the same infinity, the output must not have the other sign.
        agreed = surely & ((ball.centre if own is None else own) == ball.centre)
        accepted &= ~(agreed & (values == -ball.centre))
        if facts is OperandFacts.IN_ONE_ORDER:
            accepted &= ~(agreed & np.isnan(values))
        if own is not None and facts is not OperandFacts.WITH_INFINITIES:
            # With a NaN operand and no infinity, arithmetic gives only NaN.
            accepted &= ~(surely & np.isnan(ball.centre) & np.isnan(own) & ~np.isnan(values))
    return accepted, elements.judged | surely


def _hold_whole(name: str, computed: Tensor, reading: Reading) -> Standing:
    """Compare an output whose reading is not a ball; all values that rounding leaves open are right."""
    need, values = answers_of(reading), _numbers_of(computed)
    right, expected = np.asarray(need.accepts(values)), need.likely()
    judged = int(np.count_nonzero(need.refutable(values)))
    wrong = None
    if not right.all():
        at = tuple(int(i) for i in np.argwhere(~right)[0])
        why = need.explain(values)
        lines = [f"why        {why}"] if why else []
        lines.append(f"outside    {np.count_nonzero(~right)} of {right.size} elements")
        need_there = f"need{' what leaves less of its equation, as' * need.by_residual} {expected[at]}"
        wrong = Violation(Code.VALUE, f"{name}{list(at) or ''} is {values[at]}, {need_there}", tuple(lines))
    return Standing(wrong, judged, values.size - judged, need.is_vacuous, by_residual=need.by_residual)


def _numbers_of(computed: Tensor) -> Any:
    """An output as an array. NumPy lacks some of torch's floating dtypes; float64 has all of their values."""
    return (computed.detach().double() if computed.dtype.is_floating_point else computed.detach()).cpu().numpy()


def are_right(computed: Tensor, reading: Reading, facts: OperandFacts, order: int, native: Tensor | None) -> Any:
    """Which elements of an output are right; all if its shape or dtype is wrong. The arguments are those of `hold`."""
    if not isinstance(reading, Ball):
        return np.asarray(answers_of(reading).accepts(_numbers_of(computed)))
    standing = hold("", computed, reading, facts, order, native=native)
    return np.ones(reading.shape, dtype=bool) if standing.in_sets is None else standing.in_sets.accepted


class Mismatch(NamedTuple):
    """A wrong attribute of outputs: a sentence, an expression of a program, and the value that it must have."""

    text: str
    expression: str
    need: object


def find_mismatch(got: Sequence[Any], need: Sequence[Any], *kinds: str, names: Sequence[str] = ()) -> Mismatch | None:
    """The first attribute in which outputs are unlike what they must be like; None where all are alike.

    Args:
        got: the outputs. need: as many tensors, or whatever else has the attributes. kinds: keys of `_ATTRIBUTES`.
        names: of the outputs; "out[0]" and so on by default.
    """
    if len(got) != len(need):
        return Mismatch(f"got {len(got)} outputs, need {len(need)}", "len(outputs)", len(need))
    for kind in kinds:
        of, words, expression = _ATTRIBUTES[kind]
        for i, (y, like) in enumerate(zip(got, need, strict=True)):
            if of(y) != of(like):
                name = names[i] if names else f"out[{i}]"
                return Mismatch(f"{name} {words.format(of(y), of(like))}", expression.format(i), of(like))
    return None


def of_dtypes(dtypes: Iterable[torch.dtype]) -> list[Tensor]:
    """A tensor of each dtype, as `find_mismatch` takes them."""
    return [torch.empty(0, dtype=dtype, device="meta") for dtype in dtypes]


def some_of(size: int) -> Any:
    """Numbers of elements that are looked at where a median is asked for: of many some, evenly."""
    return np.arange(0, size, max(size // _LOOKED_AT, 1))
