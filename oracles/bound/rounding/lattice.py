"""Results that no evaluation rounds: integers times a power of two, while they fit the format.

On such a lattice, sums and products that stay below 2^p units are exact, whatever the order, the tree or the number of
partial sums. So a sum or product of exact elements is exact while it stays below 2^p units of its terms' common power
of two. This counts only where a contract asks for it (`Contract.lattice`), because an evaluation may fold constants.
A quotient is exact where the format holds it and the product with the rounded reciprocal is no other number. Quotients
of sums are never credited: an implementation may average in one pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....reference.formats import Format, round_array
from ....reference.windows import offsets_of
from ..contract import Contract
from .ball import EXACT, Ball


def lowest_bit(values: Any) -> Any:
    """The largest power of two that divides each value; infinite for zero."""
    array = np.asarray(values, dtype=np.float64)
    if (np.abs(array) < 2.0**52).all() and (np.rint(array) == array).all():
        whole = array.astype(np.int64)
        whole &= -whole
        return np.where(whole == 0, np.inf, whole)
    mantissa, exponent = np.frexp(array)
    # 53 bits hold every mantissa of a float64 as an integer, and of an integer n in two's complement, n & −n is the
    # lowest bit that is set.
    integers = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    low = (integers & -integers).astype(np.float64)
    return np.where(low == 0, np.inf, np.ldexp(low, exponent - 53))


def common_unit(values: Any) -> float:
    """A power of two that divides all values, found fast where they are integers; infinite where all are zero."""
    if (np.rint(values) == values).all():
        return 1.0
    return float(np.min(lowest_bit(values), initial=np.inf))


def holds_multiples(contract: Contract, size: Any, unit: Any, fmt: Format | None = None) -> Any:
    """Whether multiples of `unit` up to `size` are held by the accumulate format, or by another."""
    if fmt is None and contract.adds_in_hops:
        partials = holds_multiples(contract, size, unit, contract.products.partials)
        return partials & holds_multiples(contract, size, unit, contract.accumulate)
    fmt = contract.accumulate if fmt is None else fmt
    # Every integer up to 2^p has at most p bits once its trailing zeros are taken off, so it is held without rounding.
    # Below the smallest subnormal, and beyond the largest number, that is not so.
    least = fmt.smallest_normal if contract.flush else fmt.smallest_subnormal
    return (size <= 2.0**fmt.precision * unit) & (unit >= least) & (size <= fmt.max)


def is_exact(x: Ball) -> bool:
    """Whether no element has any error."""
    return x.radius is None or not np.any(x.radius)


def sums_exactly(contract: Contract, size: Any, a: Ball, b: Ball) -> Any:
    """Where sums of products are exact in any order.

    Args:
        size: the sums of the magnitudes of the products. a, b: the factors.
    """
    if not (is_exact(a) and is_exact(b)):
        return False
    units, products = [common_unit(x.centre) for x in (a, b)], contract.products
    if products.factors and any(
        np.max(np.abs(x.centre), initial=0.0) > unit / products.factors for x, unit in zip((a, b), units, strict=True)
    ):
        return False
    unit = units[0] * units[1]
    fits = holds_multiples(contract, size, unit)
    return fits if products.partials is None else fits & holds_multiples(contract, size, unit, products.partials)


def _both(a: Ball, b: Ball) -> Any:
    return (a.radii() == 0) & (b.radii() == 0)


def _add(contract: Contract, out: Ball, a: Ball, b: Ball) -> Any:
    # A formula writes x + 0.0 where an algorithm rounds a product once (x s for x), which no lattice makes exact.
    if b.centre.ndim == 0 and b.radius is None and b.centre == 0:
        return np.zeros(out.shape, dtype=bool)
    both = _both(a, b)
    if not np.any(both):
        return both
    unit = np.minimum(lowest_bit(a.centre), lowest_bit(b.centre))
    return both & holds_multiples(contract, np.abs(a.centre) + np.abs(b.centre), unit)


def _multiply(contract: Contract, out: Ball, a: Ball, b: Ball) -> Any:
    # Zero times any finite number is zero, even if the other factor is not known exactly.
    zero = ((a.centre == 0) & (a.radii() == 0)) | ((b.centre == 0) & (b.radii() == 0))
    both = _both(a, b)
    if not np.any(both):
        return zero
    return zero | (both & holds_multiples(contract, np.abs(out.centre), lowest_bit(a.centre) * lowest_bit(b.centre)))


def _divide(contract: Contract, out: Ball, a: Ball, b: Ball) -> Any:
    both = _both(a, b) & (b.centre != 0)
    if contract.division > 2.0:  # A fast quotient is ulps off, also where the exact one is a number of the format.
        both = both & ((a.centre == 0) | (np.abs(np.frexp(b.centre.astype(np.float64))[0]) == 0.5))
    if a.summed is not None or not np.any(both):
        return np.zeros(out.shape, dtype=bool)
    fmt = contract.accumulate
    numerator, divisor = (np.where(both, x.centre, 1.0).astype(np.float64) for x in (a, b))
    # Where the rounded quotient times the divisor is the numerator, in integers, it is the quotient.
    quotient = round_array(fmt, numerator / divisor)
    size, unit = np.abs(numerator), lowest_bit(quotient) * lowest_bit(divisor)
    is_whole = (size <= 2.0**52 * unit) & (quotient * divisor == numerator)
    return both & is_whole & (round_array(fmt, numerator * round_array(fmt, 1.0 / divisor)) == quotient)


def _sum(contract: Contract, out: Ball, a: Ball, axes: tuple[int, ...], means: bool = False) -> Any:
    exact = np.all(a.radii() == 0, axis=axes, keepdims=True)
    if not np.any(exact):
        return exact
    size = np.sum(np.abs(a.centre), axis=axes, keepdims=True)
    unit = np.min(lowest_bit(a.centre), axis=axes, keepdims=True, initial=np.inf)
    return holds_multiples(contract, size, unit) & exact


def _cumsum(contract: Contract, out: Ball, a: Ball, axis: int) -> Any:
    return is_exact(a) & holds_multiples(contract, np.cumsum(np.abs(a.centre), axis=axis), common_unit(a.centre))


def _overlap_on_lattice(
    contract: Contract, out: Ball, a: Ball, shape: Any, sizes: Any, stride: Any, dilation: Any
) -> Any:
    size = np.zeros(shape)
    for offset, index in offsets_of(size, sizes, stride, dilation):
        size[index] += np.abs(a.centre[(..., *offset)]).astype(np.float64)
    return is_exact(a) & holds_multiples(contract, size, common_unit(a.centre))


def _scatter_on_lattice(contract: Contract, out: Ball, a: Ball, index: Any, shape: Any, **how: bool) -> Any:
    size = np.zeros(shape)
    np.add.at(size, index, np.abs(a.centre).astype(np.float64))
    return is_exact(a) & holds_multiples(contract, size, common_unit(a.centre))


def _store(contract: Contract, out: Ball, a: Ball, dtype: str = "", always: bool = True) -> Any:
    fmt = contract.stored_in(dtype)
    return (a.radii() == 0) & (round_array(fmt, a.centre) == a.centre)


EXACT.update(
    {
        "add": _add,
        "subtract": _add,
        "multiply": _multiply,
        "divide": _divide,
        "square": lambda contract, out, a: _multiply(contract, out, a, a),
        "sum": _sum,
        "cumsum": _cumsum,
        "overlap": _overlap_on_lattice,
        "scatter": _scatter_on_lattice,
        "sqrt": lambda contract, out, a: (a.centre == 0) & (a.radii() == 0),
        "store": _store,
    }
)
