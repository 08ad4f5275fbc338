"""A product with a part of each sum on every rank, whose rows are scattered."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

placements = {"x": Shard(1), "weight": Shard(1), "return": Shard(0)}


def inputs():
    return torch.randn(8, 8), torch.randn(5, 8)


def reference(x, weight):
    return x @ weight.T


def _own_rows(n):
    size, rank = dist.get_world_size(), dist.get_rank()
    each = -(-n // size)
    return each, max(min(n - each * rank, each), 0)


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        size = dist.get_world_size()
        each, own = _own_rows(len(y))
        ctx.rows = len(y)
        padded = torch.cat([y, y.new_zeros(each * size - len(y), y.shape[1])]).contiguous()
        out = y.new_empty(each, y.shape[1])
        dist.reduce_scatter_tensor(out, padded)
        return out[:own].clone()

    @staticmethod
    def backward(ctx, g):
        size = dist.get_world_size()
        each, _ = _own_rows(ctx.rows)
        padded = torch.cat([g, g.new_zeros(each - len(g), g.shape[1])]).contiguous()
        whole = g.new_empty(each * size, g.shape[1])
        dist.all_gather_into_tensor(whole, padded)
        return whole[: ctx.rows].clone()


class _OwnRows(_Scatter):
    @staticmethod
    def backward(ctx, g):
        whole = g.new_zeros(ctx.rows, g.shape[1])
        each, own = _own_rows(ctx.rows)
        whole[each * dist.get_rank() :][:own] = g
        return whole


def right(x, weight):
    return _Scatter.apply(x @ weight.T)


def wrong_gradient(x, weight):
    """Each rank takes the cotangents of its own rows alone."""
    return _OwnRows.apply(x @ weight.T)


def wrong_average(x, weight):
    """The rows are averaged over the ranks."""
    return _Scatter.apply(x @ weight.T) / dist.get_world_size()
