"""The rule of every primitive: the ball that contains its results in every evaluation that the contract allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....reference.array import Precise
from ....reference.condition import is_open, possibly, surely
from ....reference.formats import round_array
from ..contract import EXP2, Contract
from . import lengths, spread
from .accumulators import sum_of
from .arithmetic import rounded
from .ball import RULES, Ball, magnitude_of, scaled
from .beyond import mark, of_ends
from .spread import SLACK, limited

#: The largest number of elements of a window whose maximum is taken element by element, for all windows at once.
_SMALL_WINDOW = 2**10
#: The number of elements of a row above which the error of means is small relative to that of additions.
_LONG_ROW = 2**8


def rule_of(name: str, value: Callable[[Any], Any], reach: spread.Spread) -> Callable[..., Ball]:
    """The rule of an elementary function; `reach` bounds how far its values over a ball are from that at the centre."""

    return lambda contract, a: evaluated(contract, name, a, value(a.centre), reach)


def evaluated(contract: Contract, name: str, a: Ball, y: Any, reach: spread.Spread) -> Ball:
    radius = None if a.radius is None else np.array(reach(a.centre, a.radius, y), dtype=np.float64)
    return rounded(contract, y, radius, times=2.0 * contract.functions.ulps[name])


def _sqrt(contract: Contract, a: Ball) -> Ball:
    reach = spread.of_sqrt if a.nonnegative else spread.of_sqrt_through_zero
    return evaluated(contract, "sqrt", a, np.sqrt(a.centre), reach)


def _exp(contract: Contract, a: Ball) -> Ball:
    a = _exponent(contract, a)
    return flushed_below(evaluated(contract, "exp", a, np.exp(a.centre), spread.of_exp), a)


def flushed_below(power: Ball, exponent: Ball) -> Ball:
    """An exponential of a computed exponent, whose results below twice the smallest normal number may be zero.

    In a softmax, attention or a decay the exponent is computed, and the exponential is added to numbers around 1. Fast
    exponentials of GPUs (PTX: ex2.approx.ftz) flush subnormal results, and that of torch's attention on CPUs flushes
    the smallest normal binade, too, because it forms the power of two first: 1.28e-38 is 0 there. The exponential of a
    given number is not flushed.
    """
    least, y = 2.0 * power.contract.accumulate.smallest_normal, power.centre
    if exponent.exact or not np.min(y, initial=np.inf) < least:
        return power
    radius = power.radii()
    size = magnitude_of(y)
    return Ball(y, np.where(size - radius < least, np.maximum(radius, size), radius), power.contract)


def _exponent(contract: Contract, a: Ball) -> Ball:
    """The exponent of an exponential, with the errors of the algorithm `EXP2` where the contract allows that."""
    if EXP2 not in contract.algorithms:
        return a
    # 2^(x log2 e): the factor and the product are rounded, and so the exponent is off by 2u |x| before the power.
    argument = rounded(contract, a.centre, a.radius if a.radius is None else a.radii() + 0.0, times=2.0)
    if not argument.bounded:
        # The product with an infinity is that infinity. Where the product overflows, so that only its sign and a share
        # of its size are known, the exponential is at its limit already.
        size = magnitude_of(a.centre)
        lost = np.isinf(argument.radii()) & (a.radii() <= 0.25 * size)
        argument.radius = np.where(np.isinf(a.centre), a.radii(), np.where(lost, 0.5 * size, argument.radii()))
    return argument


def _sigmoid(contract: Contract, a: Ball) -> Ball:
    # An error of the exponent in 1 / (1 + exp(−x)) is an error of the sigmoid's argument of the same size.
    a = _exponent(contract, a)
    decay = np.exp(-np.abs(a.centre))
    y = np.where(a.centre < 0, decay, 1.0) / (1.0 + decay)
    out = evaluated(contract, "sigmoid", a, np.where(np.isnan(a.centre), a.centre, y), spread.of_sigmoid)
    # Where exp(−x) overflows, 1 / (1 + exp(−x)) is 0 for a result below 1 / max.
    radius = out.radii()
    return Ball(out.centre, np.where(y <= 2.0 / contract.accumulate.max, np.maximum(radius, y), radius), contract)


def _bound_constant_power(contract: Contract, a: Ball, exponent: float) -> Ball:
    y = np.power(a.centre, exponent)
    radius = None
    if a.radius is not None:
        radius = np.asarray(spread.of_power(a.centre, a.radius, exponent), dtype=np.float64)
    times = 2.0 * contract.functions.ulps["power"]
    if exponent == int(exponent):
        # An integer power may be computed by n - 1 products, and the reciprocal of the last.
        times = max(times, abs(exponent) - (exponent > 0))
        if exponent < 0:  # Where those overflow, their reciprocal is 0.
            beyond = np.power(np.abs(a.centre), -exponent) > contract.limit
            lost = np.where(beyond & np.isfinite(a.centre), magnitude_of(y), 0.0)
            radius = lost if radius is None else np.maximum(radius, lost)
    # An evaluation rounds the exponent, which multiplies the power by x^d, |d| <= u |exponent|; so does the centre.
    off = 0.0 if contract.holds(exponent) else abs(exponent) * contract.accumulate.unit_roundoff
    off += abs(exponent.low) if isinstance(exponent, Precise) else 0.0
    if off:
        growth = np.expm1(np.abs(np.log(a.centre)) * off)
        extra = np.where(np.isfinite(growth), magnitude_of(y) * growth, 0.0)
        radius = extra if radius is None else radius * (1.0 + growth) + extra
    return rounded(contract, y, radius, times=times)


def _extreme(choose: Any) -> Callable[..., Ball]:
    """The rule of the larger, or smaller, of two, which is between that of the lower and that of the upper ends."""

    def rule(contract: Contract, a: Ball, b: Ball) -> Ball:
        centre = choose(a.centre, b.centre)
        if a.radius is None and b.radius is None:
            return Ball(centre, None, contract)
        low, high = (choose(*ends) for ends in zip(a.ends(), b.ends(), strict=True))
        return of_ends(centre, low, high, contract)

    return rule


def _where(contract: Contract, a: Ball, b: Ball, condition: Any, share: Any) -> Ball:
    exact = a.radius is None and b.radius is None
    choices = possibly(condition)
    centre = np.where(choices, a.centre, b.centre)
    radius = None if exact else np.where(choices, _radius(a), _radius(b))
    if not is_open(condition):
        return Ball(centre, radius, contract)
    # Where the condition is open, an evaluation may have chosen either; without systematic errors, the middle.
    either = choices & ~surely(condition)
    if contract.systematic:
        middle, reach = spread.hull(a.centre, _radius(a), b.centre, _radius(b), contract.centre_roundoff)
    else:
        middle, reach = share * a.centre + (1.0 - share) * b.centre, np.maximum(_radius(a), _radius(b))
    return Ball(np.where(either, middle, centre), np.where(either, reach, 0.0 if exact else radius), contract)


def _radius(a: Ball) -> Any:
    return 0.0 if a.radius is None else a.radius


def _attach(contract: Contract, a: Ball, b: Ball, always: bool = False) -> Ball:
    """The value of `a`; unless `always`, an evaluation may compute the value of `b` in its place."""
    radius = _radius(a) + (0.0 if always else _radius(b) + magnitude_of(a.centre - b.centre))
    return Ball(np.broadcast_to(a.centre, b.shape), np.broadcast_to(radius, b.shape), contract)


def _sum_over(contract: Contract, a: Ball, axes: tuple[int, ...], means: bool = False) -> Ball:
    centre = np.sum(a.centre, axis=axes, keepdims=True)
    summands = a.centre.size // max(centre.size, 1)
    if summands <= 1:
        return Ball(centre, None if a.radius is None else np.sum(a.radii(), axis=axes, keepdims=True), contract)
    lengths.record_sum(summands)
    # Every order has n - 1 additions; the last factor covers the roundings of the sums that are computed here.
    unit = (contract.roundoff + contract.centre_roundoff) * (1.0 + summands * SLACK)
    growth = (summands - 1) * unit
    sizes = a.centre if a.nonnegative and a.centre.dtype == np.float64 else magnitude_of(a.centre)
    size = centre if sizes is a.centre else np.sum(sizes, axis=axes, keepdims=True)
    radii_sum = None if a.exact else _sum_of_radii(a, axes, size, summands)
    radius = size * (error := contract.error_of_sum(summands) * (1.0 + summands * SLACK))
    # For higher derivatives no proof says which sums a closed form has, so the bound is not reduced there.
    if sizes is not a.centre and contract.roundings == 1.0 and growth < 0.5 and not contract.adds_in_hops:
        radius = np.minimum(radius, _of_partial_sums(size, centre, radii_sum, growth))
        if means:
            radius = radius + _apart(a, axes, centre, size, radii_sum) * _of_means(summands, unit)
    if contract.flush:
        radius = radius + (summands - 1) * contract.underflow
    if radii_sum is not None:
        size = size + radii_sum
        radius = radius + radii_sum * (1.0 + error + summands * SLACK)
    out = sum_of(centre, limited(size, contract.limit, radius), contract, float(contract.tree.height(summands)), size)
    out.stray = np.isinf(centre) if means and np.isinf(centre).any() else None  # The next term less an infinite mean.
    return out


def _sum_of_radii(a: Ball, axes: tuple[int, ...], size: Any, summands: int) -> Any:
    """Σ r along axes; for radii s |c| + p it is s Σ |c| + n p if s and p are the same for all terms of a sum.

    Args:
        size: Σ |c|. summands: n.
    """
    if a.parts is not None and all(
        not np.ndim(x) or (np.ndim(x) == a.centre.ndim and all(np.shape(x)[axis] == 1 for axis in axes))
        for x in a.parts
    ):
        share, part = a.parts
        return size * share + summands * part
    return np.sum(a.radii(), axis=axes, keepdims=True)


def _of_partial_sums(size: Any, centre: Any, radii_sum: Any, growth: float) -> Any:
    """A bound on the error of a sum in which terms cancel: half of (n - 1) u Σ |x| where the sum is zero.

    The error of each of the n - 1 additions is at most u times its result, which is the sum of some terms and of their
    errors so far. Positive terms add up to P and the magnitudes of negative ones to N, so that the sum of some terms is
    at most max(P, N) = (Σ |x| + |Σ x|) / 2, and the errors are E <= (n - 1) u (max(P, N) + E). This is true of every
    order and tree.

    Args:
        size: Σ |x| of the centres. centre: Σ x. radii_sum: Σ of the radii, None for zero. growth: (n - 1) u, below 1.
    """
    part = 0.5 * (size + magnitude_of(centre)) + (0.0 if radii_sum is None else radii_sum)
    return part * (growth / (1.0 - growth))


def _of_means(summands: int, unit: float) -> float:
    """The further error of an evaluation that computes means in place of sums, as a share of Σ |x − μ|.

    Two means of a and b terms are combined as m + (m' − m) b / (a + b), along any tree (T. F. Chan, G. H. Golub,
    R. J. LeVeque, COMPSTAT 1982). The difference, the share and their product are rounded, too, which adds an error of
    3 u b |m' − m| to a sum. The difference is the same for the terms minus μ, whose sums are t' and t: b |m' − m| <=
    |t'| + |t| b / a. So a term x adds |x − μ| times 1 if it is in the second part, and times b / a if in the first.
    With b <= 2 a, as where the larger part comes first or rows are halved, both are at most log((a + b) / part) /
    log 1.5, for 1 <= log(1 + a / b) / log 1.5 and b / a <= log(1 + b / a) / log 1.5. Along the tree these add up to
    log n / log 1.5.
    """
    return 3.0 * unit * math.log(summands) / math.log(1.5)


def _apart(a: Ball, axes: tuple[int, ...], centre: Any, size: Any, radii_sum: Any) -> Any:
    """A bound on Σ |x − μ|; for long rows Σ |x|, because the error of their many additions is larger anyway.

    Args:
        centre: Σ x. size: Σ |x|. radii_sum: Σ of the radii, None for zero.
    """
    summands = a.centre.size // max(centre.size, 1)
    if summands <= _LONG_ROW:
        apart = np.sum(magnitude_of(a.centre - centre / summands), axis=axes, keepdims=True)
        size = np.minimum(apart * (1.0 + summands * SLACK), size)
    return size if radii_sum is None else size + 2.0 * radii_sum


def _max(contract: Contract, a: Ball, axes: tuple[int, ...], shared: bool = False) -> Ball:
    centre = _largest_along(a.centre, axes)
    if a.radius is None:
        return Ball(centre, None, contract)
    radii = a.radii()
    ends = (a.centre - radii, a.centre + radii) if a.beyond is None else a.ends()
    low, high = (_largest_along(each, axes) for each in ends)
    return of_ends(centre, low, high, contract)


def _largest_along(values: Any, axes: tuple[int, ...]) -> Any:
    lengths = [values.shape[i] for i in axes]
    if values.flags.c_contiguous or axes[0] != values.ndim - len(axes) or not 0 < math.prod(lengths) <= _SMALL_WINDOW:
        return np.max(values, axis=axes, keepdims=True)
    # For windows, which overlap in memory, element by element: NumPy would take the maximum of each window by itself.
    out: Any = None
    for offset in np.ndindex(*lengths):
        part = values[(..., *offset)]
        out = part.copy() if out is None else np.maximum(out, part, out=out)
    return out.reshape(*out.shape, *(1,) * len(axes))


def _store(contract: Contract, a: Ball, dtype: str = "", always: bool = True) -> Ball:
    fmt = contract.stored_in(dtype)
    if not (always or contract.intermediates) or fmt.precision >= contract.accumulate.precision:
        return a
    size = magnitude_of(a.centre) + a.radii()
    fits = (a.radii() == 0) & (round_array(fmt, a.centre.astype(np.float64)) == a.centre)
    added = np.where(fits, 0.0, fmt.unit_roundoff * size + fmt.eta)
    if not dtype and always:
        return Ball(a.centre, a.radii() + added, contract)
    # A number beyond the narrower format may become an infinity there, so its radius is infinite.
    stored = Ball(a.centre, a.radii() + np.where((size <= fmt.max) | fits, added, np.inf), contract)
    mark(stored, np.maximum(magnitude_of(a.centre) - a.radii() - added, 0.0))
    return stored


def _move_exactly(move: Callable[..., Any]) -> Callable[..., Ball]:
    """The rule of a structural primitive, which moves centres and radii in the same way, without error."""

    def rule(contract: Contract, a: Ball, **params: Any) -> Ball:
        centre = move(a.centre, **params)
        if a.parts is not None and not any(map(np.ndim, a.parts)):
            return scaled(centre, *a.parts, contract, a.most)
        out = Ball(centre, None if a.radius is None else move(a.radii(), **params), contract)
        out.bounded, out.most = a.bounded, a.most
        return out

    return rule


def _concatenate(contract: Contract, *balls: Ball, axis: int) -> Ball:
    centre = np.concatenate([b.centre for b in balls], axis=axis)
    if all(b.radius is None for b in balls):
        return Ball(centre, None, contract)
    return Ball(centre, np.concatenate([b.radii() for b in balls], axis=axis), contract)


def _put(values: Any, index: Any, shape: tuple[int, ...]) -> Any:
    """Zeros with values at an index in which no element occurs twice."""
    out = np.zeros(shape, dtype=values.dtype)
    out[index] = values
    return out


def _scatter_add(
    contract: Contract, a: Ball, index: Any, shape: tuple[int, ...], in_place: bool = False, inserted: bool = False
) -> Ball:
    if all(isinstance(i, (slice, int, type(Ellipsis))) for i in (index if isinstance(index, tuple) else (index,))):
        return Ball(_put(a.centre, index, shape), None if a.radius is None else _put(a.radii(), index, shape), contract)
    centre = np.zeros(shape, dtype=a.centre.dtype)
    np.add.at(centre, index, a.centre)
    hits = np.zeros(shape)
    np.add.at(hits, index, 1.0)
    most = float(hits.max(initial=0.0))
    if most <= 1 and a.radius is None:
        return Ball(centre, None, contract)
    radii, size = np.zeros(shape), np.zeros(shape)
    np.add.at(radii, index, a.radii())
    np.add.at(size, index, np.abs(a.centre).astype(np.float64))
    # Elements with the same index are added up in any order, with the bound of `_sum_over`.
    additions = np.maximum(hits - 1.0, 0.0)
    lost = additions * contract.underflow if contract.flush else 0.0
    growth = additions * (contract.roundoff + contract.centre_roundoff)
    if in_place and contract.may_store(contract.stores):
        growth = growth + additions * contract.stores.unit_roundoff
        lost = lost + additions * contract.stores.eta
        lost = np.where((additions > 0) & (size + radii > contract.stores.max), np.inf, lost)
    return sum_of(centre, radii * (1.0 + SLACK) + growth * (size + radii) + lost, contract, hits, size + radii)


RULES.update(
    {
        "negative": lambda contract, a: a.around(-a.centre),
        "absolute": lambda contract, a: a.around(np.abs(a.centre)),
        "sqrt": _sqrt,
        "exp": _exp,
        "expm1": rule_of("expm1", np.expm1, spread.of_expm1),
        "log": rule_of("log", np.log, spread.of_log),
        "log1p": rule_of("log1p", np.log1p, spread.of_log1p),
        "tanh": rule_of("tanh", np.tanh, spread.of_tanh),
        "sigmoid": _sigmoid,
        "power": _bound_constant_power,
        "maximum": _extreme(np.maximum),
        "minimum": _extreme(np.minimum),
        "where": _where,
        "attach": _attach,
        "sum": _sum_over,
        "max": _max,
        "store": _store,
        "reshape": _move_exactly(lambda x, shape: np.reshape(x, shape)),
        "transpose": _move_exactly(lambda x, axes: np.transpose(x, axes)),
        "broadcast": _move_exactly(lambda x, shape: np.broadcast_to(x, shape)),
        "getitem": _move_exactly(lambda x, index: x[index]),
        "scatter": _scatter_add,
        "concatenate": _concatenate,
    }
)
