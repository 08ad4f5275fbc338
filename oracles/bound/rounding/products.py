"""Balls of products that are summed up: what is linear in each of two operands.

A result is a sum of n products. In any order and along any tree, with or without fused multiply-add, the evaluation is
off by n u |A| |B| at most (C.-P. Jeannerod, S. M. Rump, Improved error bounds for inner products in floating-point
arithmetic, SIMAX 34, 2013), to which comes what the radii of the factors bring. The centre is such an evaluation, too,
in its own format. Algorithms that subtract (Strassen, Winograd) are no sums of the products, and are not covered.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....reference.formats import round_array
from ....reference.windows import positions_of, windows_of
from ..contract import Contract
from . import lattice, lengths
from .accumulators import sum_of
from .ball import RULES, Ball
from .spread import SLACK, limited

#: No BLAS computes with longdouble, so centres that need it are made by NumPy's own loops, which take nanoseconds per
#: product. A product with more multiplications has centres in float64 instead, and their errors in its radii: they
#: double the bound for outputs in float64.
LARGEST_WIDE = 2**24

#: Elements of the matrix of windows that is formed at a time: 32 MiB of float64.
_LARGEST_BLOCK = 2**22

_Product = Callable[[Any, Any], Any]


def bilinear(contract: Contract, product: _Product, a: Ball, b: Ball, terms: int) -> Ball:
    """The ball of a sum of products.

    Args:
        product: of two NumPy arrays, linear in each; of arrays that are not negative it has no cancellation.
        a, b: the factors. terms: how many products are summed for one element.
    """
    lengths.record_sum(terms)
    sizes = [np.abs(x.centre).astype(np.float64, copy=False) for x in (a, b)]
    whole = [size if x.radius is None else size + x.radii() for size, x in zip(sizes, (a, b), strict=True)]
    size = product(*whole)  # of the factors of any evaluation
    centre, own = _centre(contract, product, a.centre, b.centre, terms, size.size)
    slack, passed = 1.0 + (terms + 4) * SLACK, contract.tree.height(terms) + 1
    relative = contract.tree.error(terms, contract.roundoff * contract.products.sums, before=1)
    absolute = terms * contract.underflow * (2.0 if contract.flush else 1.0)
    reaches = [float(np.max(each, initial=0.0)) for each in whole]
    rounding = contract.products
    lossy = [i for i, x in enumerate((a, b)) if rounding.factors and not _fits_factors(contract, x)]
    if lossy:
        # Each factor is off by a share of itself, and by what is lost below the normal numbers of its format.
        grown = (1.0 + rounding.factors) ** len(lossy)
        relative = grown - 1.0 + relative * grown
        absolute += sum(_lost_below(contract) * (2.0 * reaches[1 - i] + 1.0) for i in lossy) * terms
    # To look at every factor takes as long as the product of large ones.
    of_eight = rounding.accumulators is not None and _of_eight_bits(a) and _of_eight_bits(b)
    narrow_sums = rounding.accumulators if of_eight else None
    if narrow_sums is not None:
        relative += narrow_sums.share(terms) * (1.0 + relative)
    limit = contract.limit
    if rounding.partials is not None:
        # Every partial sum is rounded once to that format. The sum of their sizes is at most that of all terms. And so
        # is every sum of some of them.
        relative += (rounding.hops + 1) * rounding.partials.unit_roundoff * (1.0 + relative)
        absolute += terms * rounding.partials.eta
        limit = min(limit, rounding.partials.max)
    radius = size * ((relative + own) * slack)
    radius += absolute
    if b.radius is not None:
        radius += product(sizes[0], _dense(b.radii())) * slack
    if a.radius is not None:
        radius += product(_dense(a.radii()), whole[1]) * slack
    if rounding.narrow is not None and any(reaches[i] > rounding.narrow.max for i in lossy):
        limit = -1.0  # A factor that its format does not hold is an infinity.
    radius = limited(size, limit, radius)
    if contract.lattice and narrow_sums is None:
        exact = lattice.sums_exactly(contract, size, a, b)
        radius = np.where(exact, 0.0, radius) if np.any(exact) else radius
        terms = 0 if np.all(exact) else terms
    return sum_of(centre, radius if terms else None, contract, float(passed if terms else 0), size)


def _fits_factors(contract: Contract, x: Ball) -> bool:
    """Whether the format of factors holds an operand, so that no evaluation rounds it."""
    if not x.exact and np.any(x.radii()):
        return False
    narrow, values = contract.products.narrow, np.asarray(x.centre, dtype=np.float64)
    if narrow is not None:
        return bool(np.array_equal(round_array(narrow, values), values))
    mantissa = np.frexp(values)[0] / contract.products.factors
    return bool(np.all(mantissa == np.rint(mantissa)))


def _of_eight_bits(x: Ball) -> bool:
    """Whether a factor may be a tensor of eight-bit floats, whose numbers have at most four bits."""
    return bool(x.exact and np.all(np.frexp(np.asarray(x.centre, dtype=np.float64))[0] * 16 % 1 == 0))


def _lost_below(contract: Contract) -> float:
    """The error of a factor below the normal numbers of its format; tensor cores read subnormal binary16 numbers."""
    narrow = contract.products.narrow
    if narrow is None:
        return contract.accumulate.smallest_normal
    return narrow.smallest_normal if contract.flush else narrow.eta


def _dense(values: Any) -> Any:
    """A contiguous copy where it is needed: a broadcast array has strides of zero, which BLAS cannot read."""
    return np.ascontiguousarray(values)


def _centre(contract: Contract, product: _Product, a: Any, b: Any, terms: int, count: int) -> tuple[Any, float]:
    """The product of the centres, and its error relative to the product of their magnitudes.

    Args:
        product: see `bilinear`. a, b: centres. terms: of one sum. count: of sums.
    """
    if contract.centre_type is np.longdouble and terms * count > LARGEST_WIDE:
        narrow = product(_dense(a.astype(np.float64)), _dense(b.astype(np.float64)))
        return narrow.astype(np.longdouble), (terms + 2) * 2.0**-53
    return product(_dense(a), _dense(b)), terms * contract.centre_roundoff


def _matmul(contract: Contract, a: Ball, b: Ball) -> Ball:
    return bilinear(contract, np.matmul, a, b, a.shape[-1])


def _correlate(contract: Contract, x: Ball, w: Ball, stride: Any, dilation: Any) -> Ball:
    product = functools.partial(correlated, stride=stride, dilation=dilation)
    return bilinear(contract, product, x, w, math.prod(w.shape[2:]))


def correlated(x: Any, w: Any, stride: tuple[int, ...], dilation: tuple[int, ...]) -> Any:
    """Σ x[n, g, c, s p + d k] w[g, o, c, k] over c and k, on NumPy arrays: by matrices of windows, block by block.

    Args:
        x: (N, groups, channels, *lengths). w: (groups, outputs, channels, *sizes).
        stride, dilation: s and d, a number per axis of `sizes`.

    Returns:
        (N, groups, outputs, *positions).
    """
    groups, outputs, channels = w.shape[:3]
    sizes, axes = w.shape[3:], w.ndim - 3
    positions = positions_of(x.shape[3:], sizes, stride, dilation)
    out = np.empty((len(x), groups, outputs, *positions), dtype=np.result_type(x, w))
    terms = channels * math.prod(sizes)
    weights = np.ascontiguousarray(w).reshape(groups, outputs, terms)
    row = groups * terms * math.prod(positions[1:])
    step = max(_LARGEST_BLOCK // max(row, 1), 1)
    order = (0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
    for sample, into in zip(x, out, strict=True):
        view = windows_of(sample, sizes, stride, dilation)
        for start in range(0, positions[0], step):
            block = np.transpose(view[:, :, start : start + step], order).reshape(groups, terms, -1)
            part = into[:, :, start : start + step]
            if part.flags.c_contiguous:
                np.matmul(weights, block, out=part.reshape(groups, outputs, block.shape[-1]))
            else:
                part[...] = np.matmul(weights, block).reshape(part.shape)
    return out


RULES.update({"matmul": _matmul, "correlate": _correlate})
