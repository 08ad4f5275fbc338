"""Casts to formats of few bits, which a formula means: the numbers that the evaluations within a ball give.

What this is for. A bound that is relative to a number says nothing of a cast to eight bits: its error is sixteen times
as large as what a test would allow. But nearly every number of a ball becomes the same number there. So a cast is no
rounding that an evaluation may make or leave; it is a step function, of which a ball passes one step or few.

The rule. A rounding keeps the order, so the numbers of [c − r, c + r] become those of the format from RN(c − r) to
RN(c + r): most often one number, without any error. Where the ends are two numbers the ball is theirs. Where an end is
beyond the format, and becomes NaN or an infinity, there is no bound, unless both are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....reference.formats import Format, Specials, cast_array, format_of_cast, round_array
from ..contract import Contract
from .ball import RULES, Ball


def cast_ball(contract: Contract, a: Ball, fmt: Format) -> Ball:
    """The ball of the numbers of a format that a cast of a ball may give."""
    a = _magnitudes(a, fmt)
    low, high = (round_array(fmt, end) for end in _ends(a))
    with np.errstate(all="ignore"):
        several = np.isfinite(low) & np.isfinite(high) & (low != high)
        centre = np.where(several, (low + high) / 2, cast_array(fmt, a.centre))
        reach = np.where(low == high, 0.0, (high - low) / 2)
        radius = np.where(np.isnan(reach) | ~np.isfinite(a.radii()), np.inf, reach)
        # A NaN that every evaluation has is one after the cast, too.
        radius = np.where(np.isnan(a.centre) & (a.radii() == 0), 0.0, radius)
    return Ball(centre.astype(contract.centre_type), radius if radius.any() else None, contract)


def before_cast(a: Ball, fmt: Format) -> Ball:
    """The ball of what is rounded to the format of an output, in place of infinite elements what a cast makes of them.

    That is what an accept set is made of, whose order has no place for what a format has in place of an infinity.
    """
    a = _magnitudes(a, fmt)
    beyond = np.isinf(a.centre) & (a.radii() == 0)
    if not beyond.any():
        return a
    out = Ball(np.where(beyond, cast_array(fmt, a.centre), a.centre), a.radius, a.contract, a.special)
    out.stray = a.stray
    return out


def _magnitudes(a: Ball, fmt: Format) -> Ball:
    return a.around(np.abs(a.centre)) if fmt.specials is Specials.POWERS else a


def _ends(a: Ball) -> tuple[Any, Any]:
    """The ends of a ball as float64; of a centre in a wider format the next numbers outside."""
    low, high = a.ends()
    if low.dtype == np.float64:
        return low, high
    down, up = low.astype(np.float64), high.astype(np.float64)
    return np.where(down > low, np.nextafter(down, -np.inf), down), np.where(up < high, np.nextafter(up, np.inf), up)


RULES["cast"] = lambda contract, a, dtype, saturates: cast_ball(contract, a, format_of_cast(dtype, saturates))
