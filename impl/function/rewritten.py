"""Forms of a custom function that a tracer works with: forward and context in one, forward and backward apart."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..operator import torch_private as private
from ..operator.torch_private import pytree
from .function import Function
from .static_types import Ctx, Leaf, Leaves, Method, Pytree


def autograd_function_forward_rewritten(original_forward: Method, original_setup_context: Method) -> Method:
    """A `forward(ctx, *args)` of a function that has `forward(*args)` and `setup_context` apart."""

    def new_forward(ctx: Ctx, *args: Leaf, **kwargs: Leaf) -> Pytree:
        output = original_forward(*args, **kwargs)
        original_setup_context(ctx, args, output)
        return output

    return new_forward


class AutogradFunctionApply(private.HigherOrderOperator):  # type: ignore[misc]
    """A custom function given as two callables, without a context.

    `fwd(None, *fwd_args)` returns (outputs, saved values), `bwd(None, *cotangents, *saved)` one gradient per
    differentiable argument: those at the true positions of `args_tensor_mask`, which come first in `fwd_args`. The
    arguments behind them are constants. Works under every transform.
    """

    def __init__(self) -> None:
        super().__init__("opassay_autograd_function_apply")

    def __call__(self, fwd: Method, bwd: Method, *fwd_args: Leaf, args_tensor_mask: Sequence[bool]) -> Pytree:
        """The outputs of `fwd`.

        Raises:
            ValueError: the mask has more true positions than there are arguments.
        """
        count = sum(map(bool, args_tensor_mask))
        if count > len(fwd_args):
            raise ValueError(
                f"args_tensor_mask: got {count} true positions, need at most len(fwd_args)={len(fwd_args)}."
            )
        outputs: Pytree = _template(fwd, bwd, count).apply(*fwd_args)
        return outputs[0]


def _template(fwd: Method, bwd: Method, count: int) -> type[Function]:
    """The function whose outputs are those of `fwd` and then the intermediates that it saves.

    As outputs, the intermediates get the wrapping of every level. Inputs that it saves are saved as the inputs they
    are: derivatives of `bwd` go through them.
    """
    saved_inputs: list[int | None] = []  # per saved value: the position of the input that it is, or None

    class ApplyTemplate(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*args: Leaf) -> Pytree:
            output, saved = fwd(None, *args)
            # By identity, because an equal tensor that is not the input has no place in the input's graph.
            saved_inputs[:] = [next((i for i, arg in enumerate(args) if arg is value), None) for value in saved]
            return output, [v for v, i in zip(saved, saved_inputs, strict=True) if i is None]

        @staticmethod
        def setup_context(ctx: Ctx, inputs: Leaves, output: Pytree) -> None:
            results, intermediates = output
            fresh = iter(intermediates)
            saved = [next(fresh) if i is None else inputs[i] for i in saved_inputs]
            # Autograd saves tensors alone. Other values are stored beside them, at the same positions, and `backward`
            # puts both together again.
            ctx.save_for_backward(*(v if isinstance(v, Tensor) else None for v in saved))
            ctx.others = [None if isinstance(v, Tensor) else v for v in saved]
            ctx.outputs, ctx.constants = len(pytree.tree_leaves(results)), len(inputs) - count
            leaves = pytree.tree_leaves(results)
            # An intermediate is an output of the template only. Nobody outside can differentiate it, unless it is one
            # of the function's outputs as well: marking that would cut those off from their gradient.
            marked = [t for t in intermediates if isinstance(t, Tensor) and not any(t is leaf for leaf in leaves)]
            ctx.mark_non_differentiable(*marked)

        @staticmethod
        def backward(ctx: Ctx, *grads: Leaf) -> Pytree:
            saved = [o if t is None else t for t, o in zip(ctx.saved_tensors, ctx.others, strict=True)]
            gradients = bwd(None, *grads[: ctx.outputs], *saved)
            return (*(gradients if isinstance(gradients, (tuple, list)) else (gradients,)), *(ctx.constants * [None]))

    return ApplyTemplate


autograd_function_apply = AutogradFunctionApply()
