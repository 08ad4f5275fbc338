"""An executing reading: a formula evaluated in a format, by random choices among those that a contract allows.

What this is for: a ball claims to hold every evaluation of a formula that the contract allows. This is such an
evaluation: correctly rounded arithmetic, sums along random trees, products that are fused with the sum that follows or
are not, quotients by the reciprocal, functions off by as much as their table says, stores to the format of the dtype
or none, factors rounded to TF32, subnormal numbers flushed, one of the declared ways. A value outside its ball shows
that the bound is wrong; how near the boundary values come shows how wide the bound is.

What it does not do: it never scales an intermediate (`contract.SCALING`), and takes a reciprocal only where that is a
normal number, because a subnormal one has few digits and no compiler takes it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opassay.oracles.bound.contract import EXP2, Contract
from opassay.oracles.bound.rounding.functions import erf_centre, erfc_centre
from opassay.oracles.bound.rounding.gamma import ULPS as GAMMA_ULPS
from opassay.oracles.bound.rounding.gamma import gammaln_centre, polygamma_centre
from opassay.reference.algorithms import STORED, Inapplicable, algorithms
from opassay.reference.array import Array, Operands, Params, cast
from opassay.reference.condition import EITHER, Condition, possibly, surely
from opassay.reference.formats import BINARY32
from opassay.reference.windows import offsets_of, windows_of

from . import orders
from .formats import Working, widen
from .transforms import transform


class Legal(Array):
    """Numbers of the format, and what the evaluation does.

    Attributes:
        values: the numbers. unrounded: of a product, the same before it was rounded, for a sum that is fused with it.
    """

    __slots__ = ("unrounded", "values", "working")

    def __init__(self, values: Any, working: Working, unrounded: Any = None) -> None:
        self.values, self.working, self.unrounded = values, working, unrounded

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.values.shape
        return shape

    def base(self) -> Array:
        return self

    def comparable(self) -> Any:
        return self.values

    def lift(self, value: Any) -> Legal:
        if isinstance(value, Condition):  # as a number: 0 or 1 at random where it is undecided
            codes = value.view(np.ndarray)
            coins = self.working.draws.integers(0, 2, codes.shape)
            value = np.where(codes == EITHER, coins, codes)
        return Legal(self.working.round(np.asarray(value, dtype=np.float64)), self.working)

    def apply(self, primitive: str, operands: Operands, params: Params) -> Legal:
        xs = [x if isinstance(x, Legal) else self.lift(x) for x in operands]
        if primitive == "among":
            return _one_way(self.working, xs, params["ways"])
        with np.errstate(all="ignore"):
            out = _RULES[primitive](self.working, *xs, **params)
        return out if isinstance(out, Legal) else Legal(np.asarray(out), self.working)


def _one_way(working: Working, xs: Sequence[Legal], ways: Sequence[Any]) -> Legal:
    contract = working.contract

    def allowed(name: str) -> bool:
        return not name or name in contract.algorithms or (name == STORED and contract.intermediates)

    out: Legal = _first_applicable(working, [way.formula for way in ways if allowed(way.name)], xs)
    return out


def _first_applicable(working: Working, ways: Sequence[Callable[..., Any]], xs: Sequence[Any]) -> Any:
    """What one of the ways gives, drawn among those that say something of these arguments; the first always does."""
    for i in working.draws.permutation(len(ways)):
        try:
            return ways[i](*xs)
        except Inapplicable:
            continue
    return ways[0](*xs)


def evaluate_at_random(
    function: Callable[..., Any], values: Sequence[Any], contract: Contract, draws: np.random.Generator
) -> tuple[Any, ...]:
    """One evaluation of a formula, or of another algorithm of it, at float64 inputs: an array for each output."""
    working = Working(contract, draws)
    operands = [Legal(working.round(np.asarray(v, dtype=np.float64)), working) for v in values]
    outputs = _first_applicable(working, [function, *algorithms(function)], operands)
    leaves = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return tuple(leaf.values if isinstance(leaf, Legal) else leaf for leaf in leaves)


# ------------------------------------------------------------------------------------------------- arithmetic


def _sum_of_two(sign: float) -> Callable[..., Any]:
    def rule(working: Working, a: Legal, b: Legal) -> Any:
        for one, other, of_one, of_other in ((a, b, 1.0, sign), (b, a, sign, 1.0)):
            if one.unrounded is not None and working.coin():
                return working.round(of_one * one.unrounded + of_other * other.values.astype(np.float64))
        return working.round(a.values + b.values if sign > 0 else a.values - b.values)

    return rule


def _multiply(working: Working, a: Legal, b: Legal) -> Any:
    values = working.round(a.values * b.values)
    # Two numbers of binary32 have an exact product in binary64, which a fused multiply-add takes.
    exact = a.values.astype(np.float64) * b.values if working.format == BINARY32 else None
    return Legal(values, working, exact)


def _divide(working: Working, a: Legal, b: Legal) -> Any:
    contract = working.contract
    quotient = working.round(a.values / b.values)
    if contract.division <= 1.0 or working.coin():
        return quotient
    if contract.division > 2.0 and not _is_power_of_two(b.values):
        return working.off(widen(np.divide, working)(a.values, b.values), contract.division / 2.0)
    reciprocal = working.round(working.type(1.0) / b.values)
    usual = (np.abs(reciprocal) >= working.format.smallest_normal) & np.isfinite(reciprocal)
    return np.where(usual, working.round(a.values * reciprocal), quotient)


def _is_power_of_two(x: Any) -> bool:
    return x.ndim == 0 and abs(math.frexp(float(x))[0]) == 0.5


def _function(name: str, value: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is off by as many ulps as the contract allows."""

    def rule(working: Working, *xs: Legal) -> Any:
        return working.off(widen(value, working)(*(x.values for x in xs)), working.contract.functions.ulps[name])

    return rule


def _exactly(value: Callable[..., Any]) -> Callable[..., Any]:
    """What takes or moves elements, and rounds nothing."""
    return lambda working, *xs, **params: value(*(x.values for x in xs), **params)


def _exp(working: Working, x: Legal) -> Any:
    ulps = working.contract.functions.ulps["exp"]
    if EXP2 in working.contract.algorithms and working.coin():
        exponent = working.round(x.values * working.round(math.log2(math.e)))
        return working.off(widen(np.exp2, working)(exponent), ulps)
    return working.off(widen(np.exp, working)(x.values), ulps)


def _sigmoid(working: Working, x: Legal) -> Any:
    if working.coin():
        power = _exp(working, Legal(-x.values, working))
        return working.round(working.type(1.0) / working.round(working.type(1.0) + power))
    wide = x.values.astype(working.wide)
    decay = np.exp(-np.abs(wide))
    return working.off(np.where(wide < 0, decay, 1.0) / (1.0 + decay), working.contract.functions.ulps["sigmoid"])


def _power(working: Working, x: Legal, exponent: float) -> Any:
    if exponent == int(exponent) and 2 <= abs(exponent) <= 8 and working.coin():
        product = x.values
        for _ in range(int(abs(exponent)) - 1):
            product = working.round(product * x.values)
        return product if exponent > 0 else working.round(working.type(1.0) / product)
    rounded_exponent = working.round(np.float64(exponent)) if working.coin() else np.float64(exponent)
    return working.off(widen(np.power, working)(x.values, rounded_exponent), working.contract.functions.ulps["power"])


def _float_power(working: Working, x: Legal, y: Legal) -> Any:
    return working.off(widen(np.power, working)(x.values, y.values), working.contract.functions.ulps["power"])


def _erf(working: Working, x: Legal, absolute: bool = False) -> Any:
    value = widen(erf_centre, working)(x.values)
    cheap = working.contract.functions.absolute.get("erf", 0.0) * working.format.unit_roundoff
    if absolute and cheap and working.coin():
        moved = value + 0.99 * cheap * (2.0 * working.draws.random(value.shape) - 1.0)
        return working.off(moved, 0.5)
    return working.off(value, working.contract.functions.ulps["erf"])


def _gamma(centre: Callable[..., Any]) -> Callable[..., Any]:
    """The function, off by as many ulps as those that libraries document."""
    return lambda working, x, **params: working.off(
        widen(functools.partial(centre, **params), working)(x.values), GAMMA_ULPS
    )


def _logaddexp(working: Working, a: Legal, b: Legal) -> Any:
    functions, largest = working.contract.functions.ulps, np.maximum(a.values, b.values)
    gap = np.where(a.values == b.values, working.type(0.0), working.round(-np.abs(a.values - b.values)))
    decay = _exp(working, Legal(gap, working))
    rest = working.off(widen(np.log1p, working)(decay), functions["log1p"])
    return np.where(np.isinf(largest), largest, working.round(largest + rest))


# ------------------------------------------------------------------------------------------------------- choices


def _where(working: Working, a: Legal, b: Legal, condition: Any, share: Any) -> Any:
    picked = np.where(possibly(condition), a.values, b.values)
    if not isinstance(condition, Condition):
        return picked
    either = possibly(condition) & ~surely(condition)
    if working.coin():  # the middle, as the exact reading has it
        mixed = working.round(share * a.values + (1.0 - np.asarray(share)) * b.values)
    else:
        mixed = np.where(working.draws.random(either.shape) < 0.5, a.values, b.values)
    return np.where(either, mixed, picked)


def _attach(working: Working, value: Legal, slope: Legal, always: bool = False) -> Any:
    choice = value if always or working.coin() else slope
    return np.broadcast_to(choice.values, slope.shape)


def _store(working: Working, x: Legal, dtype: str = "", always: bool = True) -> Any:
    fmt = working.contract.stored_in(dtype)
    return working.store(x.values, fmt) if (always or working.contract.intermediates) and working.coin() else x.values


# ------------------------------------------------------------------------------------------------- sums and scans


def _plus(working: Working) -> orders.Join:
    return lambda a, b: working.round(a + b)


def _times(working: Working) -> orders.Join:
    return lambda a, b: working.round(a * b)


def _sum(working: Working, x: Legal, axes: tuple[int, ...], means: bool = False) -> Any:
    return orders.reduce_axes(x.values, axes, working, _plus(working))


def _of_products(working: Working, terms: Any, axis: int) -> Any:
    """The sum of exact products along an axis, each rounded or fused with the sum."""
    fused = working.format == BINARY32 and working.coin()
    products = np.moveaxis(terms if fused else working.round(terms), axis, 0)
    if not len(products):
        return np.zeros(products.shape[1:], working.type)
    if fused:
        # One term after the other: a running sum that is rounded, plus a product that is not.
        total = working.round(products[0])
        for product in products[1:]:
            total = working.round(total.astype(np.float64) + product)
        return total
    return orders.along_tree(products, working, _plus(working))


def _matmul(working: Working, a: Legal, b: Legal) -> Any:
    left, right = (working.factor(x.values).astype(np.float64) for x in (a, b))
    return _of_products(working, left[..., :, :, None] * right[..., None, :, :], left.ndim - 1)


def _correlate(working: Working, x: Legal, w: Legal, stride: Any, dilation: Any) -> Any:
    view = windows_of(working.factor(x.values).astype(np.float64), w.shape[3:], stride, dilation)
    lengths = w.ndim - 3
    taps = working.factor(w.values).astype(np.float64)
    # (N, G, 1, *positions, terms) times (1, G, O, 1..., terms)
    order = (0, 1, *range(3, 3 + lengths), 2, *range(3 + lengths, view.ndim))
    patches = np.transpose(view, order)
    patches = patches.reshape(*patches.shape[: 2 + lengths], -1)[:, :, None]
    weights = taps.reshape(1, *taps.shape[:2], *(1,) * lengths, -1)
    return _of_products(working, patches * weights, patches.ndim - 1)


def _scatter(working: Working, x: Legal, index: Any, shape: Any, in_place: bool = False, inserted: bool = False) -> Any:
    out = np.zeros(shape, dtype=np.float64)
    if all(isinstance(i, (slice, int, type(Ellipsis))) for i in (index if isinstance(index, tuple) else (index,))):
        out[index] = x.values
        return out.astype(working.type)
    # One by one, in a random order; what is stored on the way may be rounded to the format of the dtype.
    at = np.arange(out.size).reshape(shape)[index]
    places, values = np.ravel(at), np.broadcast_to(x.values, np.shape(at)).ravel()
    flat = out.reshape(-1)
    if len(np.unique(places)) == len(places):
        flat[places] = values
        return out.astype(working.type)
    narrow = in_place and working.contract.intermediates and working.coin()
    for i in working.draws.permutation(len(places)):
        total = working.round(flat[places[i]] + values[i])
        flat[places[i]] = working.store(total, working.contract.stores) if narrow else total
    return flat.reshape(shape).astype(working.type)


def _overlap(working: Working, x: Legal, shape: Any, sizes: Any, stride: Any, dilation: Any) -> Any:
    out = np.zeros(shape, dtype=working.type)
    every = list(offsets_of(out, sizes, stride, dilation))
    for i in working.draws.permutation(len(every)):
        offset, index = every[i]
        out[index] = working.round(out[index] + x.values[(..., *offset)])
    return out


_ULPS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in (
        "sqrt", "expm1", "log", "log1p", "tanh", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh",
        "arcsinh", "arccosh", "arctanh", "exp2", "log2", "log10", "cbrt", "arctan2", "hypot")},
    "erfc": erfc_centre,
}  # fmt: skip
_EXACT: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in (
        "negative", "absolute", "maximum", "minimum", "fmod", "floor", "ceil", "rint", "trunc", "sign")},
    "max": lambda x, axes, shared=False: np.max(x, axis=axes, keepdims=True),
    "sort": lambda x, axis: np.sort(x, axis=axis),
    "windows": windows_of,
    "reshape": lambda x, shape: np.reshape(x, shape),
    "transpose": lambda x, axes: np.transpose(x, axes),
    "broadcast": lambda x, shape: np.broadcast_to(x, shape),
    "getitem": lambda x, index: x[index],
    "concatenate": lambda *xs, axis: np.concatenate(xs, axis=axis),
}  # fmt: skip
_RULES: dict[str, Callable[..., Any]] = {
    **{name: _function(name, value) for name, value in _ULPS.items()},
    **{name: _exactly(value) for name, value in _EXACT.items()},
    "add": _sum_of_two(1.0),
    "subtract": _sum_of_two(-1.0),
    "multiply": _multiply,
    "divide": _divide,
    "square": lambda working, x: _multiply(working, x, x),
    "exp": _exp,
    "sigmoid": _sigmoid,
    "power": _power,
    "float_power": _float_power,
    "erf": _erf,
    "logaddexp": _logaddexp,
    "gammaln": _gamma(gammaln_centre),
    "polygamma": _gamma(lambda x, order: polygamma_centre(order, x)),
    "where": _where,
    "attach": _attach,
    "store": _store,
    "cast": _exactly(cast),
    "sum": _sum,
    "prod": lambda working, x, axes: orders.reduce_axes(x.values, axes, working, _times(working)),
    "cumsum": lambda working, x, axis: orders.scan(x.values, axis, _plus(working)),
    "cumprod": lambda working, x, axis: orders.scan(x.values, axis, _times(working)),
    "matmul": _matmul,
    "correlate": _correlate,
    "fourier": lambda working, x, **params: transform(working, x.values, **params),
    "scatter": _scatter,
    "overlap": _overlap,
}


@functools.cache
def primitives() -> frozenset[str]:
    """The primitives that can be evaluated."""
    return frozenset(_RULES) | {"among"}
