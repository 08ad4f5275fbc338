"""Sums and means of whole dims; with deterministic algorithms, the same bits on any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def total(t: Tensor, dims: Sequence[int], *, keepdim: bool = False, dtype: torch.dtype | None = None) -> Tensor:
    """The sum of t over `dims`; over no dims, t itself (in `dtype`)."""
    if not dims:  # Tensor.sum takes no dims to mean all of them.
        return t if dtype is None else t.to(dtype)
    return _steady(torch.sum, t, dims, keepdim, dtype)


def mean(t: Tensor, dims: Sequence[int], *, keepdim: bool = False, dtype: torch.dtype | None = None) -> Tensor:
    """The mean of t over `dims`, at least one."""
    return _steady(torch.mean, t, dims, keepdim, dtype)


def spread(t: Tensor, shape: Sequence[int]) -> Tensor:
    """t, to broadcast to `shape`, such that the derivative of broadcasting, a sum, has steady bits as well."""
    if not torch.are_deterministic_algorithms_enabled() or any(size != 1 for size in t.shape):
        return t
    t = t.reshape((1,) * len(shape))
    # ATen shares a single sum among its threads, so a second, equal one stands beside it; see `_steady`.
    return torch.stack((t, t)).expand(2, *shape)[0]


def everywhere(t: Tensor, dims: Sequence[int]) -> Tensor:
    """The sum of t over `dims`, at every element of t that it includes: it broadcasts to the shape of t."""
    return spread(total(t, dims, keepdim=True), t.shape)


def _steady(
    reduce: Callable[..., Tensor], t: Tensor, dims: Sequence[int], keepdim: bool, dtype: torch.dtype | None
) -> Tensor:
    """`reduce` of t; with deterministic algorithms, the same bits on any number of threads.

    Args:
        reduce: `torch.sum` or `torch.mean`.
        t: any shape.
        dims: those to reduce, at least one, negative ones counted from the end.
        keepdim: whether a reduced dim stays, with length 1.
        dtype: of the result, and of the sums; None for that of t.
    """
    if not torch.are_deterministic_algorithms_enabled():
        return reduce(t, tuple(dims), keepdim=keepdim, dtype=dtype)
    shape, reduced = t.shape, sorted({dim % t.dim() for dim in dims})
    sizes = [size for dim, size in enumerate(t.shape) if dim not in reduced]
    last, first = tuple(range(-len(reduced), 0)), tuple(range(len(reduced)))
    # ATen gives each thread some of the results. A sum whose terms lie next to each other in memory is added in one
    # fixed order. Sums that lie side by side are added a vector of results at a time, and the last few results of a
    # thread in another order, unless its share ends with a whole vector, as it does where all results are neighbours.
    # Other operands are copied into the first layout.
    if t.movedim(reduced, first).is_contiguous() and not t.movedim(reduced, last).is_contiguous():
        t, over = t.movedim(reduced, first), first
    else:
        t, over = t.movedim(reduced, last).contiguous(), last
    # ATen shares a single sum among its threads, but of several sums it gives whole ones to each thread. So a single
    # sum is taken twice, side by side, and the second result is dropped.
    single = all(size == 1 for size in sizes)
    out = reduce(t.expand(2, *t.shape), last, dtype=dtype)[0] if single else reduce(t, over, dtype=dtype)
    return out.reshape([1 if dim in reduced else size for dim, size in enumerate(shape)]) if keepdim else out
