"""Batch norm with statistics of the batch, as torch sees it: schemas, fake and vmap rules, derivatives.

`training` is functional; running statistics are updated elsewhere, from its last output. vmap folds the batch into the
channels, (B, N, C, ...) -> (N, B C, ...), for every channel is independent of the others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..operator import operator as dispatch
from ..operator.precision import compute_dtype
from . import batch_norm_cpu as cpu
from . import batch_norm_cuda as cuda
from . import formulas
from .batch_norm_cpu import memory_format
from .formulas import Backward, BackwardGrads, Channels

Needs = tuple[bool, ...]

_library = torch.library.Library("opassay", "FRAGMENT")


# ---------------------------------------------------------------------------------------------- shapes


def rows_of(x: Tensor) -> Tensor:
    """x (N, C, ...) as (N, C, 1, L), the view that `Channels` speaks of."""
    return x[:, :, None, None] if x.dim() == 2 else x.flatten(2).unsqueeze(2)


def layout_of(x: Tensor) -> Channels:
    """Which elements of `rows_of(x)` share statistics and parameters."""
    return Channels(x.shape[1], across_batch=True)


def _per_channel(t: Tensor | None) -> Tensor | None:
    """t (C,), viewed to broadcast against `rows_of`."""
    return None if t is None else t[None, :, None, None]


def fold_input(x: Tensor, dim: int | None, size: int) -> Tensor:
    """x (N, C, ...) with a batch of `size` at `dim`, or without one, as (N, size C, ...)."""
    if dim is None:
        return x.unsqueeze(1).expand(x.shape[0], size, *x.shape[1:]).flatten(1, 2)
    return x.movedim(dim, 1).flatten(1, 2)


def fold_channels(t: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    """t (C,) with a batch of `size` at `dim`, or without one, as (size C,)."""
    if t is None:
        return None
    t = t.unsqueeze(0).expand(size, *t.shape) if dim is None else t.movedim(dim, 0)
    return t.flatten()


# ---------------------------------------------------------------------------------------------- forward


def _training_fake(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dtype, channels = compute_dtype(x.dtype), x.shape[1]
    mean, invstd = (x.new_empty(channels, dtype=dtype) for _ in range(2))
    return torch.empty_like(x, memory_format=memory_format(x)), mean, invstd, x.new_empty((2, channels), dtype=dtype)


def _training_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    """Input and statistics, and the weight for the input's gradient; nothing where only the bias needs one."""
    x, weight, bias, eps = args
    dtypes = tuple(x.dtype if t is None else t.dtype for t in (weight, bias))
    tensors = (x, weight if needs[0] else None, *outputs[1:3]) if needs[0] or needs[1] else ()
    return tensors, (*dtypes, eps)


def _training_backward(tensors: Any, extras: dispatch.Args, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
    """One call of the backward op; a bias gradient alone is a sum."""
    weight_dtype, bias_dtype, eps = extras
    grad_out, grad_mean, grad_invstd, _ = cotangents
    if not tensors:
        return None, None, bias_gradient(grad_out, bias_dtype) if needs[2] else None, None
    x, weight, mean, invstd = tensors
    if grad_out is None:  # only the statistics have cotangents
        grad_out = torch.zeros_like(x, memory_format=torch.contiguous_format)
    grads = backward(
        grad_out, grad_mean, grad_invstd, x, mean, invstd, weight, weight_dtype, bias_dtype, eps, needs[:3]
    )
    return *grads, None


def bias_gradient(grad_out: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """The sum of grad_out over all but the channels."""
    return None if grad_out is None else layout_of(grad_out).collect(rows_of(grad_out)).to(dtype)


def _training_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    x, weight, _, eps = args
    tx, tw, tb, _ = tangents
    tx = None if tx is None else rows_of(tx)
    out, mean, invstd = formulas.forward_jvp(rows_of(x), weight, layout_of(x), eps, (tx, tw, tb))
    if mean is None or invstd is None:  # they depend on x alone
        mean, invstd = (x.new_zeros(x.shape[1], dtype=compute_dtype(x.dtype)) for _ in range(2))
    return out.reshape(x.shape), mean.reshape(-1), invstd.reshape(-1), None


def _training_vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    """Moments stay unbatched where the input is: running statistics without a batch are then updated once.

    The other outputs are batched although equal: torch's vmap misplaces an unbatched output for out_dims=-1.
    """
    x, weight, bias, eps = args
    size, dtype, up = info.batch_size, x.dtype, compute_dtype(x.dtype)
    channels = x.shape[1] if in_dims[0] is None else x.movedim(in_dims[0], 0).shape[2]
    if in_dims[0] is None:
        x = x.to(up)  # the derivative of expanding is a sum
    weight, bias = (
        None if t is None else fold_channels(t.to(up), dim, size)
        for t, dim in zip((weight, bias), in_dims[1:3], strict=True)
    )
    out, mean, invstd, moments = training(fold_input(x, in_dims[0], size), weight, bias, eps)
    out = out.unflatten(1, (size, channels)).to(dtype)
    mean, invstd, moments = (t.unflatten(-1, (size, channels)) for t in (mean, invstd, moments))
    if in_dims[0] is None:
        return (out, mean, invstd, moments[:, 0]), (1, 0, 0, None)
    return (out, mean, invstd, moments), (1, 0, 0, 1)


# ---------------------------------------------------------------------------------------------- backward


def _backward_fake(
    grad_out: Tensor,
    grad_mean: Tensor | None,
    grad_invstd: Tensor | None,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    weight_dtype: torch.dtype,
    bias_dtype: torch.dtype,
    eps: float | None,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    return masked_fake(x, weight_dtype, bias_dtype, output_mask)


def masked_fake(
    x: Tensor, weight_dtype: torch.dtype, bias_dtype: torch.dtype, output_mask: list[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Fake gradients of a batch norm of x."""
    return (
        torch.empty_like(x, memory_format=memory_format(x)) if output_mask[0] else None,
        x.new_empty(x.shape[1], dtype=weight_dtype) if output_mask[1] else None,
        x.new_empty(x.shape[1], dtype=bias_dtype) if output_mask[2] else None,
    )


def _operands(args: dispatch.Args) -> Backward:
    """The backward op's arguments as its rules want them; `rstd` only where eps is unknown."""
    grad_out, _, grad_invstd, x, _, invstd, weight, weight_dtype, bias_dtype, eps, mask = args
    rows = rows_of(x)
    return Backward(
        rows.shape, x.dtype, weight_dtype, bias_dtype, layout_of(x), eps, (mask[0], mask[1], mask[2]),
        rows_of(grad_out), _per_channel(grad_invstd), rows, _per_channel(invstd) if eps is None else None, weight,
    )  # fmt: skip


def _needs(needs: Needs) -> BackwardGrads:
    """needs_input_grad by operand; mean and invstd are functions of the input and take no gradient of their own."""
    return BackwardGrads(needs[0], needs[1], needs[2], needs[3], needs[6])


def _backward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    """Nothing for d_bias alone, which is a sum; grad_out only where input or weight need gradients."""
    grad_out, _, grad_invstd, x, _, invstd, weight, *others = args
    need = _needs(needs)
    tensors: tuple[Tensor | None, ...] = ()
    if outputs[0] is not None or outputs[1] is not None:
        if not (need.x or need.weight):
            grad_out = None
        if outputs[0] is None or not (need.x or need.weight):
            grad_invstd = None
        if outputs[0] is None:
            weight = None
        tensors = (grad_out, grad_invstd, x, invstd if others[2] is None else None, weight)
    return tensors, (args[0].shape, args[0].dtype, *others)


def _backward_backward(tensors: Any, extras: dispatch.Args, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
    shape, dtype, weight_dtype, bias_dtype, eps, mask = extras
    d_input = cotangents[0]
    layout, length = Channels(shape[1], across_batch=True), shape[2:].numel()
    op = Backward(
        torch.Size((shape[0], shape[1], 1, length)), dtype, weight_dtype, bias_dtype, layout, eps,
        (mask[0], mask[1], mask[2]),
    )  # fmt: skip
    if tensors:
        grad_out, grad_invstd, x, invstd, weight = tensors
        op = op.with_tensors(
            None if grad_out is None else rows_of(grad_out),
            _per_channel(grad_invstd),
            rows_of(x),
            _per_channel(invstd),
            weight,
        )
    rows = None if d_input is None else rows_of(d_input)
    grads = formulas.backward_vjp(op, _needs(needs), (rows, *cotangents[1:]))
    d_dy, d_mean, d_invstd, d_x = grads[:4]
    return (
        None if d_dy is None else d_dy.reshape(shape),
        None if d_mean is None else d_mean.reshape(-1),
        None if d_invstd is None else d_invstd.reshape(-1),
        None if d_x is None else d_x.reshape(shape),
        None, None, grads.weight, None, None, None, None,
    )  # fmt: skip


def _backward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    t_dy, t_dm, t_ds, t_x = tangents[:4]
    rows = [None if t is None else rows_of(t) for t in (t_dy, t_x)]
    directions = (rows[0], _per_channel(t_dm), _per_channel(t_ds), rows[1], tangents[6])
    d_input, d_weight, d_bias = formulas.backward_jvp(_operands(args), directions)
    return None if d_input is None else d_input.reshape(args[3].shape), d_weight, d_bias


def _backward_vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    """Folds the batch into the channels. Half operands that are expanded are taken to float32 first, so that the sum
    over the batch, which is the derivative of expanding, adds no half-precision contributions."""
    grad_out, grad_mean, grad_invstd, x, mean, invstd, weight, *others = args
    size, dtype, up = info.batch_size, x.dtype, compute_dtype(x.dtype)
    if in_dims[0] is None or in_dims[3] is None:
        grad_out, x = grad_out.to(up), x.to(up)
    grad_out, x = fold_input(grad_out, in_dims[0], size), fold_input(x, in_dims[3], size)
    weight = None if weight is None else fold_channels(weight.to(up), in_dims[6], size)
    grad_mean, grad_invstd, mean, invstd = (
        fold_channels(t, in_dims[i], size) for i, t in ((1, grad_mean), (2, grad_invstd), (4, mean), (5, invstd))
    )
    grads = backward(grad_out, grad_mean, grad_invstd, x, mean, invstd, weight, *others)
    return unfolded(grads, size, x.shape[1] // size, dtype)


def unfolded(grads: Any, size: int, channels: int, dtype: torch.dtype) -> tuple[Any, Any]:
    """Outputs and out_dims of a backward rule from (d_input, d_weight, d_bias) of folded channels."""
    d_input, *sums = grads
    return (
        None if d_input is None else d_input.unflatten(1, (size, channels)).to(dtype),
        *(None if t is None else t.unflatten(0, (size, channels)) for t in sums),
    ), (None if d_input is None else 1, *(None if t is None else 0 for t in sums))


backward = dispatch.define(
    _library,
    "batch_norm_backward(Tensor grad_out, Tensor? grad_mean, Tensor? grad_invstd, Tensor input, Tensor mean,"
    " Tensor invstd, Tensor? weight, ScalarType weight_dtype, ScalarType bias_dtype, float? eps, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)",
    dispatch.Kernels(cpu.backward, cuda.backward, _backward_fake),
    _backward_vmap,
    dispatch.Derivatives(_backward_save, _backward_backward, _backward_jvp),
)

training = dispatch.define(
    _library,
    "batch_norm_training(Tensor input, Tensor? weight, Tensor? bias, float eps)"
    " -> (Tensor out, Tensor mean, Tensor invstd, Tensor moments)",
    dispatch.Kernels(cpu.training, cuda.training, _training_fake),
    _training_vmap,
    dispatch.Derivatives(_training_save, _training_backward, _training_jvp, (3,)),
)
