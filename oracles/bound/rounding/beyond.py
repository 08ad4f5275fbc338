"""Elements without a finite radius whose sign and least magnitude are known: masked scores, above all.

What this is for. A mask adds −10⁹, the least finite number, or −∞ to each score that must not count. An evaluation may
overflow there, so a masked score has no finite radius; yet every evaluation gives −∞, or a number at least as far below
zero. So its exponential is 0, and it is not the largest of its row. Without that knowledge a row with one masked
element would have no bound at all.

The rule. `Ball.beyond` has, for elements whose radius is infinite, a magnitude that every evaluation reaches or
exceeds, with the sign of the centre; 0 where none is known. It begins where an operation leaves the range in which
nothing overflows (`Contract.limit`), and is handed on by what follows here; any other operation forgets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....reference.array import Params
from ..contract import Contract
from .ball import HANDED_ON, RULES, Ball, centre_of, magnitude_of
from .spread import SLACK

#: The limit at −∞ and at +∞ of functions that rise, where it is finite.
_LIMITS: dict[str, tuple[float | None, float | None]] = {
    "exp": (0.0, None),
    "exp2": (0.0, None),
    "expm1": (-1.0, None),
    "sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "erf": (-1.0, 1.0),
    "arctan": (-np.pi / 2, np.pi / 2),
}
#: Centres in a wider format may be larger than float64 has numbers.
_LARGEST = float(np.finfo(np.float64).max)
#: This factor covers the roundings of a magnitude, both here and in an evaluation.
_ROUNDED = 1.0 - 2.0**-6


def beyond_of(a: Ball) -> Any:
    """The magnitude that every evaluation of an element reaches, for each element; 0 where none is known."""
    return np.zeros(()) if a.beyond is None else a.beyond


def mark(out: Ball, least: Any) -> None:
    """Give a ball the magnitudes that every evaluation reaches, where its radius is infinite and its centre is not.

    Larger magnitudes that the ball already has stay.
    """
    with np.errstate(all="ignore"):
        least = np.maximum(least, beyond_of(out))
        magnitudes = np.where(np.isinf(out.radii()) & (least > 0) & np.isfinite(out.centre), least, 0.0)
        out.beyond = np.minimum(magnitudes, _LARGEST).astype(np.float64) if np.any(magnitudes) else None


def _moves(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    """A primitive that moves elements moves their magnitudes alike."""
    magnitudes = (np.broadcast_to(beyond_of(x), x.shape) for x in operands)
    mark(out, centre_of(primitive, params, out.contract, *magnitudes))


def _hand_on(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    mark(out, beyond_of(operands[0]))


def _hand_on_choice(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    condition = params["condition"]
    if isinstance(condition, np.ndarray) and condition.dtype == bool:
        mark(out, np.where(condition, *(beyond_of(x) for x in operands)))


def _reach(x: Ball) -> Any:
    """The largest magnitude of every element; infinite where there is no bound."""
    return np.abs(np.asarray(x.centre, dtype=np.float64)) + x.radii()


def _hand_on_sum(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    """A sum of an element beyond and one within bounds."""
    a, b = operands
    parts = [(beyond_of(x) - _reach(y)) * _ROUNDED for x, y in ((a, b), (b, a))]
    mark(out, np.maximum(np.maximum(*parts), 0.0))


def _hand_on_product(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    """A product, or a quotient, of an element beyond and one whose sign and magnitude are known."""
    a, b = operands
    if primitive == "divide":
        size = _reach(b)
        least = beyond_of(a) / size
    else:
        smallest = [np.maximum(np.abs(np.asarray(x.centre, dtype=np.float64)) - x.radii(), 0.0) for x in (a, b)]
        least = np.maximum(beyond_of(a) * smallest[1], beyond_of(b) * smallest[0])
    mark(out, np.where(np.isnan(least), 0.0, least * _ROUNDED))


def _limited(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    """A function that rises: between its value at the nearer end and its limit."""
    (x,) = operands
    # At this nearer end no evaluation overflows, and from there on the function is at its limit.
    least = np.minimum(np.broadcast_to(beyond_of(x), x.shape), min(0.5 * out.contract.limit, 2.0**20))
    near = Ball(np.sign(x.centre) * least, None, out.contract)
    at_near = RULES[primitive](out.contract, near)
    reach, radius = at_near.radii(), out.radii()
    for sign, limit in zip((-1.0, 1.0), _LIMITS[primitive], strict=True):
        if limit is None:
            continue
        ends = np.abs(np.asarray(at_near.centre - out.centre, dtype=np.float64)) + reach, np.abs(limit - out.centre)
        beyond = (least > 0) & (np.sign(x.centre) == sign)
        radius = np.where(beyond, np.maximum(*ends) * (1.0 + 4.0 * SLACK) + out.contract.underflow, radius)
    out.radius = np.asarray(radius, dtype=np.float64)


def of_ends(centre: Any, low: Any, high: Any, contract: Contract) -> Ball:
    """The ball of elements between two ends, each of them a sum that was rounded; one of them may be infinite."""
    with np.errstate(all="ignore"):
        radius = np.asarray(np.maximum(high - centre, centre - low), dtype=np.float64)
        rounding = magnitude_of(centre) * (4.0 * contract.centre_roundoff) + radius * (4.0 * SLACK)
        radius = np.where((low == centre) & (high == centre), 0.0, radius + rounding)
        ball = Ball(centre, np.where(np.isnan(centre), 0.0, radius), contract)
        mark(ball, np.maximum(np.where(np.asarray(centre) < 0, -high, low), 0.0))
    return ball


#: Operations that keep or use the known magnitudes; others forget them.
HANDED_ON.update(
    {
        **dict.fromkeys(("reshape", "transpose", "broadcast", "getitem", "concatenate", "windows"), _moves),
        **dict.fromkeys(("negative", "absolute", "store"), _hand_on),
        "where": _hand_on_choice,
        **dict.fromkeys(("add", "subtract"), _hand_on_sum),
        **dict.fromkeys(("multiply", "divide"), _hand_on_product),
        **dict.fromkeys(_LIMITS, _limited),
    }
)
