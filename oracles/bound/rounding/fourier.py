"""Balls of discrete Fourier transforms, along every way to compute them that adds up products with weights.

docs/design/tolerance.md derives them ("Fourier transforms"). `_errors_along` has the largest Σe of the errors e of
levels over all factors of a length, in any order.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....reference.array import fourier_of_numbers
from ..contract import Contract, Products
from . import lengths, spectra
from .ball import RULES, Ball
from .spread import SLACK, limited

#: Roundings of a product of two complex numbers: √5 u (R. Brent, C. Percival, P. Zimmermann, Mathematics of Computation
#: 76, 2007). Of a factor 1/√N: a root, a quotient, and the product with it.
_OF_PRODUCT, _OF_SCALE = 3, 4


@dataclass(frozen=True)
class _Errors:
    """Relative errors of one step.

    Attributes:
        unit: of a rounding. sums: of one rounding of a sum of products. weights: of a weight.
        storage: of what a level takes and gives, where it is rounded to narrower formats.
    """

    unit: float
    sums: float
    weights: float
    angles: float
    storage: float

    @classmethod
    def of(cls, contract: Contract) -> _Errors:
        """Those that a contract allows; those of weights may be the same in every sample."""
        unit, products = contract.roundoff, contract.products
        ulps = max(contract.functions.ulps[name] for name in ("sin", "cos"))
        angles = 6 * math.pi * unit if contract.systematic else 0.0
        weights = angles + 2 * ulps * unit if contract.systematic else 0.0
        storage = (1 + products.factors) ** 2 - 1
        narrow = [products.partials, contract.stores if contract.may_store(contract.stores) else None]
        storage += sum(fmt.unit_roundoff for fmt in narrow if fmt is not None)
        return cls(unit, unit * max(products.sums, 1.0), weights, angles, storage)

    @property
    def weights_together(self) -> float:
        """Of weights, the root of the mean of squares: angles are spread evenly over a turn."""
        return self.weights - self.angles * (1.0 - 1.0 / math.sqrt(3.0)) + self.storage

    @property
    def of_weighing(self) -> float:
        """Of a product with a weight."""
        return _OF_PRODUCT * self.unit + self.weights + self.storage

    def of_sum(self, n: int) -> float:
        """Of a part of a sum of n complex products."""
        return 2 * n * self.sums + self.weights + self.storage

    def of_level(self, r: int) -> float:
        """Of a transform of r numbers with weights: of the modulus, which is off by √2 as much as a part."""
        # The weights of 2 and of 4 numbers are 1, -1, i and -i.
        own = 0.0 if r in (2, 4) else self.weights
        return 3 * r * self.sums + self.of_weighing - self.angles / r + own

    def of_norm(self, r: int) -> float:
        """Of the norm of what a level gives: partial sums are transforms of some of the r numbers."""
        own = 0.0 if r in (2, 4) else math.sqrt(r) * (self.weights_together + self.unit)
        sums = 1.0 if r == 2 else math.sqrt(2.0) * (2 * r - 1)
        return sums * self.unit + self.of_weighing - self.angles / r + own


@functools.lru_cache(maxsize=4096)
def _errors_along(n: int, errors: _Errors, norm: bool = False, level: bool = True) -> float:
    """The largest sum of the errors of levels over all ways to factor n, one level included unless not `level`."""
    small = [r for r in range(2, math.isqrt(n) + 1) if n % r == 0]
    factors = {*small, *(n // r for r in small)}
    of, last = (errors.of_norm, errors.of_norm(n)) if norm else (errors.of_level, errors.of_sum(n))
    return max([last if level else 0.0, *(of(r) + _errors_along(n // r, errors, norm) for r in factors)])


def _has_chirps(n: int) -> bool:
    """Whether a length has a prime factor above 7, so that no power of 2 · 3 · 5 · 7 is a multiple of it."""
    return n > 0 and pow(210, n.bit_length(), n) != 0


def _length(values: Any, axes: tuple[int, ...]) -> Any:
    return np.sqrt(np.sum(np.square(values), axis=axes, keepdims=True))


def _norm(x: Ball, whole: Any, axes: tuple[int, ...], real: bool, errors: _Errors) -> Any:
    """A bound on the norm of the errors of all outputs, of levels or of one sum; `whole` has |x| and more."""
    n, length = math.prod(x.shape[axis] for axis in axes), _length(whole, axes)
    by_levels = _errors_along(n, errors, norm=True, level=False)
    if real and n % 2 == 0:
        by_levels = max(by_levels, _errors_along(n // 2, errors, norm=True) + errors.unit + errors.of_norm(2))
    # A sum adds up what is not zero.
    additions = np.max(np.sum((x.centre != 0) | (x.radii() > 0), axis=(*axes, -1)), initial=0) * errors.unit
    by_sum = length * (math.sqrt(2.0) * additions)
    by_sum += np.sum(whole, axis=axes, keepdims=True) * (errors.weights_together + errors.unit)
    share = np.maximum(by_sum, length * by_levels) + length * (_OF_SCALE * errors.unit)
    return share * (math.exp(2.0 * (by_levels + additions)) * math.sqrt(n))


@functools.lru_cache(maxsize=512)
def _shares(sizes: tuple[int, ...], real: bool, errors: _Errors) -> tuple[tuple[float, float], ...]:
    """The errors of an output along two ways, each in units of Σ|x_j|, and of √(2N Σ|x_j|²)."""
    n = math.prod(sizes)
    by_levels = _errors_along(n, errors)
    if real and n % 2 == 0:
        by_levels = max(by_levels, math.sqrt(2) * _errors_along(n // 2, errors) + errors.of_level(2))
    convolutions = [size for size in sizes if _has_chirps(size)]
    ways = [(by_levels, 0.0)]
    if convolutions:
        rest = _errors_along(n // math.prod(convolutions), errors)
        products = 3 * errors.of_weighing + 2 * errors.unit
        level = errors.of_level(2)
        norms = sum(3 * math.log2(4 * size) * level + errors.of_weighing for size in convolutions)
        one, two = rest + len(convolutions) * products, norms
        ways.append((2 * one + errors.of_level(2), 2 * two) if real else (one, two))
    scale = _OF_SCALE * errors.unit
    return tuple(((one + scale) * math.exp(one + two), two * math.exp(one + two)) for one, two in ways)


def _fourier(contract: Contract, x: Ball, axes: tuple[int, ...], inverse: bool, power: int, real: bool) -> Ball:
    sizes = tuple(x.shape[axis] for axis in axes)
    n = math.prod(sizes)
    lengths.record_sum(2 * n)
    centre = fourier_of_numbers(x.centre, axes, inverse, power)
    moduli = np.hypot(*np.moveaxis(np.abs(x.centre).astype(np.float64), -1, 0))
    reach = 0.0 if x.exact else np.hypot(*np.moveaxis(x.radii(), -1, 0))
    whole, off = moduli + reach, np.sum(np.broadcast_to(reach, moduli.shape), axis=axes, keepdims=True)
    if x.spectrum is not None:
        off = spectra.sum_errors(x, axes, off)
    one = np.sum(whole, axis=axes, keepdims=True)
    two = np.sqrt(2.0 * n) * _length(whole, axes)
    own = float(np.finfo(np.fft.fft(np.zeros(1, x.centre.dtype)).real.dtype).eps) / 2
    allowed = _Errors.of(contract)
    radius, exact = (  # of an evaluation, and of the centre
        functools.reduce(np.maximum, [a * one + b * two for a, b in _shares(sizes, real, errors)], np.zeros(one.shape))
        for errors in (allowed, _Errors(own, own, 2 * own, 0.0, 0.0))
    )
    slack = (1.0 + (n + 16) * SLACK) * float(max(n, 1)) ** (-power / 2)
    # A product may lose the smallest number, in a convolution before it is multiplied by as much as 2n.
    chirps = any(map(_has_chirps, sizes))
    underflow = contract.underflow * (2.0 if contract.flush else 1.0) * 16 * n * (4.0 * n if chirps else 1.0)
    radius = (radius + exact + off) * slack + underflow
    narrow = contract.products.narrow
    limit = min(contract.limit, narrow.max if narrow is not None else np.inf)
    radius = limited(one * (16.0 * n * n if chirps else 4.0), limit, radius)
    is_finite = np.all(np.isfinite(x.centre), axis=(*axes, x.centre.ndim - 1), keepdims=True)[..., 0]
    radius = np.where(is_finite & ~np.isnan(radius), radius, np.nan)
    out = Ball(centre, np.array(np.broadcast_to(radius[..., None], centre.shape)), contract)
    # An accumulator that cuts is not off by a share of a partial sum.
    if contract.products == Products() and not chirps and contract.roundings == 1.0:
        norm = _norm(x, whole, axes, real, allowed) * slack
        others = (exact + _length(np.broadcast_to(reach, whole.shape), axes)) * slack + underflow
        spectra.begin(out, radius, norm + others * math.sqrt(n), axes)
    return out


RULES["fourier"] = _fourier
