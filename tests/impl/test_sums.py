"""Sums of whole dims give the same bits on any number of threads, where deterministic algorithms are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from opassay import impl
from opassay.impl.operator import sums

#: More elements than ATen leaves to one thread (its grain is 32,768).
MANY = 70_001
THREADS = (1, 2, 3, 4)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


def on_threads(run: Callable[[], tuple[Tensor, ...]]) -> list[tuple[Tensor, ...]]:
    results = []
    for count in THREADS:
        torch.set_num_threads(count)
        results.append(run())
    return results


def differ(results: list[tuple[Tensor, ...]]) -> bool:
    return any(not torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


def second_order(x: Tensor, cotangent: Tensor, statistics: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """The double backward of a batch norm of one channel: sums of all elements, each with a single result."""
    x, cotangent = x.requires_grad_(), cotangent.requires_grad_()
    mean, rstd = statistics
    weight = torch.ones(1, requires_grad=True)
    result = impl.native_batch_norm_backward(
        cotangent, x, weight, None, None, mean, rstd, True, 1e-5, [True, True, True]
    )
    grads = [t for t in result if t is not None]
    directions = [torch.linspace(-1, 1, t.numel()).reshape(t.shape) for t in grads]
    return torch.autograd.grad(grads, (cotangent, x, weight), directions)


@pytest.mark.parametrize("reduce", [sums.total, sums.mean])
def test_one_result_on_any_number_of_threads(reduce: Callable[..., Tensor]) -> None:
    t = torch.randn(MANY, 1)
    assert differ(on_threads(lambda: (t.sum(),))), (
        "torch's own sum no longer depends on threads: see opassay.impl.operator.sums"
    )
    torch.use_deterministic_algorithms(True)
    assert not differ(on_threads(lambda: (reduce(t, (0, 1)), reduce(t, (0,), keepdim=True), reduce(t[:, 0], [-1]))))


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reduce", [sums.total, sums.mean])
def test_many_results_on_any_number_of_threads(reduce: Callable[..., Tensor], dtype: torch.dtype) -> None:
    """Sums over axes that lie in memory in every way."""
    cases = []
    for shape in ((401, 2, 5, 9), (64, 17, 63), (13, 401, 27), (3, 40_001), (40_001, 3)):
        for t in (torch.randn(shape), torch.randn(shape).to(memory_format=_last(shape)), _backwards(shape)):
            cases += [(t.to(dtype), dim) for dim in range(len(shape))]
    images = torch.randn(401, 2, 5, 9).to(memory_format=torch.channels_last)
    assert differ(on_threads(lambda: (images.sum(0),))), (
        "torch's own sums of images no longer depend on threads: see opassay.impl.operator.sums"
    )
    torch.use_deterministic_algorithms(True)
    assert not differ(on_threads(lambda: tuple(reduce(t, (dim,)) for t, dim in cases)))
    assert not differ(on_threads(lambda: tuple(reduce(t, (dim, dim - 1), keepdim=True) for t, dim in cases)))


def _last(shape: tuple[int, ...]) -> torch.memory_format:
    return torch.channels_last if len(shape) == 4 else torch.contiguous_format


def _backwards(shape: tuple[int, ...]) -> Tensor:
    """A tensor of a shape whose first axis is the innermost in memory."""
    return torch.randn(shape[::-1]).permute(*range(len(shape) - 1, -1, -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_of_a_weight_of_images_on_any_number_of_threads(dtype: torch.dtype) -> None:
    shape = (401, 2, 5, 9)
    x, g = torch.randn(shape).to(dtype, memory_format=torch.channels_last), torch.randn(shape).to(dtype)
    weight = torch.randn(shape[1:]).to(dtype)

    def run() -> tuple[Tensor, ...]:
        leaves = input, scale, bias = [t.clone().requires_grad_() for t in (x, weight, weight)]
        return torch.autograd.grad(impl.layer_norm(input, shape[1:], scale, bias), leaves, g)

    torch.use_deterministic_algorithms(True)
    assert not differ(on_threads(run))


def test_a_norm_of_one_channel_on_any_number_of_threads() -> None:
    x, cotangent = torch.randn(MANY, 1, 1), torch.randn(MANY, 1, 1)
    # Torch's own mean depends on the threads, so the statistics, which the op is given, are computed once.
    statistics = x.mean().reshape(1), (x.var() + 1e-5).rsqrt().reshape(1)
    torch.use_deterministic_algorithms(True)
    assert not differ(on_threads(lambda: second_order(x.clone(), cotangent.clone(), statistics)))


def test_cross_entropy_of_one_row_on_any_number_of_threads() -> None:
    x, weight, target = torch.randn(1, MANY), torch.rand(MANY), torch.tensor([3])

    def run() -> tuple[Tensor, ...]:
        logits = x.clone().requires_grad_()
        loss = impl.cross_entropy(logits, target, weight, label_smoothing=0.5)
        return loss.detach(), *torch.autograd.grad(loss, logits)

    torch.use_deterministic_algorithms(True)
    assert not differ(on_threads(run))


@pytest.mark.parametrize("by_frequency", [False, True])
def test_sums_are_those_of_torch(by_frequency: bool) -> None:
    t = torch.arange(24).reshape(2, 3, 4).to(torch.float32)  # Whole numbers, so that no sum is rounded.
    torch.use_deterministic_algorithms(by_frequency)
    for dims in ((0,), (0, 2), (-1,), (0, 1, 2)):
        assert torch.equal(sums.total(t, dims), t.sum(dims))
        assert torch.equal(sums.mean(t, dims, keepdim=True), t.mean(dims, keepdim=True))
    assert torch.equal(sums.total(t, ()), t)
    assert sums.total(t, (), dtype=torch.float64).dtype is torch.float64
    assert sums.total(t.to(torch.bfloat16), (0,), dtype=torch.float32).dtype is torch.float32
