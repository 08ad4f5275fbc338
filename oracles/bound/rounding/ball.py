"""Balls: arrays of intervals around centres, on which the primitives of a formula act."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....reference.array import BILINEAR, MOVING, Array, Irrational, Operands, Params, Precise
from ....reference.condition import EITHER, compared, condition, is_open
from ....reference.formats import BINARY32, FORMATS, Format, ulp_array
from ..contract import Contract, Products
from .applications import noted
from .kinds import COMPUTED, KEEP_SIGN, LOGARITHMS, NEVER_NEGATIVE, RUNNING
from .shared_error import Common
from .spread import SLACK, largest_of

#: Elements of a block of a large array, of which a few arrays stay in the cache.
_BLOCK = 2**14

#: primitive -> its rule. `rules.py` fills it, because rules construct balls, and balls call rules.
RULES: dict[str, Callable[..., Ball]] = {}
#: primitive -> a function that says which elements of a result no evaluation rounds. `lattice.py` fills it.
EXACT: dict[str, Callable[..., Any]] = {}
#: primitive -> a function that sets `beyond` of a result whose operands have no bound. `beyond.py` fills it.
HANDED_ON: dict[str, Callable[..., None]] = {}
#: primitive -> a function that sets `summed` or `chain` of a result. `accumulators.py` and `recurrences.py` fill them.
ACCUMULATED: dict[str, Callable[..., None]] = {}
CHAINED: dict[str, Callable[..., None]] = {}
#: primitive -> its result where operands have inserted zeros. `insertions.py` fills it.
MARKED: dict[str, Callable[..., Ball]] = {}
#: Functions that set errors of a result which are bounded together: `common_errors.py` and `spectra.py` fill it.
FOLLOW: list[Callable[..., None]] = []


class Ball(Array):
    """Centres and radii such that every evaluation that the contract allows is within the radius of the centre.

    Attributes:
        radius: of every element; None if all are zero. parts: share and part of radii made by `scaled`; else None.
        most: a bound on |c| + r of all elements; infinite if none is known.
        special: whether an element is not finite, or was computed from one that is not. bounded: all are finite.
        nonnegative: whether no evaluation gives a negative element, as for squares, even if the radius is larger.
        common: errors that several elements have in common; the radius includes them.
        origin: the ball that this one repeats along some axes; None if it repeats none.
        systematic: the part of a result's radius that may be the same error in every sample; None if not computed.
        inserted: which elements are zeros, or −∞ before an exponential, that an evaluation need not form; or None.
        stray: which elements may also be NaN, as a product of an inserted zero and an infinity may; None for none.
        beyond: for elements with an infinite radius, a lower bound of the magnitude in every evaluation, whose sign is
            that of the centre; 0 where none is known (`beyond.py`), and None if none is known for any element.
        summed: for a sum, how many roundings a further summand may pass, and the sum of the magnitudes of its terms
            (`accumulators.py`); else None. chain: for a sum of products (`recurrences.py`); else None.
        spectrum: what its errors have of those of transforms (`spectra.py`); else None.
        settled: of a log2, which elements are integers in every evaluation, for a step that follows; else None.
    """

    __slots__ = (
        "_radius", "beyond", "bounded", "centre", "chain", "common", "contract", "inserted", "most", "nonnegative",
        "origin", "parts", "settled", "special", "spectrum", "stray", "summed", "systematic",
    )  # fmt: skip

    def __init__(
        self, centre: Any, radius: Any, contract: Contract, special: bool = False, nonnegative: bool = False
    ) -> None:
        self.centre, self._radius, self.contract = centre, radius, contract
        self.parts: tuple[Any, Any] | None = None
        self.most = math.inf
        self.special, self.nonnegative, self.bounded = special, nonnegative, False
        self.common: tuple[Common[Ball], ...] = ()
        self.origin: Ball | None = None
        self.summed: tuple[Any, Any] | None = None
        none: Any = None
        self.systematic = self.inserted = self.stray = self.beyond = self.chain = self.settled = self.spectrum = none

    @property
    def shape(self) -> tuple[int, ...]:
        return self.centre.shape  # type: ignore[no-any-return]

    @property
    def radius(self) -> Any:
        if self._radius is None and self.parts is not None:
            self._radius = magnitude_of(self.centre)
            self._radius *= self.parts[0]
            self._radius += self.parts[1]
        return self._radius

    @radius.setter
    def radius(self, radius: Any) -> None:
        self._radius, self.parts, self.most = radius, None, math.inf

    @property
    def exact(self) -> bool:
        """Whether every radius is zero."""
        return self._radius is None and self.parts is None

    def around(self, centre: Any) -> Ball:
        """A ball with the same radii around other centres of the same magnitudes."""
        out = Ball(centre, self._radius, self.contract)
        out.parts, out.bounded, out.most = self.parts, self.bounded, self.most
        return out

    def comparable(self) -> Any:
        return self.centre

    def lift(self, value: Any) -> Ball:
        return _constant(value, self.contract)

    def apply(self, primitive: str, operands: Operands, params: Params) -> Ball:
        balls = [x if isinstance(x, Ball) else _constant(x, self.contract) for x in operands]
        notes = noted()
        return _apply(primitive, balls, params) if notes is None else notes.add(_apply, primitive, balls, params)

    def compare(self, ufunc: np.ufunc, other: Array) -> Any:
        assert isinstance(other, Ball)
        answers = ufunc(self.centre, other.centre)
        if self.special or other.special:
            answers = compared(ufunc, answers, np.isnan(self.centre) | np.isnan(other.centre))
        stray = [x.stray for x in (self, other) if x.stray is not None]
        if (self.exact and other.exact and not stray) or other is self or not self.contract.systematic:
            return answers
        # Where the two meet, evaluations may differ; not at elements without error, nor at infinities and NaNs of all.
        reach = self.radii() + other.radii()
        apart = np.abs(self.centre - other.centre) > reach * (1.0 + 2.0 * SLACK)
        if self.beyond is not None or other.beyond is not None:
            (low, high), (lower, higher) = self.ends(), other.ends()
            apart = apart | (high < lower) | (higher < low)
        sure = [np.isnan(x.centre) & (x.radii() == 0) for x in (self, other)]
        open_ = ~(apart | (reach == 0) | sure[0] | sure[1])
        for mask in stray:  # A stray element may be NaN, with which a comparison has another answer.
            open_ = open_ | mask
        return condition(answers & ~open_, answers | open_, self)

    def ends(self) -> tuple[Any, Any]:
        if self.radius is None:
            return self.centre, self.centre
        # An element without a bound may have any value; `nextafter` covers the roundings of the ends.
        radius = np.where(np.isnan(self.radii()) & ~np.isnan(self.centre), np.inf, self.radii())
        low, high = self.centre - radius, self.centre + radius
        moved = radius > 0
        low = np.where(moved, np.nextafter(low, -np.inf), self.centre)
        high = np.where(moved, np.nextafter(high, np.inf), self.centre)
        if self.beyond is not None:
            beyond, below = self.beyond > 0, np.asarray(self.centre) < 0
            low, high = np.where(beyond & ~below, self.beyond, low), np.where(beyond & below, -self.beyond, high)
        return low, high

    def largest(self, axes: tuple[int, ...]) -> tuple[Any, Any]:
        radius = self.radii()
        low, high = self.ends()
        possibly = ~(high < np.max(low, axis=axes, keepdims=True))
        # An element is certainly the largest if no other can be as large, and so are several equal ones without error.
        alone = np.sum(possibly, axis=axes, keepdims=True) == 1
        exact = np.all(~possibly | (radius == 0), axis=axes, keepdims=True)
        return possibly & (alone | exact), possibly

    def leave_out(self, zeros: Any) -> None:
        self.inserted = zeros if self.inserted is None else self.inserted | zeros

    def may_store(self, dtype: str) -> bool:
        return self.contract.may_store(FORMATS[dtype]) if dtype in FORMATS else False

    def radii(self) -> Any:
        """The radius of every element; not to be written."""
        radius, shape = self.radius, self.shape
        if radius is None:
            return np.zeros(shape)
        return radius if isinstance(radius, np.ndarray) and radius.shape == shape else np.broadcast_to(radius, shape)

    def half_widths(self, fmt: Format) -> Any:
        """Half-width of the accept set of every element, as float64, for outputs in a format."""
        width = np.empty(self.shape)
        rows = max(_BLOCK * self.shape[0] // max(math.prod(self.shape), 1), 1) if self.shape else 1
        for start in range(0, len(width) if width.ndim else 1, rows):  # blocks that stay in the cache
            part = slice(start, start + rows) if width.ndim else ()
            radius = np.asarray(self.radii()[part], dtype=np.float64)
            ulps = 0.5 * ulp_array(fmt, np.abs(np.asarray(self.centre[part], dtype=np.float64)) + radius)
            np.add(radius, ulps, out=width[part] if width.ndim else width)
        return width


def _apply(primitive: str, balls: list[Ball], params: Params) -> Ball:
    """The result of a primitive, with all that is known of it by what is known of its operands."""
    contract = balls[0].contract
    out = RULES[primitive](contract, *balls, **params)
    special, nonnegative, marked, beyond, summed = False, True, "inserted" in params, False, False
    for x in balls:
        beyond, summed = beyond or x.beyond is not None, summed or x.summed is not None
        special, nonnegative = special or x.special, nonnegative and x.nonnegative
        marked = marked or x.inserted is not None or x.stray is not None
    if summed and primitive in ACCUMULATED and contract.roundings == 1.0:
        ACCUMULATED[primitive](primitive, out, balls, params)
    if primitive in CHAINED and contract.roundings == 1.0 and not special:
        CHAINED[primitive](primitive, out, balls, params)
    total, strange, chain, positive = out.summed, out.stray, out.chain, primitive == "among" and out.nonnegative
    if special or not (out.bounded or primitive in MOVING or np.isfinite(out.centre).all()):
        common, out = out.common, Ball(out.centre, _settle(primitive, out, balls, params), contract, True)
        out.common = common
    if contract.roundings == 1.0:
        for follow in FOLLOW:
            follow(primitive, out, balls, params)
    if beyond and primitive in HANDED_ON:
        HANDED_ON[primitive](primitive, out, balls, params)
    if marked:
        out = MARKED[primitive if primitive in MARKED else ""](primitive, out, balls, params)
    if contract.lattice:
        out = _credit_exact(primitive, out, balls, params)
    out.summed, out.chain = total, chain
    out.stray = out.stray if strange is None else strange | (out.stray is not None and out.stray)
    # Rounding keeps signs, so the sign that a primitive gives for exact operands is that of every evaluation.
    out.nonnegative = positive or (nonnegative and primitive in KEEP_SIGN) or primitive in NEVER_NEGATIVE
    if primitive == "multiply" and not nonnegative:
        out.nonnegative = balls[0] is balls[1]  # a square, written as a product
    return out


def scaled(centre: Any, share: Any, part: Any, contract: Contract, most: float) -> Ball:
    """A ball with the radii `share` · |c| + `part`, all of whose elements are finite.

    Many results have such radii, where share and part are numbers, or one number for each row: an operand without
    errors minus the mean of its row, and this difference times a scale of its row. A rule that reads share and part
    need not read the array of radii, so that array is computed only when it is needed.

    Args:
        centre: of the elements. share, part: arrays that broadcast to its shape. contract: of the ball.
        most: a bound on |c| + r.
    """
    out = Ball(centre, None, contract)
    out.parts, out.bounded, out.most = (share, part), True, most
    return out


def magnitude_of(centre: Any) -> Any:
    """|c| as a new float64 array for a radius; `SLACK` covers the rounding of a wider centre to float64."""
    size = np.abs(centre)
    return size if size.dtype == np.float64 else size.astype(np.float64)


def centre_of(primitive: str, params: Params, contract: Contract, *arrays: Any) -> Any:
    """The centre of a primitive's result for arrays without errors."""
    return RULES[primitive](contract, *(Ball(each, None, contract) for each in arrays), **params).centre


def ball(values: Any, contract: Contract) -> Ball:
    """The ball of inputs, float64 values that the dtype under test has exactly."""
    centre = np.asarray(values, dtype=contract.centre_type)
    lost: Any = 0.0
    if contract.flush:  # Subnormal operands are read as zero.
        size = magnitude_of(centre)
        lost = np.where(size < contract.accumulate.smallest_normal, size, 0.0)
    most = float(largest_of(np.abs(centre)))
    if most <= contract.limit:
        out = Ball(centre, lost if contract.flush and np.any(lost) else None, contract)
        out.bounded, out.most = True, 2.0 * most if contract.flush else most  # No more than the element is flushed.
        return out
    finite = np.isfinite(centre)
    beyond = finite & (np.abs(centre) > contract.limit)  # An evaluation may scale its inputs, too.
    out = Ball(centre, np.where(beyond, np.inf, lost), contract, not finite.all())
    out.beyond = np.where(beyond, np.abs(centre).astype(np.float64), 0.0) if beyond.any() else None
    return out


def _credit_exact(primitive: str, out: Ball, operands: list[Ball], params: Params) -> Ball:
    """The result with a radius of zero where no evaluation rounds, and of more than zero elsewhere."""
    contract = out.contract
    rule = EXACT.get(primitive)
    if primitive == "divide":  # A zero is exact only by the rule.
        out = Ball(out.centre, np.maximum(out.radii(), contract.underflow), contract, out.special)
    if rule is None or out.radius is None:
        return out
    exact = rule(contract, out, *operands, **params) & np.isfinite(out.radii())
    if not np.any(exact):
        return out
    return Ball(out.centre, None if np.all(exact) else np.where(exact, 0.0, out.radii()), contract, out.special)


def _settle(primitive: str, out: Ball, operands: list[Ball], params: Params) -> Any:
    """The radii of a result with NaN or infinite operands: 0 where all evaluations give the same, else NaN."""
    if primitive in RUNNING:
        return _settle_scan(out, operands, params["axis"])
    if primitive in BILINEAR:
        return settle_product(primitive, out, operands, params)
    if primitive not in COMPUTED:
        return out.radius
    axes = params.get("axes", ())
    sure, strange = np.True_, np.False_  # whether all evaluations agree; whether an operand is not finite
    for x in operands:
        finite, radius = np.isfinite(x.centre), x.radii()
        sure = sure & np.all(np.where(finite, np.isfinite(radius), radius == 0), axis=axes, keepdims=True)
        strange = strange | np.any(~finite, axis=axes, keepdims=True)
    sure = sure & (primitive != "polygamma" or operands[0].centre != -np.inf)  # no limit between poles without end
    if primitive == "logaddexp":  # With -inf as one operand, the result is the other operand with its errors.
        strange = strange & ~np.isfinite(out.centre)
    # 0 / 0 without errors, as the mean of no elements, is NaN in every evaluation; singularities may not be.
    nothing = primitive == "divide" and np.logical_and(*((x.centre == 0) & (x.radii() == 0) for x in operands))
    if primitive in LOGARITHMS:
        nothing = (operands[0].centre == 0) & (operands[0].radii() == 0)
    sure = sure & (strange | np.isfinite(out.radii()) | nothing)
    if primitive == "prod":
        (x,) = operands
        kinds = np.isinf(x.centre), (np.abs(x.centre) <= x.radii()) & (x.radii() > 0)
        sure = sure & ~np.logical_and(*(np.any(each, axis=axes, keepdims=True) for each in kinds))
    if primitive in ("multiply", "divide"):
        for x, y in (operands, operands[::-1])[: 2 if primitive == "multiply" else 1]:
            maybe_zero = (np.abs(y.centre) <= y.radii()) & ~((y.centre == 0) & (y.radii() == 0))
            sure = sure & ~(np.isinf(x.centre) & maybe_zero)
    limit = out.contract.error_of_limit(primitive) * np.where(np.isfinite(out.centre), np.abs(out.centre), 0.0)
    return np.where(strange | ~np.isfinite(out.centre), np.where(sure, limit, np.nan), out.radii())


def _settle_scan(out: Ball, operands: list[Ball], axis: int) -> Any:
    """`_settle` for scans, in which an element is computed from all elements before it."""
    (x,) = operands
    strange = ~np.isfinite(x.centre)
    open_ = np.where(strange, x.radii() != 0, ~np.isfinite(x.radii()))
    maybe_zero = (np.abs(x.centre) <= x.radii()) & (x.radii() > 0)
    before = [np.logical_or.accumulate(each, axis=axis) for each in (strange, open_, np.isinf(x.centre), maybe_zero)]
    reached, unsure, infinite, vanishing = before
    unsure |= infinite & vanishing
    return np.where(reached | ~np.isfinite(out.centre), np.where(reached & ~unsure, 0.0, np.nan), out.radii())


def term_finder(primitive: str, contract: Contract, params: Params) -> Callable[[Any, Any], Any]:
    """A function of two masks: which elements of a product have a term whose left and right factor are both marked.

    Args:
        primitive, params: the product. contract: of its operands.
    """
    plain = replace(contract, accumulate=BINARY32, products=Products())  # centres in float64 count the terms

    def has_term(left: Any, right: Any) -> Any:
        return centre_of(primitive, params, plain, left.astype(np.float64), right.astype(np.float64)) > 0

    return has_term


def settle_product(
    primitive: str, out: Ball, operands: Sequence[Ball], params: Params, real: Sequence[Any] | None = None
) -> Any:
    """`_settle` for sums of products: a factor that is not finite decides every element that has a term with it.

    Args:
        primitive, out, operands, params: the product. real: masks of the factors that count; by default all do.
    """
    has_term = term_finder(primitive, out.contract, params)
    a, b = operands
    any_a, any_b = [np.ones(x.shape) for x in operands] if real is None else real
    strange = [~np.isfinite(x.centre) for x in operands]
    open_ = [np.where(bad, x.radii() != 0, ~np.isfinite(x.radii())) for x, bad in zip(operands, strange, strict=True)]
    # ∞ times what may be zero, and is not surely zero, is NaN in one evaluation and infinite in another.
    maybe_zero = [(np.abs(x.centre) <= x.radii()) & (x.radii() > 0) for x in operands]
    reached = has_term(strange[0], any_b) | has_term(any_a, strange[1])
    unsure = has_term(open_[0], any_b) | has_term(any_a, open_[1])
    unsure |= has_term(np.isinf(a.centre), maybe_zero[1]) | has_term(maybe_zero[0], np.isinf(b.centre))
    return np.where(reached | ~np.isfinite(out.centre), np.where(reached & ~unsure, 0.0, np.nan), out.radii())


@functools.lru_cache(maxsize=512)
def _scalar(value: float, contract: Contract) -> Ball:
    return _constant_array(value, contract, value >= 0)


def _constant(value: Any, contract: Contract) -> Ball:
    if isinstance(value, Irrational):
        return _irrational(value, contract)
    if isinstance(value, Precise):
        scalar = _scalar(float(value), contract)
        return Ball(scalar.centre, scalar.radii() + abs(value.low), contract, nonnegative=scalar.nonnegative)
    if isinstance(value, (int, float)):
        return _scalar(float(value), contract)
    if is_open(value):  # as a number: 0, 1, or anything between
        codes = value.view(np.ndarray)
        either = codes == EITHER
        centre = np.where(either, 0.5, codes).astype(contract.centre_type)
        return Ball(centre, np.where(either, 0.5, 0.0), contract, nonnegative=True)
    return _constant_array(value, contract, False)


def _irrational(value: Irrational, contract: Contract) -> Ball:
    """The ball of an irrational constant. Every evaluation rounds it; the centre is as close as its type allows."""
    centre = np.asarray(contract.centre_type(float(value)) + contract.centre_type(value.low))
    unit = contract.accumulate.unit_roundoff if contract.systematic else contract.centre_roundoff
    return Ball(centre, np.abs(centre).astype(np.float64) * unit, contract, nonnegative=value >= 0)


def _constant_array(value: Any, contract: Contract, nonnegative: bool) -> Ball:
    """The ball of constants of the formula; an evaluation rounds those that the accumulate format does not have."""
    centre = np.asarray(value, dtype=contract.centre_type)
    radius = contract.rounding_of(centre) if contract.systematic and centre.any() else None
    out = Ball(centre, radius, contract, nonnegative=nonnegative)
    if centre.ndim and centre.size and np.min(centre) == -np.inf:  # a mask that is added
        out.inserted = centre == -np.inf
    return out
