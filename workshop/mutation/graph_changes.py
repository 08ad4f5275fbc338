"""What a change of one operation of a graph is: another operation, operand, axis, constant, term, format or mask."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Tensor = torch.Tensor
#: Operations of the same arguments that are easily taken for each other; those that end in _ write their first one.
_OTHERS = {
    "add.Tensor": "sub.Tensor", "sub.Tensor": "add.Tensor", "mul.Tensor": "div.Tensor", "div.Tensor": "mul.Tensor",
    "sum.dim_IntList": "mean.dim", "mean.dim": "sum.dim_IntList", "sum.default": "mean.default",
    "mean.default": "sum.default", "amax.default": "amin.default", "amin.default": "amax.default",
    "maximum.default": "minimum.default", "minimum.default": "maximum.default", "exp.default": "expm1.default",
    "expm1.default": "exp.default", "log.default": "log1p.default", "log1p.default": "log.default",
    "sqrt.default": "rsqrt.default", "rsqrt.default": "sqrt.default", "sigmoid.default": "tanh.default",
    "lt.Scalar": "le.Scalar", "le.Scalar": "lt.Scalar", "gt.Scalar": "ge.Scalar", "ge.Scalar": "gt.Scalar",
    "lt.Tensor": "le.Tensor", "le.Tensor": "lt.Tensor", "gt.Tensor": "ge.Tensor", "ge.Tensor": "gt.Tensor",
    "eq.Scalar": "ne.Scalar", "ne.Scalar": "eq.Scalar", "eq.Tensor": "ne.Tensor", "ne.Tensor": "eq.Tensor",
    "bitwise_and.Tensor": "bitwise_or.Tensor", "bitwise_or.Tensor": "bitwise_and.Tensor",
    "isnan.default": "isinf.default", "isinf.default": "isnan.default", "addcmul.default": "addcdiv.default",
    "_softmax.default": "_log_softmax.default", "_log_softmax.default": "_softmax.default",
    "zeros_like.default": "ones_like.default", "ones_like.default": "zeros_like.default",
    "new_zeros.default": "new_ones.default", "new_ones.default": "new_zeros.default",
    "zeros.default": "ones.default", "ones.default": "zeros.default", "add_.Tensor": "sub_.Tensor",
    "sub_.Tensor": "add_.Tensor", "mul_.Tensor": "div_.Tensor", "div_.Tensor": "mul_.Tensor",
    "addcmul_.default": "addcdiv_.default", "logical_and.default": "logical_or.default",
}  # fmt: skip
#: Operations of two operands, one of which may be dropped; and those whose operands have an order.
_TERMS = frozenset(("add", "sub", "mul", "div", "maximum", "minimum", "pow", "atan2", "rsub"))
_ORDERED = frozenset(("sub", "div", "pow", "atan2", "lt", "le", "gt", "ge"))
#: Operations of one operand, which may stand in place of their result.
_FUNCTIONS = frozenset((
    "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "neg", "abs", "sigmoid", "tanh", "reciprocal", "square",
))  # fmt: skip
#: Kernels of several steps, whose (first) result is changed as a whole; and how aten names most of them.
_KERNELS = frozenset(("trace", "var_mean", "var", "mm", "bmm", "addmm", "avg_pool3d", "gather"))
_NAMED_AS_KERNELS = re.compile(r"_norm|_forward$|_backward")
#: What computes, and rounds what it has computed, besides kernels.
_ROUNDING = _TERMS | _FUNCTIONS - {"neg", "abs"} | {"sum", "mean", "addcmul", "_softmax", "_log_softmax"}
#: Names of arguments that are numbers of a formula, and of those that are masks.
_NUMBERS = ("other", "alpha", "value", "exponent", "eps", "min", "max", "fill_value", "self")
_MASKS = {"where": "condition", "masked_fill": "mask"}
_NARROWER = {torch.float64: torch.float32, torch.float32: torch.bfloat16}


@dataclass(frozen=True)
class Call:
    """One call of an operation of torch, by the names of its arguments.

    Attributes:
        operation: as torch has it. arguments: the arguments that the call has; others have their defaults.
    """

    operation: Any
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        names = [argument.name for argument in operation._schema.arguments]
        return cls(operation, {**dict(zip(names, args, strict=False)), **kwargs})

    @property
    def name(self) -> str:
        """ "add" of aten.add.Tensor, and of aten.add_.Tensor too."""
        return str(self.operation._opname).rstrip("_")

    @property
    def is_kernel(self) -> bool:
        """Whether it takes several steps in one call."""
        return self.name in _KERNELS or bool(_NAMED_AS_KERNELS.search(self.name))

    @property
    def writes(self) -> bool:
        """Whether its first argument is what it computes."""
        return str(self.operation._opname).endswith("_")

    def result(self, /, operation: Any = None, **others: Any) -> Any:
        """The result of the operation; of another one, or with other arguments, where they are named."""
        callee, values = operation or self.operation, {**self.arguments, **others}
        arguments = callee._schema.arguments
        args = [values.pop(a.name) for a in arguments if not a.kwarg_only and a.name in values]
        return callee(*args, **{a.name: values[a.name] for a in arguments if a.kwarg_only and a.name in values})


#: (what kind of mistake it is, what is there instead, a function that gives the result).
GraphChange = tuple[str, str, Callable[[], Any]]


def changes_of(call: Call) -> Iterator[GraphChange]:
    """The changes of one call that its arguments allow."""
    out = call.arguments.get("out")
    # Who names a tensor to write into reads that one, and not what the call returns. It may be an operand, too.
    aside = call if out is None else Call(call.operation, {**call.arguments, "out": torch.empty_like(out)})
    for rule in (_another_operation, _operands, _terms, _axes, _constants, _formats, _masks):
        for kind, new, change in rule(aside):
            yield kind, new, change if out is None else functools.partial(_write, out, change)


def _write(out: Tensor, change: Callable[[], Any]) -> Tensor:
    return out.copy_(change())


def _another_operation(call: Call) -> Iterator[GraphChange]:
    other = _OTHERS.get(str(call.operation).removeprefix("aten."))
    if other is not None:
        packet, overload = other.split(".")
        operation = getattr(getattr(torch.ops.aten, packet), overload)
        yield "graph: operation", str(operation), lambda: call.result(operation)


def _operands(call: Call) -> Iterator[GraphChange]:
    first, second = call.arguments.get("self"), call.arguments.get("other", call.arguments.get("exponent"))
    named = "exponent" if "exponent" in call.arguments else "other"
    if call.name not in (*_ORDERED, "where") or call.writes or first is second:
        return
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        yield "graph: operand", "operands exchanged", lambda: call.result(**{"self": second, named: first})


def _terms(call: Call) -> Iterator[GraphChange]:
    first = call.arguments.get("self")
    if call.is_kernel and not call.writes:
        yield "graph: dropped term", "zeros", lambda: _first_changed(call.result(), torch.zeros_like)
    if not isinstance(first, Tensor):
        return
    if call.writes:
        if call.name in (*_TERMS, *_FUNCTIONS, "zero", "masked_fill", "addcmul", "clamp", "copy"):
            yield "graph: dropped term", "nothing is done", lambda: first
    elif call.name in (*_TERMS, *_FUNCTIONS):
        yield "graph: dropped term", "self", lambda: _like(call.result(), first)
        second = call.arguments.get("other")
        if call.name in _TERMS and isinstance(second, Tensor):
            yield "graph: dropped term", "other", lambda: _like(call.result(), second)


def _axes(call: Call) -> Iterator[GraphChange]:
    dim, operand = call.arguments.get("dim"), call.arguments.get("self")
    if not isinstance(operand, Tensor) or operand.dim() < 2:
        return
    if isinstance(dim, list) and dim and len(dim) < operand.dim():
        yield "graph: axis", "dim + 1", lambda: call.result(dim=[(d + 1) % operand.dim() for d in dim])
    elif isinstance(dim, int) and not isinstance(dim, bool) and call.name != "unsqueeze":
        yield "graph: axis", "dim + 1", lambda: call.result(dim=(dim + 1) % operand.dim())


def _constants(call: Call) -> Iterator[GraphChange]:
    for name in _NUMBERS:
        value = call.arguments.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield "graph: constant", f"2 {name}", functools.partial(call.result, **{name: 2 * value or 1})


def _formats(call: Call) -> Iterator[GraphChange]:
    operand = next((value for value in call.arguments.values() if isinstance(value, Tensor)), None)
    narrow = None if operand is None else _NARROWER.get(operand.dtype)
    if narrow is None or not (call.is_kernel or call.name in _ROUNDING):
        return

    def rounded() -> Any:
        out = call.result()
        if call.writes:
            return out.copy_(out.to(narrow))
        return _first_changed(out, lambda value: value.to(narrow) if value.is_floating_point() else value)

    yield "graph: dtype", "rounded to half as many bits", rounded


def _masks(call: Call) -> Iterator[GraphChange]:
    name = _MASKS.get(call.name, "")
    mask = call.arguments.get(name)
    if isinstance(mask, Tensor) and mask.dtype is torch.bool:
        yield "graph: mask", "mask negated", lambda: call.result(**{name: mask.logical_not()})
        yield "graph: mask", "mask of nothing", lambda: call.result(**{name: torch.zeros_like(mask)})


def _first_changed(out: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A result, or several of which the first one counts, with other values in it."""
    if isinstance(out, Tensor):
        return _like(out, change(out))
    first, *rest = out
    return (_like(first, change(first)), *rest)


def _like(out: Tensor, values: Tensor) -> Tensor:
    """Values in a new tensor of the shape, dtype and strides of a result."""
    return torch.empty_like(out).copy_(values)
