"""The formula of a forward that is made of known primitives: its aten operations, read as NumPy.

torch traces `forward` on tensors without data, for the shapes it is called with; each operation of the graph that has a
rule here is evaluated on arrays of any reading. So the truth about a custom function is what its forward says, and its
backward, jvp and vmap rules are judged against that.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ...reference.array import Array, amax, constant, sigmoid
from ...reference.softmax import log_softmax, softmax

Rule = Callable[..., Any]
aten = torch.ops.aten


class UntraceableError(Exception):
    """A forward with an operation that has no rule here, or that cannot be traced; the text says which."""


def formula_of(forward: Callable[..., Any]) -> Callable[..., Any]:
    """`forward` as a formula of NumPy arrays; tensors among its arguments come as arrays.

    Raises (when called):
        UntraceableError: an operation of the forward has no rule.
    """
    graphs: dict[Any, torch.fx.GraphModule] = {}

    def formula(*args: Any) -> Any:
        shapes = [(np.shape(a), _dtype(a)) if _is_array(a) else a for a in args]
        # The numbers and the branches that Python took are frozen into a graph, so it holds for these shapes, dtypes
        # and other arguments alone.
        key = repr(shapes)
        if key not in graphs:
            graphs[key] = _graph(forward, args)
        return _Reader(graphs[key]).run(*(a for a in args if _is_array(a)))

    return formula


def _is_array(value: Any) -> bool:
    return isinstance(value, (Array, np.ndarray))


def _dtype(value: Any) -> torch.dtype:
    if isinstance(value, Array) or value.dtype.kind == "f":
        return torch.float64
    return torch.bool if value.dtype.kind == "b" else torch.int64


def _graph(forward: Callable[..., Any], args: Sequence[Any]) -> torch.fx.GraphModule:
    """The graph of the flat outputs, as a function of the tensors among the arguments."""
    positions = [i for i, a in enumerate(args) if _is_array(a)]

    def flat(*tensors: Any) -> Any:
        given = list(args)
        for i, tensor in zip(positions, tensors, strict=True):
            given[i] = tensor
        leaves = torch.utils._pytree.tree_leaves(forward(*given))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    examples = [torch.ones(np.shape(args[i]), dtype=_dtype(args[i])) for i in positions]
    try:
        with torch.no_grad():
            # A forward may write into tensors; that is traced as operations with results of their own, because arrays
            # are never written here.
            return make_fx(torch.func.functionalize(flat), tracing_mode="fake")(*examples)
    except Exception as err:
        raise UntraceableError(f"forward cannot be traced: {type(err).__name__}: {err}") from err


class _Reader(torch.fx.Interpreter):
    """Evaluates a graph by the rules; integers and truth values are no outputs that are judged."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is operator.getitem:
            return args[0][args[1]]
        rule = RULES.get(target)
        if rule is None:
            raise UntraceableError(f"forward uses {target}, which has no rule; give a reference")
        return rule(*args, **kwargs)

    def output(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        floating = [_is_array(v) and (isinstance(v, Array) or v.dtype.kind == "f") for v in args[0]]
        return tuple(value if ok else None for value, ok in zip(args[0], floating, strict=True))


# ------------------------------------------------------------------------------------------------------- the rules


def _unchanged(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


def _axes(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, (list, tuple)) and dim else dim if isinstance(dim, int) else None


def _over_dims(f: Rule) -> Rule:
    return lambda x, dim=None, keepdim=False, dtype=None: f(x, axis=_axes(dim), keepdims=keepdim)


def _with_alpha(f: Rule) -> Rule:
    return lambda a, b, alpha=1: f(a, b if alpha == 1 else b * alpha)


def _expand(x: Any, shape: Sequence[int], **kwargs: Any) -> Any:
    padded = (1,) * (len(shape) - np.ndim(x)) + np.shape(x)
    wanted = tuple(n if m == -1 else m for n, m in zip(padded, shape, strict=True))
    return np.broadcast_to(np.reshape(x, padded), wanted)


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return x[(slice(None),) * (dim % np.ndim(x)) + (slice(start, end, step),)]


def _select(x: Any, dim: int, index: int) -> Any:
    return x[(slice(None),) * (dim % np.ndim(x)) + (index,)]


def _squeeze(x: Any, dim: Any = None) -> Any:
    dims = range(np.ndim(x)) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = tuple(d for d in dims if np.shape(x)[d] == 1)
    return np.squeeze(x, axis=axes) if axes else x


def _power(x: Any, exponent: Any) -> Any:
    return np.square(x) if exponent == 2 else np.power(x, exponent)


# Of a forward in torch's words the slope at a kink is the one that torch takes there, and no other.


def _relu(x: Any) -> Any:
    return np.where(x <= 0, 0.0, x)


def _absolute(x: Any) -> Any:
    return np.where(x == 0, 0.0, np.absolute(x))


def _clamp(x: Any, least: Any = None, most: Any = None) -> Any:
    x = x if least is None else np.where(x < least, least, x)
    return x if most is None else np.where(x > most, most, x)


def _between(x: Any, least: float = -1.0, most: float = 1.0) -> Any:
    """hardtanh: as a clamp, but with slope 0 at the ends."""
    return np.where(x <= least, least, np.where(x >= most, most, x))


def _shared(extreme: np.ufunc) -> Rule:
    """A maximum or minimum of two whose slope is shared by operands that are equal."""
    return lambda a, b: np.where(a == b, 0.5 * a + 0.5 * b, extreme(a, b))


def _amax(x: Any, dim: Any = (), keepdim: bool = False) -> Any:
    return amax(x, _axes(dim), keepdim)


def _softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    scaled = x if beta == 1 else x * beta
    decay = np.exp(np.where(scaled < 0, scaled, -scaled))
    smooth = np.where(scaled < 0, 0.0, scaled) + np.log1p(decay)
    return np.where(scaled > threshold, x, smooth if beta == 1 else smooth / beta)


def _elu(x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    # For positive x the exponential is not used, and may overflow.
    below = np.expm1(np.where(x <= 0, x * input_scale, 0.0)) * (alpha * scale)
    return np.where(x <= 0, below, x * scale)


def _logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    axes = _axes(dim)
    largest = constant(np.max(x, axis=axes, keepdims=True))
    total = np.log(np.sum(np.exp(x - largest), axis=axes, keepdims=True)) + largest
    return total if keepdim else np.squeeze(total, axis=axes)


def _softmax_along(formula: Rule) -> Rule:
    return lambda x, dim, half_to_float=False: formula(x, dim)


def _filled_with(value: float) -> Rule:
    return lambda shape, **kwargs: np.full(tuple(shape), value)


# A formula is about real numbers. So operations that change only the dtype, the memory or the graph leave a value as
# it is, and the rounding that comes with a dtype is the business of the contract.
RULES: dict[Any, Rule] = {
    **dict.fromkeys(
        (
            aten.clone.default, aten.detach.default, aten.alias.default, aten._to_copy.default, aten.lift_fresh.default,
            aten.contiguous.default, aten.positive.default,
        ),
        _unchanged,
    ),
    **dict.fromkeys((aten.add.Tensor, aten.add.Scalar), _with_alpha(np.add)),
    **dict.fromkeys((aten.sub.Tensor, aten.sub.Scalar), _with_alpha(np.subtract)),
    **dict.fromkeys((aten.rsub.Scalar, aten.rsub.Tensor), _with_alpha(lambda a, b: b - a)),
    **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar), np.multiply),
    **dict.fromkeys((aten.div.Tensor, aten.div.Scalar), np.divide),
    **dict.fromkeys((aten.gt.Scalar, aten.gt.Tensor), np.greater),
    **dict.fromkeys((aten.ge.Scalar, aten.ge.Tensor), np.greater_equal),
    **dict.fromkeys((aten.lt.Scalar, aten.lt.Tensor), np.less),
    **dict.fromkeys((aten.le.Scalar, aten.le.Tensor), np.less_equal),
    **dict.fromkeys((aten.eq.Scalar, aten.eq.Tensor), np.equal),
    **dict.fromkeys((aten.ne.Scalar, aten.ne.Tensor), np.not_equal),
    **dict.fromkeys((aten.logical_not.default, aten.bitwise_not.default), np.logical_not),
    **dict.fromkeys((aten.logical_and.default, aten.bitwise_and.Tensor), np.logical_and),
    **dict.fromkeys((aten.sum.default, aten.sum.dim_IntList), _over_dims(np.sum)),
    **dict.fromkeys((aten.mean.default, aten.mean.dim), _over_dims(np.mean)),
    **dict.fromkeys(
        (aten.view.default, aten.reshape.default, aten._unsafe_view.default),
        lambda x, shape: np.reshape(x, tuple(shape)),
    ),
    **dict.fromkeys((aten.expand.default, aten.expand_copy.default), _expand),
    **dict.fromkeys((aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims), _squeeze),
    **dict.fromkeys((aten.mm.default, aten.mv.default, aten.dot.default), np.matmul),
    **dict.fromkeys((aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf), np.where),
    **dict.fromkeys((aten.ones_like.default,), lambda x, **kwargs: np.ones(np.shape(x))),
    **dict.fromkeys((aten.zeros_like.default,), lambda x, **kwargs: np.zeros(np.shape(x))),
    aten.full_like.default: lambda x, value, **kwargs: np.full(np.shape(x), float(value)),
    aten.full.default: lambda shape, value, **kwargs: np.full(tuple(shape), float(value)),
    aten.ones.default: _filled_with(1.0),
    aten.zeros.default: _filled_with(0.0),
    aten.scalar_tensor.default: lambda value, **kwargs: np.float64(value),
    aten.neg.default: np.negative,
    aten.abs.default: _absolute,
    aten.exp.default: np.exp,
    aten.expm1.default: np.expm1,
    aten.log.default: np.log,
    aten.log1p.default: np.log1p,
    aten.sqrt.default: np.sqrt,
    aten.rsqrt.default: lambda x: 1.0 / np.sqrt(x),
    aten.reciprocal.default: lambda x: 1.0 / x,
    aten.tanh.default: np.tanh,
    aten.sigmoid.default: sigmoid,
    aten.silu.default: lambda x: x * sigmoid(x),
    aten.square.default: np.square,
    aten.pow.Tensor_Scalar: _power,
    aten.relu.default: _relu,
    aten.leaky_relu.default: lambda x, slope=0.01: np.where(x > 0, x, x * slope),
    aten.hardtanh.default: _between,
    aten.elu.default: _elu,
    aten.softplus.default: _softplus,
    aten.clamp.default: _clamp,
    aten.clamp_min.default: _clamp,
    aten.clamp_max.default: lambda x, most: _clamp(x, None, most),
    aten.maximum.default: _shared(np.maximum),
    aten.minimum.default: _shared(np.minimum),
    aten.amax.default: _amax,
    aten.max.default: _amax,
    aten.amin.default: lambda x, dim=(), keepdim=False: -_amax(-x, dim, keepdim),
    aten.logsumexp.default: _logsumexp,
    aten._softmax.default: _softmax_along(softmax),
    aten._log_softmax.default: _softmax_along(log_softmax),
    aten.permute.default: lambda x, dims: np.transpose(x, tuple(dims)),
    aten.transpose.int: np.swapaxes,
    aten.t.default: np.transpose,
    aten.unsqueeze.default: lambda x, dim: np.expand_dims(x, dim),
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.cat.default: lambda tensors, dim=0: np.concatenate(tensors, axis=dim),
    aten.stack.default: lambda tensors, dim=0: np.stack(tensors, axis=dim),
    aten.addmm.default: lambda c, a, b: np.matmul(a, b) + c,
}  # fmt: skip
