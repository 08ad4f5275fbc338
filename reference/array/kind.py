"""The array protocol that gives one formula several readings.

What this is for. A formula is ordinary NumPy, and it is written once. Its exact values, its derivatives of every order
and the bound of its rounding errors must all come from that one text, for three texts could disagree. So the formula is
run on an `Array` instead of on numbers: every NumPy call in it arrives here (NEP 13, NEP 18), is reduced to a short
list of primitives, and is handed to the operand of the highest level: a derivative level (`reference.derivative`) or
the reading itself (`reference.exact`, the rounding reading). A reading is complete when it can `apply` the primitives
of this page.

What is hard here. Levels nest: in a jvp of a vjp an operand may be a `Tangent` around a `Node` around exact numbers,
beside others that have fewer layers. Each primitive is served by the outermost layer alone, which asks for the same
primitive on what it wraps. A NumPy function without a rule is refused by its name, since there is no general way to say
what its derivatives and its roundings are.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from ..algorithms import Algorithm, Inapplicable
from ..formats import cast_array, format_of_cast
from ..missing import NoReadingError, instead_of
from .methods import NARROW, Methods

Params = dict[str, Any]
Operands = tuple[Any, ...]

#: Elementwise primitives, named as NumPy names them; operands broadcast.
ELEMENTWISE = frozenset(
    {"add", "subtract", "multiply", "divide", "negative", "absolute", "square", "sqrt", "exp", "expm1"}
    | {"log", "log1p", "tanh", "sigmoid", "power", "maximum", "minimum", "where", "attach"}
    | {"sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "arcsinh", "arccosh", "arctanh"}
    | {"exp2", "log2", "log10", "cbrt", "erf", "erfc", "arctan2", "hypot", "logaddexp", "fmod", "float_power"}
    | {"gammaln", "polygamma"}
    | {"floor", "ceil", "rint", "trunc", "sign"}
)
#: Linear primitives that move elements: what they return is exact in every reading.
#: `scatter` (the adjoint of `getitem`) adds where an index repeats, and `overlap` (that of `windows`) where they meet.
STRUCTURAL = frozenset(("reshape", "transpose", "broadcast", "getitem", "scatter", "concatenate", "windows", "overlap"))
#: Products of two operands and sums of them: of matrices, and of an array with windows of another.
BILINEAR = frozenset(("matmul", "correlate"))
#: What runs along an axis: sums and products so far, and the elements in ascending order.
SCANS = frozenset(("cumsum", "cumprod", "sort"))
#: Reductions; `fourier` is a discrete Fourier transform; `store` is a rounding to the format of a stored intermediate,
#: which a formula does not mean, and `cast` one that it means; `among` a choice of algorithms.
OTHER = frozenset(("sum", "prod", "max", "fourier", "store", "cast", "among"))
#: Primitives that give elements of their operands: as finite as those, and stored where those are.
MOVING = STRUCTURAL - {"scatter", "overlap"} | {"negative", "absolute", "maximum", "minimum", "where", "attach"}
MOVING |= {"max", "sort", "store"}
PRIMITIVES = ELEMENTWISE | STRUCTURAL | BILINEAR | SCANS | OTHER


#: What every NumPy function that a formula may call means, by the function. The modules of words fill it.
WORDS: dict[Any, Callable[..., Any]] = {}
#: Functions of `scipy.special`, by name, and what `ufunc.reduce` means, by the ufunc.
SPECIAL: dict[str, Callable[..., Any]] = {}
REDUCTIONS: dict[np.ufunc, Callable[..., Any]] = {}


class Array(Methods):
    """Base of all array kinds: shape, NumPy's protocols, and one method to implement.

    `level` is 0 for a reading and grows with each derivative wrapped around it.
    """

    level: int = 0
    #: Whether the array stands for the outcome of a comparison, where a formula is recorded before there are values.
    is_condition: bool = False
    #: Whether a formula gives the same values when it is evaluated again; not where rounding errors are drawn.
    is_repeatable: bool = True
    __array_priority__: ClassVar[float] = 100.0
    # The mixin defines an elementwise `==`, and Python takes the hash away from a class that does. An array is still
    # to be hashed by its identity, as any object that is not compared by value.
    __hash__ = object.__hash__

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @abstractmethod
    def apply(self, primitive: str, operands: Operands, params: Params) -> Array:
        """Evaluate a primitive whose highest-level operand is `self`."""

    def base(self) -> Array:
        """The reading under all derivative levels."""
        return self

    @abstractmethod
    def comparable(self) -> Any:
        """The values as a NumPy array that compares elementwise (on the exact value)."""

    @abstractmethod
    def lift(self, value: Any) -> Array:
        """A constant in the same reading."""

    def compare(self, ufunc: np.ufunc, other: Array) -> Any:
        """A comparison with an array of the same reading: booleans, or a `Condition` where that leaves it open."""
        return ufunc(self.comparable(), other.comparable()).astype(bool)

    def ends(self) -> tuple[Any, Any]:
        """Arrays that compare elementwise, below and above every value that an element of a reading may have."""
        values = self.comparable()
        return values, values

    def largest(self, axes: tuple[int, ...]) -> tuple[Any, Any]:
        """Where elements surely, and possibly, equal the largest along the axes, of a reading; a NaN is the largest."""
        values = self.comparable()
        equal = (values == np.max(values, axis=axes, keepdims=True)).astype(bool)
        equal |= (values != values).astype(bool)
        return equal, equal

    def leave_out(self, zeros: Any) -> None:
        """Take note of elements of a reading that are zeros because a formula says so, whatever its operands are.

        An evaluation may leave out products with them, as one does that multiplies triangular matrices.

        Args:
            zeros: where they are, of this shape.
        """

    def may_store(self, dtype: str) -> bool:
        """Whether an evaluation of a reading may store what a formula does not ask it to, rounded to a format.

        Args:
            dtype: torch's name of the format.
        """
        return False

    @property
    def order(self) -> int:
        """How many derivative levels there are around the reading."""
        return 0

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def astype(self, dtype: Any, **rest: Any) -> Array:
        """The array rounded to float16 or float32; float64 rounds nothing that is judged.

        Raises:
            NoReadingError: the dtype is not a floating one.
        """
        target = np.dtype(dtype)
        if target.kind != "f":
            raise NoReadingError(f"astype: got {target.name}, need a floating dtype; write numpy.trunc(x) for integers")
        cast: Array = store(self, NARROW[target]) if target in NARROW else self
        return cast

    def __getitem__(self, index: Any) -> Array:
        return bind("getitem", (self,), {"index": index})

    def __len__(self) -> int:
        return self.shape[0]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method in ("reduce", "outer"):
            return _of_ufunc(ufunc, method)(*inputs, **kwargs)
        # `out=` and `where=` ask for what no primitive offers. NotImplemented makes NumPy raise a TypeError that names
        # the ufunc, where any other answer would leave part of the request out.
        if method != "__call__" or kwargs:
            return NotImplemented
        return _by_rule(ufunc, inputs, {})

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _by_rule(func, args, kwargs)


def bind(primitive: str, operands: Operands, params: Params) -> Array:
    """Evaluate a primitive at the highest level among its operands."""
    top: Array | None = None
    for operand in operands:
        if isinstance(operand, Array) and (top is None or operand.level > top.level):
            top = operand
    if top is None:
        raise TypeError(f"{primitive}: got no opassay array among the operands")
    return top.apply(primitive, operands, params)


def constant(x: Any) -> Any:
    """`x` with all derivative levels removed: a value through which no derivative flows."""
    return x.base() if isinstance(x, Array) else x


def is_special(x: Any) -> bool:
    """Whether `x` is of a reading that takes note of NaN and infinities, and has one or was computed from one."""
    base = constant(x)
    return hasattr(type(base), "special") and bool(base.special)  # An array without it searches for similar names.


def order_of(x: Any) -> int:
    """How many derivative levels are around a value."""
    return x.order if isinstance(x, Array) else 0


def attach(value: Any, slope: Any, *, always: bool = False) -> Any:
    """The value of `value` with the derivatives of `slope`: a result that was saved, as a function of its inputs.

    An evaluation may use the value, or compute it again as `slope` says; with `always` it uses the value.
    """
    fixed = constant(value)
    return bind("attach", (fixed, slope), {"always": always}) if isinstance(slope, Array) else fixed


def attach_slopes(value: Any, *slopes: tuple[Any, Any]) -> Any:
    """The value of `value` with first derivatives that are written down: Σ s dx of the pairs (x, s).

    Args:
        value: a result; no derivative of it is taken. slopes: an array x, and ∂value/∂x, which broadcast to the value.

    Raises:
        Inapplicable: derivatives other than the first ones are asked for, of which the slopes say nothing.
    """
    # x minus its own value is zero, with the derivatives of x.
    still = [constant(s) * attach(np.zeros(np.shape(x)), x, always=True) for x, s in slopes if isinstance(x, Array)]
    moved: Any = functools.reduce(operator.add, still)
    if order_of(moved) != 1:  # also where each array has one derivative alone, and the sum a mixed one
        raise Inapplicable
    return attach(value, moved, always=True)


#: The name of the contract's storage format. A value that is stored in a format of a name has stored derivatives, too.
STORAGE = "storage"


def store(x: Any, dtype: str = "", always: bool = True) -> Any:
    """`x` as a later step reads it back from memory: rounded to a format.

    Args:
        dtype: torch's name of the format, or `STORAGE`. Without a name the format is the contract's storage format, and
            derivatives are not stored.
        always: whether the formula requires the rounding; else an evaluation may round if the contract allows it.
    """
    return bind("store", (x,), {"dtype": dtype, "always": always}) if isinstance(x, Array) else x


def cast(x: Any, dtype: str, saturates: bool) -> Any:
    """`x` rounded by every evaluation to a format of few bits: to the nearest number, ties to even.

    Unlike `store`, a cast is part of the formula: the exact value is rounded, too. Derivatives are cast the same way.

    Args:
        dtype: name of the format (`EVERY_FORMAT`). saturates: whether numbers beyond it become its largest number.
    """
    if isinstance(x, Array):
        return bind("cast", (x,), {"dtype": dtype, "saturates": saturates})
    return cast_array(format_of_cast(dtype, saturates), x)


def among(ways: Sequence[Algorithm], *arrays: Any) -> Any:
    """The result of the first of several ways, which are equal in exact arithmetic; an evaluation may use any of them.

    Args:
        ways: functions of the arrays with one array as result. A way with a name counts only if the contract allows
            that name, and a way that raises `Inapplicable` does not count.
        arrays: at least one array of a reading, or NumPy arrays only.
    """
    if not any(isinstance(x, Array) for x in arrays):
        return ways[0].formula(*arrays)
    return bind("among", arrays, {"ways": tuple(ways)})


def one_of_several(ways: Sequence[Algorithm], *arrays: Any) -> Any:
    """As `among`, of which an evaluation may use several at once, as it computes one number twice and in other orders.

    So errors of two results of the same ways do not cancel where one is subtracted from the other.
    """
    return bind("among", arrays, {"ways": tuple(ways), "several": True})


def scatter(x: Any, index: Any, shape: Sequence[int], in_place: bool = False, inserted: bool = False) -> Any:
    """Zeros of `shape` with `x` added at `index`: the adjoint of `getitem`.

    Args:
        x: of the shape of `zeros(shape)[index]`. index: NumPy's; elements with equal indices are added up.
        in_place: whether an evaluation may round after each addition to an element, if the contract allows it.
        inserted: whether an evaluation may leave out products with these zeros, because they are only a means of the
            formula, as a margin is. That matters where the other factor is not finite.
    """
    if not isinstance(x, Array):
        out = np.zeros(tuple(shape))
        np.add.at(out, index, x)
        return out
    params = {"index": index, "shape": tuple(shape)}
    options = {"in_place": in_place, "inserted": inserted}
    return bind("scatter", (x,), {**params, **{name: True for name, is_set in options.items() if is_set}})


def _of_ufunc(ufunc: np.ufunc, method: str) -> Any:
    """`np.add.reduce` and `np.multiply.outer`, which are no functions of their own."""
    if method == "outer":
        return lambda a, b: ufunc(np.reshape(a, (*np.shape(a), *(1,) * np.ndim(b))), b)
    reduction = REDUCTIONS.get(ufunc)
    if reduction is None:
        names = ", ".join(sorted(f"numpy.{each.__name__}.reduce" for each in REDUCTIONS))
        raise NoReadingError(f"numpy.{ufunc.__name__}.reduce has no reading; there are {names}")
    return lambda array, axis=0, dtype=None, keepdims=False: reduction(array, axis, keepdims=keepdims)


def _parameters_of(rule: Callable[..., Any]) -> str:
    """The parameters of a word, without their types."""
    signature = inspect.signature(rule)
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _by_rule(func: Any, args: Any, kwargs: Any) -> Any:
    rule = WORDS.get(func)
    if rule is None:
        name = getattr(func, "__name__", str(func))
        # Functions of SciPy are known by their names.
        if not isinstance(func, np.ufunc) or name not in SPECIAL:
            raise NoReadingError(f"numpy.{name} has no reading; write {instead_of(name, WORDS)}")
        rule = SPECIAL[name]
    try:
        return rule(*args, **kwargs)
    except TypeError as err:
        try:
            inspect.signature(rule).bind(*args, **kwargs)
        except TypeError as unbound:
            name = getattr(func, "__name__", str(func))
            refusal = f"numpy.{name} has no reading with these arguments ({unbound})"
            raise NoReadingError(f"{refusal}; write it as {name}{_parameters_of(rule)}") from err
        raise
