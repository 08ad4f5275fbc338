"""Log-sigmoid: what the cells do not ask."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from opassay.impl import log_sigmoid, log_sigmoid_backward, log_sigmoid_forward

X = torch.arange(6.0).reshape(2, 3)
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("op", [log_sigmoid, log_sigmoid_forward])
@pytest.mark.parametrize(
    ("operands", "kind", "text"),
    [
        (X.long(), NotImplementedError, "got input of dtype=torch.int64, need float64"),
        ([1.0], TypeError, "got input=[1.0], need a Tensor."),
    ],
)
def test_forward_mistake(op: Any, operands: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as error:
        op(operands)
    assert str(error.value).startswith(f"{op.__name__}: {text}")


BACKWARD_MISTAKES: dict[str, tuple[type[Exception], str, tuple[Any, ...]]] = {
    "grad_output not a tensor": (TypeError, "got grad_output=1.0, need a Tensor.", (1.0, X, X)),
    "buffer not a tensor": (TypeError, "got buffer=None, need a Tensor.", (X, X, None)),
    "grad_output shape": (RuntimeError, "got grad_output of shape=[3], need the input's shape", (X[0], X, X)),
    "grad_output dtype": (RuntimeError, "got grad_output of dtype=torch.float64 and input of", (X.double(), X, X)),
    "device": (RuntimeError, "got grad_output on device=meta and input on device=cpu", (X.to("meta"), X, X)),
    "integer input": (NotImplementedError, "got input of dtype=torch.int64", (X, X.long(), X)),
}


@pytest.mark.parametrize("mistake", BACKWARD_MISTAKES)
def test_backward_mistake(mistake: str) -> None:
    kind, text, args = BACKWARD_MISTAKES[mistake]
    with pytest.raises(kind) as error:
        log_sigmoid_backward(*args)
    assert str(error.value).startswith(f"log_sigmoid_backward: {text}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_buffer_is_empty_not_differentiable_and_not_read(dtype: torch.dtype) -> None:
    x = X.to(dtype).requires_grad_()
    out, buffer = log_sigmoid_forward(x)
    assert torch.equal(out, log_sigmoid(x))
    assert (buffer.shape, buffer.dtype, buffer.requires_grad) == ((0,), dtype, False)
    grads = [log_sigmoid_backward(torch.ones_like(x), x, b) for b in (buffer, torch.full_like(x, math.nan))]
    assert torch.equal(*grads)


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinities(dtype: torch.dtype) -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan], dtype=dtype, requires_grad=True)
    out = log_sigmoid(x)
    (slope,) = torch.autograd.grad(out, x, torch.ones_like(out))
    assert out.tolist()[:2] == [0.0, -math.inf]
    assert slope.tolist()[:2] == [0.0, 1.0]
    assert math.isnan(out.detach()[2])
    assert math.isnan(slope[2])


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_derivatives_of_high_order_at_zero(order: int) -> None:
    """Exact values: 1/2, -1/4, 0, 1/8, 0, where the branches for both signs meet."""
    expected = (0.5, -0.25, 0.0, 0.125, 0.0)[order - 1]
    for zero in (0.0, -0.0):
        x = torch.tensor(zero, dtype=torch.float64, requires_grad=True)
        y = log_sigmoid(x)
        for _ in range(order):
            (y,) = torch.autograd.grad(y, x, create_graph=True)
        assert y.item() == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_backward_in_parts_equals_backward_at_once(dtype: torch.dtype) -> None:
    """More elements than are worked on at a time, in strides of their own."""
    g = torch.Generator().manual_seed(0)
    x, grad = (torch.randn(331, 517, generator=g).to(dtype).T for _ in range(2))
    parts = torch.cat([log_sigmoid_backward(a, b, a) for a, b in zip(grad.split(50), x.split(50), strict=True)])
    whole = log_sigmoid_backward(grad, x, x)
    assert whole.is_contiguous()
    assert torch.equal(whole, parts)


@pytest.mark.parametrize("dtype", DTYPES)
def test_vmap_keeps_dtype_and_batches_the_buffer(dtype: torch.dtype) -> None:
    x = X.to(dtype)

    def call(t: Tensor) -> tuple[Tensor, Tensor]:
        return log_sigmoid_forward(t)

    out, buffer = vmap(call, 1)(x)
    assert (out.shape, out.dtype) == ((3, 2), dtype)
    assert (buffer.shape, buffer.dtype) == ((3, 0), dtype)
    grads = vmap(log_sigmoid_backward, (0, None, None))(x, x[0], x)
    assert grads.dtype == dtype
    assert torch.equal(grads[1], log_sigmoid_backward(x[1], x[0], x))
