"""The exact reading: NumPy's operations on mpmath numbers.

Values are mpmath's raw numbers (`mpf._mpf_`) in object arrays: no attribute look-up and no object per operation,
half the time of arrays of `mpf`. mpmath has one zero and one NaN; where IEEE 754 has a rule for infinities and
zero divisors that mpmath raises for, the rule is applied here.

What is hard here is to know when a digit is right. mpmath is accurate in each operation, but a formula has many of
them, and cancellation may eat all the digits of an intermediate. No bound of that is derived: the formula is evaluated
again with twice the bits. `evaluate` doubles the precision until two precisions agree (Ziv's strategy: A. Ziv, Fast
evaluation of elementary mathematical functions with correctly rounded last bit, ACM TOMS 17, 1991).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mpmath
import numpy as np
from mpmath import libmp

from .. import gamma
from ..array import Array, Irrational, Operands, Params, Precise
from .functions import irrational
from .numbers import DEFAULT_PRECISION, Raw, bits_in_use, precision, primitives_at
from .structure import STRUCTURE, objects, raw_array, wrap_scalar

#: In bits: six times as many as a sum of binary64 numbers takes that is not rounded, 2100.
LARGEST_PRECISION = 12_800
#: What moves the elements of one operand, and so the signs of its zeros.
_KEEP_SIGNS = frozenset({"reshape", "transpose", "broadcast", "getitem"})


class PrecisionError(ArithmeticError):
    """Two precisions still disagree at the largest precision."""


class Exact(Array):
    """An array of exact values: mpmath's raw numbers, evaluated at the working precision."""

    __slots__ = ("negative_zeros", "values")

    def __init__(self, values: Any, negative_zeros: Any = None) -> None:
        """An array of numbers.

        Args:
            values: an object array of raw numbers; see `exact` for floats. negative_zeros: where the input had −0,
                which no number here tells from 0, of what only moves inputs; None where that is not known.
        """
        self.values = values
        self.negative_zeros = negative_zeros

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.values.shape
        return shape

    def comparable(self) -> Any:
        """Values that compare exactly: mpf objects."""
        return wrap_scalar(np.frompyfunc(mpmath.mp.make_mpf, 1, 1)(self.values))

    def lift(self, value: Any) -> Exact:
        return exact(value)

    def apply(self, primitive: str, operands: Operands, params: Params) -> Exact:
        if primitive == "among":
            value: Exact = params["ways"][0].formula(*operands)
            return value
        xs = [x.values if isinstance(x, Exact) else _constant(x) for x in operands]
        rule = STRUCTURE.get(primitive)
        if rule is not None:
            signs = getattr(operands[0], "negative_zeros", None) if primitive in _KEEP_SIGNS else None
            return Exact(wrap_scalar(rule(*xs, **params)), None if signs is None else rule(signs, **params))
        if primitive == "power":
            xs.append(_constant(params["exponent"]))
        if primitive == "polygamma":
            function = functools.partial(gamma.polygamma, params["order"], bits=bits_in_use())
            return Exact(wrap_scalar(np.frompyfunc(function, 1, 1)(*xs)))
        # What other parameters say is how an evaluation may approximate the function, which has one exact value.
        return Exact(wrap_scalar(primitives_at(bits_in_use())[primitive](*xs)))


@functools.lru_cache(maxsize=256)
def _scalar(value: float) -> Any:
    return wrap_scalar(libmp.from_float(value))


def _constant(value: Any) -> Any:
    if isinstance(value, Irrational):
        return wrap_scalar(irrational(value.name, bits_in_use()))
    if isinstance(value, Precise):
        return wrap_scalar(libmp.mpf_add(libmp.from_float(float(value)), libmp.from_float(value.low)))
    return _scalar(float(value)) if isinstance(value, (int, float)) else raw_array(value)


def exact(values: Any) -> Exact:
    """float64 values, a Python number or an object array of raw numbers, as an exact array."""
    numbers = np.asarray(values)
    signs = None if numbers.dtype == object else (numbers == 0) & np.signbit(numbers)
    return Exact(raw_array(values), signs)


def agree(lower: Raw, upper: Raw, bits: int, scale: int) -> bool:
    """Whether a value at `bits` and at twice as many confirm each other.

    They do when they differ by at most 2^(-bits/2) of the larger; and when both are residues of an exact zero, about
    2^-bits and 2^(-2 bits) of the problem's `scale` (its binary exponent), with a quarter of the bits to spare.
    """
    if lower == upper:
        return True
    if not (_is_finite(lower) and _is_finite(upper)):
        return False
    if _exponent(lower) <= scale - 3 * bits // 4 and _exponent(upper) <= scale - 7 * bits // 4:
        return True
    difference = libmp.mpf_sub(lower, upper, 53, "n")
    return bool(_exponent(difference) <= max(_exponent(lower), _exponent(upper)) - bits // 2)


def _is_finite(x: Raw) -> bool:
    return bool(x[1]) or x == libmp.fzero


def _exponent(x: Raw) -> int:
    """Binary exponent; that of zero, infinities and NaN lies below every other."""
    return int(x[2] + x[3]) if x[1] else -(10**9)


def evaluate(
    function: Callable[..., Any], *values: Any, bits: int = DEFAULT_PRECISION
) -> tuple[tuple[Exact, ...], int]:
    """Exact outputs of a formula, each element evaluated until two precisions agree.

    Args:
        function: exact arrays in, an exact array or a tuple of them out.
        values: float64 arrays, each taken exactly.
        bits: the first precision.

    Returns:
        The outputs, each element at the higher of the two precisions that agreed on it; and the largest, over all
        elements, of the lower of these two precisions, in bits.

    Raises:
        PrecisionError: no agreement up to `LARGEST_PRECISION` bits.
    """
    operands = [exact(v) for v in values]
    lower = _outputs_at(function, operands, bits)
    agreed: dict[int, Raw] = {}  # by position among the elements of all outputs
    while bits <= LARGEST_PRECISION:
        upper = _outputs_at(function, operands, 2 * bits)
        scale = max((_exponent(raw) for x in (*operands, *upper) for raw in x.values.ravel().tolist()), default=0)
        pairs = [pair for x, y in zip(lower, upper, strict=True) for pair in _pairs(x, y)]
        # Each element stops by itself. A residue of an exact zero agrees at low precisions, and a tiny value at high
        # ones only, so there may be no precision at which all elements agree.
        for i, (a, b) in enumerate(pairs):
            if i not in agreed and agree(a, b, bits, scale):
                agreed[i] = b
        if len(agreed) == len(pairs):
            return _fill_arrays(upper, agreed), bits
        lower, bits = upper, 2 * bits
    raise PrecisionError(f"exact reading: got disagreement at bits={bits}, need agreement by {LARGEST_PRECISION}")


def _fill_arrays(outputs: Sequence[Exact], values: dict[int, Raw]) -> tuple[Exact, ...]:
    """Arrays of the shapes of `outputs` with `values` by position among the elements of all."""
    filled, start = [], 0
    for y in outputs:
        filled.append(Exact(objects([values[start + i] for i in range(y.size)], y.shape)))
        start += y.size
    return tuple(filled)


def _pairs(x: Exact, y: Exact) -> Iterator[tuple[Raw, Raw]]:
    return zip(x.values.ravel().tolist(), y.values.ravel().tolist(), strict=True)


def _outputs_at(function: Callable[..., Any], operands: Sequence[Exact], bits: int) -> tuple[Exact, ...]:
    with precision(bits):
        outputs = function(*operands)
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def to_float_pair(array: Exact) -> tuple[Any, Any]:
    """Two float64 arrays whose sum is the array to about 106 bits: the nearest float64, and what it leaves."""
    flat = array.values.ravel().tolist()
    high = [libmp.to_float(x, rnd="n") for x in flat]
    low = [
        libmp.to_float(libmp.mpf_sub(x, libmp.from_float(h)), rnd="n") if x[1] and abs(h) != np.inf else 0.0
        for x, h in zip(flat, high, strict=True)
    ]
    return np.array(high).reshape(array.shape), np.array(low).reshape(array.shape)
