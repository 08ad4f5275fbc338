"""Ops that are a kernel on CUDA and an expression on the CPU, and when an expression is evaluated at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opassay.impl.operator.composed import Composed
from opassay.impl.operator.expression import Expression
from opassay.impl.operator.operator import LIBRARY, Kernels, Operator

Tensor = torch.Tensor
SEED = 17


def _numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(SEED))


def _calls() -> list[tuple[str, tuple[Any, ...]]]:
    rows, row = _numbers(3, 5), _numbers(5)
    images, channels = _numbers(4, 6, 7, 2), _numbers(6)
    last = images.contiguous(memory_format=torch.channels_last)
    return [
        ("layer_norm_jvp", (rows, row, rows.flip(0), row, row, 1, 1e-5, True)),
        ("layer_norm_jvp", (rows.t(), None, rows.t().flip(0), None, None, 1, 1e-5, False)),
        ("layer_norm_jvp", (row, None, None, None, row, 1, 1e-5, False)),
        ("layer_norm_jvp", (rows, row, torch._efficientzerotensor(rows.shape), row, row, 1, 1e-5, True)),
        ("group_norm_jvp", (images, channels, images.flip(0), channels, channels, 3, 1e-5, True)),
        ("group_norm_jvp", (images, channels, None, channels, None, 3, 1e-5, True)),
        ("batch_norm_jvp", (images, channels, images.flip(0), channels, channels, 1e-5, True)),
        ("batch_norm_jvp", (last, channels, images.flip(0), channels, channels, 1e-5, True)),
        ("batch_norm_evaluation_jvp", (last, None, channels, channels.exp(), images, channels, None, 1e-5)),
        ("softmax_jvp", (rows.t(), rows.t().flip(0), 1, torch.bfloat16)),
        ("log_softmax_jvp", (rows, rows.flip(0), 1, torch.float32)),
    ]


@pytest.mark.parametrize("call", range(len(_calls())))
def test_the_composition_has_the_bits_of_the_expression_and_the_strides_of_the_fake(call: int) -> None:
    name, operands = _calls()[call]
    op = Operator.registry[name]
    assert isinstance(op, Composed)
    # `overload` goes to the kernel that is registered for the CPU, and a call of the op evaluates the expression.
    composed, expressed, faked = op.overload(*operands), op(*operands), op.kernels.fake(op.arguments(operands))
    outputs = [out if isinstance(out, tuple) else (out,) for out in (composed, expressed, faked)]
    for value, expected, like in zip(*outputs, strict=True):
        assert (value is None) == (expected is None) == (like is None)
        if value is not None:
            assert torch.equal(value, expected)
            assert (value.dtype, value.shape, value.stride()) == (like.dtype, like.shape, like.stride())
            for t in operands:
                assert not isinstance(t, Tensor) or t._is_zerotensor() or t.data_ptr() != value.data_ptr()


def test_an_expression_is_evaluated_only_where_an_argument_carries_a_derivative() -> None:
    evaluated = []

    def slope(args: Any) -> Any:
        evaluated.append(1)
        return args.x * args.y

    def fake(args: Any) -> Tensor:
        return torch.empty_like(args.x)

    def product(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    def batched(op: Any, size: int, dims: Any, args: Any) -> Any:
        return op(args.x.movedim(dims.x, 0), args.y.movedim(dims.y, 0)), 0

    kernels: Any = Kernels(product, product, fake)
    op: Any = Operator("test_lazy(Tensor x, Tensor y) -> Tensor", kernels, batched, Expression(slope), library=LIBRARY)
    try:
        x, y, t = (_numbers(3) for _ in range(3))

        def constant(z: Tensor) -> Any:
            return z + op(x, y)

        def moving(z: Tensor) -> Any:
            return op(z, y)

        op(x, y)
        torch.func.jvp(constant, (x,), (t,))
        assert evaluated == []
        assert torch.equal(torch.func.jvp(moving, (x,), (t,))[1], t * y)
        assert len(evaluated) == 1
        wide = [torch.stack((v, v)) for v in (x, t)]
        tangents = torch.vmap(lambda x, t: torch.func.jvp(lambda z: op(z, y * 1.0 + 0.0 * z), (x,), (t,))[1])(*wide)
        assert torch.equal(tangents[0], t * y)
    finally:
        del Operator.registry["test_lazy"]


def test_a_batch_is_cast_by_autocast_before_its_rule_sees_it() -> None:
    """torch asks the rule for a batch first, and autocast below it; the rule ends in the dtype of its input."""

    def batched(op: Any, size: int, dims: Any, args: Any) -> Any:
        return op(args.x.movedim(dims.x, 0), args.y).to(args.x.dtype), 0

    product: Any = torch.mul
    kernels: Any = Kernels(product, product, lambda args: torch.empty_like(args.x), (("cpu", torch.float32),))
    rules: Any = Expression(lambda args: args.x * args.y)
    op: Any = Operator("test_cast(Tensor x, Tensor y) -> Tensor", kernels, batched, rules, library=LIBRARY)
    try:
        x, y = (_numbers(3).bfloat16() for _ in range(2))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert op(x, y).dtype is torch.float32
            assert torch.func.vmap(lambda one: op(one, y[0]))(x).dtype is torch.float32
            double = torch.func.vmap(lambda one: op(one, y[0].double()))(x.double())
        assert double.dtype is torch.float64
        assert torch.func.vmap(lambda one: op(one, y[0]))(x).dtype is torch.bfloat16
    finally:
        del Operator.registry["test_cast"]
