"""Aten operations that normalise: the formulas of the norms, with all the algorithms that they declare."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ....reference.algorithms import STORED, Algorithm, Inapplicable, Reverse, declared
from ....reference.array import Array, amax, among, attach, constant
from ....reference.condition import is_open
from ....reference.norms import batch_norm, group_norm, layer_norm
from .table import DECOMPOSED, axes_of, enter, may_store

aten = torch.ops.aten


class _Results(Sequence[Any]):
    """The results of a formula with all its algorithms; each is evaluated when it is asked for."""

    def __init__(self, formula: Callable[..., Any], length: int, *args: Any, more: Sequence[Any] = ()) -> None:
        """No result is evaluated yet.

        Args:
            formula: a function with `length` results. args: its arguments. more: algorithms that store intermediates.
        """
        self.more = more
        self.formula, self.length, self.args = formula, length, args
        self.positions = [i for i, x in enumerate(args) if isinstance(x, (Array, np.ndarray))]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, which: Any) -> Any:
        algorithms = (*declared(self.formula), *(Algorithm(formula, STORED) for formula in self.more))
        others = (Algorithm(self._way(each.formula, which), each.name) for each in algorithms)
        ways = [Algorithm(self._way(self.formula, which), ""), *others]
        return among(ways, *(self.args[i] for i in self.positions))

    def _way(self, formula: Callable[..., Any], which: int) -> Callable[..., Any]:
        """One result of one algorithm as a function of the arrays among the arguments."""

        def way(*arrays: Any) -> Any:
            args = list(self.args)
            for position, array in zip(self.positions, arrays, strict=True):
                args[position] = array
            result = formula(*args)[which]
            if result is None:
                raise Inapplicable
            return result

        return way


def _layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _Results(layer_norm.native_layer_norm, 3, x, tuple(shape), weight, bias, eps)


def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, m: float, eps: float) -> Any:
    arguments = (x, weight, bias, mean, var, training or mean is None, m, eps)
    more = (_in_stored_steps, _as_stored_line, _with_stored_statistics)
    return _Results(batch_norm.native_batch_norm, 5, *arguments, more=more)


def _statistics(x: Any, mean: Any, var: Any, training: bool, m: float, eps: float) -> tuple[Any, Any]:
    """μ and 1/√(σ² + ε) per channel, as they broadcast against x."""
    if training:
        _, mean, scale, *_ = batch_norm.native_batch_norm(x, None, None, None, None, True, m, eps)
    else:
        scale = 1.0 / np.sqrt(var + eps)
    return _spread(mean, x), _spread(scale, x)


def _spread(t: Any, x: Any) -> Any:
    return np.reshape(t, (-1,) + (1,) * (np.ndim(x) - 2))


def _in_stored_steps(x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> tuple[Any, ...]:
    """A batch norm whose every step is stored."""
    middle, scale = _statistics(x, mean, var, *rest)
    y = may_store(may_store(x - may_store(middle)) * may_store(scale))
    y = y if weight is None else may_store(y * _spread(weight, x))
    return y if bias is None else y + _spread(bias, x), None, None, None, None


def _as_stored_line(x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> tuple[Any, ...]:
    """A batch norm of one factor and one term per channel, which are stored, and so is the product."""
    middle, scale = _statistics(x, mean, var, *rest)
    scale = may_store(scale if weight is None else scale * _spread(weight, x))
    shift = -(middle * scale) if bias is None else _spread(bias, x) - middle * scale
    return may_store(x * scale) + may_store(shift), None, None, None, None


def _with_stored_statistics(x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> tuple[Any, ...]:
    """Running statistics that are moved in stored steps by statistics that were stored."""
    training, momentum, _ = rest
    count = np.size(x) // max(np.shape(x)[1], 1)
    if mean is None or not training or count < 2:
        return (None,) * 5
    axes = (0, *range(2, np.ndim(x)))
    new = np.mean(x, axis=axes)
    squares = np.sum(np.square(x - _spread(new, x)), axis=axes) / (count - 1)
    moved = (
        may_store(old * (1.0 - momentum)) + may_store(may_store(t) * momentum)
        for old, t in ((mean, new), (var, squares))
    )
    return None, None, None, *map(constant, moved)


def _batch_norm_without_statistics(x: Any, weight: Any, bias: Any, training: bool, m: float, eps: float) -> Any:
    return _batch_norm(x, weight, bias, None, None, True, m, eps)


def _batch_norm_in_evaluation(x: Any, weight: Any, bias: Any, mean: Any, var: Any, m: float, eps: float) -> Any:
    return _batch_norm(x, weight, bias, mean, var, False, m, eps)


def as_functions(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """torch's native_batch_norm as an operation that says what it writes: its schema hides the running statistics.

    Args:
        x, weight, bias, mean, var, training, momentum, eps: as there.
    """
    if mean is None:
        return tuple(aten._native_batch_norm_legit.no_stats(x, weight, bias, training, momentum, eps))
    arguments = (x, weight, bias, mean, var, training, momentum, eps)
    out, *saved, new_mean, new_var = aten._native_batch_norm_legit_functional(*arguments)
    if training:
        mean.copy_(new_mean)
        var.copy_(new_var)
    return out, *saved


def safe_root(squares: Any) -> Any:
    """√s, whose slope is 0 and not infinite where s is 0, as torch has it of lengths and standard deviations."""
    # A choice alone would be as wide as 0 to 1 where rounding decides whether s is 0.
    slope = np.where(squares == 0, 0.0, np.sqrt(np.where(squares == 0, 1.0, squares)))
    return attach(np.sqrt(constant(squares)), slope, always=True)


def _var_mean(x: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> tuple[Any, Any]:
    axes = axes_of(dim)
    mean = np.mean(x, axis=axes, keepdims=True)
    count = np.size(x) // max(np.size(mean), 1) - (1 if correction is None else correction)

    def of_squares(x: Any) -> Any:
        squares = np.sum(np.square(x - np.mean(x, axis=axes, keepdims=True)), axis=axes, keepdims=keepdim)
        with np.errstate(all="ignore"):
            return squares / float(max(count, 0))

    def cotangent(x: Any, g: Any) -> Any:
        """2 g (x − μ) / n, as torch has it: what the mean was rounded by does not cancel."""
        middle = may_store(np.mean(x, axis=axes, keepdims=True))
        return may_store(np.reshape(g, np.shape(middle)) * (2.0 / count)) * may_store(x - middle)

    ways = [Algorithm(of_squares, ""), Algorithm(Reverse(cotangent), "")]
    var = among(ways if count > 0 else ways[:1], x)
    return var, mean if keepdim else np.reshape(mean, np.shape(var))


def _var(x: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    return _var_mean(x, dim, correction, keepdim)[0]


def _std_mean(x: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> tuple[Any, Any]:
    var, mean = _var_mean(x, dim, correction, keepdim)
    return safe_root(var), mean


def vector_norm(x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    axes = axes_of(dim)
    size = np.absolute(x)
    if order in (np.inf, -np.inf):
        sign = 1.0 if order > 0 else -1.0
        ways = [
            Algorithm(lambda x: sign * amax(sign * np.absolute(x), axes, keepdim), ""),
            Algorithm(Reverse(functools.partial(_slope_of_extreme, sign=sign, axes=axes)), STORED),
        ]
        return among(ways, x)
    total = functools.partial(np.sum, axis=axes, keepdims=keepdim)

    def slope(x: Any, g: Any) -> Any:
        """g (x / |x|), as torch has it."""
        length = np.sqrt(np.sum(np.square(x), axis=axes, keepdims=True))
        share = may_store(x / may_store(np.where(length == 0, 1.0, length)))
        return np.reshape(g, np.shape(length)) * np.where(length == 0, 0.0, share)

    if order == 0:
        # A count of what is not zero; a NaN and an infinity are not.
        return total(np.where(x == 0, 0.0, np.zeros_like(x) + 1.0))
    if order == 1:
        return total(size)
    if order == 2:
        return among([Algorithm(lambda x: safe_root(total(np.square(x))), ""), Algorithm(Reverse(slope), STORED)], x)
    ways = [
        Algorithm(lambda x: np.power(total(np.power(np.absolute(x), order)), 1.0 / order), ""),
        Algorithm(Reverse(functools.partial(_slope_of_norm, order=order, axes=axes)), STORED),
    ]
    return among(ways, x)


def _slope_of_extreme(x: Any, g: Any, sign: float, axes: Any) -> Any:
    """The sign of x times a share of g, or times 0, as torch has it: a share that overflows is NaN elsewhere."""
    size = sign * np.absolute(constant(x))
    most = np.equal(size, np.max(size, axis=axes, keepdims=True))
    if is_open(most):
        raise Inapplicable
    count = np.sum(most, axis=axes, keepdims=True)
    return np.where(x < 0, -1.0, 1.0) * most * may_store(np.reshape(g, count.shape) / count)


def _slope_of_norm(x: Any, g: Any, order: float, axes: Any) -> Any:
    """g |x|^(p - 1) / ‖x‖^(p - 1), with the sign of x, as torch has it."""
    size = np.where(np.equal(x, 0.0), 1.0, np.absolute(x))
    length = may_store(np.power(np.sum(np.power(np.absolute(x), order), axis=axes, keepdims=True), 1.0 / order))
    length = np.where(np.equal(length, 0.0), 1.0, length)
    raised = x * may_store(np.power(size, order - 2.0)) if order > 2 else may_store(np.power(size, order - 1.0))
    raised = may_store(raised if order > 2 else np.where(x < 0, -raised, np.where(np.equal(x, 0.0), 0.0, raised)))
    g = np.reshape(g, np.shape(length))
    if order < 1:
        return may_store(raised * g) * may_store(np.power(length, 1.0 - order))
    return raised * may_store(g / may_store(np.power(length, order - 1.0)))


def _distances(x: Any, y: Any, p: float, mode: Any = None) -> Any:
    """cdist: lengths of the differences of every row of x and every row of y."""

    def straight(x: Any, y: Any) -> Any:
        first, second = _pair_rows(x, y)
        return vector_norm(first - second, p, [-1])

    def by_products(x: Any, y: Any) -> Any:
        squares = [np.sum(np.square(t), axis=-1) for t in (x, y)]
        both = np.expand_dims(squares[0], -1) + np.expand_dims(squares[1], -2)
        squared_lengths = both - np.matmul(x, np.swapaxes(y, -1, -2)) * 2.0
        return safe_root(np.where(squared_lengths <= 0, 0.0, squared_lengths))

    # Of more than 25 rows torch takes x² + y² − 2 x y, unless it is told otherwise (`mode` 2).
    many = max(np.shape(x)[-2], np.shape(y)[-2]) > 25
    products = p == 2 and (mode == 1 or (many and mode != 2))
    ways = [Algorithm(straight, "")]
    if products:
        ways.append(Algorithm(by_products, ""))
    if p == 0:
        ways.append(Algorithm(lambda x, y: _hand_on_nans(straight(x, y), *_pair_rows(x, y)), ""))
    return among(ways, x, y)


def _pair_rows(x: Any, y: Any) -> tuple[Any, Any]:
    return np.expand_dims(x, -2), np.expand_dims(y, -3)


def _hand_on_nans(distances: Any, x: Any, y: Any) -> Any:
    """With NaN where one of two rows has one: torch's vectorised code takes the least of 1 and a NaN to be NaN."""
    lost = [np.any(np.isnan(constant(rows)), axis=-1) for rows in (x, y)]
    return np.where(lost[0] | lost[1], np.nan, distances)


def _distances_of_pairs(x: Any, p: float = 2.0) -> Any:
    first, second = np.triu_indices(np.shape(x)[0], 1)

    def straight(x: Any) -> Any:
        return vector_norm(x[first] - x[second], p, [-1])

    ways = [Algorithm(straight, "")]
    if p == 0:
        ways.append(Algorithm(lambda x: _hand_on_nans(straight(x), x[first], x[second]), ""))
    return among(ways, x)


def _weight_norm(v: Any, g: Any, dim: int = 0) -> tuple[Any, Any]:
    """v g/‖v‖, a length for every place along `dim`; and the lengths."""
    axes = tuple(i for i in range(np.ndim(v)) if i != dim % np.ndim(v))
    length = safe_root(np.sum(np.square(v), axis=axes, keepdims=True))
    return v * (g / length), length


enter({"native_batch_norm": as_functions}, DECOMPOSED)
enter(
    {
        "_native_batch_norm_legit_functional": _batch_norm,
        "native_layer_norm": _layer_norm,
        "native_group_norm": lambda *args: _Results(group_norm.native_group_norm, 3, *args),
        "_native_batch_norm_legit.no_stats": _batch_norm_without_statistics,
        "_native_batch_norm_legit_no_training": _batch_norm_in_evaluation,
        "var.correction": _var,
        "std.correction": lambda *args, **kwargs: safe_root(_var(*args, **kwargs)),
        "var_mean.correction": _var_mean,
        "std_mean.correction": _std_mean,
        "linalg_vector_norm": vector_norm,
        "_cdist_forward": _distances,
        "_pdist_forward": _distances_of_pairs,
        "_weight_norm_interface": _weight_norm,
    }
)
