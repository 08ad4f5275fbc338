"""The dtypes that are judged, one row each: what their formats hold, and what reports call them.

A dtype is added here; the formats, the cells, the allowances and the reports derive from this table what they need.
Ops compute in some of the formats (`FORMATS`); in the others numbers are only stored, and a number is cast to them.
Nothing but Python is imported, so that a report is made where neither torch nor mpmath is installed.
"""

from __future__ import annotations

import enum
import functools
import math
import re
from dataclasses import dataclass, replace


class Specials(enum.Enum):
    """Which codes of a format are no numbers; what a format has no code for, a cast to it cannot give.

    Source: OCP Microscaling Formats (MX) Specification 1.0, 2023, sections 5.2 and 5.3; P. Micikevicius et al., FP8
    Formats for Deep Learning, arXiv 2209.05433, 2022; B. Noune et al., 8-bit Numerical Formats for Deep Neural
    Networks, arXiv 2206.02915, 2022 (UZ).
    """

    #: The largest exponent is left to infinities and NaN.
    IEEE = "infinities and NaN"
    #: All ones is NaN, of either sign.
    NAN = "NaN, no infinity"
    #: The code of a negative zero is NaN.
    NAN_FOR_ZERO = "NaN, neither an infinity nor a negative zero"
    NONE = "neither an infinity nor NaN"
    #: All ones is NaN, and every other code is a positive power of two.
    POWERS = "NaN; no infinity, no zero, no sign"


@dataclass(frozen=True)
class Format:
    """A binary format in the style of IEEE 754, named as torch names the dtype.

    A finite value is an integer below 2**precision in magnitude, times 2**(e - precision + 1)
    with exponent_min <= e <= exponent_max. All properties of it are exact Python floats.

    Attributes:
        name: of the dtype; of a format without one that of ml_dtypes. short: for narrow columns.
        specials: which codes are no numbers.
        computes: whether ops compute in it; in the other formats numbers are only stored.
        saturates: whether a cast of a number beyond the largest one, or of an infinity, gives that one.
    """

    name: str
    short: str
    precision: int
    exponent_min: int
    exponent_max: int
    bits: int
    specials: Specials = Specials.IEEE
    computes: bool = True
    saturates: bool = False

    @property
    def is_half(self) -> bool:
        """Whether a number takes two bytes: kernels compute in a wider format, and round once, when they store."""
        return self.bits == 16

    @property
    def has_infinities(self) -> bool:
        return self.specials is Specials.IEEE

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
        lost = 2 if self.specials is Specials.NAN else 1  # The largest mantissa of the largest exponent is NaN.
        return math.ldexp(2.0**self.precision - lost, self.exponent_max - self.precision + 1)

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

E4M3FN = Format("float8_e4m3fn", "e4m3fn", 4, -6, 8, 8, Specials.NAN, computes=False)
E4M3FNUZ = Format("float8_e4m3fnuz", "e4m3fz", 4, -7, 7, 8, Specials.NAN_FOR_ZERO, computes=False)
E5M2 = Format("float8_e5m2", "e5m2", 3, -14, 15, 8, Specials.IEEE, computes=False)
E5M2FNUZ = Format("float8_e5m2fnuz", "e5m2fz", 3, -15, 15, 8, Specials.NAN_FOR_ZERO, computes=False)
E8M0FNU = Format("float8_e8m0fnu", "e8m0", 1, -127, 127, 8, Specials.POWERS, computes=False)
E3M2FN = Format("float6_e3m2fn", "e3m2", 3, -2, 4, 6, Specials.NONE, computes=False, saturates=True)
E2M3FN = Format("float6_e2m3fn", "e2m3", 4, 0, 2, 6, Specials.NONE, computes=False, saturates=True)
E2M1FN = Format("float4_e2m1fn", "e2m1", 2, 0, 2, 4, Specials.NONE, computes=False, saturates=True)

#: Formats that numbers are only stored in, by name.
STORAGE_FORMATS: dict[str, Format] = {
    fmt.name: fmt for fmt in (E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, E8M0FNU, E3M2FN, E2M3FN, E2M1FN)
}
#: Formats that ops compute in, by torch's name of the dtype.
FORMATS: dict[str, Format] = {fmt.name: fmt for fmt in (BINARY64, BINARY32, BFLOAT16, BINARY16)}
EVERY_FORMAT: dict[str, Format] = {**FORMATS, **STORAGE_FORMATS}
HALF_TYPES = tuple(name for name, fmt in FORMATS.items() if fmt.is_half)
#: The other names of dtypes that people write, "f32" and "fp32", "bf16", "half", "e5m2" -> torch's name.
_SHORT = {
    **{short: fmt.name for fmt in EVERY_FORMAT.values() for short in (fmt.short, re.sub("^f", "fp", fmt.short))},
    **{"double": "float64", "float": "float32", "half": "float16"},
}


@functools.cache
def format_of_cast(dtype: str, saturates: bool) -> Format:
    """The format of a name, in which a cast gives the largest number for what is beyond it, or not."""
    return replace(EVERY_FORMAT[dtype], saturates=saturates)


def dtype_name(dtype: object) -> str:
    """torch's name of a dtype: of `torch.float32`, of "float32", or of another name, "f32", "fp32" or "float".

    What is no dtype of the table is returned as text, which a table of names then refuses.
    """
    name = str(dtype).removeprefix("torch.")
    return _SHORT.get(name, name)
