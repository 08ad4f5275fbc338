"""The group norm ops as torch sees them: schemas, fake and vmap rules, derivatives.

`forward` and `forward_with_statistics` differ in one thing: the latter's mean and rstd are differentiable outputs, so
its backward carries their cotangents; the former's are there for its backward only. `backward` is one op for both.

Input is (N, C, *), statistics are (N, groups). Samples are independent, and so are groups with parameters of their own,
so a batch needs no dim of its own: vmap folds it into N where all slices share the parameters, else into the groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..operator import operator as dispatch
from ..operator.precision import compute_dtype
from . import formulas
from . import group_norm_cpu as cpu
from . import group_norm_cuda as cuda
from .formulas import Backward, BackwardGrads, Channels
from .group_norm_cpu import group_shape, view_groups, view_statistics

Needs = tuple[bool, ...]

_library = torch.library.Library("opassay", "FRAGMENT")


def _groups(t: Tensor | None, groups: int) -> Tensor | None:
    return None if t is None else view_groups(t, groups)


def _statistics(t: Tensor | None) -> Tensor | None:
    return None if t is None else view_statistics(t)


def _forward_fake(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    mean, rstd = (x.new_empty((x.shape[0], groups), dtype=compute_dtype(x.dtype)) for _ in range(2))
    return x.new_empty(x.shape), mean, rstd


def _forward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    """Input and statistics, and the weight for the input's gradient; nothing where only the bias needs one."""
    x, weight, bias, groups, eps = args
    dtypes = tuple(None if t is None else t.dtype for t in (weight, bias))
    tensors = (x, weight if needs[0] else None, *outputs[1:]) if needs[0] or needs[1] else ()
    return tensors, (*dtypes, groups, eps)


def _forward_backward(tensors: Any, extras: dispatch.Args, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
    """One call of the backward op; a bias gradient alone is a sum."""
    weight_dtype, bias_dtype, groups, eps = extras
    grad_out, grad_mean, grad_rstd = cotangents
    if not tensors:
        if grad_out is None or not needs[2]:
            return (None,) * 5
        collected = Channels(groups, False).collect(view_groups(grad_out, groups))
        return None, None, collected.to(bias_dtype), None, None
    x, weight, mean, rstd = tensors
    if weight is None and weight_dtype is not None:  # d_weight needs no more than its shape and dtype
        weight = x.new_zeros(x.shape[1], dtype=weight_dtype)
    if grad_out is None:  # only the statistics have cotangents
        grad_out = torch.zeros_like(x, memory_format=torch.contiguous_format)
    d_input, d_weight, d_bias = backward(
        grad_out, grad_mean, grad_rstd, x, mean, rstd, weight, bias_dtype, groups, eps, needs[:3]
    )
    return d_input, d_weight, d_bias, None, None


def _forward_jvp(statistics: bool, args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    x, weight, _, groups, eps = args
    tx, tw, tb = tangents[:3]
    out, mean, rstd = formulas.forward_jvp(
        view_groups(x, groups), weight, Channels(groups, False), eps, (_groups(tx, groups), tw, tb)
    )
    out = out.reshape(x.shape)
    if not statistics:
        return out, None, None
    if mean is None or rstd is None:  # they depend on x alone
        _, mean, rstd = (torch.zeros_like(t) for t in _forward_fake(x, None, None, groups, eps))
        return out, mean, rstd
    return out, mean[:, :, 0, 0], rstd[:, :, 0, 0]


def _fold(t: Tensor, dim: int | None, size: int, at: int) -> Tensor:
    """t with its batch, or its repetition `size` times, merged into dim `at` of a slice, in front."""
    if dim is not None:
        return t.movedim(dim, at).flatten(at, at + 1)
    t = t.unsqueeze(at)
    return t.expand(*t.shape[:at], size, *t.shape[at + 1 :]).flatten(at, at + 1)


def _slice_shape(t: Tensor, dim: int | None) -> Sequence[int]:
    return t.shape if dim is None else (*t.shape[:dim], *t.shape[dim + 1 :])


def _unfold(outputs: Sequence[Tensor | None], at: Sequence[int], sizes: Sequence[tuple[int, int]]) -> tuple[Any, Any]:
    """Outputs with the merged batch as a dim of its own again, and where it is; `sizes`: (batch, dim of a slice)."""
    whole = tuple(
        None if t is None else t.unflatten(dim, size) for t, dim, size in zip(outputs, at, sizes, strict=True)
    )
    return whole, tuple(None if t is None else dim for t, dim in zip(whole, at, strict=True))


def _forward_vmap(op: Any, info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    """Folds the batch into N, or, where a parameter is batched, into the channels and groups.

    A half-precision operand that is repeated is taken to float32 first, so that the sum over the batch, which is the
    derivative of repeating, adds no half-precision contributions.
    """
    x, weight, bias, groups, eps = args
    size, dtype = info.batch_size, x.dtype
    n, channels = _slice_shape(x, in_dims[0])[:2]
    if in_dims[1] is None and in_dims[2] is None:
        outputs = op(_fold(x, in_dims[0], size, 0), weight, bias, groups, eps)
        return _unfold(outputs, (0, 0, 0), [(size, n)] * 3)
    up = compute_dtype(dtype)
    shared = in_dims[0] is None

    def folded(parameter: Tensor | None, dim: int | None) -> Tensor | None:
        if parameter is None:
            return None
        return _fold(parameter.to(up) if shared or dim is None else parameter, dim, size, 0)

    out, mean, rstd = op(
        _fold(x.to(up) if shared else x, in_dims[0], size, 1),
        folded(weight, in_dims[1]),
        folded(bias, in_dims[2]),
        size * groups,
        eps,
    )
    return _unfold((out.to(dtype), mean, rstd), (1, 1, 1), [(size, channels), (size, groups), (size, groups)])


def _backward_fake(
    grad_out: Tensor,
    grad_mean: Tensor | None,
    grad_rstd: Tensor | None,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias_dtype: torch.dtype | None,
    groups: int,
    eps: float | None,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    has_bias = output_mask[2] and bias_dtype is not None
    return (
        x.new_empty(x.shape) if output_mask[0] else None,
        None if weight is None or not output_mask[1] else x.new_empty(x.shape[1], dtype=weight.dtype),
        x.new_empty(x.shape[1], dtype=bias_dtype) if has_bias else None,
    )


def _needs(needs: Needs) -> BackwardGrads:
    """needs_input_grad by operand; mean and rstd are functions of the input and take no gradient of their own."""
    return BackwardGrads(needs[0], needs[1], needs[2], needs[3], needs[6])


def _call(args: dispatch.Args) -> Backward:
    """The backward op's call as `formulas` sees it, still without tensors."""
    _, _, _, x, _, _, weight, bias_dtype, groups, eps, mask = args
    return Backward(
        torch.Size(group_shape(x.shape, groups)), x.dtype, None if weight is None else weight.dtype, bias_dtype,
        Channels(groups, False), eps, (mask[0], mask[1], mask[2]),
    )  # fmt: skip


def _viewed(call: Backward, tensors: Sequence[Tensor | None], groups: int) -> Backward:
    """`call` with its tensors (grad_out, grad_rstd, x, rstd, weight), shaped for the formulas."""
    grad_out, grad_rstd, x, rstd, weight = tensors
    return call.with_tensors(
        _groups(grad_out, groups), _statistics(grad_rstd), _groups(x, groups), _statistics(rstd), weight
    )


def _backward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    """Nothing for d_bias alone, which is a sum; grad_out only where input or weight need gradients."""
    grad_out, _, grad_rstd, x, _, rstd, weight, _, groups, eps, _ = args
    extras = (_call(args), groups, x.shape)
    if outputs[0] is None and outputs[1] is None:
        return (), extras
    need = _needs(needs)
    if outputs[0] is None:
        weight = grad_rstd = None
    if not (need.x or need.weight):
        grad_out = grad_rstd = None
    # The operands themselves, not their views for the formulas: those would have lost where they come from.
    return (grad_out, grad_rstd, x, rstd if eps is None else None, weight), extras


def _backward_backward(tensors: Any, extras: Any, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
    call, groups, shape = extras
    v, vw, vb = cotangents
    call = _viewed(call, tensors or (None,) * 5, groups)
    grads = formulas.backward_vjp(call, _needs(needs), (_groups(v, groups), vw, vb))
    d_dy, d_x = (None if t is None else t.reshape(shape) for t in (grads.grad_out, grads.x))
    d_dm, d_ds = (None if t is None else t[:, :, 0, 0] for t in (grads.grad_mean, grads.grad_rstd))
    return (d_dy, d_dm, d_ds, d_x, None, None, grads.weight, *(None,) * 4)


def _backward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    grad_out, _, grad_rstd, x, _, rstd, weight, _, groups, eps, _ = args
    call = _viewed(_call(args), (grad_out, grad_rstd, x, rstd if eps is None else None, weight), groups)
    tdy, tdm, tds, tx = tangents[:4]
    viewed = (_groups(tdy, groups), _statistics(tdm), _statistics(tds), _groups(tx, groups), tangents[6])
    d_input, d_weight, d_bias = formulas.backward_jvp(call, viewed)
    return None if d_input is None else d_input.reshape(x.shape), d_weight, d_bias


def _backward_vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    """Folds the batch into N for d_input alone, else into the channels, where each slice has sums of its own.

    An operand that is not batched is repeated, in float32 for the half types where its cotangent will be summed.
    """
    *tensors, weight, bias_dtype, groups, eps, mask = args
    size, dtype, shape = info.batch_size, tensors[3].dtype, _slice_shape(tensors[3], in_dims[3])
    weight_dtype = None if weight is None else weight.dtype
    up = compute_dtype(dtype)
    if in_dims[0] is None or in_dims[3] is None:
        tensors[0], tensors[3] = tensors[0].to(up), tensors[3].to(up)
    sums = (mask[1] and weight is not None) or (mask[2] and bias_dtype is not None)
    at = 1 if sums or in_dims[6] is not None else 0
    folded = [None if t is None else _fold(t, dim, size, at) for t, dim in zip(tensors, in_dims, strict=False)]
    if at == 1 and weight is not None:
        weight = _fold(weight.to(up) if in_dims[6] is None else weight, in_dims[6], size, 0)
    d_input, d_weight, d_bias = backward(*folded, weight, bias_dtype, size * groups if at == 1 else groups, eps, mask)
    d_input = None if d_input is None else d_input.to(dtype)
    d_weight = None if d_weight is None else d_weight.to(weight_dtype)
    return _unfold((d_input, d_weight, d_bias), (at, 0, 0), [(size, shape[at]), (size, shape[1]), (size, shape[1])])


_AUTOCAST = (("cuda", torch.float32),)  # as torch: group_norm autocasts to float32 on CUDA, not on CPU

backward = dispatch.define(
    _library,
    "group_norm_backward(Tensor grad_out, Tensor? grad_mean, Tensor? grad_rstd, Tensor input, Tensor mean, Tensor rstd,"
    " Tensor? weight, ScalarType? bias_dtype, int groups, float? eps, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)",
    dispatch.Kernels(cpu.backward, cuda.backward, _backward_fake),
    _backward_vmap,
    dispatch.Derivatives(_backward_save, _backward_backward, _backward_jvp),
)


def _define_forward(name: str, kernels: dispatch.Kernels, statistics: bool) -> Any:
    op: Any = None

    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
        return _forward_vmap(op, info, in_dims, *args)

    op = dispatch.define(
        _library,
        f"{name}(Tensor input, Tensor? weight, Tensor? bias, int groups, float eps) -> (Tensor, Tensor, Tensor)",
        kernels,
        vmap,
        dispatch.Derivatives(
            _forward_save,
            _forward_backward,
            lambda *rest: _forward_jvp(statistics, *rest),
            () if statistics else (1, 2),
        ),
    )
    return op


forward = _define_forward("group_norm", dispatch.Kernels(cpu.forward, cuda.forward, _forward_fake, _AUTOCAST), False)
# torch's native_group_norm does not autocast.
forward_with_statistics = _define_forward(
    "native_group_norm",
    dispatch.Kernels(cpu.forward_with_statistics, cuda.forward_with_statistics, _forward_fake),
    True,
)
