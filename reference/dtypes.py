"""The dtypes that are judged, one row each: what their formats hold, and what reports call them.

A dtype is added here; the formats, the cells, the allowances and the reports derive from this table what they need.
Nothing but Python is imported, so that a report is made where neither torch nor mpmath is installed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """An IEEE 754 style binary format, named as torch names the dtype.

    A finite value is an integer below 2**precision in magnitude, times 2**(e - precision + 1)
    with exponent_min <= e <= exponent_max. All properties of it are exact Python floats.

    Attributes:
        name: of the dtype. short: for narrow columns.
    """

    name: str
    short: str
    precision: int
    exponent_min: int
    exponent_max: int
    bits: int

    @property
    def is_half(self) -> bool:
        """Whether a number takes two bytes: kernels compute in a wider format, and round once, when they store."""
        return self.bits == 16

    @property
    def unit_roundoff(self) -> float:
        """u = 2**-precision, half of what torch calls eps."""
        return math.ldexp(1.0, -self.precision)

    @property
    def smallest_subnormal(self) -> float:
        """2**(exponent_min - precision + 1)."""
        return math.ldexp(1.0, self.exponent_min - self.precision + 1)

    @property
    def smallest_normal(self) -> float:
        """2**exponent_min."""
        return math.ldexp(1.0, self.exponent_min)

    @property
    def max(self) -> float:
        """The largest finite value."""
        return math.ldexp(2.0**self.precision - 1, self.exponent_max - self.precision + 1)

    @property
    def eta(self) -> float:
        """Half the smallest subnormal: the worst rounding error where underflow is gradual.

        For binary64 that half is no float; the smallest subnormal itself stands in for it, a
        bound that is safe and twice as wide.
        """
        return self.smallest_subnormal / 2 or self.smallest_subnormal


BINARY64 = Format("float64", "f64", precision=53, exponent_min=-1022, exponent_max=1023, bits=64)
BINARY32 = Format("float32", "f32", precision=24, exponent_min=-126, exponent_max=127, bits=32)
BFLOAT16 = Format("bfloat16", "bf16", precision=8, exponent_min=-126, exponent_max=127, bits=16)
BINARY16 = Format("float16", "f16", precision=11, exponent_min=-14, exponent_max=15, bits=16)

#: torch's dtype name -> format.
FORMATS: dict[str, Format] = {fmt.name: fmt for fmt in (BINARY64, BINARY32, BFLOAT16, BINARY16)}
HALF_TYPES = tuple(name for name, fmt in FORMATS.items() if fmt.is_half)
#: The other names of dtypes that people write, "f32" and "fp32", "bf16", "half" -> torch's name.
_SHORT = {
    **{short: fmt.name for fmt in FORMATS.values() for short in (fmt.short, re.sub("^f", "fp", fmt.short))},
    **{"double": "float64", "float": "float32", "half": "float16"},
}


def dtype_name(dtype: object) -> str:
    """torch's name of a dtype: of `torch.float32`, of "float32", or of another name, "f32", "fp32" or "float".

    What is no dtype of the table is returned as text, which a table of names then refuses.
    """
    name = str(dtype).removeprefix("torch.")
    return _SHORT.get(name, name)
