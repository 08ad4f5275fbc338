"""The identity through which module hooks see gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .operator import torch_private as private


def backward_hook_identity(*args: Any) -> tuple[Any, ...]:
    """The arguments, as tensors of their own: a hook that changes their gradients changes those of no other use.

    In reverse mode one node stands for all arguments together. Its inputs are the gradients of all outputs, so a hook
    on it sees them at once. That is what `torch.nn.Module.register_full_backward_hook` needs. Torch's own function of
    this purpose, `torch.nn.modules._functions.BackwardHookFunction`, refuses forward mode and every `torch.func`
    transform; this one is the identity there, too. Under a transform or a compiler each argument has a node of its
    own, for the transform's tensors have no common one.

    Args:
        args: tensors of any dtype, shape, strides and device; any other value is returned as it is.

    Returns:
        A tuple, one item per argument. A tensor comes back as a view of the argument: equal bits, strides and
        memory, a new object. It requires a gradient if and only if the argument does and gradients are enabled, and
        carries the argument's tangent if there is one. An argument that requires a gradient and has no tangent gets
        one of zeros where another argument has a tangent, and so does its output. As with torch's function, writing in
        place to an output that requires a gradient raises a RuntimeError where one node stands for all; others may be
        written, with what requires a gradient, too.
    """
    if private.transforms_active() or torch.compiler.is_compiling():
        return tuple(map(_view, args))
    needs = [isinstance(arg, Tensor) and arg.requires_grad for arg in args]
    # There is no gradient to pass on, so no node is needed for a hook to sit on.
    if not any(needs):
        return tuple(map(_view, args))
    # The class below has an apply of its own, which calls this function. The one reached here, of the class
    # above torch's Function, makes the node and does no more; Function's own would ask for transforms, of
    # which there are none by now.
    outputs = super(Function, BackwardHookFunction).apply(*args)
    # The node's views of arguments that need no gradient refuse to be written with what needs one; plain views do not.
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
        """The arguments; those that need no gradient are marked, so that none of them gets a tangent of zeros."""
        ctx.needs = [isinstance(arg, Tensor) and arg.requires_grad for arg in args]
        fixed = (arg for arg, needed in zip(args, ctx.needs, strict=True) if not needed)
        ctx.mark_non_differentiable(*[arg for arg in fixed if isinstance(arg, Tensor)])
        return args

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        """The cotangents. Torch has put zeros for missing ones, as hooks expect."""
        return cotangents

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        """The tangents of the differentiable outputs, as views: a view's tangent must be one."""
        # Torch has put zeros for a missing tangent. It must: among outputs with tangents it allows no view without one,
        # and it stores a view's tangent with the base of the view, which is the argument.
        return tuple(_view(t) if needed else None for t, needed in zip(tangents, ctx.needs, strict=True))
