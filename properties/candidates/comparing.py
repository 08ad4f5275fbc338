"""One output held against its ball: which elements are outside their accept sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...oracles.bound import accept
from ...oracles.bound.rounding import Ball
from ...oracles.bound.rounding.casts import before_cast
from ...oracles.bound.terms import Terms
from ...oracles.judge.outlier import some_of
from ...oracles.op.declaration import Tensor, dtype_name, is_float, to_array
from ...oracles.specs.storage import format_of
from ...oracles.verdicts.verdict import Code
from ...reference.choice import Choice
from ...reference.condition import EITHER, Condition, possibly, surely
from ...reference.formats import EVERY_FORMAT, Format, round_array
from .arguments import OperandFacts
from .bound_question import Reading
from .card import Wrong, make_card, title_of
from .open_readings import BEYOND, Decision, decide

#: What a card says of an output that torch gets wrong as well.
AS_WELL = "torch      its own evaluation of the spec is outside here as well"


@dataclass(frozen=True)
class Held:
    """Where one output stands.

    Attributes:
        wrong: what is wrong with it; None where all judged elements are accepted.
        judged, left: elements that were judged, and those that were not.
        missed: of these, elements whose exact value is finite and in the format's range. reason: why, and where.
        picks: the choices that the candidate was seen to make where rounding leaves them open, see `Decision`.
        vacuous: whether half of the judged elements have a bound that is wider than the element itself.
        ball: the reading it was held against; None for an output that is not floating.
    """

    wrong: Wrong | None
    judged: int
    left: int
    vacuous: bool = False
    ball: Ball | None = None
    missed: int = 0
    reason: str = ""
    picks: Mapping[str, Any] | None = None

    @property
    def elements(self) -> int:
        """Of the output."""
        return self.judged + self.left


def hold(
    name: str, computed: Tensor, ball: Reading, terms: Terms, native: Tensor | None, given: OperandFacts,
    order: int = 0, told: bool = True,
) -> Held:  # fmt: skip
    """Hold one output against its reading.

    Args:
        name: of the output, for messages. computed: the output.
        ball: its reading.
        terms: what was allowed, for messages.
        native: what torch computes of the spec, where the spec can be run. Its shape and dtype are required. Where an
            input is not finite, a NaN or an infinity that it has is accepted, too, but for what `given` rules out where
            the reading and torch agree, and for an infinity of the other sign.
        given: what the inputs were. order: of the derivative.
        told: whether the whole card is made of a value that is wrong, which takes longer than to find that it is.
    """
    if tuple(computed.shape) != ball.shape:
        return _unlike(name, "shape", tuple(computed.shape), ball.shape)
    if native is not None and computed.shape != native.shape:
        return _unlike(name, "shape", tuple(computed.shape), tuple(native.shape))
    if native is not None and computed.dtype != native.dtype:
        return _unlike(name, "dtype", dtype_name(computed.dtype), dtype_name(native.dtype))
    if not isinstance(ball, Ball):
        return _hold_whole(name, computed, ball)
    if not is_float(computed) or dtype_name(computed.dtype) not in EVERY_FORMAT:
        return _unlike(name, "dtype", dtype_name(computed.dtype), "a floating one")
    values, fmt = to_array(computed), format_of(computed.dtype)
    ball = ball if fmt.computes else before_cast(ball, fmt)
    elements, accepted, judged = _place(values, fmt, ball, native, given, order)
    count = int(np.count_nonzero(judged))
    outcome = Held(None, count, values.size - count, _vacuous(ball, fmt, judged), ball)
    if outcome.left:
        outcome = replace(outcome, **_missed(name, ball, fmt, ~judged))
    if np.all(accepted):
        return outcome
    wrong = make_card(name, computed, elements, accepted, ball, terms) if told else Wrong(Code.VALUE, title_of(name))
    return replace(outcome, wrong=wrong)


def _place(
    values: Any, fmt: Format, ball: Ball, native: Tensor | None, given: OperandFacts, order: int
) -> tuple[accept.Elements, Any, Any]:
    """Where values lie in their accept sets, which of them are accepted, and which are judged."""
    finite = given is OperandFacts.FINITE
    elements = accept.place_in_accept_sets(values, fmt, ball, None, finite, order)
    accepted, judged = np.array(elements.accepted), np.array(elements.judged)
    if not finite:
        accepted, judged = _special(values, ball, native, accepted, judged, given, order)
    return elements, accepted, judged


def are_right(computed: Tensor, reading: Reading, native: Tensor | None, given: OperandFacts, order: int) -> Any:
    """Which elements of an output `hold` accepts, or does not judge; all where its dtype is another kind."""
    if not isinstance(reading, Ball):
        return _whole_right(computed, reading)[1]
    if not is_float(computed) or dtype_name(computed.dtype) not in EVERY_FORMAT:
        return np.ones(reading.shape, dtype=bool)
    fmt = format_of(computed.dtype)
    ball = reading if fmt.computes else before_cast(reading, fmt)
    return _place(to_array(computed), fmt, ball, native, given, order)[1]


def decide_by(
    computed: Sequence[Tensor], read: Sequence[Reading], given: OperandFacts, every: bool = False
) -> Decision:
    """The readings with the choices that outputs show, where they are open; other arguments as for `decide`."""
    return decide(read, computed, lambda i, y, reading: are_right(y, reading, None, given, 0), every)


def _special(
    values: Any, ball: Ball, native: Tensor | None, accepted: Any, judged: Any, given: OperandFacts, order: int
) -> tuple[Any, Any]:
    """Which elements are accepted, and which are judged, where some inputs are not finite.

    Where every evaluation meets a NaN or an infinity the output must have one. Which of them may follow from the order
    of evaluation, and then of torch's own order nothing is required.
    """
    surely = ~np.isfinite(ball.centre) & (ball.radii() == 0)
    own = None if native is None else to_array(native)
    theirs = np.zeros(values.shape, bool) if own is None else ~np.isfinite(own)
    accepted = np.where(surely, ~np.isfinite(values) | (~theirs & (native is not None)), accepted)
    accepted |= theirs & ~np.isfinite(values)
    if ball.stray is not None:  # A product with a zero that the spec does not ask for may be formed, or left out.
        accepted |= ball.stray & np.isnan(values)
    if order == 0:  # A derivative at an infinite argument is a limit of either kind.
        # An infinity that is sure, and that torch finds, too, has its sign.
        agreed = surely & (True if own is None else own == ball.centre)
        accepted &= ~(agreed & (values == -ball.centre))
        if given is OperandFacts.IN_ONE_ORDER:
            accepted &= ~(agreed & np.isnan(values))
        if own is not None and given is not OperandFacts.WITH_INFINITIES:
            # Arithmetic makes no number and no infinity of a NaN.
            accepted &= ~(surely & np.isnan(ball.centre) & np.isnan(own) & ~np.isnan(values))
    return accepted, judged | surely


def _missed(name: str, ball: Ball, fmt: Any, left: Any) -> dict[str, Any]:
    """How many of the elements that are left have an exact value that the format can hold, and why no bound."""
    with np.errstate(all="ignore"):
        centre = ball.centre.astype(np.float64, copy=False)
        missed = left & np.isfinite(centre) & np.isfinite(round_array(fmt, np.where(left, centre, 0.0)))
    if not missed.any():
        return {}
    at = tuple(int(i) for i in np.argwhere(missed)[0])
    why = "has no value" if np.isnan(ball.radii()[at]) else "overflows"
    rows = f", in {np.count_nonzero(missed.any(-1))} of {missed[..., 0].size} rows" if missed.ndim > 1 else ""
    reason = (
        f"an evaluation that is allowed {why} on the way{rows}; exact {float(centre[at]):.6g} at {name}{list(at) or ''}"
    )
    return {"missed": int(np.count_nonzero(missed)), "reason": reason}


def _unlike(name: str, what: str, got: object, need: object) -> Held:
    return Held(Wrong(Code.ATTRIBUTE, f"{name} has {what} {got}, need {need}"), 0, 0)


def _hold_whole(name: str, computed: Tensor, need: Reading) -> Held:
    """Hold an output of integers or truth values; of what rounding leaves open, anything that it allows is right."""
    values, right, shown = _whole_right(computed, need)
    not_judged = values.size - int(np.count_nonzero(need.judged())) if isinstance(need, Choice) else 0
    wrong, is_open = None, False
    if not right.all():
        at = tuple(int(i) for i in np.argwhere(~right)[0])
        why = need.explain(values) if isinstance(need, Choice) else ""
        lines = [f"why        {why}"] if why else []
        lines.append(f"outside    {np.count_nonzero(~right)} of {right.size} elements")
        wrong = Wrong(Code.VALUE, f"{name}{list(at) or ''} is {values[at]}, need {shown[at]}", tuple(lines))
    elif isinstance(need, Condition):
        # A truth value that rounding leaves open is as wide as it can be.
        is_open = 2 * int(np.count_nonzero(np.asarray(need) == EITHER)) > values.size
    return Held(wrong, values.size - not_judged, not_judged, is_open)


def _whole_right(computed: Tensor, need: Reading) -> tuple[Any, Any, Any]:
    """Integers or truth values as an array, which of them are right, and what they are likely to be."""
    # NumPy has not all of torch's floating dtypes; float64 has all of their values.
    values = (computed.detach().double() if computed.dtype.is_floating_point else computed.detach()).cpu().numpy()
    if isinstance(need, Choice):  # integers that hang on floating values
        right, shown = need.accepts(values), need.likely()
    elif isinstance(need, Condition):
        shown = np.asarray(possibly(need))
        right = (values == shown) | (shown & ~np.asarray(surely(need)))
    else:
        shown = np.asarray(need)
        right = values == shown
    return values, np.asarray(right), shown


def _vacuous(ball: Ball, fmt: Any, judged: Any) -> bool:
    if not np.any(judged):
        return False
    some = some_of(judged.size)
    some = some[judged.reshape(-1)[some]]
    picked = Ball(ball.centre.reshape(-1)[some], ball.radii().reshape(-1)[some], ball.contract)
    with np.errstate(all="ignore"):
        wide = picked.half_widths(fmt)
        size = np.abs(np.asarray(picked.centre, dtype=np.float64))
    # Zeros are known up to an underflow, which is no width to speak of.
    width = np.where(picked.radii() == 0, 0.0, wide)[size > 0]
    return bool(width.size and np.median(width) > np.median(size[size > 0]))


def hold_all(
    names: Sequence[str], computed: Sequence[Tensor], read: Sequence[Reading], terms: Terms,
    native: Sequence[Tensor] | None, given: OperandFacts, order: int = 0, told: bool = True,
) -> list[Held]:  # fmt: skip
    """Hold every output against its reading.

    Args:
        names, computed, read, native: as for `hold`, one for each output.
        terms, given, order, told: as for `hold`.
    """
    if len(computed) != len(read):
        return [Held(Wrong(Code.ATTRIBUTE, f"got {len(computed)} outputs, need {len(read)}"), 0, 0)]
    like: Sequence[Tensor | None] = [None] * len(read) if native is None else native
    decision = decide(read, computed, lambda i, y, reading: are_right(y, reading, like[i], given, order))
    rows = zip(names, computed, decision.readings, like, strict=True)
    outcomes = [
        replace(hold(name, y, ball, terms, its, given, order, told), picks=decision.picks or None)
        for name, y, ball, its in rows
    ]
    for i, beyond in decision.beyond.items():
        count = int(np.count_nonzero(beyond))
        at = [int(k) for k in np.argwhere(beyond)[0]]
        outcomes[i] = replace(outcomes[i], missed=count, reason=f"{BEYOND}, at {names[i]}{at or ''}")
    return outcomes


def hold_in_turn(
    names: Sequence[str], computed: Sequence[Tensor], read: Callable[[Terms], Sequence[Reading]], terms: Terms,
    native: Sequence[Tensor] | None, given: OperandFacts, order: int = 0, plain: bool = True,
) -> list[Held]:  # fmt: skip
    """Hold every output against the reading of the spec's own text, and then, if need be, with all algorithms.

    Other algorithms of a spec only widen a ball, and each of them costs as much as the spec itself. So what is accepted
    without them is accepted.

    Args:
        names, computed, terms, native, given, order: as for `hold_all`. read: the readings under some terms.
        plain: whether it is likely to be accepted without them; else it is held with them at once.
    """
    if plain:
        outcomes = hold_all(names, computed, read(terms.of_text_alone), terms, native, given, order, told=False)
        if not any(each.wrong for each in outcomes):
            return outcomes
    return tell_of_torch(
        hold_all(names, computed, read(terms), terms, native, given, order), native, terms, given, order
    )


def tell_of_torch(
    outcomes: Sequence[Held], native: Sequence[Tensor] | None, terms: Terms, given: OperandFacts, order: int = 0
) -> list[Held]:
    """The same, with a line on the card of each output that torch's own evaluation of the spec gets wrong as well."""
    if native is None or len(native) != len(outcomes):
        return list(outcomes)
    return [_describe_disagreement(held, own, terms, given, order) for held, own in zip(outcomes, native, strict=True)]


def _describe_disagreement(held: Held, own: Tensor, terms: Terms, given: OperandFacts, order: int) -> Held:
    if held.wrong is None or held.ball is None or held.picks:  # torch may have made another choice.
        return held
    (again,) = hold_all([""], [own], [held.ball], terms, None, given, order, told=False)
    if again.wrong is None:
        return held
    return replace(held, wrong=replace(held.wrong, lines=(*held.wrong.lines, AS_WELL)))
