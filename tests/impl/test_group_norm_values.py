"""What group norm promises beyond the cells: memory formats, infinities, empty inputs, the module, saved memory."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

from opassay.impl import GroupNorm, group_norm, native_group_norm, native_group_norm_backward
from opassay.impl.gpu import launching
from opassay.impl.norms.kernels_cpu import group_norm as group_norm_cpu

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def every(x: Tensor, w: Tensor, dy: Tensor, groups: int) -> tuple[Tensor, ...]:
    """out, mean, rstd, d_input, d_weight, d_bias."""
    sizes = (x.shape[0], x.shape[1], math.prod(x.shape[2:]), groups)
    out, mean, rstd = native_group_norm(x, w, w, *sizes, 1e-5)
    grads = native_group_norm_backward(dy, x, mean, rstd, w, *sizes, [True] * 3)
    return (out, mean, rstd, *(t for t in grads if t is not None))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 6, 4, 5), (3, 4, 1, 1), (2, 1, 3, 4), (2, 6, 2, 3, 2)], ids=str)
def test_channels_last(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """The same bits as from contiguous memory, and new tensors' strides, in every dim of size 1 too."""
    torch.manual_seed(0)
    x, dy = ((torch.randn(shape) + 1000).to(dtype) for _ in range(2))
    w = torch.randn(shape[1]).to(dtype)
    layout = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    last = every(x.contiguous(memory_format=layout), w, dy.contiguous(memory_format=layout), 1)
    for one, other in zip(last, every(x, w, dy, 1), strict=True):
        assert torch.equal(one, other)
        assert one.stride() == torch.empty(one.shape).stride()


def _views() -> dict[str, Tensor]:
    base = torch.arange(6 * 4 * 8, dtype=torch.float64).reshape(6, 4, 8).sin()
    return {
        "transposed": base.transpose(0, 1)[:, :4],
        "stepped": base[::2, :, ::2],
        "expanded": base[:1, :1].expand(6, 4, 8),
        "offset": base[1:, :, 1:],
        "channels innermost": base.transpose(1, 2),
    }


@pytest.mark.parametrize("view", _views())
def test_strides(view: str) -> None:
    """Any strides in, for every operand; the same bits as from contiguous copies, contiguous out; inputs unchanged."""
    x = _views()[view]
    dy = x.cos().transpose(0, 1).contiguous().transpose(0, 1)
    w = torch.arange(2.0 * x.shape[1], dtype=torch.float64)[::2]
    sizes = (x.shape[0], x.shape[1], x.shape[2], 2)
    _, mean, rstd = native_group_norm(x, None, None, *sizes, 1e-5)
    mean, rstd = (torch.stack([t, t], -1)[..., 0] for t in (mean, rstd))
    operands = (dy, x, mean, rstd, w)
    before = [t.clone() for t in operands]

    def run(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor) -> Any:
        grads = native_group_norm_backward(dy, x, mean, rstd, w, *sizes, [True] * 3)
        return (*native_group_norm(x, w, w, *sizes, 1e-5), *grads)

    for one, other in zip(run(*operands), run(*(t.contiguous() for t in operands)), strict=True):
        assert one.is_contiguous()
        assert torch.equal(one, other)
    assert all(torch.equal(t, old) for t, old in zip(operands, before, strict=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_infinite_weight(dtype: torch.dtype) -> None:
    """Infinite with the sign of each normalised element; other channels stay finite."""
    x = torch.tensor([[[1.0, 2.0, 6.0], [3.0, 4.0, 7.0]]]).to(dtype)
    w, b = torch.tensor([math.inf, 1.0]).to(dtype), torch.tensor([1.0, 2.0]).to(dtype)
    out = group_norm(x, 1, w, b)
    assert out[0, 0].tolist() == [-math.inf, -math.inf, math.inf]
    assert out[0, 1].isfinite().all()


@pytest.mark.parametrize(("size", "weight"), [(1e17, 1e-32), (1e-3, 3e38)])
def test_scale_beyond_the_range(size: float, weight: float) -> None:
    """The weight times 1 / sqrt(var + eps) leaves the range of float32, which the output does not."""
    x = torch.tensor([[[1.0, -1.0], [1.0, -1.0]]]) * size
    w = torch.tensor([weight, 1.0])
    result, wide = (group_norm(x.to(dtype), 2, w.to(dtype)) for dtype in (torch.float32, torch.float64))
    assert (result.double() / wide - 1.0).abs().max() < 2.0**-20
    assert torch.equal(group_norm(x, 2, w * 0.0), torch.zeros_like(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_mean_of_a_group_with_an_infinity(dtype: torch.dtype) -> None:
    """The mean is what mathematics says; the rest of the group, and no other group, is NaN."""
    inf, nan = math.inf, math.nan
    rows = torch.tensor([[1, inf, 2], [-inf, 1, 2], [inf, -inf, 0], [nan, 1, 2], [1, 2, 6]])
    out, mean, rstd = native_group_norm(rows.to(dtype)[None], None, None, 1, 5, 3, 5, 1e-5)
    expected = torch.tensor([[inf, -inf, nan, nan, 3.0]], dtype=mean.dtype)
    assert torch.equal(mean.nan_to_num(7.0, 8.0, 9.0), expected.nan_to_num(7.0, 8.0, 9.0))
    assert out[0, :4].isnan().all()
    assert rstd[0, :4].isnan().all()
    assert out[0, 4].isfinite().all()


@pytest.mark.parametrize("shape", [(0, 6, 4), (2, 6, 0), (2, 0, 4)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_empty(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """No samples, no positions, no channels: sums of nothing are 0, statistics of nothing are NaN."""
    x = torch.ones(shape, dtype=dtype)
    w = torch.ones(shape[1], dtype=dtype)
    out, mean, rstd, d_input, d_weight, d_bias = every(x, w, x, 3)
    assert out.shape == d_input.shape == shape
    assert mean.shape == rstd.shape == (shape[0], 3)
    assert mean.isnan().all()
    assert rstd.isnan().all()
    assert torch.equal(d_weight, torch.zeros_like(w))
    assert torch.equal(d_bias, torch.zeros_like(w))


@pytest.mark.parametrize("shape", [(0, 6, 4), (2, 6, 0), (2, 0, 4), (0, 0), (2, 0)], ids=str)
def test_nothing_is_asked_of_aten_where_there_are_no_elements(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ATen raises for no channels and for no positions from torch 2.14 on; an empty mean was 0 before."""

    def refuse(*args: Any) -> Any:
        raise RuntimeError("Expected number of channels to be greater than 0, got 0")

    monkeypatch.setattr(torch, "native_group_norm", refuse)
    monkeypatch.setattr(group_norm_cpu, "_aten_backward", refuse)
    x, w = torch.ones(shape), torch.ones(shape[1])
    out, mean, rstd, d_input, d_weight, d_bias = every(x, w, x, 3)
    assert out.shape == d_input.shape == shape
    assert mean.isnan().all()
    assert rstd.isnan().all()
    assert not d_weight.any()
    assert not d_bias.any()


@pytest.mark.parametrize("n", [1, 2])
def test_groups_of_one_element(n: int) -> None:
    """The bias exactly, for one sample as for more, and a zero gradient to the input."""
    x, b = torch.randn(n, 6, requires_grad=True), torch.randn(6)
    out = group_norm(x, 6, torch.randn(6), b)
    assert torch.equal(out, b.expand(n, 6))
    assert not torch.autograd.grad(out.sum(), x)[0].any()


def test_aten_reads_any_shape() -> None:
    """native_group_norm takes the sizes from N, C and HxW; outputs have the input's shape."""
    x, w = torch.randn(2, 6, 4), torch.randn(6)
    whole = every(x, w, x.cos(), 3)
    sizes = (2, 6, 4, 3)
    flat = native_group_norm(x.flatten(), w, w, *sizes, 1e-5)
    grads = native_group_norm_backward(x.cos().flatten(), x.flatten(), *flat[1:], w, *sizes, [True] * 3)
    assert flat[0].shape == (48,)
    for one, other in zip((*flat, *grads), whole, strict=True):
        assert one is not None
        assert torch.equal(one.reshape(other.shape), other)


def test_masked_and_missing() -> None:
    """None where masked, d_weight None without a weight; d_bias then in the input's dtype."""
    x = torch.randn(2, 6, 4).bfloat16()
    mean, rstd = native_group_norm(x, None, None, 2, 6, 4, 3, 1e-5)[1:]
    d_input, d_weight, d_bias = native_group_norm_backward(x, x, mean, rstd, None, 2, 6, 4, 3, [False, True, True])
    assert d_input is None
    assert d_weight is None
    assert d_bias is not None
    assert torch.equal(d_bias, x.float().sum((0, 2)).bfloat16())


def test_no_gradient_to_the_given_statistics() -> None:
    """mean and rstd count as functions of the input, so the arguments themselves get none."""
    x, w = torch.randn(2, 6, 4, requires_grad=True), torch.randn(6)
    mean, rstd = (torch.rand(2, 3, requires_grad=True) for _ in range(2))
    dx = native_group_norm_backward(x, x, mean, rstd, w, 2, 6, 4, 3, [True, False, False])[0]
    assert dx is not None
    got: tuple[Tensor | None, ...] = torch.autograd.grad(dx.sum(), (x, mean, rstd), allow_unused=True)
    assert got[0] is not None
    assert got[1:] == (None, None)


@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 4), (2, 6, 4, 4)], ids=str)
def test_output_may_be_written(shape: tuple[int, ...]) -> None:
    """In place after group_norm, as after torch's: the output is no view of anything."""
    x = torch.randn(shape, requires_grad=True)
    torch.relu_(group_norm(x, 3)).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("xwb", (48, 6, 6, 6)), ("x", (48, 6, 6, 6)), ("w", (48, 6, 6)), ("wb", (48, 6, 6)), ("b", ()), ("", ())],
)
def test_saved(wanted: str, expected: tuple[int, ...]) -> None:
    """Input and statistics, the weight where the input needs a gradient; nothing for the bias alone."""
    operands = {"x": torch.randn(2, 6, 4), "w": torch.randn(6), "b": torch.randn(6)}
    x, w, b = (t.requires_grad_(name in wanted) for name, t in operands.items())
    saved: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        saved[t.data_ptr()] = t.numel()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        copies = group_norm(x, 3, w, b)
    assert copies.requires_grad is bool(wanted)
    assert sorted(saved.values(), reverse=True) == list(expected)


MODULES: list[dict[str, Any]] = [
    {"num_groups": 3, "num_channels": 6},
    {"num_groups": 6, "num_channels": 6, "eps": 1e-3},
    {"num_groups": 2, "num_channels": 6, "affine": False},
    {"num_groups": 2, "num_channels": 6, "dtype": torch.float64},
]


@pytest.mark.parametrize("arguments", MODULES, ids=str)
def test_module(arguments: dict[str, Any]) -> None:
    """torch.nn.GroupNorm to everything but the kernel: state_dict both ways, the function's bits."""
    torch.manual_seed(0)
    ours, theirs, again = GroupNorm(**arguments), torch.nn.GroupNorm(**arguments), torch.nn.GroupNorm(**arguments)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    again.load_state_dict(ours.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
    assert repr(ours) == repr(theirs)
    x = torch.randn(2, 6, 5, dtype=arguments.get("dtype", torch.float32))
    assert torch.equal(ours(x), group_norm(x, ours.num_groups, ours.weight, ours.bias, ours.eps))


def test_module_refuses_what_torch_refuses() -> None:
    with pytest.raises(ValueError, match="must be divisible by num_groups"):
        GroupNorm(4, 6)


def test_fake_cuda_tensors() -> None:
    """Shapes, dtypes and devices without a GPU; under autocast float32 for group_norm, as torch."""
    with FakeTensorMode():
        x = torch.empty(4, 6, 8, 2, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        out, mean, rstd = native_group_norm(x, None, None, 4, 6, 16, 3, 1e-5)
        assert (out.shape, out.dtype, out.device.type) == (x.shape, x.dtype, "cuda")
        assert out.is_contiguous()
        assert mean.shape == rstd.shape == (4, 3)
        assert mean.dtype is rstd.dtype is torch.float32
        torch.set_autocast_enabled("cuda", True)  # torch.autocast refuses without a GPU
        try:
            assert group_norm(x, 3).dtype is torch.nn.functional.group_norm(x, 3).dtype is torch.float32
            ours, theirs = (
                f(x, None, None, 4, 6, 16, 3, 1e-5)[0] for f in (native_group_norm, torch.native_group_norm)
            )
            assert ours.dtype is theirs.dtype
        finally:
            torch.set_autocast_enabled("cuda", False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cuda_kernels_without_triton(dtype: torch.dtype) -> None:
    """What serves CUDA without Triton, on CPU tensors: float32 inside, rounded once, the CPU kernels' dtypes."""
    none, before = launching.compositions, launching.fallbacks.total()
    torch.manual_seed(0)
    x, dy = (torch.randn(2, 6, 4).to(dtype) for _ in range(2))
    w = torch.randn(6).to(dtype)
    out, mean, rstd = none["native_group_norm"](x, w, w, 3, 1e-5)
    rest = (dy, None, mean.cos(), x, mean, rstd, w, dtype, 3, 1e-5, [True] * 3)
    computed = (
        out,
        mean,
        rstd,
        *none["group_norm_backward"](group_norm_cpu.GroupBackward(*rest)),
        none["group_norm"](x, w, None, 3, 1e-5)[0],
    )
    wide = torch.float32 if dtype.itemsize == 2 else dtype
    x, dy, w = (t.to(wide) for t in (x, dy, w))
    rest = (dy, None, mean.cos(), x, mean, rstd, w, wide, 3, 1e-5, [True] * 3)
    forward, plain = group_norm_cpu.group_norm(x, w, w, 3, 1e-5), group_norm_cpu.group_norm(x, w, None, 3, 1e-5)[0]
    for one, other in zip(
        computed,
        (*forward, *group_norm_cpu.group_norm_backward(group_norm_cpu.GroupBackward(*rest)), plain),
        strict=True,
    ):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other.to(one.dtype))
    assert [t.dtype for t in computed if t is not None] == [dtype, wide, wide, dtype, dtype, dtype, dtype]
    assert launching.fallbacks.total() - before == 3  # each call of a CUDA kernel is counted
