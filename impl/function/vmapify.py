"""The generated vmap rule: a function of batched tensors whose static methods run the given ones under vmap."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import torch_private as private
from ..torch_private import pytree
from . import contexts, eager

_serial = itertools.count()


def vmapify_autograd_function(
    autograd_function: Any, in_dims: Any, batch_size: int, randomness: str
) -> tuple[Any, Callable[[], Any]]:
    """A function that does to operands batched at `in_dims` what `autograd_function` does to every slice.

    Returns:
        The generated class, and a call that gives the dims of its outputs once its `forward` has run.
    """
    found: list[Any] = []
    # Where a context keeps what `setup_context` found: (out_dims, input shapes, batch dims saved for backward, for
    # forward). One name per class, for nested vmaps share one context; on the context, for levels may save differently.
    books_name = f"_pt_vmapified_{next(_serial)}"

    def on_slices(f: Callable[..., Any], dims: Any) -> Callable[..., Any]:
        return private.restore_vmap(f, dims, batch_size, randomness)

    def forward(*operands: Any) -> Any:
        before = [_version(operand) for operand in operands]
        outputs, out_dims = on_slices(autograd_function.forward, in_dims)(*operands)
        written = [o for o, version in zip(operands, before, strict=True) if _version(o) != version]
        outputs, out_dims = _every_output_batched(outputs, out_dims, batch_size, written)
        found[:] = [out_dims]
        return outputs

    def setup_context(ctx: Any, inputs: Any, outputs: Any) -> None:
        # Under vmap, too: what it says of shapes must be said of a slice.
        books: list[Any] = []

        def inner(inputs: Any, outputs: Any) -> None:
            wrapped = contexts.CtxCustomSave(ctx, private.current_level())
            autograd_function.setup_context(wrapped, inputs, outputs)
            shapes = tuple(i.shape if isinstance(i, Tensor) else None for i in inputs)
            books[:] = [shapes, wrapped._pt_saved_for_backward_bdims, wrapped._pt_saved_for_forward_bdims]

        (out_dims,) = found
        on_slices(inner, (in_dims, out_dims))(inputs, outputs)
        setattr(ctx, books_name, (out_dims, *books))

    def jvp(ctx: Any, *tangents: Any) -> Any:
        out_dims, _, _, saved_dims = getattr(ctx, books_name)

        def on_slice(saved: Any, tangents: Any) -> Any:
            moved = autograd_function.jvp(contexts.CtxWithSavedTensors(ctx, saved), *tangents)
            return eager.flat_tangents(autograd_function, moved, len(flat_dims))

        flat_dims = tuple(pytree.tree_leaves(out_dims))
        dims = (saved_dims, get_tangents_in_dims(in_dims, tangents))
        moved, moved_dims = on_slices(on_slice, dims)(ctx.saved_tensors, tangents)
        return reductify(moved, moved_dims, flat_dims, batch_size)

    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        out_dims, shapes, saved_dims, _ = getattr(ctx, books_name)

        def on_slice(saved: Any, grad_outputs: Any) -> Any:
            return eager.backward_of(autograd_function)(contexts.CtxWithSavedTensors(ctx, saved), *grad_outputs)

        flat_dims = tuple(pytree.tree_leaves(out_dims))
        dims = (saved_dims, get_tangents_in_dims(flat_dims, grad_outputs))
        grads, grad_dims = on_slices(on_slice, dims)(ctx.saved_tensors, grad_outputs)
        return reductify(grads, grad_dims, in_dims, batch_size, shapes)

    methods = {"forward": forward, "setup_context": setup_context, "backward": backward, "jvp": jvp}
    members = {name: staticmethod(method) for name, method in methods.items()} | {"generate_vmap_rule": True}
    generated = type(f"Vmapped{autograd_function.__name__}", (eager.EagerFunction,), members)
    return generated, lambda: found[0]


def _version(value: Any) -> int:
    return value._version if isinstance(value, Tensor) and not value.is_inference() else 0


def _every_output_batched(outputs: Any, out_dims: Any, batch_size: int, written: list[Tensor]) -> tuple[Any, Any]:
    """Outputs that do not depend on the slice, once per slice, but for inputs that were written.

    A cotangent of an output that all slices share would be the sum over the slices, and `backward` of each slice would
    get the sum for its share.
    """
    leaves, spec = pytree.tree_flatten(outputs)
    dims = pytree.tree_leaves(out_dims)
    for i, (leaf, dim) in enumerate(zip(leaves, dims, strict=True)):
        if isinstance(leaf, Tensor) and dim is None and not any(leaf is t for t in written):
            # A copy: a tangent is written in the memory layout of its output, and slices must not share memory there.
            leaves[i], dims[i] = leaf.unsqueeze(0).repeat(batch_size, *(1,) * leaf.dim()), 0
    return pytree.tree_unflatten(leaves, spec), pytree.tree_unflatten(dims, spec)


def get_tangents_in_dims(input_dims: Any, tangents: Any) -> Any:
    """`input_dims` with None where there is no tangent."""
    dims, spec = pytree.tree_flatten(input_dims)
    leaves = pytree.tree_leaves(tangents)
    return pytree.tree_unflatten(
        [None if not isinstance(t, Tensor) else dim for dim, t in zip(dims, leaves, strict=True)], spec
    )


def reductify(
    grad_input: Any,
    grad_input_bdim: Any,
    input_bdim: Any,
    batch_size: int,
    target_shape_without_bdim_to_reduce_to: Any = None,
) -> tuple[Tensor | None, ...]:
    """Every gradient with its batch where its input has it; summed over the batch where the input has none."""
    grads, dims, input_dims = (v if isinstance(v, tuple) else (v,) for v in (grad_input, grad_input_bdim, input_bdim))
    shapes = target_shape_without_bdim_to_reduce_to or len(grads) * (None,)
    return tuple(
        reductify_leaf(grad, dim, input_dim, batch_size, shape)
        for grad, dim, input_dim, shape in zip(grads, dims, input_dims, shapes, strict=True)
    )


def reductify_leaf(
    grad_input: Tensor | None,
    grad_input_bdim: int | None,
    input_bdim: int | None,
    batch_size: int,
    target_shape_without_bdim_to_reduce_to: Any = None,
) -> Tensor | None:
    """One gradient, as `reductify`; reduced to the input's shape where that is given.

    Autograd itself reduces a gradient of a broadcast shape, but could not tell the batch from the dims in front of it.
    """
    if grad_input is None or (grad_input_bdim is None and input_bdim is None):
        return grad_input
    if input_bdim is None:
        return grad_input.sum(grad_input_bdim)
    if grad_input_bdim is None:
        shape = list(grad_input.shape)
        shape.insert(input_bdim, batch_size)
        grad_input, grad_input_bdim = grad_input.unsqueeze(input_bdim).expand(shape), input_bdim
    if target_shape_without_bdim_to_reduce_to is not None:
        dims = (grad_input_bdim, None)
        reduce = torch.func.vmap(Tensor.sum_to_size, in_dims=dims, out_dims=input_bdim)
        reduced: Tensor = reduce(grad_input, target_shape_without_bdim_to_reduce_to)
        return reduced
    return grad_input.movedim(grad_input_bdim, input_bdim) if input_bdim != grad_input_bdim else grad_input
