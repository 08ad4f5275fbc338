"""Derivatives of an op by an expression: torch ops that are equal to what the kernel computes.

The value is the kernel's, to the bit; its derivatives, of every order and in both modes, are those that torch finds for
the expression. So whoever writes an op states a derivative once. What is hard here is accuracy: torch differentiates
the expression term by term, and where its terms nearly cancel (1 - sigmoid, say) the derivatives lose digits that a
closed form keeps. Such an op has `rules.Rules` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from . import torch_private as private
from .batching import each_in_front
from .operator import Derivatives, Kernels, Operator, Shortcut
from .records import Grads, Record
from .rules import Rules


@dataclass(frozen=True, slots=True)
class Expression(Derivatives):
    """An op's outputs as torch ops.

    Attributes:
        slopes: the op's arguments in, an expression for each output out: of a shape that broadcasts to the output's, in
            the dtype that is accurate; None where the output is None or carries no derivative.
    """

    slopes: Callable[[Record], Tensor | Sequence[Tensor | None]]

    def around(self, op: Shortcut[*tuple[Any, ...], Any], values: Callable[..., Any], level: str) -> Callable[..., Any]:
        """The kernel's values with the derivatives of the expression attached."""
        if level == "plain":
            return self._around_kernel(op, values)
        slopes: Callable[[Record], Any] = self.slopes
        arguments, tensors = op.arguments, op.tensors

        def differentiated(*args: Any) -> Any:
            outputs = values(*args)
            if not _differentiable([args[i] for i in tensors]):
                return outputs
            return _attach_each(outputs, slopes(arguments(args)))

        return differentiated

    def _around_kernel(self, op: Shortcut[*tuple[Any, ...], Any], kernel: Callable[..., Any]) -> Callable[..., Any]:
        """The same for plain tensors: one node of the graph for all outputs, and no copies."""
        slopes: Callable[[Record], Any] = self.slopes
        arguments, tensors = op.arguments, op.tensors
        apply: Any = super(Function, _Attached).apply  # without a search for functorch levels: there are none

        def differentiated(*args: Any) -> Any:
            with private.below_autograd():
                outputs = kernel(*args)
            # `_Attached` has only a backward rule. Where an argument may have a tangent, `attach` carries it on.
            if forward_ad._current_level >= 0:
                if not _differentiable([args[i] for i in tensors]):
                    return outputs
                return _attach_each(outputs, slopes(arguments(args)))
            expressions = slopes(arguments(args))
            if isinstance(outputs, Tensor):
                return apply((outputs,), expressions)[0]
            # A missing output has no expression either, so missing outputs are left out of the graph and put back
            # afterwards.
            present = [i for i, value in enumerate(outputs) if value is not None]
            carried = apply([outputs[i] for i in present], *[expressions[i] for i in present])
            result = list(outputs)
            for i, value in zip(present, carried, strict=True):
                result[i] = value
            return tuple(result)

        return differentiated


def _differentiable(tensors: Sequence[Tensor | None]) -> bool:
    """Whether any of the tensors carries a derivative at this level.

    Within a rule of forward mode no tensor carries one at the level of the rule. To evaluate the expression there would
    be in vain, and take several times as long as the kernel.
    """
    present = [t for t in tensors if t is not None]
    if torch.is_grad_enabled() and any(t.requires_grad for t in present):
        return True
    if not private.is_forward_ad_enabled():
        return False
    # A compiled graph opens dual levels of which `forward_ad` does not know. The level of all duals is 0.
    return any(forward_ad.unpack_dual(t, level=0).tangent is not None for t in present)


class _SlopeType(NamedTuple):
    dtype: torch.dtype


def _copy(value: Tensor, slope: Tensor) -> Tensor:
    return value.clone()


def _empty(args: Record) -> Tensor:
    return torch.empty_like(args.value)


def _slope_type(args: Record, outputs: Record, needs: Record) -> _SlopeType:
    return _SlopeType(args.slope.dtype)


def _to_slope(saved: _SlopeType, needs: Record, cotangents: Record) -> Grads:
    return {"slope": cotangents.out.to(saved.dtype)}


def _from_slope(args: Record, tangents: Record) -> Tensor:
    return torch.zeros_like(args.value) if tangents.slope is None else tangents.slope.to(args.value.dtype)


#: (value, slope of the same shape) -> `value`, a copy of it, whose tangents and cotangents are those of `slope`. So the
#: result of a kernel becomes differentiable by way of an expression that is equal to it, and keeps its bits.
attach = Operator(
    "attach(Tensor value, Tensor slope) -> Tensor",
    Kernels(_copy, _copy, _empty),
    each_in_front,
    Rules(_SlopeType, _slope_type, _to_slope, _from_slope),
)


class _Attached(Function):
    """`attach` for several fresh tensors at once, which become the outputs without a copy; for reverse mode."""

    @staticmethod
    def forward(ctx: Any, values: Sequence[Tensor], *slopes: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.dtypes = [slope.dtype for slope in slopes]
        return tuple(values)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        pairs = zip(cotangents, ctx.dtypes, strict=True)
        return None, *[None if cotangent is None else cotangent.to(dtype) for cotangent, dtype in pairs]


def _attach_each(outputs: Any, slopes: Any) -> Any:
    return attached(outputs, slopes) if isinstance(outputs, Tensor) else tuple(map(attached, outputs, slopes))


@overload
def attached(value: Tensor, slope: Tensor | None) -> Tensor: ...
@overload
def attached(value: Tensor | None, slope: Tensor | None) -> Tensor | None: ...
def attached(value: Tensor | None, slope: Tensor | None) -> Tensor | None:
    """The value with the derivatives of the slope, which has its shape; as it is, where either is missing."""
    return value if value is None or slope is None else attach(value, slope)


def values_of(overload: torch._ops.OpOverload, *args: object) -> Any:
    """The outputs of one of torch's ops, without tangents and graph of this level; those of outer levels stay."""
    with torch.enable_grad(), private.forward_ad_enabled(True), private.below_autograd():
        return overload(*args)
