"""The layer norm ops as torch sees them: schemas, fake and vmap rules, derivatives.

`forward` and `forward_with_statistics` differ in one thing: the latter's mean and rstd are
differentiable outputs, so its backward carries their cotangents; the former's are there for its
backward only. `backward` is one op for both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..operator import operator as dispatch
from ..operator.precision import compute_dtype
from . import formulas
from . import layer_norm_cpu as cpu
from . import layer_norm_cuda as cuda
from .formulas import Backward, BackwardGrads, Rows

Needs = tuple[bool, ...]

_library = torch.library.Library("opassay", "FRAGMENT")


def _forward_fake(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, row_ndim: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    lead = x.shape[: x.dim() - row_ndim]
    mean, rstd = (x.new_empty((*lead, *(1,) * row_ndim), dtype=compute_dtype(x.dtype)) for _ in range(2))
    return x.new_empty(x.shape), mean, rstd


def _forward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    """Input and statistics, and the weight for the input's gradient; nothing where only the bias needs one."""
    x, weight, bias, row_ndim, eps = args
    dtypes = tuple(None if t is None else t.dtype for t in (weight, bias))
    tensors = (x, weight if needs[0] else None, *outputs[1:]) if needs[0] or needs[1] else ()
    return tensors, (*dtypes, row_ndim, eps)


def _forward_backward(tensors: Any, extras: dispatch.Args, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
    """One call of the backward op; a bias gradient alone is a sum."""
    weight_dtype, bias_dtype, row_ndim, eps = extras
    grad_out, grad_mean, grad_rstd = cotangents
    if not tensors:
        if grad_out is None or not needs[2]:
            return (None,) * 5
        return None, None, Rows(row_ndim).collect(grad_out).to(bias_dtype), None, None
    x, weight, mean, rstd = tensors
    if weight is None and weight_dtype is not None:  # d_weight needs no more than its shape and dtype
        weight = x.new_zeros(x.shape[-row_ndim:], dtype=weight_dtype)
    if grad_out is None:  # only the statistics have cotangents
        grad_out = torch.zeros_like(x, memory_format=torch.contiguous_format)
    d_input, d_weight, d_bias = backward(
        grad_out, grad_mean, grad_rstd, x, mean, rstd, weight, bias_dtype, row_ndim, eps, 0,
        needs[:3],
    )  # fmt: skip
    return d_input, d_weight, d_bias, None, None


def _forward_jvp(statistics: bool, args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    x, weight, _, row_ndim, eps = args
    out, mean, rstd = formulas.forward_jvp(x, weight, Rows(row_ndim), eps, tangents[:3])
    if not statistics:
        return out, None, None
    if mean is None or rstd is None:  # they depend on x alone
        _, mean, rstd = (torch.zeros_like(t) for t in _forward_fake(x, None, None, row_ndim, eps))
    return out, mean, rstd


def _forward_vmap(op: Any, info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    """Folds the batch into the leading dims; a batched affine map is applied to the normalised
    rows, outside the kernel.

    It is applied in float32 for the half types and rounded once, as the kernel does.
    """
    x, weight, bias, row_ndim, eps = args
    x_dim, weight_dim, bias_dim = in_dims[:3]
    if x_dim is not None:
        x = x.movedim(x_dim, 0)
    if weight_dim is None and bias_dim is None:
        return op(x, weight, bias, row_ndim, eps), (0, 0, 0)
    up, ndim = x.to(compute_dtype(x.dtype)), x.dim() + (x_dim is None)
    inside = None
    if weight is not None and weight_dim is None:
        inside, weight = weight.to(up.dtype), None
    out, mean, rstd = op(up, inside, None, row_ndim, eps)
    for parameter, dim, apply in ((weight, weight_dim, torch.mul), (bias, bias_dim, torch.add)):
        if parameter is None:
            continue
        parameter = parameter.to(up.dtype)
        if dim is not None:
            parameter = Rows(row_ndim, 1).spread(parameter.movedim(dim, 0), ndim)
        out = apply(out, parameter)
    if x_dim is None:
        # Batched although equal: torch's vmap reads beyond the sizes of an unbatched output for out_dims=-1.
        mean, rstd = (t.expand(info.batch_size, *t.shape) for t in (mean, rstd))
    return (out.to(x.dtype), mean, rstd), (0, 0, 0)


def _backward_fake(
    grad_out: Tensor,
    grad_mean: Tensor | None,
    grad_rstd: Tensor | None,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias_dtype: torch.dtype | None,
    row_ndim: int,
    eps: float | None,
    batch_ndim: int,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    affine = (*x.shape[:batch_ndim], *x.shape[x.dim() - row_ndim :])
    has_bias = output_mask[2] and bias_dtype is not None
    return (
        x.new_empty(x.shape) if output_mask[0] else None,
        None if weight is None or not output_mask[1] else x.new_empty(affine, dtype=weight.dtype),
        x.new_empty(affine, dtype=bias_dtype) if has_bias else None,
    )


def _operands(args: dispatch.Args) -> Backward:
    """The backward op's arguments as its rules want them; `rstd` only where eps is unknown."""
    grad_out, _, grad_rstd, x, _, rstd, weight, bias_dtype, row_ndim, eps, batch_ndim, mask = args
    return Backward(
        x.shape, x.dtype, None if weight is None else weight.dtype, bias_dtype,
        Rows(row_ndim, batch_ndim), eps, (mask[0], mask[1], mask[2]),
        grad_out, grad_rstd, x, rstd if eps is None else None, weight,
    )  # fmt: skip


def _needs(needs: Needs) -> BackwardGrads:
    """needs_input_grad by operand; mean and rstd are functions of the input and take no gradient of their own."""
    return BackwardGrads(needs[0], needs[1], needs[2], needs[3], needs[6])


def _backward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    """Nothing for d_bias alone, which is a sum; grad_out only where input or weight need gradients."""
    op, need = _operands(args), _needs(needs)
    if outputs[0] is None and outputs[1] is None:
        return (), op.with_tensors()
    if outputs[0] is None:
        op = op._replace(weight=None, grad_rstd=None)
    if not (need.x or need.weight):
        op = op._replace(grad_out=None, grad_rstd=None)
    return op.tensors(), op.with_tensors()


def _backward_backward(tensors: Any, op: Backward, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
    grads = formulas.backward_vjp(op.with_tensors(*tensors), _needs(needs), cotangents)
    statistics, others = (None, None), (None,) * 5
    return (*grads[:4], *statistics, grads.weight, *others)


def _backward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    return formulas.backward_jvp(_operands(args), (*tangents[:4], tangents[6]))


def _backward_vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    """One more batch dim in front: the op itself keeps one d_weight and d_bias per batch index.

    An operand that is not batched is expanded. If that is grad_out or input they are taken to
    float32 first, so that the sum over the batch, which is the derivative of expanding, adds no
    half-precision contributions.
    """
    *tensors, bias_dtype, row_ndim, eps, batch_ndim, mask = args
    grad_out, grad_mean, grad_rstd, x, mean, rstd, weight = tensors
    dtype = x.dtype
    if in_dims[0] is None or in_dims[3] is None:
        up = compute_dtype(dtype)
        grad_out, x = grad_out.to(up), x.to(up)

    def full(t: Tensor | None, dim: int | None) -> Tensor | None:
        if t is None:
            return None
        return t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)

    rows = (grad_out, grad_mean, grad_rstd, x, mean, rstd)
    batched = [full(t, dim) for t, dim in zip(rows, in_dims[:6], strict=True)]
    if weight is not None:
        if in_dims[6] is not None:
            weight = weight.movedim(in_dims[6], 0)
            if weight.dim() == row_ndim + 1:  # inner batch dims that it does not have
                weight = weight.reshape(weight.shape[0], *(1,) * batch_ndim, *weight.shape[1:])
        elif weight.dim() > row_ndim:
            weight = weight.unsqueeze(0)
    outputs = backward(*batched, weight, bias_dtype, row_ndim, eps, batch_ndim + 1, mask)
    d_input = None if outputs[0] is None else outputs[0].to(dtype)
    return (d_input, *outputs[1:]), tuple(None if t is None else 0 for t in outputs)


_AUTOCAST = (("cuda", torch.float32),)  # as torch: layer norm autocasts to float32 on CUDA, not on CPU

backward = dispatch.define(
    _library,
    "layer_norm_backward(Tensor grad_out, Tensor? grad_mean, Tensor? grad_rstd, Tensor input,"
    " Tensor mean, Tensor rstd, Tensor? weight, ScalarType? bias_dtype, int row_ndim, float? eps,"
    " int batch_ndim, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    dispatch.Kernels(cpu.backward, cuda.backward, _backward_fake),
    _backward_vmap,
    dispatch.Derivatives(_backward_save, _backward_backward, _backward_jvp),
)


def _define_forward(name: str, cpu_kernel: Any, cuda_kernel: Any, statistics: bool) -> Any:
    op: Any = None

    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
        return _forward_vmap(op, info, in_dims, *args)

    op = dispatch.define(
        _library,
        f"{name}(Tensor input, Tensor? weight, Tensor? bias, int row_ndim, float eps) -> (Tensor, Tensor, Tensor)",
        dispatch.Kernels(cpu_kernel, cuda_kernel, _forward_fake, _AUTOCAST),
        vmap,
        dispatch.Derivatives(
            _forward_save,
            _forward_backward,
            lambda *rest: _forward_jvp(statistics, *rest),
            () if statistics else (1, 2),
        ),
    )
    return op


forward = _define_forward("layer_norm", cpu.forward, cuda.forward, False)
forward_with_statistics = _define_forward(
    "native_layer_norm", cpu.forward_with_statistics, cuda.forward_with_statistics, True
)
