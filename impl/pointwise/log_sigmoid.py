"""Log-sigmoid: the public functions, and the ops behind them.

With s(x) = 1 / (1 + exp(x)), the slope of log-sigmoid, and D(g, x) = g s(x):

    d log_sigmoid(x) = D(dx, x),    dD = D(dg, x) - D(D(g dx, x), -x),

for s'(x) = -s(x) s(-x). So every derivative of every order is made of D, which is accurate where s is small.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..operator import positional as dispatch
from ..operator.arguments import require_device, require_floating, require_shape, require_tensor
from ..operator.precision import FLOATING, HALF, compute_dtype

_CHUNK = 1 << 16
"""Elements that are worked on at a time where intermediates are needed: these stay in cache."""

_library = torch.library.Library("opassay", "FRAGMENT")
_aten_forward = torch.ops.aten.log_sigmoid_forward.default
_aten_backward = torch.ops.aten.log_sigmoid_backward.default


def log_sigmoid(input: Tensor) -> Tensor:
    """log(1 / (1 + exp(-x))) of every element, as min(x, 0) - log(1 + exp(-|x|)): accurate where it is tiny, too.

    Args:
        input: any shape, float64, float32, bfloat16 or float16, any strides, cpu or cuda.

    Returns:
        A contiguous tensor of the input's shape and dtype; half-precision inputs are computed in float32 and rounded
        once. 0 at +inf, -inf at -inf.

    Raises:
        TypeError: input is not a tensor.
        NotImplementedError: input is not of a floating dtype named above.
    """
    if not (isinstance(input, Tensor) and input.dtype in FLOATING):
        _check("log_sigmoid", input)
    return _forward(input)[0]  # type: ignore[no-any-return]


def log_sigmoid_forward(input: Tensor) -> tuple[Tensor, Tensor]:
    """`log_sigmoid` with the buffer of torch's op of this name.

    Args:
        input: as for `log_sigmoid`.

    Returns:
        output, as `log_sigmoid`, and buffer: empty, of shape (0,) and the input's dtype, on every device. (So is
        torch's on CUDA; on CPU torch's holds exp(-|x|).) It is not differentiable, and `log_sigmoid_backward` does not
        read it.

    Raises:
        As `log_sigmoid`.
    """
    if not (isinstance(input, Tensor) and input.dtype in FLOATING):
        _check("log_sigmoid_forward", input)
    return _forward(input)[0], input.new_empty((0,))


def log_sigmoid_backward(grad_output: Tensor, input: Tensor, buffer: Tensor) -> Tensor:
    """The cotangent of log-sigmoid's input: grad_output / (1 + exp(input)).

    Args:
        grad_output: the cotangent of the output; shape and dtype of input.
        input: as for `log_sigmoid`.
        buffer: any tensor. It is not read: the result, and each of its derivatives, is a function of grad_output and
            input.

    Returns:
        A contiguous tensor of the input's shape and dtype.

    Raises:
        TypeError: an operand is not a tensor.
        RuntimeError: shapes, dtypes or devices do not fit each other.
        NotImplementedError: input is not of a floating dtype.
    """
    if not (
        isinstance(input, Tensor)
        and isinstance(grad_output, Tensor)
        and isinstance(buffer, Tensor)
        and input.dtype in FLOATING
        and grad_output.dtype is input.dtype
        and grad_output.shape == input.shape
        and grad_output.device == input.device
    ):
        _check_backward("log_sigmoid_backward", grad_output, input, buffer)
    return _backward(grad_output, input, None)  # type: ignore[no-any-return]


def _check(name: str, x: Tensor) -> None:
    require_tensor(name, "input", x)
    require_floating(name, "input", x)


def _check_backward(name: str, grad: Tensor, x: Tensor, buffer: Tensor) -> None:
    _check(name, x)
    require_tensor(name, "grad_output", grad)
    require_tensor(name, "buffer", buffer)
    require_device(name, "grad_output", grad, "input", x)
    require_shape(name, "grad_output", grad, x.shape, "the input's shape")
    if grad.dtype is not x.dtype:
        raise RuntimeError(
            f"{name}: got grad_output of dtype={grad.dtype} and input of dtype={x.dtype}, need one dtype."
        )


# ---------------------------------------------------------------------------------------------- kernels


def _forward_cpu(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """(out, exp(-|x|)); None for the half types, whose exp(-|x|) would be rounded."""
    out, buffer = _aten_forward(x.contiguous())
    return out, None if x.dtype in HALF else buffer


def _forward_cuda(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """(out, None): the backward kernel there computes exp(-|x|) again."""
    return _aten_forward(x.contiguous())[0], None


def _forward_fake(x: Tensor) -> tuple[Tensor, Tensor | None]:
    kept = x.device.type == "cpu" and x.dtype not in HALF
    return x.new_empty(x.shape), x.new_empty(x.shape) if kept else None


def _backward_cpu(grad: Tensor, x: Tensor, buffer: Tensor | None) -> Tensor:
    """grad / (1 + exp(x)) from exp(-|x|), given or computed."""
    if buffer is not None:
        return _aten_backward(grad.contiguous(), x.contiguous(), buffer.contiguous())  # type: ignore[no-any-return]
    if x.numel() <= _CHUNK:
        wide = compute_dtype(x.dtype)
        return _scaled(grad.contiguous().to(wide), x.contiguous().to(wide)).to(x.dtype)
    out = torch.empty(x.shape, dtype=x.dtype)
    parts = (t.reshape(-1).split(_CHUNK) for t in (grad, x, out))
    for some, values, result in zip(*parts, strict=True):
        result.copy_(_backward_cpu(some, values, None))
    return out


def _scaled(grad: Tensor, x: Tensor) -> Tensor:
    return _aten_backward(grad, x, x.abs().neg_().exp_())  # type: ignore[no-any-return]


def _backward_cuda(grad: Tensor, x: Tensor, buffer: Tensor | None) -> Tensor:
    """ATen's, which reads no buffer there."""
    return _aten_backward(grad.contiguous(), x.contiguous(), x.new_empty((0,)))  # type: ignore[no-any-return]


def _backward_fake(grad: Tensor, x: Tensor, buffer: Tensor | None) -> Tensor:
    return x.new_empty(x.shape)


# ---------------------------------------------------------------------------------------------- rules


def _forward_vmap(info: Any, in_dims: Any, x: Tensor) -> tuple[Any, Any]:
    out, buffer = _forward(x.movedim(in_dims[0], 0))
    return (out, buffer), (0, None if buffer is None else 0)


def _backward_vmap(info: Any, in_dims: Any, *operands: Any) -> tuple[Any, Any]:
    """The batch in front. An operand without it is expanded, in float32 if half: there its cotangent is summed."""
    grad, x, buffer = operands
    dtype = x.dtype
    if in_dims[0] is None or in_dims[1] is None:
        grad, x = _up(grad), _up(x)
    rows = [
        t if t is None else t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
        for t, dim in zip((grad, x, buffer), in_dims, strict=True)
    ]
    return _backward(*rows).to(dtype), 0


def _up(t: Tensor) -> Tensor:
    return t.to(compute_dtype(t.dtype))


def _curved(weight: Tensor, x: Tensor, buffer: Tensor | None) -> Tensor:
    """weight s'(x) = -weight s(x) s(-x); exp(-|x|) is the same for both."""
    return -_backward(_backward(weight, x, buffer), -x, buffer)  # type: ignore[no-any-return]


def _forward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Any) -> Any:
    return (args[0], outputs[1]), None


def _forward_backward(tensors: Any, extras: Any, needs: Any, cotangents: dispatch.Args) -> dispatch.Grads:
    x, buffer = tensors
    return (_backward(cotangents[0], x, buffer),)


def _forward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    return _backward(tangents[0], args[0], None), None


def _backward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Any) -> Any:
    grad, x, buffer = args
    return (grad if needs[1] else None, x, buffer), x.dtype


def _backward_backward(tensors: Any, dtype: Any, needs: Any, cotangents: dispatch.Args) -> dispatch.Grads:
    grad, x, buffer = tensors
    v, x = _up(cotangents[0]), _up(x)
    d_grad = _backward(v, x, buffer).to(dtype) if needs[0] else None
    d_x = None if grad is None else _curved(v * grad, x, buffer).to(dtype)
    return d_grad, d_x, None


def _backward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    grad, x, buffer = args
    dtype, x = x.dtype, _up(x)
    t_grad, t_x = tangents[:2]
    out = None if t_grad is None else _backward(_up(t_grad), x, buffer)
    if t_x is not None:
        moved = _curved(_up(grad) * t_x, x, buffer)
        out = moved if out is None else out + moved
    return (torch.zeros_like(x, dtype=dtype) if out is None else out.to(dtype),)


_forward = dispatch.define(
    _library,
    "log_sigmoid(Tensor input) -> (Tensor, Tensor)",
    dispatch.Kernels(_forward_cpu, _forward_cuda, _forward_fake),
    _forward_vmap,
    dispatch.Derivatives(_forward_save, _forward_backward, _forward_jvp, non_differentiable=(1,)),
)
_backward = dispatch.define(
    _library,
    "log_sigmoid_backward(Tensor grad_output, Tensor input, Tensor? buffer) -> Tensor",
    dispatch.Kernels(_backward_cpu, _backward_cuda, _backward_fake),
    _backward_vmap,
    dispatch.Derivatives(_backward_save, _backward_backward, _backward_jvp),
)
