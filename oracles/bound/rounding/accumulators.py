"""Accumulators that begin with what is added to a sum: a bias, a residual, another product.

What this is for. A text says C + A B, and a kernel lets its accumulator begin with an element of C and adds the n
products to that, as BLAS does where it adds one block after another to C. Then C passes n roundings and not one, and
where C is much larger than the product, the error is n times what the text's own order has.

The rule. `Ball.summed` has of a sum how many roundings a further summand may pass, n, and the sum S of the magnitudes
of its terms. Of two that are added up all terms may go into one accumulator, in any order and along any tree. Those are
n + n' + 1 additions of partial sums that are S + S' at most, where a summand that is no sum has n' = 0 and
S' = |c| + r. Of that n u S and n' u S' are in the radii already, so that n u S' + n' u S comes to them
(C.-P. Jeannerod, S. M. Rump, SIMAX 34, 2013, for the sum of all terms). Along a declared tree (`bound/trees.py`) n is
the height, because the sum that both are added up to has n + n' + 1 at most, and its last addition is the text's own:
(1 + u)^(n + n') - 1 is at most that of n, and n' u (1 + u)^(n + n') more. What only moves elements hands both on, and
so does a product with a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....reference.array import Params
from ..contract import Contract
from .ball import ACCUMULATED, Ball, centre_of
from .spread import SLACK


def sum_of(centre: Any, radius: Any, contract: Contract, count: Any, size: Any) -> Ball:
    """The ball of a sum: of `count` roundings, and of terms whose magnitudes add up to `size`."""
    total = Ball(centre, radius, contract)
    total.summed = (count, size)
    return total


def _follow_addition(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    a, b = operands
    count, size = zip(*(_terms_of(x, out) for x in (a, b)), strict=True)
    if not np.any(count[0]) and not np.any(count[1]):
        return
    contract = out.contract
    unit = _unit_of(contract, count[0] + count[1])
    more = (count[0] * size[1] + count[1] * size[0]) * (unit * (1.0 + 4.0 * SLACK))
    if contract.flush:
        more = more + (count[0] + count[1]) * contract.underflow
    # An operand without a bound, as a masked score is, gives a result without one: 0 terms times infinity add nothing.
    before = out.radii()
    out.radius = np.where(np.isinf(before), before, before + more)
    out.summed = (count[0] + count[1] + 1.0, size[0] + size[1])


def sums_of_either(a: Ball, b: Ball, out: Ball) -> tuple[Any, Any] | None:
    """What a result knows as a sum that is one of two algorithms': the more additions and the larger magnitudes."""
    if a.summed is None and b.summed is None:
        return None
    (count, size), (other_count, other_size) = (_terms_of(x, out) for x in (a, b))
    return np.maximum(count, other_count), np.maximum(size, other_size)


def _unit_of(contract: Contract, passed: Any) -> Any:
    """u, of which along a declared tree (1 + u)^k is bounded by k roundings that a term passes."""
    if not contract.tree.kind:
        return contract.roundoff
    return contract.roundoff * (1.0 + np.expm1(passed * np.log1p(contract.roundoff)))


def _terms_of(x: Ball, out: Ball) -> tuple[Any, Any]:
    """The number of roundings that a further summand of an operand may pass, and the sum of its terms' magnitudes."""
    if x.summed is not None and x.shape == out.shape:
        return x.summed
    return 0.0, np.abs(np.asarray(x.centre, dtype=np.float64)) + x.radii()


def _follow_move(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    (x,) = operands
    assert x.summed is not None

    def move(values: Any) -> Any:
        return centre_of(primitive, params, out.contract, np.broadcast_to(values, x.shape))

    count, size = x.summed
    out.summed = (count if np.ndim(count) == 0 else move(count), move(size))


def _follow_identity(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    if not params.get("always", False):
        out.summed = operands[0].summed


def _follow_scaling(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    """A sum times a number: the accumulator may begin with what is added, divided by that number."""
    for x, factor in (operands, operands[::-1]):
        if x.summed is not None and factor.centre.ndim == 0 and x.shape == out.shape:
            out.summed = (x.summed[0], x.summed[1] * (abs(float(factor.centre)) + float(factor.radii())))


def _follow_concatenation(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    """Parts of one array: each may have been summed up in as many steps as the longest."""
    parts = [_terms_of(x, x) for x in operands]
    sizes = [np.broadcast_to(size, x.shape) for (_, size), x in zip(parts, operands, strict=True)]
    out.summed = (float(max(np.max(count, initial=0.0) for count, _ in parts)), np.concatenate(sizes, params["axis"]))


def _totalled(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> None:
    """A sum of sums."""
    (x,) = operands
    assert x.summed is not None
    count, size = x.summed
    summands = x.centre.size // max(out.centre.size, 1)
    whole = np.sum(np.broadcast_to(size, x.shape), axis=params["axes"], keepdims=True)
    every = float(np.max(count, initial=0.0)) * summands
    out.radius = out.radii() + whole * (every * _unit_of(out.contract, every) * (1.0 + summands * SLACK))
    out.summed = (every + summands, whole)


ACCUMULATED.update(
    {
        **dict.fromkeys(("add", "subtract"), _follow_addition),
        **dict.fromkeys(("reshape", "transpose", "getitem", "broadcast"), _follow_move),
        **dict.fromkeys(("negative", "store"), _follow_identity),
        "multiply": _follow_scaling,
        "concatenate": _follow_concatenation,
        "sum": _totalled,
    }
)
