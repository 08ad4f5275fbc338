"""QuACK's functions as they stand: what is called, what it means in plain PyTorch, and its inputs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from .row import APPROXIMATE, COLUMNS, EPS, ROWS_OF_X, TANH, Row, normal, rows_alone


def _rms_norm() -> tuple[Any, Any]:
    quack = importlib.import_module("quack")
    return lambda x, w: quack.rmsnorm(x, w, eps=EPS), lambda x, w: F.rms_norm(x, x.shape[-1:], w, EPS)


def _rms_norm_of_sum() -> tuple[Any, Any]:
    quack = importlib.import_module("quack")

    def candidate(x: Any, w: Any, b: Any, r: Any) -> Any:
        return quack.rmsnorm(x, w, b, residual=r, eps=EPS, prenorm=True)

    def spec(x: Any, w: Any, b: Any, r: Any) -> Any:
        total = x + r
        return F.rms_norm(total, total.shape[-1:], w, EPS) + b, total

    return candidate, spec


def _layer_norm() -> tuple[Any, Any]:
    norms = importlib.import_module("quack.rmsnorm")

    class LayerNorm(torch.autograd.Function):
        """The call of QuACK's two functions that its tests make."""

        @staticmethod
        def forward(ctx: Any, x: Any, w: Any, b: Any) -> Any:
            out, rstd, mean = norms.layernorm_fwd(x, w, b, eps=EPS, return_rstd=True, return_mean=True)
            ctx.save_for_backward(x, w, rstd, mean)
            return out

        @staticmethod
        def backward(ctx: Any, dout: Any) -> Any:
            x, w, rstd, mean = ctx.saved_tensors
            return norms.layernorm_bwd(x, w, dout.contiguous(), rstd, mean)

    return LayerNorm.apply, lambda x, w, b: F.layer_norm(x, x.shape[-1:], w.to(x.dtype), b.to(x.dtype), EPS)


def _softmax() -> tuple[Any, Any]:
    quack = importlib.import_module("quack")
    return quack.softmax, lambda x: torch.softmax(x, -1)


class _Contiguous(torch.autograd.Function):
    """Hands a gradient on whose rows are in order."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient.contiguous()


def _in_order(make: Callable[[], tuple[Any, Any]]) -> Callable[[], tuple[Any, Any]]:
    """What a row makes, with gradients whose rows are in order."""

    def candidate() -> tuple[Any, Any]:
        function, spec = make()
        return lambda *inputs: _Contiguous.apply(function(*inputs)), spec

    return candidate


def _cross_entropy() -> tuple[Any, Any]:
    quack = importlib.import_module("quack")

    def spec(x: Any, target: Any) -> Any:
        return F.cross_entropy(x.float(), target, reduction="none")

    return lambda x, target: quack.cross_entropy(x, target, reduction="none"), spec


def _top_k() -> tuple[Any, Any]:
    top = importlib.import_module("quack.topk")
    return lambda x: top.topk(x, 8)[0], lambda x: torch.topk(x, 8).values


def _top_k_softmax() -> tuple[Any, Any]:
    top = importlib.import_module("quack.topk")
    return lambda x: top.topk(x, 8, softmax=True)[0], lambda x: torch.softmax(torch.topk(x, 8).values, -1)


def _gemm() -> tuple[Any, Any]:
    interface = importlib.import_module("quack.gemm_interface")
    return lambda a, b: interface.gemm(a, b, tuned=False), lambda a, b: a @ b


def _gemm_added() -> tuple[Any, Any]:
    interface = importlib.import_module("quack.gemm_interface")
    return lambda a, b, c: interface.gemm_add(a, b, c, tuned=False), lambda a, b, c: a @ b + c


def _linear() -> tuple[Any, Any]:
    linear = importlib.import_module("quack.linear")
    return lambda x, w: linear.linear_func(x, w, tuned=False), lambda x, w: F.linear(x, w)


def _perceptron() -> tuple[Any, Any]:
    linear = importlib.import_module("quack.linear")

    def candidate(x: Any, v: Any, w: Any) -> Any:  # what `quack.mlp` does, which needs another package
        before, after = linear.linear_act_func(x, v, "relu", tuned=False)
        return linear.act_linear_func(before, w, after, "relu", tuned=False)

    return candidate, lambda x, v, w: F.linear(torch.relu(F.linear(x, v)), w)


def _gemm_activated(name: str, function: Callable[[Any], Any]) -> Callable[[], tuple[Any, Any]]:
    def make() -> tuple[Any, Any]:
        interface = importlib.import_module("quack.gemm_interface")

        def spec(a: Any, b: Any) -> Any:
            product = a @ b
            return product, function(product)

        return lambda a, b: interface.gemm_act(a, b, activation=name, tuned=False), spec

    return make


def _gelu(x: Any) -> Any:
    return F.gelu(x, approximate="tanh")


def _matrices(dtype: torch.dtype, *shapes: tuple[int, int], grad: bool = False) -> tuple[Any, ...]:
    return tuple(normal(*shape, dtype=dtype, grad=grad) for shape in shapes)


_WIDE = "NaN beyond 2^128 / log2(e), where the product with log2(e) overflows"
_ROWS_OF_GRADIENT = "the gradient of a transposed result is refused"
_LOW_BITS = "the column stands in the last bits of a value: float32 is rounded to 15 bits, and infinities become NaN"
ROWS = {
    "rmsnorm": Row(_rms_norm, lambda d: (*rows_alone(d), normal(COLUMNS, dtype=d))),
    "rmsnorm of a sum": Row(
        _rms_norm_of_sum,
        lambda d: (*rows_alone(d), normal(COLUMNS, dtype=d), normal(COLUMNS, dtype=d), *rows_alone(d)),
        why="where the residual alone requires a gradient, its backward lacks what forward has not kept",
    ),
    "layernorm": Row(_layer_norm, lambda d: (*rows_alone(d), *(normal(COLUMNS, dtype=torch.float32) for _ in "wb"))),
    "softmax": Row(_softmax, rows_alone, why=f"{_WIDE}; {_ROWS_OF_GRADIENT}"),
    "softmax in order": Row(_in_order(_softmax), rows_alone, why=_WIDE),
    "cross_entropy": Row(
        _cross_entropy, lambda d: (*rows_alone(d), torch.randint(COLUMNS, (ROWS_OF_X,)).cuda()), "torch+lse", why=_WIDE
    ),
    "topk": Row(_top_k, rows_alone, why=f"{_LOW_BITS}; {_ROWS_OF_GRADIENT}"),
    "topk in order": Row(_in_order(_top_k), rows_alone, why=_LOW_BITS),
    "topk with softmax": Row(_top_k_softmax, rows_alone, why=f"{_LOW_BITS}; {_ROWS_OF_GRADIENT}"),
    "gemm": Row(_gemm, lambda d: _matrices(d, (72, 136), (136, 72)), dtypes=("bfloat16", "float16")),
    "gemm of long rows": Row(_gemm, lambda d: _matrices(d, (72, 456), (456, 72)), dtypes=("bfloat16",)),
    "gemm of more rows": Row(_gemm, lambda d: _matrices(d, (200, 72), (72, 40)), dtypes=("bfloat16",)),
    "gemm_add": Row(_gemm_added, lambda d: _matrices(d, (72, 136), (136, 72), (72, 72)), dtypes=("bfloat16",)),
    "linear": Row(_linear, lambda d: _matrices(d, (24, 136), (72, 136), grad=True), dtypes=("bfloat16",)),
    "gemm_act": Row(
        _gemm_activated("silu", F.silu), lambda d: _matrices(d, (72, 136), (136, 72)), dtypes=("bfloat16",)
    ),
    "gemm_act with gelu": Row(
        _gemm_activated("gelu_tanh_approx", _gelu), lambda d: _matrices(d, (72, 136), (136, 72)),
        dtypes=("bfloat16",), why=TANH,
    ),
    "gemm_act with gelu, allowed": Row(
        _gemm_activated("gelu_tanh_approx", _gelu), lambda d: _matrices(d, (72, 136), (136, 72)), APPROXIMATE,
        dtypes=("bfloat16",),
    ),
    "mlp": Row(
        _perceptron, lambda d: _matrices(d, (8, 72), (40, 72), (16, 40), grad=True), dtypes=("bfloat16",)
    ),
}  # fmt: skip
