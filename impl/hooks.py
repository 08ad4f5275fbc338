"""The identity through which module hooks see gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .operator import torch_private as private

_forward_ad = torch.autograd.forward_ad


def backward_hook_identity(*args: Any) -> tuple[Any, ...]:
    """The arguments, as tensors of their own: what is done to the gradients of these is done to no other use.

    In reverse mode one node stands for all arguments together: its inputs are the gradients of all outputs, so a hook
    on it sees them at once. That is what `torch.nn.Module.register_full_backward_hook` needs. Torch's own function of
    this purpose, `torch.nn.modules._functions.BackwardHookFunction`, refuses forward mode and every `torch.func`
    transform; this one is the identity there, too. Under a transform or a compiler each argument has a node of its
    own, for the transform's tensors have no common one.

    Args:
        args: tensors of any dtype, shape, strides and device. What is no tensor is returned as it is.

    Returns:
        A tuple, one item per argument. A tensor comes back as a view of the argument: equal bits, strides and
        memory, a new object. It requires a gradient if and only if the argument does, and carries the argument's
        tangent if there is one. As with torch's function, writing in place to an output that requires a gradient
        raises a RuntimeError where one node stands for all.
    """
    if private.transforms_active() or torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return tuple(map(_view, args))
    needs = [isinstance(arg, Tensor) and arg.requires_grad for arg in args]
    # There is no gradient to pass on, so no node is needed for a hook to sit on.
    if not any(needs):
        return tuple(map(_view, args))
    # The class below has an apply of its own, which calls this function. The one reached here, of the class
    # above torch's Function, makes the node and does no more; Function's own would ask for transforms, of
    # which there are none by now.
    outputs = super(Function, BackwardHookFunction).apply(*args)
    if _forward_ad._current_level < 0:
        return outputs
    # The node's non-differentiable outputs carry no tangents; as plain views they do.
    return tuple(output if needed else _view(arg) for output, arg, needed in zip(outputs, args, needs, strict=True))


def _view(value: Any) -> Any:
    return value.view_as(value) if isinstance(value, Tensor) else value


class BackwardHookFunction(Function):
    """`backward_hook_identity` as an autograd function, under torch's name for it: hooks look for that name."""

    @classmethod
    def apply(cls, *args: Any) -> tuple[Any, ...]:
        """The arguments, as `backward_hook_identity` returns them."""
        return backward_hook_identity(*args)

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Any, ...]:
        """The arguments; those that need no gradient are marked non-differentiable."""
        ctx.needs = [isinstance(arg, Tensor) and arg.requires_grad for arg in args]
        fixed = (arg for arg, needed in zip(args, ctx.needs, strict=True) if not needed)
        ctx.mark_non_differentiable(*[arg for arg in fixed if isinstance(arg, Tensor)])
        # With a dual level open a missing tangent stays missing; else a missing cotangent is zeros, which hooks expect.
        ctx.set_materialize_grads(_forward_ad._current_level < 0)
        return args

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        """The cotangents."""
        return cotangents

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        """The tangents of the differentiable outputs, as views: a view's tangent must be one."""
        return tuple(_view(t) if needed else None for t, needed in zip(tangents, ctx.needs, strict=True))
