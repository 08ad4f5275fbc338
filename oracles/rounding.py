"""The rounding reading: a ball around each value that holds every sensible evaluation.

What this is for: it gives the tolerance of every output element, from the formula alone. An array of this kind is a
centre c (float64, or the widest float of the machine where float64 itself is judged) and a radius r. The ball
[c - r, c + r] contains the exact value *and* the result of every evaluation that the contract allows: any order of
summation, FMA or not, elementary functions within their stated ulps. Centre and radius are those of ball arithmetic;
each operation adds u (|c| + r) + η for the evaluation's rounding and u_c |c| for the centre's own. Nothing is first
order, nothing is estimated, and no tree height is assumed: the sum of n terms costs (n - 1) u Σ(|x_i| + r_i) in any
order (Rump, BIT 52, 2012; Jeannerod & Rump, SIMAX 34, 2013).

What is hard here: a radius that measures no distance. It is infinite where an evaluation may overflow the accumulate
format, although the centre does not; such an element is not judged. At a centre that is NaN or infinite it is 0 where
every evaluation gives just that, and NaN where one may not, as of ∞ times what may be zero (`_settled`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..reference.array import Array, Operands, Params, algorithms
from ..reference.formats import Format, ulp_array
from .contract import Contract

#: Radii are computed in floating point themselves; this relative excess per operation covers their roundings.
_SLACK = 2.0**-50


class Ball(Array):
    """Centres, radii (None: exactly zero), contract; `special`: some element, or one it came from, is not finite."""

    __slots__ = ("centre", "contract", "radius", "special")

    def __init__(self, centre: Any, radius: Any, contract: Contract, special: bool = False) -> None:
        self.centre = centre
        self.radius = radius
        self.contract = contract
        self.special = special

    @property
    def shape(self) -> tuple[int, ...]:
        return self.centre.shape  # type: ignore[no-any-return]

    def base(self) -> Array:
        return self

    def comparable(self) -> Any:
        return self.centre

    def lift(self, value: Any) -> Ball:
        return _constant(value, self.contract)

    def apply(self, primitive: str, operands: Operands, params: Params) -> Ball:
        contract = self.contract
        balls = [x if isinstance(x, Ball) else _constant(x, contract) for x in operands]
        out = _RULES[primitive](contract, *balls, **params)
        if any(x.special for x in balls) or not np.isfinite(out.centre).all():
            out = Ball(out.centre, _settled(primitive, out, balls, params), contract, True)
        return out

    def radii(self) -> Any:
        """The radius of every element."""
        return np.zeros(self.shape) if self.radius is None else np.broadcast_to(self.radius, self.shape)

    def half_widths(self, fmt: Format) -> Any:
        """Half-width of the accept set of every element, as float64, for outputs in a format."""
        radius = np.asarray(self.radii(), dtype=np.float64)
        return radius + 0.5 * ulp_array(fmt, np.abs(np.asarray(self.centre, dtype=np.float64)) + radius)


def ball(values: Any, contract: Contract) -> Ball:
    """float64 inputs, held exactly by the dtype under test."""
    centre = np.asarray(values, dtype=contract.centre_type)
    if np.max(np.abs(centre), initial=0.0) <= contract.limit:
        return Ball(centre, None, contract)
    finite = np.isfinite(centre)
    beyond = finite & (np.abs(centre) > contract.limit)  # An evaluation may scale its inputs, too.
    return Ball(centre, np.where(beyond, np.inf, 0.0), contract, not finite.all())


def _settled(primitive: str, out: Ball, operands: list[Ball], params: Params) -> Any:
    """The radii of a result, where NaN or infinite elements take part: 0 where all evaluations agree, else NaN."""
    if primitive not in _COMPUTED:
        return out.radius
    axes = params.get("axes", ())
    sure, given = np.True_, np.False_  # `given`: whether an operand is not finite
    for x in operands:
        finite, radius = np.isfinite(x.centre), x.radii()
        sure = sure & np.all(np.where(finite, np.isfinite(radius), radius == 0), axis=axes, keepdims=True)
        given = given | np.any(~finite, axis=axes, keepdims=True)
    # 0 / 0 without errors is NaN in every evaluation: the mean of no elements. Else finite operands met a singularity.
    nothing = primitive == "divide" and np.logical_and(*((x.centre == 0) & (x.radii() == 0) for x in operands))
    sure = sure & (given | np.isfinite(out.radii()) | nothing)
    if primitive in ("multiply", "divide"):
        for x, y in (operands, operands[::-1])[: 2 if primitive == "multiply" else 1]:
            maybe_zero = (np.abs(y.centre) <= y.radii()) & ~((y.centre == 0) & (y.radii() == 0))
            sure = sure & ~(np.isinf(x.centre) & maybe_zero)
    return np.where(given | ~np.isfinite(out.centre), np.where(sure, 0.0, np.nan), out.radii())


@functools.lru_cache(maxsize=512)
def _scalar(value: float, contract: Contract) -> Ball:
    centre = np.asarray(value, dtype=contract.centre_type)
    held = abs(value) <= contract.accumulate.max and contract.holds(value)
    return Ball(centre, None if held else abs(value) * contract.accumulate.unit_roundoff, contract)


def _constant(value: Any, contract: Contract) -> Ball:
    if isinstance(value, (int, float)):
        return _scalar(float(value), contract)
    return Ball(np.asarray(value, dtype=contract.centre_type), None, contract)


def _size(centre: Any) -> Any:
    """|c| as a new array for a radius: float64, for `_SLACK` covers what a wider centre loses by it."""
    size = np.abs(centre)
    return size if size.dtype == np.float64 else size.astype(np.float64)


def _rounded(contract: Contract, centre: Any, radius: Any, times: float = 1.0, eta: bool = True) -> Ball:
    """The ball after `times` roundings of the evaluation and one of the centre.

    Args:
        radius: before those roundings; it is overwritten. eta: whether a rounding may underflow.
    """
    u, limit = contract.roundoff * times, contract.limit
    out = _size(centre)
    largest = out.max(initial=0.0) + (0.0 if radius is None else np.max(radius, initial=0.0))
    inside = None if largest <= limit else out + (0.0 if radius is None else radius) <= limit
    out *= (u + contract.centre_roundoff) * (1.0 + _SLACK)
    if radius is not None:
        radius *= 1.0 + u + _SLACK
        out += radius
    if eta:
        out += contract.underflow
    return Ball(centre, out if inside is None else np.where(inside, out, np.inf), contract)


def _is_power_of_two(x: Ball) -> bool:
    return x.centre.ndim == 0 and x.radius is None and abs(math.frexp(float(x.centre))[0]) == 0.5


def _total(a: Any, b: Any) -> Any:
    """Sum of two radii, None meaning zero; always a new array."""
    if a is None:
        return None if b is None else np.array(b)
    return np.array(a) if b is None else a + b


def _add(contract: Contract, a: Ball, b: Ball) -> Ball:
    return _rounded(contract, a.centre + b.centre, _total(a.radius, b.radius), eta=False)


def _subtract(contract: Contract, a: Ball, b: Ball) -> Ball:
    return _rounded(contract, a.centre - b.centre, _total(a.radius, b.radius), eta=False)


def _times_power_of_two(x: Ball, factor: Any) -> Ball:
    """Times a power of two: exact but for underflow and overflow."""
    radius = None if x.radius is None else x.radius * abs(factor)
    centre = x.centre * factor
    contract = x.contract
    if factor < 1.0 and not np.min(np.abs(centre), initial=np.inf) >= contract.accumulate.smallest_normal:  # or a NaN
        radius = contract.underflow if radius is None else radius + contract.underflow
    if not np.max(np.abs(centre), initial=0.0) <= contract.limit:
        radius = np.where(np.abs(centre) <= contract.limit, 0.0 if radius is None else radius, np.inf)
    return Ball(centre, radius, contract)


def _multiply(contract: Contract, a: Ball, b: Ball) -> Ball:
    if _is_power_of_two(b):
        return _times_power_of_two(a, b.centre)
    if _is_power_of_two(a):
        return _times_power_of_two(b, a.centre)
    # For all points of the balls, |a b - c_a c_b| <= |c_a| r_b + r_a (|c_b| + r_b).
    radius = None
    if b.radius is not None:
        radius = _size(a.centre) * b.radius
    if a.radius is not None:
        reach = _size(b.centre)
        reach = reach + b.radius if b.radius is not None else reach
        part = a.radius * reach
        radius = part if radius is None else radius + part
    return _rounded(contract, a.centre * b.centre, radius)


def _divide(contract: Contract, a: Ball, b: Ball) -> Ball:
    if _is_power_of_two(b):
        return _times_power_of_two(a, 1.0 / b.centre)
    quotient = a.centre / b.centre
    if b.radius is None:
        # Dividing by a constant may be done by multiplying with its rounded reciprocal: two roundings.
        times = 2.0 if b.centre.ndim == 0 else 1.0
        radius = None if a.radius is None else a.radius / _size(b.centre)
        return _rounded(contract, quotient, radius, times)
    # With q = c_a / c_b, |a / b - q| = |(a - c_a) - q (b - c_b)| / |b|; a divisor that may be zero leaves no bound.
    reach = _size(b.centre) - b.radius
    spread = _size(quotient) * b.radius if a.radius is None else a.radius + _size(quotient) * b.radius
    return _rounded(contract, quotient, np.where(reach > 0, spread / reach, np.inf))


def _square(contract: Contract, a: Ball) -> Ball:
    radius = None if a.radius is None else a.radius * (2.0 * _size(a.centre) + a.radius)
    return _rounded(contract, np.square(a.centre), radius)


def _function(name: str, value: Callable[[Any], Any], spread: Callable[[Any, Any, Any], Any]) -> Callable[..., Ball]:
    """An elementary function: `spread(c, r, y)` bounds |f(x) - f(c)| over the ball of c."""

    def rule(contract: Contract, a: Ball) -> Ball:
        y = value(a.centre)
        radius = None if a.radius is None else np.array(spread(a.centre, a.radius, y), dtype=np.float64)
        return _rounded(contract, y, radius, times=2.0 * contract.functions[name])

    return rule


def _exp_spread(c: Any, r: Any, y: Any) -> Any:
    # e^(c + r) - e^c; for a large r, where e^r may overflow, at most e^(c + r), its exponent rounded up
    return np.where(r < 1.0, y * np.expm1(r), np.exp(c + r + (np.abs(c) + r) * _SLACK))


def _sqrt_spread(c: Any, r: Any, y: Any) -> Any:
    # |√a - √c| <= |a - c| / (√a + √c), and always <= √|a - c|
    below = np.sqrt(np.maximum(c - r, 0.0))
    return np.minimum(r / (y + below), np.sqrt(r))


def _log_spread(c: Any, r: Any, y: Any) -> Any:
    # The slope is largest at the lower end, so log c - log(c - r) is the bound; there is none if the ball reaches zero.
    return np.where(r < c, -np.log1p(-np.minimum(r / c, 1.0)), np.inf)


def _tanh_spread(c: Any, r: Any, y: Any) -> Any:
    nearest = np.maximum(np.abs(c) - r, 0.0)  # the slope 1 - tanh² is largest there
    return r * (1.0 - np.square(np.tanh(nearest)))


def _power(contract: Contract, a: Ball, exponent: float) -> Ball:
    y = np.power(a.centre, exponent)
    radius = None
    if a.radius is not None:
        low, high = np.maximum(a.centre - a.radius, 0.0), a.centre + a.radius
        slope = np.maximum(np.power(low, exponent - 1.0), np.power(high, exponent - 1.0))
        radius = np.where(a.centre > a.radius, abs(exponent) * slope * a.radius, np.inf).astype(np.float64)
    if not contract.holds(exponent):  # An evaluation rounds it, which makes x^d more, with |d| <= u |exponent|.
        growth = np.expm1(np.abs(np.log(a.centre)) * (abs(exponent) * contract.accumulate.unit_roundoff))
        extra = np.where(np.isfinite(growth), _size(y) * growth, 0.0)
        radius = extra if radius is None else radius * (1.0 + growth) + extra
    return _rounded(contract, y, radius, times=2.0 * contract.functions["power"])


def _extreme(choose: Any) -> Callable[..., Ball]:
    def rule(contract: Contract, a: Ball, b: Ball) -> Ball:
        exact = a.radius is None and b.radius is None
        return Ball(choose(a.centre, b.centre), None if exact else np.maximum(_radius(a), _radius(b)), contract)

    return rule


def _where(contract: Contract, a: Ball, b: Ball, condition: Any) -> Ball:
    exact = a.radius is None and b.radius is None
    radius = None if exact else np.where(condition, _radius(a), _radius(b))
    return Ball(np.where(condition, a.centre, b.centre), radius, contract)


def _radius(a: Ball) -> Any:
    return 0.0 if a.radius is None else a.radius


def _attach(contract: Contract, a: Ball, b: Ball, kept: bool = False) -> Ball:
    """The given value; unless it is `kept`, an evaluation may compute it again as `b` says."""
    radius = _radius(a) + (0.0 if kept else _radius(b) + _size(a.centre - b.centre))
    return Ball(np.broadcast_to(a.centre, b.shape), np.broadcast_to(radius, b.shape), contract)


def _sum_over(contract: Contract, a: Ball, axes: tuple[int, ...]) -> Ball:
    centre = np.sum(a.centre, axis=axes, keepdims=True)
    summands = a.centre.size // max(centre.size, 1)
    if summands <= 1:
        return Ball(centre, None if a.radius is None else np.sum(a.radii(), axis=axes, keepdims=True), contract)
    # In any order there are n - 1 additions; the last factor covers the roundings of the sums that are formed here.
    growth = (summands - 1) * (contract.roundoff + contract.centre_roundoff) * (1.0 + summands * _SLACK)
    size = np.sum(_size(a.centre), axis=axes, keepdims=True)
    radius = size * growth
    if a.radius is not None:
        spread = np.sum(a.radii(), axis=axes, keepdims=True)
        size = size + spread
        radius = radius + spread * (1.0 + growth + summands * _SLACK)
    if not np.max(size, initial=0.0) <= contract.limit:
        radius = np.where(size <= contract.limit, radius, np.inf)
    return Ball(centre, radius, contract)


def _max(contract: Contract, a: Ball, axes: tuple[int, ...]) -> Ball:
    radius = None if a.radius is None else np.max(a.radii(), axis=axes, keepdims=True)
    return Ball(np.max(a.centre, axis=axes, keepdims=True), radius, contract)


def _store(contract: Contract, a: Ball) -> Ball:
    fmt = contract.stores
    if fmt == contract.accumulate:
        return a
    added = fmt.unit_roundoff * (np.abs(a.centre) + a.radii()) + fmt.eta
    return Ball(a.centre, a.radii() + added, contract)


def _moved(move: Callable[..., Any]) -> Callable[..., Ball]:
    """A structural primitive: centres and radii move alike, exactly."""

    def rule(contract: Contract, a: Ball, **params: Any) -> Ball:
        radius = None if a.radius is None else move(a.radii(), **params)
        return Ball(move(a.centre, **params), radius, contract)

    return rule


def _concatenate(contract: Contract, *balls: Ball, axis: int) -> Ball:
    centre = np.concatenate([b.centre for b in balls], axis=axis)
    if all(b.radius is None for b in balls):
        return Ball(centre, None, contract)
    return Ball(centre, np.concatenate([b.radii() for b in balls], axis=axis), contract)


def _scatter_add(contract: Contract, a: Ball, index: Any, shape: tuple[int, ...]) -> Ball:
    centre = np.zeros(shape, dtype=a.centre.dtype)
    np.add.at(centre, index, a.centre)
    hits = np.zeros(shape)
    np.add.at(hits, index, 1.0)
    most = float(hits.max(initial=0.0))
    if most <= 1 and a.radius is None:
        return Ball(centre, None, contract)
    spread, size = np.zeros(shape), np.zeros(shape)
    np.add.at(spread, index, a.radii())
    np.add.at(size, index, np.abs(a.centre).astype(np.float64))
    # Elements that go to one place are added up there, in any order: the bound is that of `_sum_over` for each place.
    growth = np.maximum(hits - 1.0, 0.0) * (contract.roundoff + contract.centre_roundoff)
    return Ball(centre, spread * (1.0 + _SLACK) + growth * (size + spread), contract)


_RULES: dict[str, Callable[..., Ball]] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "negative": lambda contract, a: Ball(-a.centre, a.radius, contract),
    "absolute": lambda contract, a: Ball(np.abs(a.centre), a.radius, contract),
    "square": _square,
    "sqrt": _function("sqrt", np.sqrt, _sqrt_spread),
    "exp": _function("exp", np.exp, _exp_spread),
    "expm1": _function("expm1", np.expm1, lambda c, r, y: _exp_spread(c, r, np.exp(c))),
    "log": _function("log", np.log, _log_spread),
    "log1p": _function("log1p", np.log1p, lambda c, r, y: _log_spread(1.0 + c, r, y)),
    "tanh": _function("tanh", np.tanh, _tanh_spread),
    "power": _power,
    "maximum": _extreme(np.maximum),
    "minimum": _extreme(np.minimum),
    "where": _where,
    "attach": _attach,
    "sum": _sum_over,
    "max": _max,
    "store": _store,
    "reshape": _moved(lambda x, shape: np.reshape(x, shape)),
    "transpose": _moved(lambda x, axes: np.transpose(x, axes)),
    "broadcast": _moved(lambda x, shape: np.broadcast_to(x, shape)),
    "getitem": _moved(lambda x, index: x[index]),
    "scatter": _scatter_add,
    "concatenate": _concatenate,
}

#: Primitives that compute: the others move or choose elements, and the radii with them.
_COMPUTED = frozenset(
    {"add", "subtract", "multiply", "divide", "square", "sqrt", "exp", "expm1", "log", "log1p", "tanh", "power", "sum"}
)


def balls(function: Callable[..., Any], values: Any, contract: Contract) -> tuple[Ball, ...]:
    """The rounding reading of a formula, its other algorithms included, at float64 inputs: a ball per element."""
    first = _of_one_algorithm(function, values, contract)
    for other in algorithms(function):
        first = tuple(_hull(a, b) for a, b in zip(first, _of_one_algorithm(other, values, contract), strict=True))
    return first


def _of_one_algorithm(function: Callable[..., Any], values: Any, contract: Contract) -> tuple[Ball, ...]:
    with np.errstate(all="ignore"):
        outputs = function(*(ball(v, contract) for v in values))
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def _hull(a: Ball, b: Ball) -> Ball:
    """A ball around a's centre that holds both."""
    with np.errstate(all="ignore"):
        same = (a.centre == b.centre) | (np.isnan(a.centre) & np.isnan(b.centre))
        reach = np.where(same, 0.0, _size(a.centre - b.centre)) + b.radii()
    return Ball(a.centre, np.maximum(a.radii(), reach), a.contract, a.special or b.special)
