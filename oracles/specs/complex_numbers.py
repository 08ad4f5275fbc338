"""Complex numbers on the way of a spec, traced as pairs of real ones: their real and their imaginary parts.

What a spec takes and gives is real. The operations on complex numbers between are traced once more, as those on their
parts that the formulas of school have: each part of a product is a sum of two products, a magnitude is `hypot`. So the
error of each part is bounded by itself, as a part of every kernel is that computes with parts.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from . import fourier
from .associations import OPERATIONS
from .calls import UntraceableError
from .complex_products import (
    Parts,
    WholeParts,
    add_by,
    add_product,
    conjugate,
    factor_by_cholesky,
    invert,
    multiply,
    multiply_matrices,
    multiply_matrix,
    multiply_vectors,
    parts_of,
    solve,
)
from .lines import autocast_at, line_of
from .rules.table import MOVES, overloads

_aten = torch.ops.aten
#: The largest power that is read as products, too.
_MOST_FACTORS = 16


def _divide(a: Any, b: Any) -> Parts:
    if not isinstance(b, (Parts, complex)):
        return parts_of(a).each(lambda part: part / b)
    return _of_both(torch.ops.opassay_specs.divide_parts, a, b)


def _of_both(operation: Any, a: Any, b: Any) -> Parts:
    """An operation of ours on the parts of two numbers (`rules/parts.py`)."""
    a, b = parts_of(a), parts_of(b)
    return _join_parts(operation(*_alike(a.real, a.imaginary, b.real, b.imaginary)))


def _alike(*parts: Any) -> list[torch.Tensor]:
    """Parts as tensors of one shape and dtype."""
    dtype = next(part.dtype for part in parts if isinstance(part, torch.Tensor) and part.is_floating_point())
    return list(torch.broadcast_tensors(*(torch.as_tensor(part, dtype=dtype) for part in parts)))


def _analytic(name: str) -> Callable[[Parts], Parts]:
    """A function of which `rules/analytic.py` has the ways."""
    operation = getattr(torch.ops.opassay_specs, f"{name}_parts")
    return lambda x: _join_parts(operation(x.real, x.imaginary))


def _by_turn(name: str) -> Callable[[Parts], Parts]:
    """−i f(i z), which is the tangent of the hyperbolic one, and the like."""

    def rule(x: Parts) -> Parts:
        result = _analytic(name)(Parts(-x.imaginary, x.real))
        return Parts(result.imaginary, -result.real)

    return rule


def _cast(x: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Parts:
    return parts_of(x).each(lambda part: part if dtype is None else part.to(dtype.to_real()))


def _power(x: Any, exponent: Any) -> Parts:
    """A constant power. Squares and cubes are products, and those of halves roots, as torch has them."""
    exponents: dict[Any, Callable[[Parts], Parts]] = {
        0: lambda x: Parts(torch.ones_like(x.real), torch.zeros_like(x.real)),
        1: lambda x: x,
        2: lambda x: multiply(x, x),
        3: lambda x: multiply(multiply(x, x), x),
        0.5: _root,
        -0.5: _analytic("rsqrt"),
        -1: lambda x: _divide(1.0, x),
    }
    if exponent in exponents:
        return exponents[exponent](parts_of(x))
    if isinstance(exponent, complex) or exponent != int(exponent) or abs(exponent) > _MOST_FACTORS:
        return _of_both(torch.ops.opassay_specs.power_parts, x, exponent)
    return _join_parts(torch.ops.opassay_specs.whole_power_parts(x.real, x.imaginary, int(exponent)))


def _length(x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    """The norm of vectors. For the order 2 the parts are numbers like others; sums and extremes are those of sizes."""
    if order not in (1, 2, math.inf, -math.inf):
        raise UntraceableError(f"takes a norm of the order {order} of complex numbers, which has no rule")
    if order != 2:
        return torch.linalg.vector_norm(torch.hypot(x.real, x.imaginary), order, dim, keepdim)
    count = x.real.ndim
    axes = (
        list(range(count)) if dim in (None, []) else [each % count for each in ([dim] if isinstance(dim, int) else dim)]
    )
    length = torch.linalg.vector_norm(torch.stack([x.real, x.imaginary], -1), 2, [*axes, count], keepdim)
    return length[..., 0] if keepdim else length


def _product(x: Parts, dim: int, keepdim: bool = False, **kwargs: Any) -> Parts:
    product = torch.ops.opassay_specs.prod_parts(x.real.movedim(dim, 0), x.imaginary.movedim(dim, 0))
    return _join_parts(product.unsqueeze(dim if dim >= 0 else dim - 1) if keepdim else product)


def _running_products(x: Parts, dim: int, **kwargs: Any) -> Parts:
    products = torch.ops.opassay_specs.cumprod_parts(x.real.movedim(dim, 0), x.imaginary.movedim(dim, 0))
    return _join_parts(products.movedim(0, dim if dim >= 0 else dim - 1))


def _variance(x: Any, dim: Any = None, **kwargs: Any) -> torch.Tensor:
    return torch.var(x.real, dim, **kwargs) + torch.var(x.imaginary, dim, **kwargs)


def _deviation(x: Any, dim: Any = None, **kwargs: Any) -> torch.Tensor:
    return torch.sqrt(_variance(x, dim, **kwargs))


def _with_mean(spread: torch.Tensor, x: Any, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    dims = list(range(x.real.ndim)) if dim in (None, []) else dim
    return spread, x.each(lambda part: part.mean(dims, keepdim))


def _exponential(x: Parts) -> Parts:
    size = torch.exp(x.real)
    return Parts(size * torch.cos(x.imaginary), size * torch.sin(x.imaginary))


def _logarithm(x: Parts) -> Parts:
    return Parts(torch.log(torch.hypot(x.real, x.imaginary)), torch.atan2(x.imaginary, x.real))


def _logarithm_to(base: float) -> Callable[[Parts], Parts]:
    """A quotient of natural logarithms, that of the base being computed."""

    return lambda x: _divide(_logarithm(x), torch.log(torch.full_like(x.real, base)))


def _root(x: Parts) -> Parts:
    """The larger part by a root, and the other one by a quotient."""
    larger = torch.sqrt((torch.hypot(x.real, x.imaginary) + x.real.abs()) * 0.5)
    smaller = x.imaginary / (2 * torch.where(larger == 0, 1.0, larger))
    right = x.real >= 0
    signs = torch.copysign(torch.ones_like(x.imaginary), x.imaginary)
    return Parts(torch.where(right, larger, smaller * signs), torch.where(right, smaller, larger * signs))


def _of_angles(first: Any, second: Any, third: Any, fourth: Any, sign: int = 1) -> Callable[[Parts], Parts]:
    """A function whose parts are products of functions of both parts, as the sine of a sum has them."""

    def rule(x: Parts) -> Parts:
        a, b = x.real, x.imaginary
        return Parts(first(a) * second(b), sign * third(a) * fourth(b))

    return rule


def _sign(x: Parts) -> Parts:
    size = torch.hypot(x.real, x.imaginary)
    size = torch.where(size == 0, 1.0, size)
    return _divide(x, size)


def _fill(operation: Any, value: complex | None) -> Callable[..., Parts]:
    """A tensor of one number, which is the last argument if it is not given here."""

    def rule(*args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Parts:
        kind = None if dtype is None else dtype.to_real()
        places, number = (args, value) if value is not None else (args[:-1], complex(args[-1]))
        places = tuple(each.real if isinstance(each, Parts) else each for each in places)
        return Parts(*(operation(*places, part, dtype=kind, **kwargs) for part in (number.real, number.imag)))

    return rule


def _of_either(operation: Any) -> Callable[..., Any]:
    """An operation that does the same with either part."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        named, whole = dict(kwargs), pytree.tree_map(_of_tensors, args)
        real, imaginary = (operation(*pytree.tree_map(lambda x, p=part: _part(x, p), whole), **named)
                           for part in ("real", "imaginary"))  # fmt: skip
        several = isinstance(real, (list, tuple))
        return [Parts(*each) for each in zip(real, imaginary, strict=True)] if several else Parts(real, imaginary)

    return rule


def _of_tensors(value: Any) -> Any:
    """What stands for a complex number beside others; a real number has an imaginary part of zero."""
    is_number = isinstance(value, complex) or (isinstance(value, torch.Tensor) and value.is_floating_point())
    return parts_of(value) if is_number else value


def _part(value: Any, name: str) -> Any:
    return getattr(value, name) if isinstance(value, Parts) else value


def _pad(x: Parts, pad: Any, value: Any = 0) -> Parts:
    value = complex(value)
    return Parts(_aten.constant_pad_nd(x.real, pad, value.real), _aten.constant_pad_nd(x.imaginary, pad, value.imag))


def _in_place(operation: Any) -> Callable[..., Parts]:
    """An in-place operation, such as `transpose_`, that turns its operand into a view of itself."""

    def rule(x: Parts, *how: Any) -> Parts:
        x.real, x.imaginary = operation(x.real, *how), operation(x.imaginary, *how)
        return x

    return rule


def _join_parts(pairs: torch.Tensor) -> Parts:
    """The parts of complex numbers that lie along the last axis, (*, 2)."""
    return Parts(pairs[..., 0], pairs[..., 1])


def _to_real(x: Any, dim: Any, power: int, length: int) -> torch.Tensor:
    x = parts_of(x)
    return fourier.to_real(x.real, x.imaginary, dim, power, length)


#: Functions of which `rules/analytic.py` has the ways.
_ANALYTIC = ("tanh", "sigmoid", "expm1", "log1p", "rsqrt", "asin", "acos", "acosh", "atanh")
#: Operations on real numbers with complex results.
_BEGINNING = overloads("complex polar view_as_complex _fft_r2c")
_EITHER = [
    *sorted(MOVES, key=str),
    *OPERATIONS,
    *overloads(
        "cat stack where.self sum sum.dim_IntList mean mean.dim neg cumsum scatter_add index_add index_put"
        " _unsafe_index_put"
    ),
]
#: What autocast casts where the numbers are real; a product of vectors as a case of `matmul`.
_MATRIX_PRODUCTS = frozenset(overloads("mm bmm addmm baddbmm mv addmv dot vdot"))
_RULES: dict[Any, Callable[..., Any]] = {
    **{operation: _of_either(operation) for operation in _EITHER},
    **dict.fromkeys(overloads("mul.Tensor mul.Scalar"), multiply),
    **dict.fromkeys(overloads("div.Tensor div.Scalar"), _divide),
    **dict.fromkeys(overloads("mm bmm"), multiply_matrices),
    **dict.fromkeys(overloads("addmm baddbmm"), add_product(multiply_matrices)),
    _aten.mv.default: multiply_matrix,
    _aten.addmv.default: add_product(multiply_matrix),
    _aten.dot.default: multiply_vectors,
    _aten.vdot.default: lambda a, b: multiply_vectors(conjugate(a), b),
    _aten.addcmul.default: add_product(multiply),
    _aten.addcdiv.default: add_product(_divide),
    _aten.reciprocal.default: lambda x: _divide(1.0, x),
    _aten.pow.Tensor_Scalar: _power,
    **dict.fromkeys(
        overloads("pow.Tensor_Tensor pow.Scalar"), lambda a, b: _of_both(torch.ops.opassay_specs.power_parts, a, b)
    ),
    _aten.linalg_vector_norm.default: _length,
    _aten.var.correction: _variance,
    _aten.std.correction: _deviation,
    **{getattr(_aten, name).default: _analytic(name) for name in _ANALYTIC},
    **{
        getattr(_aten, name).default: _by_turn(of)
        for name, of in (("tan", "tanh"), ("atan", "atanh"), ("asinh", "asin"))
    },
    _aten.log2.default: _logarithm_to(2.0),
    _aten.log10.default: _logarithm_to(10.0),
    _aten.var_mean.correction: lambda x, *how, **kwargs: _with_mean(_variance(x, *how, **kwargs), x, *how, **kwargs),
    _aten.std_mean.correction: lambda x, *how, **kwargs: _with_mean(_deviation(x, *how, **kwargs), x, *how, **kwargs),
    _aten.prod.dim_int: lambda x, *how, **kwargs: _product(x, *how, **kwargs) if x.real.ndim else x,
    _aten.prod.default: lambda x, **kwargs: _product(x.each(torch.flatten), 0),
    _aten.cumprod.default: lambda x, *how, **kwargs: _running_products(x, *how) if x.real.ndim else x,
    _aten.rsub.Scalar: lambda x, other, alpha=1: add_by(torch.rsub)(x, other, alpha),
    _aten.copy.default: lambda to, x, *how: (
        _of_either(_aten.copy.default)(to, x) if isinstance(to, Parts) else _aten.copy(to, parts_of(x).real)
    ),
    _aten.eq.Tensor: lambda a, b: (
        (parts_of(a).real == parts_of(b).real) & (parts_of(a).imaginary == parts_of(b).imaginary)
    ),
    _aten.ne.Tensor: lambda a, b: (
        (parts_of(a).real != parts_of(b).real) | (parts_of(a).imaginary != parts_of(b).imaginary)
    ),
    operator.getitem: operator.getitem,
    _aten.add.Tensor: add_by(torch.add),
    _aten.sub.Tensor: add_by(torch.sub),
    _aten._to_copy.default: _cast,
    _aten.complex.default: lambda real, imaginary: Parts(*torch.broadcast_tensors(real, imaginary)),
    _aten.polar.default: lambda size, angle: Parts(size * torch.cos(angle), size * torch.sin(angle)),
    _aten.view_as_complex.default: _join_parts,
    _aten.view_as_real.default: lambda x: (
        x.pairs if isinstance(x, WholeParts) else torch.stack([x.real, x.imaginary], -1)
    ),
    _aten.linalg_cholesky_ex.default: factor_by_cholesky,
    _aten.linalg_inv_ex.default: invert,
    _aten._linalg_solve_ex.default: solve,
    _aten.real.default: lambda x: x.real,
    _aten.imag.default: lambda x: x.imaginary,
    **dict.fromkeys(overloads("_conj conj_physical _conj_physical"), conjugate),
    **dict.fromkeys(overloads("resolve_conj resolve_neg"), lambda x: x),
    _aten._neg_view.default: lambda x: x.each(operator.neg),
    _aten.abs.default: lambda x: torch.hypot(x.real, x.imaginary),
    _aten.angle.default: lambda x: torch.atan2(x.imaginary, x.real),
    _aten.sgn.default: _sign,
    _aten.exp.default: _exponential,
    _aten.log.default: _logarithm,
    _aten.sqrt.default: _root,
    _aten.sin.default: _of_angles(torch.sin, torch.cosh, torch.cos, torch.sinh),
    _aten.cos.default: _of_angles(torch.cos, torch.cosh, torch.sin, torch.sinh, sign=-1),
    _aten.sinh.default: _of_angles(torch.sinh, torch.cos, torch.cosh, torch.sin),
    _aten.cosh.default: _of_angles(torch.cosh, torch.cos, torch.sinh, torch.sin),
    **{fill: _fill(fill, None) for fill in overloads("full full_like new_full scalar_tensor")},
    **{
        filling: _fill(fill, number)
        for names, number in (("zeros zeros_like new_zeros", 0j), ("ones ones_like new_ones", 1 + 0j))
        for filling, fill in zip(overloads(names), overloads("full full_like new_full"), strict=True)
    },
    _aten.constant_pad_nd.default: _pad,
    **{
        writing: _in_place(operation)
        for writing, operation in zip(
            overloads("transpose_ squeeze_.dim squeeze_ unsqueeze_"),
            overloads("transpose.int squeeze.dim squeeze unsqueeze"),
            strict=True,
        )
    },
    _aten._fft_r2c.default: lambda x, *how: _join_parts(fourier.of_real(x, *how)),
    _aten._fft_c2c.default: lambda x, *how: _join_parts(
        fourier.of_complex(parts_of(x).real, parts_of(x).imaginary, *how)
    ),
    _aten._fft_c2r.default: _to_real,
}


class RealInterpreter(torch.fx.Interpreter):
    """Runs a graph with complex numbers as pairs of real ones."""

    def run_node(self, n: torch.fx.Node) -> Any:
        try:
            with contextlib.ExitStack() as modes:
                for kind, dtype in autocast_at(n) if n.target in _MATRIX_PRODUCTS else ():
                    modes.enter_context(torch.autocast(kind, dtype))
                return super().run_node(n)
        except UntraceableError as err:
            hint = "write its real and its imaginary part as two tensors"
            raise UntraceableError(f"it {err}{line_of(n)}; {hint}") from err

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return Parts(value.real.clone(), value.imag.clone()) if value.is_complex() else value

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The rule of an operation on or to complex numbers; the operation itself on real ones.

        Raises:
            UntraceableError: the operation has no rule.
        """
        dtype = kwargs.get("dtype")
        to_complex = (isinstance(dtype, torch.dtype) and dtype.is_complex) or target in _BEGINNING
        if not to_complex and not any(isinstance(x, (Parts, complex)) for x in pytree.tree_leaves((args, kwargs))):
            return super().call_function(target, args, kwargs)
        if target not in _RULES:
            raise UntraceableError(f"uses {target} of complex numbers, which has no rule")
        return _RULES[target](*args, **kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        result = super().output(target, args, kwargs)
        if any(isinstance(leaf, Parts) for leaf in pytree.tree_leaves(result)):
            raise UntraceableError("gives a complex tensor; give `torch.view_as_real` of it")
        return result
