"""The softmax ops as torch sees them: kernels, fake and vmap rules, derivatives.

Each forward op has two outputs: the values, and for a half-precision result its `shift` (softmax_formulas.py), which
is there for derivatives of higher order. What is saved for backward is the output, as it was rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..operator import positional as dispatch
from ..operator.precision import HALF, compute_dtype
from . import expressions as softmax_formulas
from .expressions import Saved, up

Needs = tuple[bool, ...]
Kernel = Callable[..., Any]

_library = torch.library.Library("opassay", "FRAGMENT")

_CHUNK = 1 << 17
"""Elements of a half-precision operand that are taken to float32 at a time."""

_aten_softmax_backward = torch.ops.aten._softmax_backward_data.default
_aten_log_softmax_backward = torch.ops.aten._log_softmax_backward_data.default


def _wider(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    """The dtype to compute in where values come in `a` and leave in `b`."""
    return torch.promote_types(compute_dtype(a), compute_dtype(b))


_deterministic = torch.are_deterministic_algorithms_enabled


def _softmax(x: Tensor, dim: int) -> Tensor:
    """ATen's softmax; where deterministic algorithms are asked for, with `dim` made last.

    Along any other dim ATen hands columns to threads, and computes in another way those that fill no vector: which ones
    these are depends on the number of threads.
    """
    if dim < x.dim() - 1 and _deterministic():
        return torch.softmax(x.movedim(dim, -1).contiguous(), -1).movedim(-1, dim).contiguous()
    return torch.softmax(x, dim)


def _softmax_backward(grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """ATen's backward of softmax; where deterministic algorithms are asked for, with `dim` not the last one.

    Along the last dim the order of its sums depends on the number of threads.
    """
    if dim == grad.dim() - 1 and _deterministic():
        return _aten_softmax_backward(grad.unsqueeze(-1), output.unsqueeze(-1), dim, dtype).squeeze(-1)  # type: ignore[no-any-return]
    return _aten_softmax_backward(grad, output, dim, dtype)  # type: ignore[no-any-return]


def _forward_kernel(log: bool) -> Kernel:
    aten: Kernel = torch.log_softmax if log else _softmax

    def kernel(x: Tensor, dim: int, dtype: torch.dtype | None, dense: bool) -> tuple[Tensor, Tensor | None]:
        given = x.dtype
        dtype = given if dtype is None else dtype
        if dtype in HALF and not (dtype is given and not log and dim >= x.dim() - 1):
            out = _half(aten, x, dim, dtype)  # elsewhere ATen rounds what comes before the result, too
        else:
            out = aten(x if dtype is given else x.to(_wider(given, dtype)), dim)
            out = out if out.dtype is dtype else out.to(dtype)
        return out, softmax_formulas.zero_shift(x, x.shape, dense) if dtype in HALF else None

    return kernel


def _half(aten: Kernel, x: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """A half-precision result, computed in float32 and rounded once, some rows at a time: the copies stay in cache."""
    wide = _wider(x.dtype, dtype)
    axis = 0 if dim else x.dim() - 1
    if x.numel() <= _CHUNK or axis == dim:
        return aten(x.to(wide), dim).to(dtype)  # type: ignore[no-any-return]
    step = max(1, _CHUNK * x.shape[axis] // x.numel())
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    for some, result in zip(x.split(step, axis), out.split(step, axis), strict=True):
        result.copy_(aten(some.to(wide), dim))
    return out


def _forward_fake(x: Tensor, dim: int, dtype: torch.dtype | None, dense: bool) -> tuple[Tensor, Tensor | None]:
    out = x.new_empty(x.shape, dtype=dtype)
    return out, softmax_formulas.zero_shift(x, x.shape, dense) if out.dtype in HALF else None


def _backward_kernel(log: bool) -> Kernel:
    aten = _aten_log_softmax_backward if log else _softmax_backward

    def kernel(grad: Tensor, output: Tensor, shift: Tensor | None, dim: int, input_dtype: torch.dtype) -> Tensor:
        dtype = grad.dtype
        if dtype is not output.dtype or dtype is not input_dtype:
            dtype = torch.promote_types(_wider(dtype, input_dtype), compute_dtype(output.dtype))
            grad, output = grad.to(dtype), output.to(dtype)
        return aten(grad, output, dim, dtype).to(input_dtype)

    return kernel


def _backward_fake(grad: Tensor, output: Tensor, shift: Tensor | None, dim: int, input_dtype: torch.dtype) -> Tensor:
    return grad.new_empty(grad.shape, dtype=input_dtype)


def _batched(t: Tensor, dim: int | None, size: int) -> Tensor:
    return t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)


def _forward_vmap(op: Kernel, info: Any, in_dims: Any, x: Tensor, dim: int, *rest: Any) -> tuple[Any, Any]:
    """The batch in front: one more leading dim."""
    x = x.movedim(in_dims[0], 0)
    if x.dim() == 1:  # every slice has no dims, and is its own row
        outputs = tuple(None if t is None else t.squeeze(-1) for t in op(x.unsqueeze(-1), 1, *rest))
    else:
        outputs = op(x, dim + 1, *rest)
    return outputs, tuple(None if t is None else 0 for t in outputs)


def _backward_vmap(op: Kernel, info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    """The batch in front. An operand without it is expanded, in float32 if half: there its cotangent is summed."""
    grad, output, shift, dim, input_dtype = args
    if in_dims[0] is None or in_dims[1] is None:
        grad, output = up(grad), up(output)
    rows = [
        None if t is None else _batched(t, d, info.batch_size)
        for t, d in zip((grad, output, shift), in_dims[:3], strict=True)
    ]
    if grad.dim() == (in_dims[0] is not None):
        rows = [None if t is None else t.unsqueeze(-1) for t in rows]
        return op(*rows, 1, input_dtype).squeeze(-1), 0
    return op(*rows, dim + 1, input_dtype), 0


def _forward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    return outputs, (args[1], args[0].dtype)


def _backward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    """The cotangent only where the output, or its shift, needs a gradient."""
    grad, output, shift, dim, _ = args
    through = needs[1] if shift is None else needs[2]
    return (grad if through else None, output, shift), (grad.dtype, dim)


def _define(log: bool) -> tuple[Kernel, Kernel]:
    """(forward, backward) of softmax, or of log_softmax."""
    name = "log_softmax" if log else "softmax"
    forward: Any = None
    backward: Any = None

    def forward_backward(tensors: Any, extras: Any, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
        (output, shift), (dim, dtype), (g, g_shift) = tensors, extras, cotangents
        if g_shift is None:
            return backward(g, output, shift, dim, dtype), None, None, None
        grad = g_shift if g is None else backward(up(g), output, shift, dim, g_shift.dtype) + g_shift
        return grad.to(dtype), None, None, None

    def forward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
        x, dim, dtype, _ = args
        dtype = x.dtype if dtype is None else dtype
        p = softmax(x, dim, _wider(x.dtype, dtype), False)[0]
        t = tangents[0].to(p.dtype)
        out = softmax_formulas.forward_jvp(log, p, t, dim).to(dtype)
        return out, t.to(torch.float32) if dtype in HALF else None

    def backward_backward(tensors: Any, extras: Any, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
        (grad, output, shift), (dtype, dim) = tensors, extras
        v = up(cotangents[0])
        saved = Saved.of(log, output, shift, dim)
        c_grad = c_output = c_shift = None
        if needs[0]:
            # Softmax is its own adjoint: the same kernel.
            c_grad = saved.adjoint(v).to(dtype) if log else backward(v, saved.p, None, dim, dtype)
        if grad is not None:
            cotangent = saved.grad_of_output(up(grad), v)
            c_output, c_shift = (cotangent.to(output.dtype), None) if shift is None else (None, cotangent)
        return c_grad, c_output, c_shift, None, None

    def backward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
        grad, output, shift, dim, input_dtype = args
        saved = Saved.of(log, output, shift, dim)
        moved = tangents[1] if shift is None else tangents[2]
        parts = []
        if tangents[0] is not None:
            parts.append(saved.image(up(tangents[0])))
        if moved is not None:
            parts.append(saved.tangent(up(grad), up(moved)))
        out = sum(parts[1:], parts[0]) if parts else torch.zeros_like(saved.p)
        return (out.to(input_dtype),)

    forward = dispatch.define(
        _library,
        f"{name}(Tensor input, int dim, ScalarType? dtype, bool dense_shift) -> (Tensor, Tensor)",
        dispatch.Kernels(_forward_kernel(log), _forward_kernel(log), _forward_fake, (("cuda", torch.float32),)),
        lambda *rest: _forward_vmap(forward, *rest),
        dispatch.Derivatives(_forward_save, forward_backward, forward_jvp),
    )
    backward = dispatch.define(
        _library,
        f"{name}_backward(Tensor grad, Tensor output, Tensor? shift, int dim, ScalarType input_dtype) -> Tensor",
        dispatch.Kernels(_backward_kernel(log), _backward_kernel(log), _backward_fake),
        lambda *rest: _backward_vmap(backward, *rest),
        dispatch.Derivatives(_backward_save, backward_backward, backward_jvp),
    )
    return forward, backward


softmax, softmax_backward = _define(False)
log_softmax, log_softmax_backward = _define(True)
