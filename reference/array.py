"""The array protocol that gives one formula several readings.

What this is for. A formula is ordinary NumPy, and it is written once. Its exact values, its derivatives of every order
and the bound of its rounding errors must all come from that one text, for three texts could disagree. So the formula is
run on an `Array` instead of on numbers: every NumPy call in it arrives here (NEP 13, NEP 18), is reduced to a short
list of primitives, and is handed to the operand of the highest level: a derivative level (`derivative.py`) or the
reading itself (`exact.py`, the rounding reading). A reading is complete when it can `apply` the primitives of this
page.

What is hard here. Levels nest: in a jvp of a vjp an operand may be a `Tangent` around a `Node` around exact numbers,
beside others that have fewer layers. Each primitive is served by the outermost layer alone, which asks for the same
primitive on what it wraps. A NumPy function without a rule is refused by its name, since there is no general way to say
what its derivatives and its roundings are.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .condition import Condition
from .missing import NoReadingError, instead_of

Params = dict[str, Any]
Operands = tuple[Any, ...]

#: Elementwise primitives, named as NumPy names them; operands broadcast.
ELEMENTWISE = frozenset(
    {"add", "subtract", "multiply", "divide", "negative", "absolute", "square", "sqrt", "exp", "expm1"}
    | {"log", "log1p", "tanh", "sigmoid", "power", "maximum", "minimum", "where", "attach"}
)
#: Linear primitives that move elements: what they return is exact in every reading.
#: `scatter` (the adjoint of `getitem`) adds where an index repeats.
STRUCTURAL = frozenset(("reshape", "transpose", "broadcast", "getitem", "scatter", "concatenate"))
#: Reductions; `store` is a rounding to the format of a stored intermediate.
OTHER = frozenset(("sum", "max", "store"))
PRIMITIVES = ELEMENTWISE | STRUCTURAL | OTHER


class Array(NDArrayOperatorsMixin):
    """Base of all array kinds: shape, NumPy's protocols, and one method to implement.

    `level` is 0 for a reading and grows with each derivative wrapped around it.
    """

    level: int = 0
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

    @abstractmethod
    def base(self) -> Array:
        """The reading under all derivative levels."""

    @abstractmethod
    def comparable(self) -> Any:
        """The values as a NumPy array that compares elementwise (on the exact value)."""

    @abstractmethod
    def lift(self, value: Any) -> Array:
        """A constant in the same reading."""

    def compare(self, ufunc: np.ufunc, other: Array) -> Any:
        """A comparison with an array of the same reading: booleans, or a `Condition` where that leaves it open."""
        return ufunc(self.comparable(), other.comparable()).astype(bool)

    def largest(self, axes: tuple[int, ...]) -> tuple[Any, Any]:
        """Where elements surely, and possibly, equal the largest along the axes, of a reading; a NaN is the largest."""
        values = self.comparable()
        equal = (values == np.max(values, axis=axes, keepdims=True)).astype(bool)
        equal |= (values != values).astype(bool)
        return equal, equal

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def __getitem__(self, index: Any) -> Array:
        return bind("getitem", (self,), {"index": index})

    def __len__(self) -> int:
        return self.shape[0]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        # `np.add.reduce(x)`, `out=` and `where=` ask for what no primitive offers. NotImplemented makes NumPy raise a
        # TypeError that names the ufunc, where any other answer would leave part of the request out.
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


def attach(value: Any, slope: Any, *, kept: bool = False) -> Any:
    """The value of `value` with the derivatives of `slope`: a result that was saved, as a function of its inputs.

    An evaluation may use the value, or compute it again as `slope` says; unless it is `kept`: then it uses the value.
    """
    fixed = constant(value)
    return bind("attach", (fixed, slope), {"kept": kept}) if isinstance(slope, Array) else fixed


def store(x: Any) -> Any:
    """`x` as a later step reads it back from memory: rounded to the contract's storage format."""
    return bind("store", (x,), {}) if isinstance(x, Array) else x


def scatter(x: Any, index: Any, shape: Sequence[int]) -> Any:
    """Zeros of `shape` with `x` added at `index`: the adjoint of `getitem`."""
    return bind("scatter", (x,), {"index": index, "shape": tuple(shape)})


def _by_rule(func: Any, args: Any, kwargs: Any) -> Any:
    name = getattr(func, "__name__", str(func))
    rule = _RULES.get(func)
    if rule is None:
        raise NoReadingError(f"numpy.{name} has no reading; write {instead_of(name, _RULES)}")
    try:
        return rule(*args, **kwargs)
    except TypeError as err:
        try:
            inspect.signature(rule).bind(*args, **kwargs)
        except TypeError as unbound:
            said = f"numpy.{name} has no reading with these arguments ({unbound})"
            raise NoReadingError(f"{said}; write it as {name}{inspect.signature(rule)}") from err
        raise


def _elementwise(primitive: str) -> Callable[..., Array]:
    def rule(*operands: Any) -> Array:
        return bind(primitive, operands, {})

    return rule


def _comparison(ufunc: np.ufunc) -> Callable[..., Any]:
    def rule(a: Any, b: Any) -> Any:
        # A comparison chooses a branch, and a choice has no derivative: it is made on the values under all levels, and
        # gives no array of the reading but a NumPy array of truth values.
        reading = constant(a) if isinstance(a, Array) else constant(b)
        left, right = (constant(x) if isinstance(x, Array) else reading.lift(x) for x in (a, b))
        return left.compare(ufunc, right)

    return rule


def _constant_power(x: Any, exponent: Any) -> Array:
    if isinstance(exponent, Array):
        raise NoReadingError("power: got an array exponent, need a constant one; write numpy.exp(y * numpy.log(x))")
    if exponent in (0.0, 1.0):  # x^0 is the constant 1 and x^1 is x: no rounding, and no singularity of a derivative
        power: Array = x if exponent else x.lift(np.ones(x.shape))
        return power
    return bind("power", (x,), {"exponent": float(exponent)})


def choose(condition: Any, a: Any, b: Any, share: Any = 0.5) -> Array:
    """`a` where the condition holds, else `b`.

    Where the condition is open, an evaluation may give anything from `a` to `b`, and the exact reading gives `share` of
    `a` and the rest of `b`. That is how a slope at a kink is stated.
    """
    known = condition if isinstance(condition, Condition) else np.asarray(condition, dtype=bool)
    return bind("where", (a, b), {"condition": known, "share": share})


def _where(condition: Any, a: Any, b: Any) -> Array:
    return choose(condition, a, b)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(−x)), whose slope is evaluated from the result y as y (1 − y)."""
    return bind("sigmoid", (x,), {}) if isinstance(x, Array) else 1.0 / (1.0 + np.exp(-np.asarray(x)))


def amax(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The largest elements, as `numpy.max`; elements that are equal share the slope evenly, as in `torch.amax`."""
    if not isinstance(x, Array):
        return np.max(x, axis=axis, keepdims=keepdims)
    return _shared_largest(x, axis, keepdims)


def normalize_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """`axis` as NumPy takes it (None, an int, a tuple) as sorted non-negative ints."""
    if axis is None:
        return tuple(range(ndim))
    axes = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    return tuple(sorted(int(a) % ndim for a in axes))


def _reduction(primitive: str, **params: Any) -> Callable[..., Array]:
    def rule(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
        # The primitive itself keeps the reduced axes, with length 1. So its result broadcasts against its operand,
        # which is all that its derivatives need; the axes are dropped by a reshape, which is exact in every reading.
        axes = normalize_axes(axis, x.ndim)
        kept = bind(primitive, (x,), {"axes": axes, **params}) if axes else x
        if keepdims:
            return kept
        return _reshape(kept, tuple(n for i, n in enumerate(kept.shape) if i not in axes))

    return rule


_sum = _reduction("sum")
_shared_largest = _reduction("max", shared=True)


def _mean(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    count = int(np.prod([x.shape[i] for i in normalize_axes(axis, x.ndim)], dtype=np.int64))
    total: Array = _sum(x, axis, keepdims)
    return total / count if count != 1 else total


def _var(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    return _mean(np.square(x - _mean(x, axis, True)), axis, keepdims)


def _reshape(x: Array, shape: Any) -> Array:
    wanted: tuple[int, ...] = tuple(int(n) for n in np.ravel(shape))
    if -1 in wanted:
        known = int(np.prod([n for n in wanted if n != -1], dtype=np.int64))
        wanted = tuple(x.size // known if n == -1 else n for n in wanted)
    return x if wanted == x.shape else bind("reshape", (x,), {"shape": wanted})


def _transpose(x: Array, axes: Any = None) -> Array:
    order = tuple(reversed(range(x.ndim))) if axes is None else tuple(a % x.ndim for a in axes)
    return x if order == tuple(range(x.ndim)) else bind("transpose", (x,), {"axes": order})


def _broadcast_to(x: Array, shape: Any) -> Array:
    wanted = tuple(int(n) for n in shape)
    return x if wanted == x.shape else bind("broadcast", (x,), {"shape": wanted})


def _moveaxis(x: Array, source: int, destination: int) -> Array:
    order = [i for i in range(x.ndim) if i != source % x.ndim]
    order.insert(destination % x.ndim, source % x.ndim)
    return _transpose(x, order)


def _swapaxes(x: Array, a: int, b: int) -> Array:
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    return _transpose(x, order)


def _expand_dims(x: Array, axis: int) -> Array:
    where = axis % (x.ndim + 1)
    return _reshape(x, (*x.shape[:where], 1, *x.shape[where:]))


def _squeeze(x: Array, axis: Any = None) -> Array:
    axes = normalize_axes(axis, x.ndim) if axis is not None else range(x.ndim)
    return _reshape(x, tuple(n for i, n in enumerate(x.shape) if n != 1 or i not in axes))


def _concatenate(arrays: Sequence[Any], axis: int = 0) -> Array:
    ndim = next(a.ndim for a in arrays if isinstance(a, Array))
    return bind("concatenate", tuple(arrays), {"axis": axis % ndim})


def _stack(arrays: Sequence[Any], axis: int = 0) -> Array:
    return _concatenate([np.expand_dims(a, axis) for a in arrays], axis)


def _take(x: Array, indices: Any, axis: int) -> Array:
    return x[(slice(None),) * (axis % x.ndim) + (np.asarray(indices),)]


def _take_along_axis(x: Array, indices: Any, axis: int) -> Array:
    # One index array per axis: along the others each element stays at its own place, so they count 0, 1, 2, ...
    grid = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    grid[axis % x.ndim] = np.asarray(indices)
    return x[tuple(grid)]


def _diagonal(x: Array) -> Array:
    along = np.arange(min(x.shape[-2:]))
    return x[..., along, along]


def _einsum(subscripts: str, a: Any, b: Any) -> Array:
    """Two-operand einsum as products and one sum: n terms, n roundings, as a dot product has."""
    # Letters of the output come first and those that are summed over come last. With both operands in that order, and
    # with length 1 where an operand lacks a letter, the products are an ordinary broadcast.
    inputs, output = subscripts.replace(" ", "").split("->")
    letters = output + "".join(sorted(set(inputs) - set(output) - {","}))

    def aligned(x: Any, names: str) -> Any:
        order = [names.index(c) for c in letters if c in names]
        shape = iter([np.shape(x)[i] for i in order])
        return np.reshape(np.transpose(x, order), [next(shape) if c in names else 1 for c in letters])

    left, right = inputs.split(",")
    axes = tuple(range(len(output), len(letters)))
    product = aligned(a, left) * aligned(b, right)
    return _sum(product, axes) if axes else product


def _matmul(a: Any, b: Any) -> Array:
    # A vector on the left has only the letter that is summed over, and so has a vector on the right: "b,bc->c",
    # "ab,b->a".
    left, right = "ab"[2 - np.ndim(a) :], "bc"[: np.ndim(b)]
    if np.ndim(a) > 2 or np.ndim(b) > 2:
        raise NoReadingError(f"matmul: got ndim={np.ndim(a)}, {np.ndim(b)}, need at most 2; use einsum")
    return _einsum(f"{left},{right}->{(left + right).replace('b', '')}", a, b)


def _zeros_like(x: Array) -> Array:
    return x.lift(np.zeros(x.shape))


_UFUNCS = (
    *(np.add, np.subtract, np.multiply, np.divide, np.negative, np.absolute, np.square, np.sqrt),
    *(np.exp, np.expm1, np.log, np.log1p, np.tanh, np.maximum, np.minimum),
)
_COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)

_RULES: dict[Any, Callable[..., Any]] = {
    **{ufunc: _elementwise(ufunc.__name__) for ufunc in _UFUNCS},
    **{ufunc: _comparison(ufunc) for ufunc in _COMPARISONS},
    np.power: _constant_power,
    np.where: _where,
    np.sum: _sum,
    np.max: _reduction("max"),
    np.mean: _mean,
    np.var: _var,
    np.reshape: _reshape,
    np.ravel: lambda x: _reshape(x, (x.size,)),
    np.transpose: _transpose,
    np.broadcast_to: _broadcast_to,
    np.moveaxis: _moveaxis,
    np.swapaxes: _swapaxes,
    np.expand_dims: _expand_dims,
    np.squeeze: _squeeze,
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.take: _take,
    np.take_along_axis: _take_along_axis,
    np.diagonal: _diagonal,
    np.trace: lambda x: _sum(_diagonal(x), -1),
    np.einsum: _einsum,
    np.matmul: _matmul,
    np.dot: _matmul,
    np.zeros_like: _zeros_like,
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x: x.size,
}
