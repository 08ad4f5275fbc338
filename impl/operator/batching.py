"""What vmap rules do with the batch dim of an operand: put it in front, or fold it into a dim that the op has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from torch import Tensor

from .precision import raised
from .records import Record


@overload
def in_front(t: Tensor, dim: int | None, size: int) -> Tensor: ...
@overload
def in_front(t: Tensor | None, dim: int | None, size: int) -> Tensor | None: ...
def in_front(t: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    """`t` with its batch as the first dim; expanded to `size` where it has none."""
    if t is None:
        return None
    return t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)


@overload
def fold(t: Tensor, dim: int | None, size: int, at: int) -> Tensor: ...
@overload
def fold(t: Tensor | None, dim: int | None, size: int, at: int) -> Tensor | None: ...
def fold(t: Tensor | None, dim: int | None, size: int, at: int) -> Tensor | None:
    """`t` with its batch, or its repetition `size` times, merged into dim `at` of a slice, in front."""
    if t is None:
        return None
    if dim is not None:
        return t.movedim(dim, at).flatten(at, at + 1)
    # An operand without a batch is the same in every slice. The op takes the folded dim for one of its own, so it needs
    # a copy of the operand for each slice.
    t = t.unsqueeze(at)
    return t.expand(*t.shape[:at], size, *t.shape[at + 1 :]).flatten(at, at + 1)


def unfold(t: Tensor | None, at: int, size: int, length: int) -> Tensor | None:
    """The inverse of `fold`: dim `at` split into the batch and the `length` that a slice has there."""
    return None if t is None else t.unflatten(at, (size, length))


def slice_shape(t: Tensor, dim: int | None) -> Sequence[int]:
    """The shape of one slice of `t`."""
    return t.shape if dim is None else (*t.shape[:dim], *t.shape[dim + 1 :])


def raised_for_sum(*operands: Tensor, dims: Sequence[int | None]) -> tuple[Tensor, ...]:
    """The operands, in the dtype that sums are taken in where one of them has no batch.

    An operand without a batch is expanded. The derivative of expanding is a sum over the batch, and no two
    half-precision contributions may be added in it.
    """
    if None not in dims:
        return operands
    return tuple(map(raised, operands))


def out_dims(outputs: Sequence[Tensor | None], at: int | Sequence[int] = 0) -> tuple[int | None, ...]:
    """Where the batch is in each output: `at`, and None for an output that is None."""
    dims = [at] * len(outputs) if isinstance(at, int) else at
    return tuple(None if t is None else dim for t, dim in zip(outputs, dims, strict=True))


def one_more_dim(op: Callable[..., Any], size: int, dims: Record, args: Record) -> tuple[Any, Any]:
    """The vmap rule of an op whose first argument alone is a tensor, and has any number of dims in front."""
    (dim, *_), (first, *others) = dims, args
    outputs = op(first.movedim(dim, 0), *others)
    return outputs, 0 if isinstance(outputs, Tensor) else out_dims(outputs)


def each_in_front(op: Callable[..., Any], size: int, dims: Record, args: Record) -> tuple[Tensor, int]:
    """The vmap rule of an op of one element at a time: its arguments are tensors of one shape, or None.

    The result is of the first argument's dtype.
    """
    first, *_ = args
    pairs = list(zip(args, dims, strict=True))
    # The derivative of expanding is a sum over the batch, as in `raised_for_sum`.
    expanded = any(dim is None for t, dim in pairs if t is not None)
    out: Tensor = op(*[in_front(raised(t) if expanded else t, dim, size) for t, dim in pairs])
    return out.to(first.dtype), 0
