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
    """t, to broadcast to `shape`. The derivative of broadcasting is a sum, which must be steady as the others are."""
    if not torch.are_deterministic_algorithms_enabled():
        return t
    t = t.reshape((1,) * (len(shape) - t.dim()) + t.shape)
    return torch.stack((t, t)).expand(2, *shape)[0]  # for the reason given below, the sum has an equal one beside it


def everywhere(t: Tensor, dims: Sequence[int]) -> Tensor:
    """The sum of t over `dims`, for every element of t that is in it: to broadcast to the shape of t."""
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
    steady = torch.are_deterministic_algorithms_enabled()
    if steady:
        # ATen shares a sum that has a single result among its threads, so the last bits of the result depend on their
        # number. Of several sums it gives each thread whole ones. A second, equal sum beside the first makes them
        # several; its result is dropped.
        t, dims = t.expand(2, *t.shape), [dim + 1 if dim >= 0 else dim for dim in dims]
    found = reduce(t, tuple(dims), keepdim=keepdim, dtype=dtype)
    return found[0] if steady else found
