"""Rounding in the format of an evaluation, and results that are off by as much as a contract allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opassay.oracles.bound.contract import Contract
from opassay.reference.formats import BINARY32, BINARY64, Format, round_array, ulp_array

#: How errors of functions lean: to either side from element to element, or all to one side.
_BOTH, _UP, _DOWN = range(3)


@dataclass(frozen=True)
class Working:
    """What one evaluation does: a contract, and the choices that the contract leaves, drawn from a generator.

    NumPy's own operations round correctly in binary32 and binary64; narrower formats are rounded from binary64, whose
    53 bits are more than twice theirs and two, so that the second rounding adds nothing to +, −, ×, ÷ and √.

    Attributes:
        contract: what is allowed. draws: the generator.
        lean: to which side errors of functions lean. flushes: whether subnormal numbers become zero.
    """

    contract: Contract
    draws: np.random.Generator
    lean: int = field(init=False)
    flushes: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lean", int(self.draws.integers(3)))
        object.__setattr__(self, "flushes", self.contract.flush and self.coin())

    @property
    def format(self) -> Format:
        return self.contract.accumulate

    @property
    def type(self) -> Any:
        """NumPy's type of the numbers."""
        return np.float32 if self.format == BINARY32 else np.float64

    @property
    def wide(self) -> Any:
        """The type in which functions are computed before they are rounded."""
        return np.longdouble if self.format == BINARY64 else np.float64

    def coin(self) -> bool:
        return bool(self.draws.random() < 0.5)

    def round(self, values: Any) -> Any:
        """The nearest numbers of the format; subnormal ones may become zero."""
        numbers = np.asarray(values).astype(self.type)
        if self.format not in (BINARY32, BINARY64):
            numbers = round_array(self.format, numbers)
        if self.flushes:
            numbers = np.where(np.abs(numbers) < self.format.smallest_normal, self.type(0.0), numbers)
        return numbers

    def factor(self, values: Any) -> Any:
        """A factor of a product of matrices, rounded to as few bits as the contract allows."""
        share = self.contract.products.factors
        if not share or not self.coin():
            return values
        mantissa, exponent = np.frexp(values.astype(np.float64))
        return np.ldexp(np.rint(mantissa / share) * share, exponent).astype(self.type)

    def store(self, values: Any, fmt: Format) -> Any:
        """Rounded to the format of a stored intermediate."""
        if fmt.precision >= self.format.precision:
            return values
        return round_array(fmt, values.astype(np.float64)).astype(self.type)

    def off(self, values: Any, ulps: float) -> Any:
        """Numbers of the format that are off from these wide values by `ulps` at most, and often by nearly as much.

        A rounding takes half an ulp, and the rest is added before; where that leads across a power of two and too far,
        the nearest number stands.
        """
        with np.errstate(all="ignore"):
            narrow = values.astype(np.float64)
            unit = ulp_array(self.format, narrow)
            side = np.sign(self.draws.random(np.shape(values)) - 0.5) if self.lean == _BOTH else 3.0 - 2.0 * self.lean
            size = self.draws.random(np.shape(values)) ** 0.25
            moved = self.round(values + (side * size * max(ulps - 0.5, 0.0) * unit).astype(values.dtype))
            # Of a subnormal that is flushed, more is lost than ulps say, and the contract has that, too.
            fits = np.abs(moved.astype(values.dtype) - values) <= ulps * unit * (1.0 - 2.0**-9)
            same_side = (moved == 0) | (np.sign(moved) == np.sign(narrow))
            return np.where(fits & same_side, moved, self.round(values))


def widen(function: Callable[..., Any], working: Working) -> Callable[..., Any]:
    """A function of arrays of the format, computed in the wider type."""
    return lambda *xs: function(*(np.asarray(x).astype(working.wide) for x in xs))
