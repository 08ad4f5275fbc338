"""Batch norm: large inputs, memory formats, what is written and when, and outputs that have no values."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay import impl
from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.op.declaration import Sample, dtype_name
from opassay.properties.catalog.loading import load_op

EVERY = [True, True, True]
#: Shapes large enough for the kernels that small samples do not reach.
LARGE: list[tuple[tuple[int, ...], torch.memory_format]] = [
    ((5, 13, 33, 40), torch.contiguous_format),
    ((5, 13, 33, 40), torch.channels_last),
    ((3, 5, 6, 31, 33), torch.channels_last_3d),
    ((2, 3, 20_000), torch.contiguous_format),
    ((700, 110), torch.contiguous_format),
]


def _randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _args(x: Tensor, eps: float = 1e-5, training: bool = True) -> tuple[Any, ...]:
    """Arguments of native_batch_norm."""
    channels = x.shape[1]
    weight, bias, mean = (_randn(channels, seed=i).to(x.dtype) for i in (1, 2, 3))
    return x, weight, bias, mean, mean.square() + 0.5, training, 0.3, eps


@pytest.mark.one_fast_in(15)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("shape", "layout"), LARGE, ids=str)
@pytest.mark.parametrize(("offset", "scale", "eps"), [(0.0, 1.0, 1e-5), (30.0, 1e-3, 1.0), (16.0, 1.0, 0.0)])
def test_large_inputs_are_in_the_accept_set(
    shape: tuple[int, ...], layout: torch.memory_format, dtype: torch.dtype, offset: float, scale: float, eps: float
) -> None:
    """Values and gradients; the second regime has a variance far below eps, which running_var must not lose."""
    x = (_randn(*shape) * scale + offset).to(dtype).contiguous(memory_format=layout)
    judge = Judge(load_op("native_batch_norm"), "opassay", contract(dtype_name(dtype)))
    judge.hold(Sample(_args(x, eps)), ())
    judge.hold(Sample(_args(x, eps)), ("vjp",), "eager")
    assert judge.tally.judged > x.numel()


@pytest.mark.parametrize(("shape", "layout"), LARGE, ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_results_have_the_input_s_memory_format(
    shape: tuple[int, ...], layout: torch.memory_format, training: bool
) -> None:
    x = _randn(*shape).float().contiguous(memory_format=layout).requires_grad_()
    out = impl.native_batch_norm(*_args(x, training=training))[0]
    (d_input,) = torch.autograd.grad(out, x, torch.ones(shape))
    assert out.is_contiguous(memory_format=layout)
    assert d_input.is_contiguous(memory_format=layout)
    assert impl.native_batch_norm(*_args(x.transpose(0, -1), training=training))[0].is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("shape", "strides"), [((1, 3, 1, 2), (3, 1, 6, 3)), ((2, 3, 1, 1), (3, 1, 3, 3))], ids=str)
def test_strides_of_dims_of_size_one_mean_nothing(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> None:
    """ATen takes such inputs for channels_last here and for contiguous there, and then rounds on the way."""
    x, grad = (_randn(*shape, seed=i).to(dtype) for i in (1, 2))
    odd = torch.empty_strided(shape, strides, dtype=dtype).copy_(x)
    mean, invstd = (_randn(3, seed=i).float() for i in (3, 4))
    for training in (True, False):
        results = []
        for case in ((grad, x), (grad, odd), (torch.empty_strided(shape, strides, dtype=dtype).copy_(grad), x)):
            statistics = (mean, invstd.abs(), mean, invstd.abs())
            grads = impl.native_batch_norm_backward(*case, None, *statistics, training, 1e-5, EVERY)
            out = impl.native_batch_norm(case[1], None, None, mean.clone(), invstd.abs(), training, 0.1, 1e-5)[0]
            results.append((*grads, out))
        for other in results[1:]:
            assert all(
                torch.equal(a, b) for a, b in zip(results[0], other, strict=True) if a is not None and b is not None
            )


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_deterministic_algorithms_give_the_same_values(layout: torch.memory_format) -> None:
    x = _randn(4, 6, 5, 7).float().contiguous(memory_format=layout)
    judge = Judge(load_op("native_batch_norm"), "opassay", contract("float32"))
    torch.use_deterministic_algorithms(True)
    try:
        for case in (x, x[:, :, 0, 0]):
            judge.hold(Sample(_args(case)), ())
            judge.hold(Sample(_args(case)), ("vjp",), "eager")
        assert impl.native_batch_norm(*_args(x))[0].is_contiguous(memory_format=layout)
    finally:
        torch.use_deterministic_algorithms(False)


def test_with_deterministic_algorithms_an_input_without_positions_gives_a_contiguous_output() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        out = impl.batch_norm(_randn(20, 6), None, None, None, None, True)
    finally:
        torch.use_deterministic_algorithms(False)
    assert out.is_contiguous()


def test_running_statistics_are_written_where_they_lie() -> None:
    x, memory = _randn(4, 3, 5), _randn(2, 9)
    expected = memory.clone()
    expected[:, ::3] = 0.75 * expected[:, ::3] + 0.25 * torch.stack(
        (x.mean((0, 2)), x.transpose(0, 1).flatten(1).var(1))
    )
    versions = memory._version
    impl.batch_norm(x, memory[0, ::3], memory[1, ::3], training=True, momentum=0.25)
    assert (memory - expected).abs().max().item() <= 2.0**-48 * expected.abs().max().item()
    untouched = [i for i in range(9) if i % 3]
    assert torch.equal(memory[:, untouched], expected[:, untouched])
    assert memory._version > versions


def test_half_running_statistics_are_rounded_once() -> None:
    x = _randn(4, 3, 5).bfloat16()
    mean, var = (_randn(3, seed=i).bfloat16() for i in (1, 2))
    wide = [t.float() for t in (mean, var)]
    impl.batch_norm(x, mean, var, training=True)
    impl.batch_norm(x, wide[0], wide[1], training=True)
    assert torch.equal(mean, wide[0].bfloat16())
    assert torch.equal(var, wide[1].bfloat16())


def test_one_element_per_channel_has_no_unbiased_variance() -> None:
    mean, var = torch.zeros(3), torch.ones(3)
    x = torch.tensor([[1.0, 2.0, 3.0]])
    out, save_mean, _ = impl.native_batch_norm(x, None, None, None, None, True, 0.5, 1e-5)
    assert torch.equal(out, torch.zeros(1, 3))
    assert torch.equal(save_mean, x[0])
    with pytest.raises(ValueError, match=re.escape("native_batch_norm: got input of shape=[1, 3] with running_mean")):
        impl.native_batch_norm(x, None, None, mean, var, True, 0.5, 1e-5)
    assert torch.equal(mean, torch.zeros(3))
    assert torch.equal(var, torch.ones(3))


def test_an_input_of_shape_zero_is_what_torch_has_for_it() -> None:
    for training in (False, True):
        weight, bias = torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)
        operands = torch.ones(0, requires_grad=True)
        out = impl.batch_norm(operands, None, None, weight, bias, training)
        need = torch.nn.functional.batch_norm(operands, None, None, weight, bias, training)
        assert torch.equal(out, need)
        assert out.requires_grad
        out.sum().backward()
        assert weight.grad is not None
        assert torch.equal(weight.grad, torch.zeros(2))
    with pytest.raises(IndexError, match="need at least two dims"):
        impl.batch_norm(torch.ones(3), torch.zeros(3), torch.ones(3))


@pytest.mark.parametrize("shape", [(0, 3, 5), (4, 3, 0)])
def test_an_empty_batch_updates_nothing(shape: tuple[int, ...]) -> None:
    mean, var = torch.zeros(shape[1]), torch.ones(shape[1])
    out, save_mean, save_invstd = impl.native_batch_norm(torch.ones(shape), None, None, mean, var, True, 0.5, 1e-5)
    assert out.shape == shape
    assert bool(save_mean.isnan().all())
    assert bool(save_invstd.isnan().all())
    assert torch.equal(mean, torch.zeros(shape[1]))
    assert torch.equal(var, torch.ones(shape[1]))
    assert mean._version == var._version == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_outputs_without_values(dtype: torch.dtype) -> None:
    """cudnn's reserve, and the saved statistics of constant ones."""
    x, weight, bias, mean, var, *_ = _args(_randn(4, 3, 5).to(dtype))
    for training in (True, False):
        *outputs, reserve = impl.cudnn_batch_norm(x, weight, bias, mean.clone(), var.clone(), training, 0.1, 1e-5)
        assert (reserve.shape, reserve.dtype) == ((0,), torch.uint8)
        statistics_dtype = torch.float32 if dtype is torch.bfloat16 else dtype
        assert [(t.numel(), t.dtype) for t in outputs[1:]] == [(3 if training else 0, statistics_dtype)] * 2


def test_a_gradient_survives_a_later_update() -> None:
    """Between the forward pass by constant statistics and its backward pass another batch changes them."""
    x, weight, bias, mean, var, *_ = _args(_randn(4, 3, 5))
    gradients = []
    for updated in (False, True):
        leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
        statistics = mean.clone(), var.clone()
        out = impl.batch_norm(leaves[0], *statistics, leaves[1], bias)
        if updated:
            impl.batch_norm(x, *statistics, training=True)
        gradients.append(torch.autograd.grad(out.square().sum(), leaves))
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


def test_constant_statistics_take_no_gradient() -> None:
    x, weight, bias, mean, var, *_ = _args(_randn(4, 3, 5))
    out = impl.batch_norm(x.requires_grad_(), mean.requires_grad_(), var, weight, bias)
    assert torch.autograd.grad(out.sum(), (x, mean), allow_unused=True)[1] is None


@pytest.mark.parametrize("norm", ["layer", "group", "batch"])
def test_the_inverse_deviation_moves_with_no_shift_of_a_row_whose_mean_is_rounded(norm: str) -> None:
    """d rstd along a shift is zero, also where it is a second derivative; the mean is off by a third of x - mean."""
    x = torch.tensor([[[1000.0, 1000.0 + 3 * 2.0**-14]]], requires_grad=True)
    rstd = {
        "layer": lambda: impl.native_layer_norm(x, (2,), None, None, 1e-5)[2],
        "group": lambda: impl.native_group_norm(x, None, None, 1, 1, 2, 1, 1e-5)[2],
        "batch": lambda: impl.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[2],
    }[norm]()
    cotangent = torch.ones_like(rstd).requires_grad_()
    (gradient,) = torch.autograd.grad(rstd, x, cotangent, create_graph=True)
    (slope,) = torch.autograd.grad(gradient, cotangent, torch.ones_like(x))
    assert slope.item() == 0.0


def test_scale_of_running_statistics_beyond_the_range() -> None:
    """The weight times 1 / sqrt(running_var + eps) underflows in float32, and the output does not."""
    x = torch.tensor([[1e18, 2.0], [-1e18, 3.0]])
    mean, var, weight = torch.zeros(2), torch.tensor([1e36, 1.0]), torch.tensor([1e-32, 0.0])
    result = impl.batch_norm(x, mean, var, weight, None, False, 0.1, 0.0)
    wide = impl.batch_norm(x.double(), mean.double(), var.double(), weight.double(), None, False, 0.1, 0.0)
    assert (result[:, 0].double() / wide[:, 0] - 1.0).abs().max() < 2.0**-20
    assert torch.equal(result[:, 1], torch.zeros(2))


@pytest.mark.parametrize("training", [True, False])
def test_an_output_that_is_scaled_last_is_contiguous(training: bool) -> None:
    """An infinite weight is applied last; the input has the strides of a matrix that is turned over."""
    x = torch.randn(7, 9, generator=torch.Generator().manual_seed(0)).t()
    out = impl.batch_norm(x, torch.zeros(7), torch.ones(7), torch.full((7,), torch.inf), None, training, 0.1, 1e-5)
    assert out.isinf().all()
    assert out.is_contiguous()
