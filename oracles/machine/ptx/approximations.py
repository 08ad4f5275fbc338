"""Functions that the ISA describes by a bound on their error: results within it, where the hardware puts them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from . import hardware
from .formats import Lanes


@dataclass(frozen=True)
class Deviation:
    """How far a result may be from the exact one.

    Attributes:
        section: of NVIDIA, PTX ISA 9.1, that says so, or another edition; "" where no text was at hand, and the bound,
            known from other editions, is doubled.
        ulps: spacings of float32 numbers at the exact result, counted from the correctly rounded one, as NVIDIA counts
            them (CUDA C++ Programming Guide, mathematical functions): half a spacing more from the exact one. On an
            H100 ex2.approx is 2.055 spacings off, of its 2 ulp. relative: part of the result. absolute: a distance.
        most: the largest argument that the text is about; nothing is known beyond.
    """

    section: str
    ulps: float = 0.0
    relative: float = 0.0
    absolute: float = 0.0
    most: float = math.inf

    def distance(self, exact: Lanes) -> Lanes:
        """The largest distance from exact results in float64."""
        size = np.abs(exact)
        ulps = self.ulps + 0.5 if self.ulps else 0.0
        return ulps * spacing(size) + self.relative * size + self.absolute


#: By instruction. div, sqrt and tanh are as `oracles.bound.terms` allows them, by the edition 8.7.
BOUNDS = {
    "ex2": Deviation("9.7.3.21", ulps=2.0),
    "rcp": Deviation("9.7.3.13", ulps=1.0),
    "rsqrt": Deviation("9.7.3.16", relative=2.0**-22.9),
    "sqrt": Deviation("8.7: 9.7.3.15", relative=2.0**-23),
    "div": Deviation("8.7: 9.7.3.8", ulps=2.0),
    "lg2": Deviation("", relative=2.0**-21, absolute=2.0**-21),
    "sin": Deviation("", absolute=2.0**-19.5, most=2 * math.pi),
    "cos": Deviation("", absolute=2.0**-19.5, most=2 * math.pi),
    "tanh": Deviation("8.7: 9.7.3.22", relative=2.0**-11),
}
#: The names of products of matrices by tensor cores, and of stores to one address by several threads, among what was
#: executed.
MMA, STORE = "mma", "st"
#: How often an approximation was executed in this process, by instruction; or another one whose result the ISA leaves
#: to the hardware.
executed: Counter[str] = Counter()


def approximate(name: str, x: Lanes, exact: Lanes, sure: Lanes = False) -> Lanes:
    """Results in float32.

    Args:
        name: of `BOUNDS`. x: the argument in float32, of a division the quotient. exact: the exact results, in float64.
        sure: where every GPU is taken to give the nearest number.
    """
    executed[name] += 1
    nearest = exact.astype(np.float32)
    part = share(np.asarray(x, np.float32))
    if part is None:
        return nearest
    bound = BOUNDS[name]
    distance = bound.distance(exact)
    if bound.most < math.inf:  # a sine or cosine, which may be any there
        distance = np.where(np.abs(x) > bound.most, np.where(part > 0, 1 - exact, 1 + exact), distance)
    result = np.asarray(exact + part * distance).astype(np.float32)
    # The last rounding may have left the bound: then the next number inwards is the farthest one within it.
    outside = np.abs(result.astype(np.float64) - exact) > distance
    result = np.where(outside & (result != nearest), np.nextafter(result, nearest), result)
    return np.where(~np.isfinite(exact) | (exact == 0) | _is_exact(name, x) | sure, nearest, result)


def spacing(size: Lanes) -> Lanes:
    """The distance of neighbouring numbers of float32 at sizes, in float64; where a size overflows, the largest one."""
    # NumPy has NaN at an infinity, and with it a right result would be NaN where the exact one overflows.
    # NumPy's spacing of the largest number is infinite; the number below it has the same.
    below = np.nextafter(np.finfo(np.float32).max, np.float32(0))
    return np.spacing(np.minimum(size, below).astype(np.float32)).astype(np.float64)


def upper_word(x: Lanes, exact: Lanes) -> Lanes:
    """Results of rcp.approx.ftz.f64: a number whose lower word is zero, next to the exact one.

    The ISA (9.7.3.14) calls it a gross approximation and gives no bound; one unit of the upper word is assumed.

    Args:
        x, exact: arguments and exact results in float64.
    """
    executed["rcp.f64"] += 1
    part = share(np.asarray(x).astype(np.float32))
    words = np.asarray(exact).view(np.int64) >> np.int64(32)
    moved = words if part is None else words + np.where(np.isfinite(exact) & (exact != 0), part, 0).astype(np.int64)
    return (moved << np.int64(32)).view(np.float64)


def share(x: Lanes) -> Lanes | None:
    """Where within the bound a result lies, -1 to 1: a function of the argument; None for the nearest number."""
    how = hardware.current().approximation
    if how in ("nearest", "truncating"):
        return None
    if how != "mixed":
        return np.asarray(1.0 if how == "up" else -1.0)
    bits = x.view(np.uint32).astype(np.uint64)
    # Two rounds of a multiplicative hash (constants of SplitMix64), whose highest bit decides.
    bits = (bits ^ (bits >> np.uint64(15))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
    return np.where(bits >> np.uint64(63), 1.0, -1.0)


def _is_exact(name: str, x: Lanes) -> Lanes:
    """Where every GPU is taken to be exact: 2^k of an integer k, and the reciprocal of 2^k. No document says it."""
    if name == "rcp":
        return is_power_of_two(x)
    return np.asarray(x == np.floor(x)) if name == "ex2" else np.zeros((), bool)


def is_power_of_two(x: Lanes) -> Lanes:
    """Whether numbers have one digit."""
    return np.asarray(np.abs(np.frexp(x)[0]) == 0.5)
