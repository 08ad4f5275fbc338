"""The comparison of all outputs of a candidate with their readings, and the cards of wrong outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...oracles.bound.laws.factors import join_factors
from ...oracles.bound.rounding import Ball
from ...oracles.bound.terms import Terms
from ...oracles.judge.card import describe_outside
from ...oracles.judge.holding import OperandFacts, Reading, Standing, are_right, find_mismatch, hold, some_of
from ...oracles.op.bits import same_bits
from ...oracles.op.declaration import Tensor
from ...oracles.specs.storage import format_of
from ...oracles.verdicts.violation import Code, Violation
from ...reference.choice import has_residual
from ...reference.formats import round_array
from .open_readings import BEYOND, Decision, decide

#: What a card says of an output that torch gets wrong as well.
AS_WELL = "torch      its own evaluation of the spec is outside here as well"
#: What a question says of outputs that are right where subnormal numbers may be zero, as torch has them.
AS_ZEROS = "numbers below the smallest normal one may be zero, as in torch's own evaluation of the spec"


def hold_all(
    names: Sequence[str], computed: Sequence[Tensor], readings: Sequence[Reading], terms: Terms | None,
    native: Sequence[Tensor] | None, facts: OperandFacts, order: int = 0,
) -> list[Standing]:  # fmt: skip
    """Compare every output with its reading.

    Args:
        names, computed, readings, native: as for `hold`, one for each output.
        terms: of the readings, for the card of a wrong value; None for no card, which takes longer than the comparison.
        facts, order: as for `hold`.
    """
    if miscounted := find_mismatch(computed, readings):
        return [Standing(Violation(Code.ATTRIBUTE, miscounted.text), 0, 0)]

    def standing(name: str, y: Tensor, reading: Reading, own: Tensor | None) -> Standing:
        one = hold(name, y, reading, facts, order, native=own)
        wrong = one.wrong
        if one.in_sets is not None and one.ball is not None:
            if one.is_outside:
                wrong = Violation(Code.VALUE, f"{name} is outside its accept set")
                wrong = wrong if terms is None else describe_outside(name, y, one, terms=terms)
            judged, fmt = one.in_sets.judged, format_of(y.dtype)
            missed, reason = _count_unbounded(name, one.ball, fmt, ~judged) if one.left else (0, "")
            one = replace(one, vacuous=_is_vacuous(one.ball, fmt, judged), missed=missed, reason=reason)
        outside = ~one.in_sets.accepted if one.is_outside and one.in_sets is not None else None
        # The decisions on elements take several times the memory of an output.
        return replace(one, wrong=wrong, outside=outside, in_sets=None)

    if has_residual(readings):
        readings = join_factors(readings, [_placed(y, reading) for y, reading in zip(computed, readings, strict=True)])
    like: Sequence[Tensor | None] = [None] * len(readings) if native is None else native
    decision = decide(readings, computed, lambda i, y, reading: are_right(y, reading, facts, order, like[i]))
    rows = zip(names, computed, decision.readings, like, strict=True)
    outcomes = [replace(standing(*row), picks=decision.picks or None) for row in rows]
    for i, beyond in decision.beyond.items():
        at = [int(k) for k in np.argwhere(beyond)[0]]
        reason = f"{BEYOND}, at {names[i]}{at or ''}"
        outcomes[i] = replace(outcomes[i], missed=int(np.count_nonzero(beyond)), reason=reason)
    return outcomes


def _placed(y: Tensor, reading: Reading) -> Any:
    """The values of an output that is judged by its residual; None for other outputs, or for a wrong shape."""
    return y.detach().double().cpu().numpy() if has_residual([reading]) and y.shape == reading.shape else None


def decide_by(
    computed: Sequence[Tensor], readings: Sequence[Reading], facts: OperandFacts, *, every: bool = False
) -> Decision:
    """The readings given the choices that the outputs show; the other arguments are those of `decide`."""
    return decide(readings, computed, lambda i, y, reading: are_right(y, reading, facts, 0, None), every)


def hold_in_turn(
    names: Sequence[str], computed: Sequence[Tensor], reader: Callable[[Terms], Sequence[Reading]], terms: Terms,
    native: Sequence[Tensor] | None, facts: OperandFacts, order: int = 0, plain: bool = True,
) -> list[Standing]:  # fmt: skip
    """Compare every output with the reading of the spec's own text, and if one is refused, with that of all algorithms.

    Other algorithms of a spec only widen a ball, and the reading of each costs as much as that of the spec itself. So
    outputs that are accepted without them need no further reading.

    Args:
        names, computed, terms, native, facts, order: as for `hold_all`. reader: (terms) -> the readings.
        plain: whether the spec's own text is tried first, because it will probably suffice.
    """
    if plain:
        outcomes = hold_all(names, computed, reader(terms.of_text_alone), None, native, facts, order)
        if not any(each.wrong for each in outcomes):
            return outcomes
    outcomes = hold_all(names, computed, reader(terms), terms, native, facts, order)
    return outcomes if native is None else hold_as_torch(outcomes, names, computed, reader, terms, native, facts, order)


def hold_as_torch(
    outcomes: Sequence[Standing], names: Sequence[str], computed: Sequence[Tensor],
    reader: Callable[[Terms], Sequence[Reading]], terms: Terms, native: Sequence[Tensor], facts: OperandFacts,
    order: int = 0,
) -> list[Standing]:  # fmt: skip
    """The outcomes; where torch's own evaluation of the spec flushes subnormal numbers, with those that may be zero.

    A library of torch may flush what its dtype has, as oneDNN does in an LSTM. Nobody owes what the spec itself does
    not keep. Whatever else torch has outside stays a fault, and the card says that torch is outside as well.

    Args:
        outcomes: of `hold_all` under these terms; the others are those of `hold_in_turn`.
    """
    outcomes = _tell_of_torch(outcomes, native, facts, order)
    if terms.flush or not any(each.wrong is not None and AS_WELL in each.wrong.lines for each in outcomes):
        return list(outcomes)
    flushing = replace(terms, flush=True)
    readings = reader(flushing)
    if any(each.wrong for each in hold_all(names, native, readings, None, native, facts, order)):
        return list(outcomes)
    others = hold_all(names, computed, readings, flushing, native, facts, order)
    return [each if each.missed else replace(each, reason=AS_ZEROS) for each in others]


def tell_unwritten(
    outcomes: Sequence[Standing], computed: Sequence[Tensor], before: Sequence[Tensor | None]
) -> list[Standing]:
    """The outcomes, with a line on the card of each tensor that the spec writes and the call left as `before`."""
    line = "unwritten  it is as it was before the call, and the spec writes it"
    alike = [was is not None and same_bits(was, y) for was, y in zip(before, computed, strict=True)]
    pairs = zip(outcomes, alike, strict=True)
    return [replace(each, wrong=each.wrong.with_lines(line)) if same and each.wrong else each for each, same in pairs]


def _tell_of_torch(
    outcomes: Sequence[Standing], native: Sequence[Tensor], facts: OperandFacts, order: int
) -> list[Standing]:
    """The outcomes, with a line on the card of each output that torch's own evaluation of the spec also gets wrong."""
    if len(native) != len(outcomes):
        return list(outcomes)
    pairs = zip(outcomes, native, strict=True)
    return [_describe_disagreement(each, own, facts, order) for each, own in pairs]


def _describe_disagreement(standing: Standing, own: Tensor, facts: OperandFacts, order: int) -> Standing:
    if standing.wrong is None or standing.ball is None or standing.picks:  # torch may have made another choice.
        return standing
    (again,) = hold_all([""], [own], [standing.ball], None, None, facts, order)
    return standing if again.wrong is None else replace(standing, wrong=standing.wrong.with_lines(AS_WELL))


def _count_unbounded(name: str, ball: Ball, fmt: Any, left: Any) -> tuple[int, str]:
    """How many elements without a bound have an exact value in the format's range, and why they have no bound."""
    with np.errstate(all="ignore"):
        centre = ball.centre.astype(np.float64, copy=False)
        missed = left & np.isfinite(centre) & np.isfinite(round_array(fmt, np.where(left, centre, 0.0)))
    if not missed.any():
        return 0, ""
    at = tuple(int(i) for i in np.argwhere(missed)[0])
    why = "has no value" if np.isnan(ball.radii()[at]) else "overflows"
    rows = f", in {np.count_nonzero(missed.any(-1))} of {missed[..., 0].size} rows" if missed.ndim > 1 else ""
    reason = (
        f"an evaluation that is allowed {why} on the way{rows}; exact {float(centre[at]):.6g} at {name}{list(at) or ''}"
    )
    return int(np.count_nonzero(missed)), reason


def _is_vacuous(ball: Ball, fmt: Any, judged: Any) -> bool:
    """Whether half of the judged elements have a bound that is wider than the element itself."""
    if not np.any(judged):
        return False
    some = some_of(judged.size)
    some = some[judged.reshape(-1)[some]]
    picked = Ball(ball.centre.reshape(-1)[some], ball.radii().reshape(-1)[some], ball.contract)
    with np.errstate(all="ignore"):
        wide = picked.half_widths(fmt)
        size = np.abs(np.asarray(picked.centre, dtype=np.float64))
    # The width of a zero is an underflow, which counts as none.
    width = np.where(picked.radii() == 0, 0.0, wide)[size > 0]
    return bool(width.size and np.median(width) > np.median(size[size > 0]))
