"""The generated vmap rule: a function of batched tensors whose static methods run the given ones under vmap.

What is hard here is to know, in each static method, which dim of which tensor is the batch. Operands have it where vmap
says; outputs where `forward`, run under vmap, put it; saved tensors where they had it when they were saved, which may
be elsewhere for backward than for forward. `setup_context` therefore keeps books, and `backward` and `jvp` run the
author's method under a vmap whose dims are read from them. A cotangent or tangent that is None has no dim.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..operator import torch_private as private
from ..operator.torch_private import pytree
from . import contexts, eager
from .static_types import Ctx, Dims, FunctionClass, Leaf, LeafDims, Leaves, Method, Pytree

_serial = itertools.count()


class _Books(NamedTuple):
    """What `setup_context` notes for one context, for `backward` and `jvp` to read."""

    out_dims: LeafDims  # of the leaves of the outputs
    input_shapes: tuple[torch.Size | None, ...]  # of a slice
    backward_dims: Dims  # batch dims of what was saved for backward
    forward_dims: Dims


class _OnSlices:
    """The static methods of a function, each run on batched operands as it runs on every slice."""

    def __init__(self, function: FunctionClass, in_dims: Dims, batch_size: int, randomness: str) -> None:
        self.function, self.in_dims, self.batch_size, self.randomness = function, in_dims, batch_size, randomness
        self.out_dims: Dims = None
        # The books are an attribute of the context, because levels may save other tensors. Its name differs for each
        # instance, because nested vmaps share one context.
        self.books = f"_pt_vmapified_{next(_serial)}"

    def vmapped(self, f: Method, dims: Dims) -> Method:
        return private.restore_vmap(f, dims, self.batch_size, self.randomness)

    def forward(self, *operands: Leaf) -> Pytree:
        outputs, out_dims = self.vmapped(self.function.forward, self.in_dims)(*operands)
        outputs, self.out_dims = _once_per_slice(outputs, out_dims, self.batch_size, operands)
        return outputs

    def setup_context(self, ctx: Ctx, inputs: Leaves, outputs: Pytree) -> None:
        def inner(inputs: Pytree, outputs: Pytree) -> None:
            wrapped = contexts.CtxCustomSave(ctx, private.current_level())
            self.function.setup_context(wrapped, inputs, outputs)
            shapes = tuple(i.shape if isinstance(i, Tensor) else None for i in inputs)
            dims = wrapped._pt_saved_for_backward_bdims, wrapped._pt_saved_for_forward_bdims
            setattr(ctx, self.books, _Books(tuple(pytree.tree_leaves(self.out_dims)), shapes, *dims))

        # The author's method runs under vmap as well, because the shapes that it reads must be those of a slice.
        self.vmapped(inner, (self.in_dims, self.out_dims))(inputs, outputs)

    def jvp(self, ctx: Ctx, *tangents: Leaf) -> Pytree:
        books: _Books = getattr(ctx, self.books)

        def on_slice(saved: Pytree, tangents: Pytree) -> Pytree:
            moved = self.function.jvp(contexts.CtxWithSavedTensors(ctx, saved), *tangents)
            return eager.flatten_tangents(self.function, moved, len(books.out_dims))

        dims = (books.forward_dims, get_tangents_in_dims(self.in_dims, tangents))
        moved, moved_dims = self.vmapped(on_slice, dims)(ctx.saved_tensors, tangents)
        shared = [_of_any_slice(t, *dims) for t, *dims in zip(moved, moved_dims, books.out_dims, strict=True)]
        tangents, tangent_dims = zip(*shared, strict=True)
        return reductify(tangents, tangent_dims, books.out_dims, self.batch_size)

    def backward(self, ctx: Ctx, *grad_outputs: Leaf) -> Pytree:
        books: _Books = getattr(ctx, self.books)

        def on_slice(saved: Pytree, grad_outputs: Pytree) -> Pytree:
            return eager.backward_of(self.function)(contexts.CtxWithSavedTensors(ctx, saved), *grad_outputs)

        pairs = [_of_one_slice(g, dim, self.batch_size) for g, dim in zip(grad_outputs, books.out_dims, strict=True)]
        cotangents, cotangent_dims = zip(*pairs, strict=True)
        grads, grad_dims = self.vmapped(on_slice, (books.backward_dims, cotangent_dims))(ctx.saved_tensors, cotangents)
        return reductify(grads, grad_dims, self.in_dims, self.batch_size, books.input_shapes)


def vmapify_autograd_function(
    autograd_function: FunctionClass, in_dims: Dims, batch_size: int, randomness: str
) -> tuple[FunctionClass, Callable[[], Dims]]:
    """A function that does to operands batched at `in_dims` what `autograd_function` does to every slice.

    Returns:
        The generated class, and a call that gives the dims of its outputs once its `forward` has run.
    """
    slices = _OnSlices(autograd_function, in_dims, batch_size, randomness)
    methods = {name: staticmethod(getattr(slices, name)) for name in ("forward", "setup_context", "backward", "jvp")}
    bases = (eager.EagerFunction,)
    generated = type(f"Vmapped{autograd_function.__name__}", bases, methods | {"generate_vmap_rule": True})
    return generated, lambda: slices.out_dims


def _once_per_slice(outputs: Pytree, out_dims: Dims, batch_size: int, operands: Leaves) -> tuple[Pytree, Dims]:
    """Outputs that all slices share, once per slice; one that is an operand stays, for that object may be written.

    So each slice gets its own cotangent, as it does of any output, and no zeros that an infinite slope makes NaN of.
    """
    leaves, spec = pytree.tree_flatten(outputs)
    dims = pytree.tree_leaves(out_dims)
    for i, (leaf, dim) in enumerate(zip(leaves, dims, strict=True)):
        if isinstance(leaf, Tensor) and dim is None and not any(leaf is t for t in operands):
            # A copy: a tangent is written in the memory layout of its output, and slices must not share memory there.
            leaves[i], dims[i] = leaf.repeat(batch_size, *(1,) * leaf.dim()), 0
    return pytree.tree_unflatten(leaves, spec), pytree.tree_unflatten(dims, spec)


def _of_one_slice(cotangent: Leaf, dim: int | None, batch_size: int) -> tuple[Leaf, int | None]:
    """A cotangent and its batch dim; where all slices share its output, the first slice has it, and the others zeros.

    Such a cotangent stands for all slices. `backward` of every slice would add it to the gradient of each input that
    the slices share, and the sum over the slices would have it once for every slice.
    """
    if not isinstance(cotangent, Tensor):
        return None, None
    if dim is not None:
        return cotangent, dim
    return torch.cat((cotangent.unsqueeze(0), cotangent.new_zeros((batch_size, *cotangent.shape))))[:batch_size], 0


def _of_any_slice(tangent: Leaf, dim: int | None, out_dim: int | None) -> tuple[Leaf, int | None]:
    """A tangent and its batch dim; where all slices share its output they share it, too, and one of them has it."""
    if not isinstance(tangent, Tensor) or dim is None or out_dim is not None:
        return tangent, dim
    return tangent.select(dim, 0), None


def get_tangents_in_dims(input_dims: Leaves, tangents: Leaves) -> Dims:
    """The batch dim of every tangent, that of its operand; None where there is no tangent.

    Args:
        input_dims: one per operand; for an operand that is a container, the dims of what is in it.
        tangents: one per operand. There is none of a container: the tape knows nothing of what is in it.
    """
    return tuple(dim if isinstance(t, Tensor) else None for dim, t in zip(input_dims, tangents, strict=True))


def reductify(
    grad_input: Pytree, grad_input_bdim: Dims, input_bdim: Dims, batch_size: int,
    target_shape_without_bdim_to_reduce_to: tuple[tuple[int, ...] | None, ...] | None = None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Every gradient with its batch where its input has it; summed over the batch where the input has none.

    Args:
        grad_input: a gradient or a tuple of them; None where there is none.
        grad_input_bdim: the batch dim of each gradient, in the same structure; None where it has none.
        input_bdim: the batch dim of each input, in the same structure; None where it has none.
        batch_size: the length of the batch.
        target_shape_without_bdim_to_reduce_to: a tuple with the shape of a slice of each input, to which gradients of
            a broadcast shape are summed; None leaves them as they are.
    """
    grads, dims, input_dims = (v if isinstance(v, tuple) else (v,) for v in (grad_input, grad_input_bdim, input_bdim))
    shapes = target_shape_without_bdim_to_reduce_to or len(grads) * (None,)
    return tuple(
        reductify_leaf(grad, dim, input_dim, batch_size, shape)
        for grad, dim, input_dim, shape in zip(grads, dims, input_dims, shapes, strict=True)
    )


def reductify_leaf(
    grad_input: Tensor | None, grad_input_bdim: int | None, input_bdim: int | None, batch_size: int,
    target_shape_without_bdim_to_reduce_to: tuple[int, ...] | None = None,
) -> Tensor | None:  # fmt: skip
    """One gradient, as `reductify`; reduced to the input's shape where that is given.

    Autograd itself reduces a gradient of a broadcast shape, but could not tell the batch from the dims in front of it.

    Args:
        grad_input, grad_input_bdim, input_bdim, batch_size: of this gradient, as in `reductify`.
        target_shape_without_bdim_to_reduce_to: the shape of a slice of the input, or None.
    """
    if grad_input is None or (grad_input_bdim is None and input_bdim is None):
        return grad_input
    if input_bdim is None:
        return grad_input.sum(grad_input_bdim)
    # Every slice has the same gradient: the batch is spelled out, because the input has one.
    if grad_input_bdim is None:
        shape = list(grad_input.shape)
        shape.insert(input_bdim, batch_size)
        grad_input, grad_input_bdim = grad_input.unsqueeze(input_bdim).expand(shape), input_bdim
    if target_shape_without_bdim_to_reduce_to is not None:
        dims = (grad_input_bdim, None)
        reduce = torch.func.vmap(Tensor.sum_to_size, in_dims=dims, out_dims=input_bdim)
        reduced: Tensor = reduce(grad_input, target_shape_without_bdim_to_reduce_to)
        return reduced
    # A tangent that was written in place has to be returned as the object that it is, and so it is not viewed in vain.
    return grad_input if grad_input_bdim == input_bdim else grad_input.movedim(grad_input_bdim, input_bdim)
