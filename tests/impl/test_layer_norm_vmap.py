"""vmap of layer norm: every in_dims combination equals the loop bit by bit, in one kernel call."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._python_dispatch import TorchDispatchMode

from opassay.impl import native_layer_norm, native_layer_norm_backward
from tests.impl.exact_norms import EPS, batched, halves, rows, whole_numbers

Numbers = Callable[[tuple[int, ...], int, torch.dtype], Tensor]

BATCH, ROWS, LENGTH = 3, 5, 4
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


class CountKernels(TorchDispatchMode):
    """Counts the calls of this package's ops that reach the kernels."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "opassay":
            self.calls[func.__name__] += 1
        return func(*args, **(kwargs or {}))


def assert_equals_loop(batched: Tensor, looped: Tensor) -> None:
    assert (batched.shape, batched.dtype) == (looped.shape, looped.dtype)
    assert torch.equal(batched, looped)


def take(t: Tensor | None, dim: int | None, index: int) -> Tensor | None:
    return t if t is None or dim is None else t.select(dim, index)


def compare_with_loop(
    f: Callable[..., tuple[Tensor, ...]],
    in_dims: tuple[int | None, ...],
    args: tuple[Tensor | None, ...],
    op: str,
) -> None:
    with CountKernels() as counter:
        results = vmap(f, in_dims)(*args)
    assert counter.calls == {f"{op}.default": 1}
    for index in range(BATCH):
        expected = f(*(take(t, dim, index) for t, dim in zip(args, in_dims, strict=True)))
        for one, other in zip(results, expected, strict=True):
            assert_equals_loop(one[index], other)


def make(
    shape: tuple[int, ...], dim: int | None, dtype: torch.dtype, seed: int, numbers: Numbers = whole_numbers
) -> Tensor:
    """A tensor of `shape` with a batch dim inserted at `dim`, other numbers in every slice."""
    return batched([numbers(shape, seed + 10 * index, dtype) for index in range(BATCH)], dim)


def forward(x: Tensor, w: Tensor | None, b: Tensor | None) -> tuple[Tensor, ...]:
    return native_layer_norm(x, (LENGTH,), w, b, EPS)


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mixed", [False, True], ids=["one dtype", "float32 affine"])
def test_forward_every_in_dims(dtype: torch.dtype, mixed: bool) -> None:
    affine = torch.float32 if mixed and dtype.itemsize == 2 else dtype
    dims: tuple[tuple[int | None, ...], ...] = ((None, 0, 1, -1), (None, 0, -1), (None, 0, 1))
    for in_dims in itertools.product(*dims):
        if all(dim is None for dim in in_dims):
            continue
        args = (
            make((ROWS, LENGTH), in_dims[0], dtype, 0, rows),
            make((LENGTH,), in_dims[1], affine, 1),
            make((LENGTH,), in_dims[2], affine, 2),
        )
        compare_with_loop(forward, in_dims, args, "native_layer_norm")


@pytest.mark.parametrize("missing", [(False, True), (True, False), (True, True)])
def test_forward_without_affine(missing: tuple[bool, bool]) -> None:
    for x_dim, dim in itertools.product((None, 1), (None, 0)):
        if x_dim is None and (dim is None or all(missing)):
            continue
        args = (
            make((ROWS, LENGTH), x_dim, torch.float32, 0, rows),
            *(None if absent else make((LENGTH,), dim, torch.float32, 1) for absent in missing),
        )
        in_dims = (x_dim, *(None if removed else dim for removed in missing))
        compare_with_loop(forward, in_dims, args, "native_layer_norm")


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_backward_every_in_dims(dtype: torch.dtype) -> None:
    """All 31 combinations of batched and unbatched operands."""
    statistics = torch.float32 if dtype.itemsize == 2 else dtype

    def f(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        grads = native_layer_norm_backward(dy, x, (LENGTH,), mean, rstd, w, w, [True] * 3)
        assert all(t is not None for t in grads)
        return tuple(t for t in grads if t is not None)

    for which in itertools.product((None, 0), (None, 1), (None, 0), (None, 0), (None, -1)):
        if all(dim is None for dim in which):
            continue
        args = (
            make((ROWS, LENGTH), which[0], dtype, 0),
            make((ROWS, LENGTH), which[1], dtype, 1),
            make((ROWS, 1), which[2], statistics, 2),
            make((ROWS, 1), which[3], statistics, 3, halves),
            make((LENGTH,), which[4], dtype, 4),
        )
        compare_with_loop(f, which, args, "layer_norm_backward")


@pytest.mark.parametrize("mask", list(itertools.product((True, False), repeat=3))[:-1], ids=str)
def test_backward_masks(mask: tuple[bool, bool, bool]) -> None:
    """Masked outputs are None under vmap as without it."""
    masks: list[tuple[bool, ...]] = []

    def f(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        grads = native_layer_norm_backward(dy, x, (LENGTH,), mean, rstd, w, w, mask)
        masks.append(tuple(t is not None for t in grads))
        return tuple(t for t in grads if t is not None)

    shapes = ((ROWS, LENGTH), (ROWS, LENGTH), (ROWS, 1), (ROWS, 1), (LENGTH,))
    args = tuple(make(shape, 0, torch.float64, i) for i, shape in enumerate(shapes))
    compare_with_loop(f, (0,) * 5, args, "layer_norm_backward")
    assert set(masks) == {mask}


def test_nested_with_mixed_batches() -> None:
    """Input batched at the inner level, weight at the outer, bias at both."""
    x = make((ROWS, LENGTH), 0, torch.float32, 0, rows)
    w = make((LENGTH,), 0, torch.float32, 1)
    b = torch.stack([w, 2 * w, 3 * w])

    def f(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return native_layer_norm(x, (LENGTH,), w, b, EPS)[0]

    with CountKernels() as counter:
        results = vmap(vmap(f, (0, None, 0)), (None, 0, 0))(x, w, b)
    assert counter.calls == {"native_layer_norm.default": 1}
    for i, j in itertools.product(range(BATCH), repeat=2):
        assert_equals_loop(results[i, j], f(x[j], w[i], b[i, j]))


@pytest.mark.parametrize("out_dims", [0, 1, -1])
def test_statistics_are_batched_even_where_the_input_is_not(out_dims: int) -> None:
    """torch's vmap misplaces the batch of an output that a rule leaves unbatched; these rules leave none."""
    x, bias = torch.randn(2, 5), torch.randn(3, 5)

    def call(b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return native_layer_norm(x, (5,), None, b, 1e-5)

    out, mean, rstd = torch.func.vmap(call, out_dims=out_dims)(bias)
    expected = call(bias[0])[1]
    assert out.movedim(out_dims, 0).shape == (3, 2, 5)
    for statistic in (mean, rstd):
        assert statistic.movedim(out_dims, 0).shape == (3, 2, 1)
    assert torch.equal(mean.movedim(out_dims, 0)[2], expected)
