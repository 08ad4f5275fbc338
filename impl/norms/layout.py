"""Which elements of x share statistics, and which share an element of the affine parameters: how the norms differ.

The expressions and rules of layer, group and batch norm are written once, over a `Layout`. It views x so that both
kinds of sharing are whole dims, and knows the shapes of what an op returns.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..operator import sums
from ..operator.precision import compute_dtype
from ..operator.records import Record


class Rows(NamedTuple):
    """Layer norm: x is (*batch, *lead, *row), a weight (*row), or (*batch, *row) where each batch dim is full or 1."""

    row_ndim: int
    batch_ndim: int = 0

    def view(self, x: Tensor) -> Tensor:
        """x, or a tensor of its shape, as `dims`, `spread` and `collect` speak of it."""
        return x

    def view_statistics(self, t: Tensor) -> Tensor:
        """A mean or rstd as the op returns it, viewed to broadcast against `view(x)`."""
        return t

    def flat_statistics(self, t: Tensor) -> Tensor:
        """The inverse of `view_statistics`."""
        return t

    def dims(self, ndim: int) -> tuple[int, ...]:
        """The dims of `view(x)`, which has `ndim` dims, that statistics are taken over."""
        return tuple(range(ndim - self.row_ndim, ndim))

    def spread(self, affine: Tensor, ndim: int) -> Tensor:
        """A weight, a bias or a cotangent of theirs, viewed to broadcast against `view(x)` of `ndim` dims."""
        # Without batch dims the weight broadcasts from the right as it is. With them it needs dims of size
        # 1 in place of the lead dims, which it does not have.
        if affine.dim() == self.row_ndim:
            return affine
        batch, row = affine.shape[: self.batch_ndim], affine.shape[self.batch_ndim :]
        return affine.reshape(*batch, *(1,) * (ndim - self.batch_ndim - self.row_ndim), *row)

    def collect(self, t: Tensor) -> Tensor:
        """The adjoint of `spread`: t, shaped as `view(x)`, summed to `affine_shape`; float32 for the half types."""
        return _summed(t, range(self.batch_ndim, t.dim() - self.row_ndim))

    def statistics_shape(self, shape: torch.Size) -> tuple[int, ...]:
        """The shape of a mean or rstd for x of `shape`."""
        return (*shape[: len(shape) - self.row_ndim], *(1,) * self.row_ndim)

    def affine_shape(self, shape: torch.Size) -> tuple[int, ...]:
        """The shape of d_weight and d_bias for x of `shape`."""
        return (*shape[: self.batch_ndim], *shape[len(shape) - self.row_ndim :])

    def empty_like(self, x: Tensor) -> Tensor:
        """An output shaped as x, without values, in the memory format that the kernels write."""
        return x.new_empty(x.shape)


#: `Rows`, made once for each pair of numbers: a call in reverse mode asks for it three times.
rows_of = functools.cache(Rows)


class Groups(NamedTuple):
    """Group norm: x is (N, C, *), viewed as (N, groups, channels per group, positions); a weight is (C,).

    The methods are those of `Rows`.
    """

    groups: int

    def view(self, x: Tensor) -> Tensor:
        channels = x.shape[1] // max(self.groups, 1)  # a batch of no slices has no groups
        return x.reshape(x.shape[0], self.groups, channels, math.prod(x.shape[2:]))

    def view_statistics(self, t: Tensor) -> Tensor:
        return t[:, :, None, None]

    def flat_statistics(self, t: Tensor) -> Tensor:
        return t[:, :, 0, 0]

    def dims(self, ndim: int) -> tuple[int, ...]:
        return (2, 3)

    def spread(self, affine: Tensor, ndim: int) -> Tensor:
        # The length is written out, and not as -1: zero channels have a shape, too.
        each = affine.shape[0] // self.groups if self.groups else 1
        return affine.reshape(self.groups, each, 1)

    def collect(self, t: Tensor) -> Tensor:
        # Without samples and positions the shape is (groups, channels per group). Groups are contiguous runs of
        # channels, so flattening gives the channels in order.
        return _summed(t, (0, 3)).flatten()

    def statistics_shape(self, shape: torch.Size) -> tuple[int, ...]:
        return (shape[0], self.groups)

    def affine_shape(self, shape: torch.Size) -> tuple[int, ...]:
        return (shape[1],)

    def empty_like(self, x: Tensor) -> Tensor:
        return x.new_empty(x.shape)


class Channels(Groups):
    """Batch norm: every channel is a group, over all samples; statistics are (C,). Memory may be channels_last."""

    def view_statistics(self, t: Tensor) -> Tensor:
        return t[None, :, None, None]

    def flat_statistics(self, t: Tensor) -> Tensor:
        return t.reshape(-1)

    def dims(self, ndim: int) -> tuple[int, ...]:
        return (0, 2, 3)

    def statistics_shape(self, shape: torch.Size) -> tuple[int, ...]:
        return (self.groups,)

    def empty_like(self, x: Tensor) -> Tensor:
        return torch.empty_like(x, memory_format=memory_format(x))


Layout = Rows | Groups


def rows_in(args: Record) -> Rows:
    """The layout of layer norm for the arguments of a forward op, or of its tangent."""
    return rows_of(args.row_ndim)


def groups_in(args: Record) -> Groups:
    """The layout of group norm for the arguments of an op."""
    return Groups(args.groups)


def channels_in(args: Record) -> Channels:
    """The layout of batch norm for the arguments of an op."""
    return Channels(args.input.shape[1])


def memory_format(x: Tensor) -> torch.memory_format:
    """The memory format of a batch norm of x: channels_last where x is, and not contiguous besides; else contiguous.

    Strides that are channels_last but for dims of size 1, which ATen takes for either format in turn, are not.
    """
    if x.dim() in (4, 5) and not x.is_contiguous():
        # In channels_last memory the channels lie side by side, then the positions from the last dim on,
        # then the samples. The strides are built and compared exactly, because torch's own test overlooks
        # dims of size 1.
        sizes, strides = [x.shape[1], *x.shape[:1:-1]], [1]
        for size in sizes:
            strides.append(strides[-1] * size)
        if x.stride() == (strides[-1], 1, *strides[-2:0:-1]):
            return torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    return torch.contiguous_format


def _summed(t: Tensor, dims: Sequence[int]) -> Tensor:
    return sums.total(t, dims, dtype=compute_dtype(t.dtype))
