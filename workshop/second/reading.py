"""The second reading: arrays of objects on which NumPy itself runs, until every interval is narrow enough."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from opassay.reference.array import Array, Irrational, Operands, Params, normalize_axes
from opassay.reference.missing import NoReadingError
from opassay.reference.windows import offsets_of, windows_of

from . import functions, jets
from .intervals import Interval, Undecided, is_point, point, precision
from .jets import Jet, jet

#: The precisions that are tried. Sums of float64 numbers are exact from 2100 bits on.
PRECISIONS = (448, 896, 1792, 3584, 7168)
#: An interval is narrow if it is so many bits narrower than its number is large, or so many bits below the largest
#: number of the problem: there an exact zero ends that was computed by cancellation.
RELATIVE_BITS, RESIDUE_BITS = 110, 350


class Second(Array):
    """An object array of jets."""

    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        """`values`: an object array, in which numbers of Python may stand beside jets."""
        self.values = _jets(values)

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.values.shape
        return shape

    @property
    def order(self) -> int:
        return max((x.degree for x in self.values.flat), default=0)

    def base(self) -> Array:
        if all(x.plain for x in self.values.flat):
            return self
        return self.each(lambda x: Jet(x.value))

    def comparable(self) -> Any:
        return self.values

    def lift(self, value: Any) -> Second:
        return second(value)

    def each(self, change: Callable[[Jet], Jet]) -> Second:
        """The array with every jet changed."""
        return Second(np.frompyfunc(change, 1, 1)(self.values))

    def apply(self, primitive: str, operands: Operands, params: Params) -> Second:
        if primitive == "among":
            value: Second = params["ways"][0].formula(*operands)
            return value
        plain = [_unwrapped(x) for x in operands]
        if primitive in _PRIMITIVES:
            return Second(_PRIMITIVES[primitive](*plain, **params))
        if primitive == "power":
            plain.append(_jets(params["exponent"]))
        return Second(_elementwise(primitive)(*plain))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            raise NoReadingError(f"numpy.{ufunc.__name__}.{method}: the second reading has plain calls alone")
        operands = [_unwrapped(x) for x in inputs]
        if ufunc in _COMPARISONS:
            return np.asarray(np.frompyfunc(_COMPARISONS[ufunc], 2, 1)(*operands), dtype=bool)
        return Second(_elementwise(ufunc.__name__)(*operands))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        plain = _bare(args)
        named = {name: _bare(value) for name, value in kwargs.items()}
        result = _INSTEAD.get(func, func)(*plain, **named)
        return _wrapped(result)


def second(values: Any) -> Second:
    """float64 values or a number, exactly."""
    return Second(np.asarray(values))


_COMPARISONS: dict[np.ufunc, Callable[[Jet, Jet], bool]] = {
    np.less: operator.lt, np.less_equal: operator.le, np.greater: operator.gt, np.greater_equal: operator.ge,
    np.equal: operator.eq, np.not_equal: operator.ne,
}  # fmt: skip


def _jets(values: Any) -> Any:
    """An object array of which every element is a jet."""
    array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    out = np.empty(array.shape, dtype=object)
    # A view of a broadcast array has few objects, each of which is converted once for all of its places.
    flat = [x if isinstance(x, Jet) else jet(x) for x in array.ravel().tolist()]
    out[...] = np.fromiter(flat, dtype=object, count=len(flat)).reshape(array.shape)
    return out


def _unwrapped(value: Any) -> Any:
    if isinstance(value, Second):
        return value.values
    if isinstance(value, Irrational):
        raise NoReadingError(f"the second reading has no constant {value.name}, because none of its rules needs one")
    return _jets(value)


def _bare(value: Any) -> Any:
    """Arguments of a NumPy function with arrays of objects in place of arrays of this reading."""
    if isinstance(value, Second):
        return value.values
    if isinstance(value, (tuple, list)):
        return type(value)(_bare(x) for x in value)
    return value


def _wrapped(result: Any) -> Any:
    if isinstance(result, (tuple, list)) and any(isinstance(x, (np.ndarray, Jet)) for x in result):
        return type(result)(_wrapped(x) for x in result)
    if isinstance(result, Jet):
        return Second(np.asarray(result, dtype=object))
    return Second(result) if isinstance(result, np.ndarray) and result.dtype == object else result


@functools.cache
def _elementwise(name: str) -> Callable[..., Any]:
    if name in jets.OF_TWO:
        return np.frompyfunc(jets.OF_TWO[name], 2, 1)
    if name in functions.UNARY:
        return np.frompyfunc(functools.partial(jets.of_name, name), 1, 1)
    raise NoReadingError(f"numpy.{name} has no second reading")


# ------------------------------------------------------------- where NumPy's own function would not do on objects


def _rows(values: Any, axes: tuple[int, ...], function: Callable[[list[Jet]], Jet]) -> Any:
    """A function of rows along some axes, which are kept with length 1."""
    rest = [i for i in range(values.ndim) if i not in axes]
    out = np.empty([values.shape[i] for i in rest], dtype=object)
    moved = np.transpose(values, (*rest, *axes))
    for index in np.ndindex(*out.shape):
        row = moved[index]
        out[index] = function(row.ravel().tolist() if isinstance(row, np.ndarray) else [row])
    return np.expand_dims(out, axes)


def _along(
    values: Any, axis: Any = None, keepdims: bool = False, *, function: Callable[[list[Jet]], Jet]
) -> Any:  # fmt: skip
    axes = normalize_axes(axis, values.ndim)
    rows = _rows(values, axes, function) if axes else values
    return rows if keepdims else np.squeeze(rows, axes)


def total_of(row: Sequence[Jet]) -> Jet:
    """The sum of several numbers, by halves, so that series grow late."""
    parts = list(row)
    while len(parts) > 1:
        parts = [sum(parts[i : i + 2], jets.NOTHING) for i in range(0, len(parts), 2)]
    return parts[0] if parts else jets.NOTHING


def _mean_of(row: list[Jet]) -> Jet:
    return total_of(row) / float(len(row))


def _where(condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition, _jets(a), _jets(b))


#: NumPy's function -> what stands in its place: of objects it would add up from a Python zero, divide by a count in
#: Python, or decide a tie.
_INSTEAD: dict[Any, Callable[..., Any]] = {
    np.sum: functools.partial(_along, function=total_of),
    np.mean: functools.partial(_along, function=_mean_of),
    np.max: functools.partial(_along, function=jets.largest_of),
    np.min: lambda values, axis=None, keepdims=False: -_along(-values, axis, keepdims, function=jets.largest_of),
    np.where: _where,
    np.zeros_like: lambda a, dtype=None, *, shape=None: np.zeros(a.shape if shape is None else shape, dtype=object),
    np.ones_like: lambda a, dtype=None, *, shape=None: np.ones(a.shape if shape is None else shape, dtype=object),
}


def _scattered(values: Any, index: Any, shape: tuple[int, ...], in_place: bool = False, inserted: bool = False) -> Any:
    out = np.full(shape, jets.NOTHING, dtype=object)
    np.add.at(out, index, values)
    return out


def _product(a: Any, b: Any) -> Any:
    return np.matmul(a, b) if a.shape[-1] else np.full((*a.shape[:-1], b.shape[-1]), jets.NOTHING, dtype=object)


def _correlated(x: Any, w: Any, stride: Any, dilation: Any) -> Any:
    view = windows_of(x, w.shape[3:], stride, dilation)
    places = view.shape[3 : x.ndim]
    out = np.empty((x.shape[0], w.shape[0], w.shape[1], *places), dtype=object)
    for number, group, output, *place in np.ndindex(*out.shape):
        terms = view[(number, group, slice(None), *place)] * w[group, output]
        out[(number, group, output, *place)] = total_of(terms.ravel().tolist())
    return out


def _transform(x: Any, axes: tuple[int, ...], inverse: bool, power: int, real: bool) -> Any:
    """Each element as one sum over the axes."""
    out, lengths = np.empty(x.shape, dtype=object), [x.shape[axis] for axis in axes]
    sign, scale = 1 if inverse else -1, Jet(point(math.prod(lengths)) ** (point(-power) / 2))
    for place in np.ndindex(*x.shape[:-1]):
        real_terms, imaginary_terms = [], []
        for index in np.ndindex(*lengths):
            source = list(place)
            for axis, j in zip(axes, index, strict=True):
                source[axis] = j
            turns = sum(Fraction(j * place[axis], n) for axis, j, n in zip(axes, index, lengths, strict=True)) % 1
            angle = point(sign * 2 * turns.numerator) / turns.denominator
            (a, b), cosine, sine = x[tuple(source)], Jet(angle.cos_pi()), Jet(angle.sin_pi())
            real_terms.append(a * cosine - b * sine)
            imaginary_terms.append(a * sine + b * cosine)
        out[place] = [total_of(terms) * scale for terms in (real_terms, imaginary_terms)]
    return out


def _overlapped(values: Any, shape: Any, sizes: Any, stride: Any, dilation: Any) -> Any:
    out = np.full(shape, jets.NOTHING, dtype=object)
    for offset, index in offsets_of(out, sizes, stride, dilation):
        out[index] = out[index] + values[(..., *offset)]
    return out


def _cast(values: Any, dtype: str, saturates: bool) -> Any:
    raise NoReadingError(f"the second reading has no cast to {dtype}, because no op of the catalog has one")


def _multiplied(row: list[Jet]) -> Jet:
    return functools.reduce(lambda a, b: a * b, row, jet(1.0))


_PRIMITIVES: dict[str, Callable[..., Any]] = {
    "where": lambda a, b, condition, share: _where(condition, a, b),
    "store": lambda x, dtype, always: x,
    "cast": _cast,
    "attach": lambda x, y, always=False: _elementwise("attach")(x, y),
    "erf": lambda x, absolute=False: _elementwise("erf")(x),
    "polygamma": lambda x, order: np.frompyfunc(functools.partial(jets.polygamma, order), 1, 1)(x),
    "sum": lambda x, axes, means=False: _rows(x, axes, total_of),
    "prod": lambda x, axes: _rows(x, axes, _multiplied),
    "max": lambda x, axes, shared=False: _rows(x, axes, jets.largest_of),
    "reshape": lambda x, shape: np.reshape(x, shape),
    "transpose": lambda x, axes: np.transpose(x, axes),
    "broadcast": lambda x, shape: np.broadcast_to(x, shape),
    "getitem": lambda x, index: np.asarray(x[index], dtype=object),
    "concatenate": lambda *xs, axis: np.concatenate(xs, axis=axis),
    "scatter": _scattered,
    "matmul": _product,
    "correlate": _correlated,
    "fourier": _transform,
    "windows": windows_of,
    "overlap": _overlapped,
    "cumsum": lambda x, axis: np.cumsum(x, axis=axis),
    "cumprod": lambda x, axis: np.cumprod(x, axis=axis),
    "sort": lambda x, axis: np.sort(x, axis=axis),
}


# ---------------------------------------------------------------------------------------------------- evaluation


@dataclass(frozen=True)
class Enclosure:
    """An output: an interval per element, which contains the true value.

    Attributes:
        intervals: an object array. narrow: which of them are known well enough. bits: the precision.
        scale: the binary exponent of the largest number of the problem.
    """

    intervals: Any
    narrow: Any
    bits: int
    scale: int


def exponent_of(x: Interval) -> int:
    """The binary exponent of the largest magnitude; that of zero, and of what is not finite, counts as very low."""
    largest = x.abs_upper()
    if x.is_zero() or not largest.is_finite():
        return -(10**9)
    mantissa, exponent = largest.man_exp()
    return int(exponent) + int(mantissa).bit_length()


def is_narrow(x: Interval, scale: int) -> bool:
    """Whether a value is known: an infinity or NaN, a number to `RELATIVE_BITS`, or zero to `RESIDUE_BITS`."""
    if is_point(x) or not x.is_finite():
        return is_point(x)
    return x.rel_accuracy_bits() >= RELATIVE_BITS or exponent_of(x) <= scale - RESIDUE_BITS


def enclosures(function: Callable[..., Any], *values: Any, precisions: Sequence[int] = PRECISIONS) -> list[Enclosure]:
    """The outputs of a formula at float64 values, at the first precision at which all of them are narrow.

    Args:
        function: arrays of this reading in, one or a tuple of them out.

    Raises:
        Undecided: a comparison of the formula is open at every precision.
    """
    for bits in precisions:
        with precision(bits), np.errstate(all="ignore"):  # floats stand for special values, and NumPy calls on objects
            try:
                outputs = function(*map(second, values))
            except Undecided:
                if bits == precisions[-1]:
                    raise
                continue
        results = [x.values for x in (outputs if isinstance(outputs, (tuple, list)) else (outputs,))]
        scale = _scale(values, results)
        narrow = [np.array([is_narrow(x.value, scale) for x in out.flat], bool).reshape(out.shape) for out in results]
        if all(np.all(each) for each in narrow) or bits == precisions[-1]:
            break
    return [Enclosure(_intervals(out), each, bits, scale) for out, each in zip(results, narrow, strict=True)]


def _scale(values: Sequence[Any], outputs: Sequence[Any]) -> int:
    inputs = [np.abs(np.asarray(v, dtype=np.float64)) for v in values]
    largest = max((float(np.max(v[np.isfinite(v)], initial=0.0)) for v in inputs), default=0.0)
    own = int(np.frexp(largest)[1]) if largest else -(10**9)
    return max([own, *(exponent_of(x.value) for out in outputs for x in out.flat)])


def _intervals(values: Any) -> Any:
    return np.asarray(np.frompyfunc(lambda x: x.value, 1, 1)(values), dtype=object)
