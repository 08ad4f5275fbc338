"""The methods, attributes and operators of NumPy's arrays, on arrays of a reading.

A formula may say `x.sum(axis=1)` as well as `np.sum(x, axis=1)`: each method is the NumPy function of its name, so that
it means what the function means and lacks what the function lacks. What would need numbers, memory or a dtype, which
arrays of a reading do not have, ends with a sentence that says what to write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..missing import NoAttributeError, NoReadingError, nearest_of

#: Methods that are the NumPy function of the same name, called with the array first.
SAME_NAME = frozenset(
    {"sum", "mean", "var", "std", "max", "min", "ptp", "prod", "cumsum", "cumprod"}
    | {"argmax", "argmin", "sort", "argsort"}
    | {"dot", "clip", "repeat", "take", "trace", "diagonal", "swapaxes", "squeeze", "ravel", "round", "searchsorted"}
)
#: What the class itself defines for users, besides the operators of Python.
OWN = ("T", "mT", "astype", "copy", "dtype", "flatten", "ndim", "reshape", "shape", "size", "transpose", "view")
_ASSIGN = "a formula writes into no array; write numpy.where(mask, new, x), or numpy.concatenate of the parts"
_NUMBER = "an array of a formula has no number that Python could take; keep it as an array, and choose by numpy.where"
_DTYPE = (
    "dtype: a formula is about real numbers and has none; give eps or a limit as an argument of the formula, or write"
    " numpy.finfo(numpy.float32)"
)
#: Formats that a formula may cast to, by NumPy's dtype.
NARROW = {np.dtype(np.float16): "float16", np.dtype(np.float32): "float32"}


class Methods(NDArrayOperatorsMixin):
    """The methods, attributes and operators that `kind.Array` has in common with NumPy's arrays."""

    @property
    def T(self: Any) -> Any:
        return np.transpose(self)

    @property
    def mT(self: Any) -> Any:
        return np.swapaxes(self, -2, -1)

    def reshape(self: Any, *shape: Any) -> Any:
        """`x.reshape(2, 3)` or `x.reshape((2, 3))`."""
        return np.reshape(self, _one_or_many(shape))

    def transpose(self: Any, *axes: Any) -> Any:
        """`x.transpose()`, `x.transpose(1, 0)` or `x.transpose((1, 0))`."""
        order = _one_or_many(axes) if axes else None
        return np.transpose(self, order)

    def flatten(self: Any, order: str = "C") -> Any:
        return np.ravel(self)

    def copy(self, order: str = "C") -> Any:
        return self

    def view(self, *args: Any) -> Any:
        if args:
            raise NoReadingError("view: got a dtype, need none: the bits of a formula's numbers are not known")
        return self

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise NoReadingError(f"x[...] = y: {_ASSIGN}")

    def __float__(self) -> float:
        raise NoReadingError(f"float(x), or a function of math: {_NUMBER}, numpy.exp and not math.exp")

    def __int__(self) -> int:
        raise NoReadingError(f"int(x): {_NUMBER}, numpy.trunc and not int")

    def __bool__(self) -> bool:
        raise NoReadingError(f"bool(x): {_NUMBER}")

    # NumPy's types would take a class with these two for one that its functions make an ndarray of.
    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name in SAME_NAME:
                word = getattr(np, name)
                return lambda *args, **kwargs: word(self, *args, **kwargs)
            if name.startswith("_"):  # NumPy and Python ask every object for protocols
                raise AttributeError(name)
            if name in ("item", "tolist", "fill", "put", "tobytes"):
                raise NoAttributeError(f"x.{name}: {_NUMBER if name in ('item', 'tolist', 'tobytes') else _ASSIGN}")
            if name == "dtype":
                raise NoAttributeError(_DTYPE)
            names = sorted({*SAME_NAME, *OWN})
            raise NoAttributeError(
                f"arrays have no attribute {name!r}{nearest_of(name, names)}; known are {', '.join(names)}"
            )

        def __array__(self, *args, **kwargs):
            raise NoReadingError(
                "numpy.array or numpy.asarray of a formula's array: write numpy.stack, or leave it out"
            )

    # A formula writes into no memory, so these give new arrays; another name of the old one keeps the old value.
    __iadd__ = NDArrayOperatorsMixin.__add__
    __isub__ = NDArrayOperatorsMixin.__sub__
    __imul__ = NDArrayOperatorsMixin.__mul__
    __itruediv__ = NDArrayOperatorsMixin.__truediv__
    __ifloordiv__ = NDArrayOperatorsMixin.__floordiv__
    __imod__ = NDArrayOperatorsMixin.__mod__
    __ipow__ = NDArrayOperatorsMixin.__pow__
    __imatmul__ = NDArrayOperatorsMixin.__matmul__


def _one_or_many(arguments: tuple[Any, ...]) -> Any:
    return arguments[0] if len(arguments) == 1 and not isinstance(arguments[0], (int, np.integer)) else arguments
