"""Draws that the outputs of a call leave open, such as whether an element that is 0 was dropped, by its gradients.

What is hard here: one gradient may hang on several such draws, and there are too many combinations to read them all.
So the gradients are read with some of the draws changed, by the bits of their numbers. A gradient that hangs on one
draw has one of two values in each of these readings, and which one it has spells the number of the draw. A gradient
that hangs on several has a third value in some reading, and is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...oracles.bound.rounding import Ball
from ...oracles.judge.holding import OperandFacts, Reading
from ...oracles.specs.storage import format_of
from .arguments import Tensor
from .comparing import decide_by
from .open_readings import OpenReading, without_some

#: Tables of choices, by the operation that chooses.
Picks = Mapping[str, Any]


def settle_draws(
    read: Callable[[Picks], Sequence[Reading]], computed: Sequence[Tensor],
    accepts: Callable[[Tensor, Reading], Any], picks: Picks, open_rows: Mapping[str, Any],
) -> tuple[Picks, list[Any], list[Any]] | None:  # fmt: skip
    """The choices with those draws changed that gradients show to be others, elements that hang on several draws, and
    the widths of accept sets, infinite for these elements.

    Args:
        read: reads the gradients for choices. computed: the gradients. accepts: which of their elements are right by a
            reading. picks: the choices that the outputs show. open_rows: by name the rows of draws of 0 or 1 that the
            outputs leave open.

    Returns:
        None where a gradient is judged by no ball.
    """
    draws = [(name, row) for name, rows in open_rows.items() for row in np.flatnonzero(rows)]

    def change(wanted: Callable[[int], bool]) -> Picks:
        tables = {name: np.array(table) for name, table in picks.items()}
        for number, (name, row) in enumerate(draws, 1):
            if wanted(number):
                tables[name][row] = 1 - tables[name][row]
        return tables

    readings = [read(picks), read(change(bool))]
    bits = ({n for n in range(len(draws) + 1) if n >> k & 1} for k in range(len(draws).bit_length()))
    readings += [read(change(numbers.__contains__)) for numbers in bits]
    changed, several, widths = set[int](), [], []
    # A draw that this call shows may be the other one in the next.
    opposite = read({name: 1 - np.array(table) for name, table in picks.items()})
    for y, flipped, first, other, *others in zip(computed, opposite, *readings, strict=True):
        if not all(isinstance(each, Ball) for each in (flipped, first, other, *others)):
            return None
        one, two = (np.asarray(each.centre, dtype=np.float64) for each in (first, other))
        hangs, third, number = one != two, np.zeros(one.shape, dtype=bool), np.zeros(one.shape, dtype=np.int64)
        for k, each in enumerate(others):
            value = np.asarray(each.centre, dtype=np.float64)
            third |= (value != one) & (value != two)
            number += (hangs & (value == two)).astype(np.int64) << k
        settled = hangs & ~third & (number <= len(draws))
        of_other = settled & ~np.asarray(accepts(y, first)) & np.asarray(accepts(y, other))
        changed |= set(number[of_other].tolist())
        several.append(third | (hangs & ~settled))
        with np.errstate(all="ignore"):
            own = [2 * each.half_widths(format_of(y.dtype)) for each in (flipped, first, other)]
        widths.append(np.where(several[-1], np.inf, np.max(own, axis=0)))
    return change(changed.__contains__), several, widths


def leave_out(readings: Sequence[Reading], several: Sequence[Any]) -> list[Reading]:
    """Readings in which the elements that hang on several open draws are not judged."""
    pairs = zip(readings, several, strict=True)
    return [without_some(each, mask) if np.any(mask) else each for each, mask in pairs]


def choices_of(
    outputs: Sequence[Tensor], readings: Sequence[Reading], facts: OperandFacts
) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The choices that the outputs of a call show, and the rows of draws that they leave open; None if they do not show
    the drawn ones.

    Args:
        outputs, readings: of the call. facts: about the operands.
    """
    choices = next((each.choices for each in readings if isinstance(each, OpenReading)), None)
    if choices is None:
        return {}, {}
    if not choices.are_drawn:
        return choices.named_by(dict(enumerate(outputs))), {}
    if not outputs:
        return None
    decision = decide_by(outputs, readings[: len(outputs)], facts, every=True)
    if decision.beyond or not (decision.is_unique or decision.open_rows):
        return None
    return decision.picks, {} if decision.is_unique else decision.open_rows or {}
