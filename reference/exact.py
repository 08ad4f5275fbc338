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

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from mpmath import libmp

from .array import Array, Operands, Params
from .condition import Condition, possibly, surely

#: mpmath's raw number, `formats.Raw`; mpmath itself is untyped.
Raw: TypeAlias = Any

DEFAULT_PRECISION = 200
#: Binary64 inputs need up to 2100 bits to add up without rounding; more never helps.
LARGEST_PRECISION = 12_800

# The precision in use is the last of this list; it is a stack because `precision` may be entered within itself.
_working = [DEFAULT_PRECISION]


class PrecisionError(ArithmeticError):
    """Two precisions still disagree at the largest precision."""


@contextlib.contextmanager
def precision(bits: int) -> Iterator[None]:
    """Evaluate at `bits` of precision. Garbage collection waits: the numbers are many and have no cycles."""
    _working.append(bits)
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        _working.pop()
        if enabled:
            gc.enable()


def _sign(x: Raw) -> int:
    return libmp.mpf_sign(x) or 0


def _quotient(a: Raw, b: Raw, bits: int) -> Raw:
    if b == libmp.fzero:  # the one zero is +0
        return {1: libmp.finf, -1: libmp.fninf}.get(_sign(a), libmp.fnan)
    return libmp.mpf_div(a, b, bits, "n")


def _log(x: Raw, bits: int) -> Raw:
    if x == libmp.fzero:
        return libmp.fninf
    return libmp.fnan if _sign(x) < 0 else libmp.mpf_log(x, bits, "n")


def _log1p(x: Raw, bits: int) -> Raw:
    if x[1] and x[2] + x[3] < -3 * bits:  # x - x²/2, where 1 + x would have as many bits as x's exponent says
        return libmp.mpf_sub(x, libmp.mpf_shift(libmp.mpf_mul(x, x), -1), bits, "n")
    # 1 + x is exact here, so nothing cancels.
    return _log(libmp.mpf_add(libmp.fone, x), bits)


def _expm1(x: Raw, bits: int) -> Raw:
    lost = max(0, -(x[2] + x[3])) if x[1] else 0  # leading bits that e^x - 1 cancels
    return libmp.mpf_sub(libmp.mpf_exp(x, bits + lost + 4, "n"), libmp.fone, bits, "n")


def _sigmoid(x: Raw, bits: int) -> Raw:
    return _quotient(libmp.fone, libmp.mpf_add(libmp.fone, libmp.mpf_exp(libmp.mpf_neg(x), bits + 4, "n")), bits)


def _raised(x: Raw, exponent: Raw, bits: int) -> Raw:
    # mpmath raises errors where IEEE 754's pow has an answer; its one zero is taken to be +0. Mantissas of mpmath are
    # odd, so an exponent is an integer exactly if its own binary exponent, item 2, is not negative.
    if x == libmp.fzero:
        return {1: libmp.fzero, 0: libmp.fone, -1: libmp.finf}[_sign(exponent)]
    if x == libmp.finf:
        return {1: libmp.finf, 0: libmp.fone, -1: libmp.fzero}[_sign(exponent)]
    if (_sign(x) < 0 and exponent[2] < 0) or x == libmp.fnan:
        return libmp.fnan
    return libmp.mpf_pow(x, exponent, bits, "n")


# NaN is handed on, as by `np.maximum`: a NaN among the inputs must be seen in the output, and not lose a comparison.
def _larger(a: Raw, b: Raw) -> Raw:
    if libmp.fnan in (a, b):
        return libmp.fnan
    return a if libmp.mpf_ge(a, b) else b


def _smaller(a: Raw, b: Raw) -> Raw:
    if libmp.fnan in (a, b):
        return libmp.fnan
    return a if libmp.mpf_le(a, b) else b


@functools.lru_cache(maxsize=16)
def _primitives_at(bits: int) -> dict[str, Any]:
    """The elementwise primitives at a precision, as NumPy functions of object arrays."""
    add, sub, mul = libmp.mpf_add, libmp.mpf_sub, libmp.mpf_mul
    unary: dict[str, Callable[[Raw], Raw]] = {
        "negative": libmp.mpf_neg,
        "absolute": libmp.mpf_abs,
        "square": lambda x: mul(x, x, bits, "n"),
        "sqrt": lambda x: libmp.fnan if x[0] else libmp.mpf_sqrt(x, bits, "n"),
        "exp": lambda x: libmp.mpf_exp(x, bits, "n"),
        "expm1": lambda x: _expm1(x, bits),
        "log": lambda x: _log(x, bits),
        "log1p": lambda x: _log1p(x, bits),
        "tanh": lambda x: libmp.mpf_tanh(x, bits, "n"),
        "sigmoid": lambda x: _sigmoid(x, bits),
    }
    binary: dict[str, Callable[[Raw, Raw], Raw]] = {
        "add": lambda a, b: add(a, b, bits, "n"),
        "subtract": lambda a, b: sub(a, b, bits, "n"),
        "multiply": lambda a, b: mul(a, b, bits, "n"),
        "divide": lambda a, b: _quotient(a, b, bits),
        "power": lambda a, b: _raised(a, b, bits),
        "attach": lambda a, b: a,
        "maximum": _larger,
        "minimum": _smaller,
    }
    table = {name: np.frompyfunc(f, 1, 1) for name, f in unary.items()}
    return table | {name: np.frompyfunc(f, 2, 1) for name, f in binary.items()}


def raw_array(values: Any) -> Any:
    """float64 values (or Python numbers) as an object array of raw numbers, exactly."""
    array = np.asarray(values)
    if array.dtype == object:
        return array
    flat = [libmp.from_float(x) for x in array.astype(np.float64, copy=False).ravel().tolist()]
    return _objects(flat, array.shape)


def _objects(flat: Sequence[Raw], shape: tuple[int, ...]) -> Any:
    return np.fromiter(flat, dtype=object, count=len(flat)).reshape(shape)


def _boxed(value: Any) -> Any:
    """NumPy unwraps 0-dimensional object arrays; wrap again."""
    if isinstance(value, np.ndarray):
        return value
    box = np.empty((), dtype=object)
    box[()] = value
    return box


class Exact(Array):
    """An array of exact values: mpmath's raw numbers, evaluated at the working precision."""

    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        """`values`: an object array of raw numbers; see `exact` for floats."""
        self.values = values

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.values.shape
        return shape

    def base(self) -> Array:
        return self

    def comparable(self) -> Any:
        """Values that compare exactly: mpf objects."""
        return np.frompyfunc(_Ordered, 1, 1)(self.values) if self.values.ndim else _boxed(_Ordered(self.values[()]))

    def lift(self, value: Any) -> Exact:
        return exact(value)

    def apply(self, primitive: str, operands: Operands, params: Params) -> Exact:
        xs = [x.values if isinstance(x, Exact) else _constant(x) for x in operands]
        rule = _STRUCTURE.get(primitive)
        if rule is not None:
            return Exact(_boxed(rule(*xs, **params)))
        if primitive == "power":
            xs.append(_constant(params["exponent"]))
        return Exact(_boxed(_primitives_at(_working[-1])[primitive](*xs)))


class _Ordered:
    """A raw number that compares by value; NaN compares false."""

    __slots__ = ("raw",)

    def __init__(self, raw: Raw) -> None:
        self.raw = raw

    def __lt__(self, other: _Ordered) -> bool:
        return bool(libmp.mpf_lt(self.raw, other.raw))

    def __le__(self, other: _Ordered) -> bool:
        return bool(libmp.mpf_le(self.raw, other.raw))

    def __gt__(self, other: _Ordered) -> bool:
        return bool(libmp.mpf_gt(self.raw, other.raw))

    def __ge__(self, other: _Ordered) -> bool:
        return bool(libmp.mpf_ge(self.raw, other.raw))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ordered) and bool(libmp.mpf_eq(self.raw, other.raw))

    def __hash__(self) -> int:
        return hash(self.raw)


@functools.lru_cache(maxsize=256)
def _scalar(value: float) -> Any:
    return _boxed(libmp.from_float(value))


def _constant(value: Any) -> Any:
    return _scalar(float(value)) if isinstance(value, (int, float)) else raw_array(value)


def exact(values: Any) -> Exact:
    """float64 values, a Python number or an object array of raw numbers, as an exact array."""
    return Exact(raw_array(values))


def _reduce_rows(values: Any, axes: tuple[int, ...], function: Callable[[list[Raw]], Raw]) -> Any:
    rest = [i for i in range(values.ndim) if i not in axes]
    kept = tuple(1 if i in axes else n for i, n in enumerate(values.shape))
    # The number of rows is computed, since of an array without elements `reshape` can derive only one length, and the
    # length of a row is 0 there.
    count = int(np.prod([values.shape[i] for i in rest], dtype=np.int64))
    rows = np.transpose(values, (*rest, *axes)).reshape(count, -1 if values.size else 0)
    return _objects([function(list(row)) for row in rows], kept)


def _sum_rows(values: Any, axes: tuple[int, ...]) -> Any:
    bits = _working[-1]
    return _reduce_rows(values, axes, lambda row: libmp.mpf_sum(row, bits, "n"))


def _max_rows(values: Any, axes: tuple[int, ...], shared: bool = False) -> Any:
    return _reduce_rows(values, axes, lambda row: functools.reduce(_larger, row))


def _chosen(a: Any, b: Any, condition: Any, share: Any) -> Any:
    picked = np.where(possibly(condition), a, b)
    if not isinstance(condition, Condition):
        return picked
    # The middle of what a slope at a kink may be: `share` of one and the rest of the other.
    table = _primitives_at(_working[-1])
    parts = [
        _boxed(table["multiply"](raw_array(weight), x)) for weight, x in ((share, a), (1.0 - np.asarray(share), b))
    ]
    mixed = _boxed(table["add"](*parts))
    return np.where(possibly(condition) & ~surely(condition), mixed, picked)


def _scattered(values: Any, index: Any, shape: tuple[int, ...]) -> Any:
    out = raw_array(np.zeros(shape))
    # Slices and integers reach every element at most once, so that assigning is adding. An index array may name an
    # element twice; NumPy would keep the last value alone, so the elements are added one by one.
    if all(isinstance(i, (slice, int, type(Ellipsis))) for i in (index if isinstance(index, tuple) else (index,))):
        # A place of its own takes the number itself: NumPy would put the array into it that holds the number.
        out[index] = values if isinstance(out[index], np.ndarray) else values[()]
        return out
    places = np.arange(out.size).reshape(shape)[index]
    flat = out.reshape(-1)
    for place, value in zip(np.ravel(places), np.broadcast_to(values, np.shape(places)).ravel(), strict=True):
        flat[place] = libmp.mpf_add(flat[place], value, _working[-1], "n")
    return flat.reshape(shape)


_STRUCTURE: dict[str, Callable[..., Any]] = {
    "sum": _sum_rows,
    "max": _max_rows,
    "store": lambda x: x,
    "where": _chosen,
    "reshape": lambda x, shape: np.reshape(x, shape),
    "transpose": lambda x, axes: np.transpose(x, axes),
    "broadcast": lambda x, shape: np.broadcast_to(x, shape),
    "getitem": lambda x, index: x[index],
    "scatter": _scattered,
    "concatenate": lambda *xs, axis: np.concatenate(xs, axis=axis),
}


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
        The outputs, each element at the higher of the two precisions that agreed on it, and the lower precision of
        the element that took most.

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
        # One by one: a residue that shrinks with every precision, and a tiny value that only a high one resolves, agree
        # at precisions that need not overlap.
        for i, (a, b) in enumerate(pairs):
            if i not in agreed and agree(a, b, bits, scale):
                agreed[i] = b
        if len(agreed) == len(pairs):
            return _filled(upper, agreed), bits
        lower, bits = upper, 2 * bits
    raise PrecisionError(f"exact reading: got disagreement at bits={bits}, need agreement by {LARGEST_PRECISION}")


def _filled(outputs: Sequence[Exact], values: dict[int, Raw]) -> tuple[Exact, ...]:
    """Arrays of the shapes of `outputs` with `values` by position among the elements of all."""
    filled, start = [], 0
    for y in outputs:
        filled.append(Exact(_objects([values[start + i] for i in range(y.size)], y.shape)))
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
