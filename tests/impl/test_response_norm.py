"""Local response normalisation: the module, the window, and calls that are cut into pieces."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from opassay.impl import CrossMapLRN2d, cross_map_lrn2d
from opassay.impl.response_norm import kernels_cpu as kernel
from opassay.impl.response_norm.rules import cross_map_lrn2d_backward


def exact(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def polynomial(x: Tensor, size: int) -> Tensor:
    """beta = -1, alpha = size, k = 1: a (1 + sum of squares), exact on integers."""
    return cross_map_lrn2d(x, size, float(size), -1.0, 1)


def naive(x: Tensor, size: int) -> Tensor:
    channels = x.shape[1]
    windows = [x[:, max(c - size // 2, 0) : c + (size - 1) // 2 + 1].square().sum(1) for c in range(channels)]
    return x * (1 + torch.stack(windows, 1))


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 8, 11, 64])
def test_window_of_every_size(size: int, channels: int) -> None:
    x = exact((2, channels, 2, 3))
    assert torch.equal(polynomial(x, size), naive(x, size))


def test_torch_s_module_is_off_by_one_channel() -> None:
    x = torch.zeros(1, 8, 1, 1)
    x[0, 0] = 100.0
    x[0, 3] = 1.0  # channel 0 is three channels away: outside a window of 5
    assert cross_map_lrn2d(x, 5)[0, 3].item() == cross_map_lrn2d(x[:, 1:], 5)[0, 2].item()
    theirs = torch.nn.CrossMapLRN2d(5)
    assert theirs(x)[0, 3].item() != theirs(x[:, 1:])[0, 2].item()


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [4, 5])
@pytest.mark.parametrize("lay", [lambda x: x, lambda x: x.to(memory_format=torch.channels_last)])
def test_the_pieces_of_a_large_call_are_small_calls(
    monkeypatch: pytest.MonkeyPatch, lay: Callable[[Tensor], Tensor], size: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(2)
    x, g = (lay(torch.randn((5, 6, 9, 11), generator=generator).to(dtype)) for _ in range(2))
    whole: list[Tensor] = []
    pieces: list[Tensor] = []
    for result, chunk in ((whole, 1 << 30), (pieces, 64), (pieces, 1500)):
        monkeypatch.setattr(kernel, "_CHUNK", chunk)
        leaf = x.clone().requires_grad_()
        out = cross_map_lrn2d(leaf, size)
        result += [out, torch.autograd.grad(out, leaf, g)[0], cross_map_lrn2d(x, size)]
    assert all(torch.equal(a, b) for a, b in zip(whole * 2, pieces, strict=True))
    assert all(t.is_contiguous() and t.dtype is dtype for t in pieces)


def test_what_is_kept_gives_the_gradient_that_is_computed_again() -> None:
    x, g = torch.randn(2, 3, 6, 4, 4).unbind()
    _, base, root = kernel.cross_map_lrn2d_keeping(x, 5, 1e-2, 0.75, 1.0)
    backward = cross_map_lrn2d_backward.kernels.cpu
    gradient = backward(g, x, base, root, 5, 1e-2, 0.75, 1.0)
    assert torch.equal(gradient, backward(g, x, None, None, 5, 1e-2, 0.75, 1.0))


def test_module_takes_the_place_of_torch_s() -> None:
    theirs = torch.nn.CrossMapLRN2d(3, alpha=2e-4, beta=0.5, k=2)
    ours = CrossMapLRN2d(3, alpha=2e-4, beta=0.5, k=2)
    assert ours.load_state_dict(theirs.state_dict()) == theirs.load_state_dict(ours.state_dict())
    assert ours.extra_repr() == theirs.extra_repr()
    x = torch.randn(2, 4, 3, 3)
    assert torch.equal(ours(x), cross_map_lrn2d(x, 3, 2e-4, 0.5, 2))


@pytest.mark.parametrize("shape", [(0, 3, 2, 2), (2, 0, 2, 2), (2, 3, 0, 2), (2, 3, 2, 0)])
def test_empty_dims(shape: tuple[int, ...]) -> None:
    x = torch.empty(shape, requires_grad=True)
    out = cross_map_lrn2d(x, 5)
    assert out.shape == shape
    assert torch.autograd.grad(out.sum(), x)[0].shape == shape


def test_zero_rows_without_k_are_not_a_number() -> None:
    assert cross_map_lrn2d(torch.zeros(1, 3, 1, 1), 3, k=0).isnan().all()
    assert torch.equal(cross_map_lrn2d(torch.zeros(1, 3, 1, 1), 3, beta=0, k=0), torch.zeros(1, 3, 1, 1))


def test_numbers_of_other_types() -> None:
    x = torch.randn(1, 3, 2, 2)
    assert torch.equal(cross_map_lrn2d(x, 3, 1, 1, 1), cross_map_lrn2d(x, 3, 1.0, 1.0, 1.0))


def test_sizes_may_be_dynamic_under_compile() -> None:
    compiled = torch.compile(lambda x: cross_map_lrn2d(x, 3), fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in ((2, 3, 4, 5), (3, 5, 2, 7)):
        x = torch.randn(shape)
        assert torch.equal(compiled(x), cross_map_lrn2d(x, 3))


@pytest.mark.one_fast_in(11)
@pytest.mark.parametrize("beta", [0.3, -0.7])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(1, 32_769, 1, 1), (3, 7, 61, 67), (1, 3, 1, 99_999)], ids=str)
def test_powers_do_not_depend_on_threads(shape: tuple[int, ...], dtype: torch.dtype, beta: float) -> None:
    """Where a thread's share ends, ATen takes the power of the C library, whose bits are not those of its vectors."""
    generator = torch.Generator().manual_seed(4)
    x, g = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    threads, algorithms = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    results = []
    try:
        torch.use_deterministic_algorithms(True)
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            leaf = x.clone().requires_grad_()
            out = cross_map_lrn2d(leaf, 3, 1.0, beta, 1.0)
            out.backward(g)
            assert leaf.grad is not None
            results.append((out.detach(), leaf.grad))
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(algorithms)
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))
