"""Outputs of one level as outputs of the next, the objects that were inputs staying the objects that they are."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..operator import torch_private as private
from ..operator.torch_private import pytree
from .static_types import Dims, Leaves, Pytree, Structure

# None is an out_dim, that of an output without a batch. So this string stands for out_dims that are not given.
NO_OUT_DIMS = "not specified"


def wrap_outputs_maintaining_identity(
    outputs: Pytree, unwrapped_inputs: Pytree, orig_inputs: Pytree, wrap_fn: Callable[..., Tensor],
    out_dims: Dims = NO_OUT_DIMS,
) -> Pytree:  # fmt: skip
    """`outputs` with every tensor wrapped, but for those that are an unwrapped input: that input takes their place.

    So a tensor that was written in place and returned is, outside as inside, the one that was passed: autograd's
    `mark_dirty` needs that.

    Args:
        outputs: a pytree of tensors, some of which may be objects of `unwrapped_inputs`.
        unwrapped_inputs, orig_inputs: pytrees of equal structure: the operands inside the level, and outside.
        wrap_fn: (tensor) -> wrapped tensor; (tensor, out_dim) where `out_dims` are given.
        out_dims: a pytree prefix of `outputs`; None is a dim of its own, no batch.

    Raises:
        RuntimeError: `out_dims` do not go with the structure of `outputs`.
    """
    # Tensors are looked up by `id`, because they compare element by element. The caller holds the unwrapped inputs
    # meanwhile, so that Python gives no `id` to a second object.
    originals = {
        id(unwrapped): original
        for unwrapped, original in zip(
            pytree.arg_tree_leaves(*unwrapped_inputs), pytree.arg_tree_leaves(*orig_inputs), strict=True
        )
        if isinstance(unwrapped, Tensor)
    }
    leaves, spec = pytree.tree_flatten(outputs)
    batched = not (isinstance(out_dims, str) and out_dims == NO_OUT_DIMS)
    dims: list[Leaves] = [()] * len(leaves)
    if batched:
        dims = [(dim,) for dim in flat_out_dims(out_dims, spec)]
    wrapped = [
        leaf if not isinstance(leaf, Tensor) else originals[id(leaf)] if id(leaf) in originals else wrap_fn(leaf, *dim)
        for leaf, dim in zip(leaves, dims, strict=True)
    ]
    return pytree.tree_unflatten(wrapped, spec)


def flat_out_dims(out_dims: Dims, spec: Structure) -> list[int | None]:
    """One out_dim per leaf of `spec`. RuntimeError where they do not go together."""
    dims = private.broadcast_to_and_flatten(out_dims, spec)
    if dims is None:
        raise RuntimeError(
            f"The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. Expected"
            f" out_dims={out_dims} to be compatible with the structure of `output`. out_dims has structure"
            f" {pytree.tree_flatten(out_dims)[1]} but output has structure {spec}. For more details, please see"
            " https://pytorch.org/docs/main/notes/extending.func.html"
        )
    return dims
