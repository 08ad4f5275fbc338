"""`custom_function_call`: a custom autograd function as an operator that every functorch level peels in turn.

What this is for: torch runs nested transforms as a stack of levels, each of which wraps the tensors that it knows once
more. A custom function is a black box to all of them, so somebody has to take the wrappings off in the right order,
call the author's static methods, and put the right wrappings on again. A mistake is seldom an error: a tangent of a
level outside is lost, and a second derivative is zero.

Each rule serves one level: it takes that level's wrapping off the operands, calls the operator again one level further
down, and puts the wrapping on what comes back. Rules that look arbitrary and are not:

1. The call further down runs with gradients *and* forward AD enabled: what is served there is differentiated by the
   levels outside.
2. The Jvp rule runs the function's `jvp` further down as well, on primals and tangents of the levels outside. So the
   levels outside differentiate `jvp` as any other code, and jvp of jvp, or a gradient of a jvp, is right. (Where torch
   itself calls the `jvp` of an autograd function, forward AD is off, and outer tangents are lost without an error.)
3. The Grad rule is an autograd function of one level: the tape is torch's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..operator import torch_private as private
from ..operator.torch_private import TransformType, pytree
from . import contexts, eager, vmapify, wrapping
from .static_types import Ctx, Dims, FunctionClass, Interpreter, Leaf, Leaves, Pytree, Structure

MORE = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"


class CustomFunctionHigherOrderOperator(private.HigherOrderOperator):  # type: ignore[misc]
    """The operator; without a transform it is the function's own `apply`."""

    def __init__(self) -> None:
        super().__init__("opassay_custom_function_call")

    def __call__(self, autograd_function: FunctionClass, *args: Leaf) -> Pytree:
        if private.transforms_active():
            return super().__call__(autograd_function, *args)
        return autograd_function.apply(*args)


custom_function_call = CustomFunctionHigherOrderOperator()


class VmapInfo(NamedTuple):
    """The first argument of a vmap rule: the size of the batch, and how random numbers relate across it."""

    batch_size: int
    randomness: str


def custom_function_call_grad(interpreter: Interpreter, autograd_function: FunctionClass, *operands: Leaf) -> Pytree:
    """Call the function, and record it as one node of the autograd graph of one level."""
    generated, structure = generate_single_level_function(interpreter, autograd_function)
    with private.single_level_function_enabled():
        leaves = generated.apply(*operands)
    return pytree.tree_unflatten(leaves, structure())


def generate_single_level_function(
    interpreter: Interpreter, autograd_function: FunctionClass
) -> tuple[FunctionClass, Callable[[], Structure]]:
    """An autograd function for the level of `interpreter`, which returns the flat leaves of the outputs.

    Returns:
        The class, and a call that gives the structure of the outputs once its `forward` has run.
    """
    level = interpreter.level()
    # torch's `apply` returns the flat tuple that `forward` returned. The structure, which is known only once the
    # function has run, leaves `forward` by way of this list.
    specs: list[Structure] = []

    def forward(*operands: Leaf) -> Pytree:
        unwrapped = unwrap_operands(operands, level)
        output = call_lower(interpreter, autograd_function, unwrapped)
        wrapped = wrapping.wrap_outputs_maintaining_identity(
            output, unwrapped, operands, lambda leaf: private.wrap_for_grad(leaf, level)
        )
        leaves, spec = pytree.tree_flatten(wrapped)
        specs[:] = [spec]
        return tuple(leaves)

    def setup_context(ctx: Ctx, inputs: Leaves, output: Leaves) -> Pytree:
        return autograd_function.setup_context(ctx, inputs, pytree.tree_unflatten(output, specs[0]))

    def backward(ctx: Ctx, *grads: Leaf) -> Pytree:
        return eager.backward_of(autograd_function)(ctx, *grads)

    members = {"forward": forward, "setup_context": setup_context, "backward": backward}
    name = f"{autograd_function.__name__}Generated"
    generated = type(name, (private.SingleLevelFunction,), {key: staticmethod(value) for key, value in members.items()})
    return generated, lambda: specs[0]


def unwrap_operands(operands: Pytree, level: int) -> Pytree:
    """The operands without the wrapping of a grad or jvp level."""
    return pytree.tree_map_only(Tensor, lambda t: private.unwrap_for_grad(t, level), operands)


def call_lower(interpreter: Interpreter, autograd_function: FunctionClass, operands: Pytree) -> Pytree:
    """The operator, one level further down."""
    with torch.enable_grad(), private.forward_ad_enabled(True), interpreter.lower():
        return custom_function_call(autograd_function, *operands)


def custom_function_call_jvp(interpreter: Interpreter, autograd_function: FunctionClass, *operands: Leaf) -> Pytree:
    """The function and its `jvp`, both one level further down; the outputs are dual tensors of this level."""
    level = interpreter.level()
    primals, tangents = split_duals(operands, level)
    ctx = contexts.ForwardCtx(tuple(isinstance(t, Tensor) for t in tangents))
    output = call_lower(interpreter, autograd_function, primals)
    leaves = pytree.tree_leaves(output)
    moved: Leaves = (None,) * len(leaves)
    with torch.enable_grad(), private.forward_ad_enabled(True), interpreter.lower():
        autograd_function.setup_context(ctx, primals, output)  # it also marks the operands that were written
        if any(ctx.needs_input_grad):
            moved = compute_tangents(autograd_function, ctx, leaves, _prepare_tangents(ctx, primals, tangents))

    def dual(leaf: Leaf, tangent: Leaf) -> Leaf:
        if not isinstance(leaf, Tensor):
            return leaf
        # An operand that was written in place is returned as the very object that the caller passed. The caller goes on
        # with that object, so the new tangent must be set on it.
        if any(leaf is t for t in ctx.dirty):
            operand = next((o for p, o in zip(primals, operands, strict=True) if p is leaf), None)
            if operand is not None:
                return _with_tangent(operand, leaf, tangent, level)
        wrapped = private.wrap_for_grad(leaf, level)
        if tangent is None or any(leaf is t for t in ctx.non_differentiable):
            return wrapped
        return forward_ad.make_dual(wrapped, private.wrap_for_grad(tangent, level))

    duals = [dual(leaf, tangent) for leaf, tangent in zip(leaves, moved, strict=True)]
    return pytree.tree_unflatten(duals, pytree.tree_structure(output))


def _with_tangent(operand: Tensor, primal: Tensor, tangent: Tensor | None, level: int) -> Tensor:
    """An operand whose primal was written, the very object that the caller passed, with its new tangent."""
    previous = forward_ad.unpack_dual(operand).tangent if private.level_of(operand) == level else None
    # The new value does not depend on the variable of this level, so the tangent of the old value must not stay.
    if tangent is None:
        if previous is not None:
            previous.zero_()
        return operand
    if previous is not None:
        previous.copy_(private.wrap_for_grad(tangent, level))
        return operand
    # An operand without a tangent gets one by a copy in place: `make_dual` would return another object.
    # The value does not change by it, and autograd may have saved the operand: so it does not count as a write.
    with private.preserve_versions(operand):
        return operand.copy_(forward_ad.make_dual(primal, tangent))


def split_duals(operands: Leaves, level: int) -> tuple[Leaves, Leaves]:
    """Primals and tangents of the operands, as tensors of the levels outside; None for a missing tangent."""
    primals, tangents = [], []
    for operand in operands:
        primal, tangent = operand, None
        if isinstance(operand, Tensor) and private.level_of(operand) == level:  # else its tangent is not of this level
            tangent = forward_ad.unpack_dual(operand).tangent
            # The primal that `unpack_dual` returns is a view, which a function that writes may refuse.
            primal = private.unwrap_for_grad(operand, level)
            tangent = None if tangent is None else private.unwrap_for_grad(tangent, level)
        primals.append(primal)
        tangents.append(tangent)
    return tuple(primals), tuple(tangents)


def _prepare_tangents(ctx: contexts.ForwardCtx, primals: Leaves, tangents: Leaves) -> Leaves:
    """The tangents to pass to `jvp`: zeros for missing ones, if the context asks; copies of those it may write."""
    tensors = [t for t in (*primals, *tangents) if isinstance(t, Tensor)]
    arguments = []
    for primal, tangent in zip(primals, tangents, strict=True):
        floating = isinstance(primal, Tensor) and (primal.is_floating_point() or primal.is_complex())
        if tangent is None and floating and ctx.materialize_grads:
            tangent = torch.zeros_like(primal)
        # `jvp` may write values of any operand into this tangent. Under an outer vmap that operand may be batched where
        # the tangent is not, so zeros of every operand's batch are added to the copy.
        if tangent is not None and any(primal is t for t in ctx.dirty):
            zeros = (t.new_zeros((), dtype=tangent.dtype) for t in tensors)
            tangent = functools.reduce(torch.add, zeros, tangent)
        arguments.append(tangent)
    return tuple(arguments)


def compute_tangents(
    autograd_function: FunctionClass, ctx: contexts.ForwardCtx, leaves: list[Leaf], tangents: Leaves
) -> Leaves:
    """The tangents that the function's `jvp` returns, one per leaf of the outputs.

    Raises:
        RuntimeError: not one tangent per leaf, or a tangent of another shape than its output.
    """
    flat = eager.flatten_tangents(autograd_function, autograd_function.jvp(ctx, *tangents), len(leaves))
    name = autograd_function.__name__
    for i, (leaf, tangent) in enumerate(zip(leaves, flat, strict=True)):
        if isinstance(tangent, Tensor) and isinstance(leaf, Tensor) and tangent.shape != leaf.shape:
            raise RuntimeError(
                f"{name}.jvp: got tangents[{i}] of shape={list(tangent.shape)}, need that of the output,"
                f" shape={list(leaf.shape)}."
            )
    return flat


def has_overridden_vmap_rule(autograd_function: FunctionClass) -> bool:
    """Whether the class, or one that it inherits from, has a `vmap` of its own."""
    return autograd_function.vmap is not torch.autograd.Function.vmap


def validate_vmap_returns_tuple_of_two_elements(result: Leaf) -> None:
    """RuntimeError unless `result` is a tuple (output, out_dims)."""
    need = (
        "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible"
        " with the output. "
    )
    if not isinstance(result, tuple):
        raise RuntimeError(need + f"Got a {type(result)} instead")
    if len(result) != 2:
        raise RuntimeError(need + f"Got {len(result)} returns instead")


def _require_one_vmap_rule(autograd_function: FunctionClass) -> None:
    name, own = autograd_function.__name__, has_overridden_vmap_rule(autograd_function)
    if autograd_function.generate_vmap_rule and own:
        raise RuntimeError(
            f"You tried to vmap over {name}, but it has both generate_vmap_rule=True and an overriden vmap"
            f" staticmethod. Please set generate_vmap_rule=False or delete the overriden vmap staticmethod to avoid"
            f" ambiguity. {MORE}"
        )
    if not autograd_function.generate_vmap_rule and not own:
        raise RuntimeError(
            f"You tried to vmap over {name}, but it does not have vmap support. Please override and implement the vmap"
            f" staticmethod or set generate_vmap_rule=True. {MORE}"
        )


def custom_function_call_vmap(interpreter: Interpreter, autograd_function: FunctionClass, *operands: Leaf) -> Pytree:
    """The function's vmap rule, its own or a generated one; nothing where no operand is batched at this level."""
    _require_one_vmap_rule(autograd_function)
    level = interpreter.level()
    unwrapped, in_dims = private.unwrap_batched(operands, level)
    # All slices are equal to this level, so the function is called once, as if the level were not there.
    if all(dim is None for dim in pytree.tree_leaves(in_dims)):
        with interpreter.lower():
            return custom_function_call(autograd_function, *operands)
    info = VmapInfo(interpreter.batch_size(), interpreter.randomness())
    with interpreter.lower():
        output, out_dims = _apply_vmap_rule(autograd_function, info, in_dims, unwrapped)

    def wrap(leaf: Tensor, dim: int | None) -> Tensor:
        # An output that all slices share is expanded to the batch, because torch puts an output without a batch dim in
        # the wrong place when vmaps are nested.
        if dim is None:
            leaf, dim = leaf.unsqueeze(0).expand(info.batch_size, *leaf.shape), 0
        return private.add_batch_dim(leaf, dim if dim >= 0 else dim + leaf.dim(), level)

    return wrapping.wrap_outputs_maintaining_identity(output, unwrapped, operands, wrap, out_dims=out_dims)


def _apply_vmap_rule(
    autograd_function: FunctionClass, info: VmapInfo, in_dims: Dims, operands: Pytree
) -> tuple[Pytree, Dims]:
    """(output, out_dims) of the function's rule on operands without the batch."""
    if autograd_function.generate_vmap_rule:
        generated, out_dims = vmapify.vmapify_autograd_function(autograd_function, in_dims, *info)
        output = custom_function_call(generated, *operands)
        return output, out_dims()
    result: tuple[Pytree, Dims] = autograd_function.vmap(info, in_dims, *operands)
    validate_vmap_returns_tuple_of_two_elements(result)
    return result


def custom_function_call_functionalize(
    interpreter: Interpreter, autograd_function: FunctionClass, *operands: Leaf
) -> Pytree:
    """Refuses: `forward` may write its arguments, and a functionalised call could not tell."""
    raise RuntimeError(f"{autograd_function.__name__}: torch.func.functionalize of a custom function is not supported.")


custom_function_call.py_impl(TransformType.Grad)(custom_function_call_grad)
custom_function_call.py_impl(TransformType.Jvp)(custom_function_call_jvp)
custom_function_call.py_impl(TransformType.Vmap)(custom_function_call_vmap)
custom_function_call.py_impl(TransformType.Functionalize)(custom_function_call_functionalize)
