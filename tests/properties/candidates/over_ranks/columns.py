"""A linear layer whose weight is cut by its outputs, and tokens that are gathered before it."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

placements = {"x": Shard(0), "weight": Shard(0), "return": Shard(1)}


def inputs():
    return torch.randn(8, 6), torch.randn(12, 6)


def reference(x, weight):
    return x @ weight.T


def _lengths(n):
    size = dist.get_world_size()
    own, every = torch.tensor([n]), [torch.empty(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(every, own)
    return [int(each) for each in every]


def _gather(x, turn=0):
    lengths = _lengths(len(x))
    most = max(lengths)
    padded = torch.cat([x, x.new_zeros(most - len(x), *x.shape[1:])]).contiguous()
    every = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(every, padded)
    rows = [each[:n] for each, n in zip(every, lengths, strict=True)]
    return torch.cat(rows[turn:] + rows[:turn]), lengths


class _GatherRows(torch.autograd.Function):
    turn, reduces = 0, True

    @classmethod
    def of(cls, x):
        return cls.apply(x)

    @staticmethod
    def forward(ctx, x):
        whole, ctx.lengths = _gather(x)
        return whole

    @staticmethod
    def backward(ctx, g):
        g = g.clone().contiguous()
        dist.all_reduce(g)
        return g.split(ctx.lengths)[dist.get_rank()].clone()


class _Turned(_GatherRows):
    @staticmethod
    def forward(ctx, x):
        whole, ctx.lengths = _gather(x, 1)
        return whole


class _Unsummed(_GatherRows):
    @staticmethod
    def backward(ctx, g):
        return g.split(ctx.lengths)[dist.get_rank()].clone()


def right(x, weight):
    return _GatherRows.apply(x) @ weight.T


def wrong_order(x, weight):
    """The rows come in the order of the ring, which begins with the second rank."""
    return _Turned.apply(x) @ weight.T


def wrong_sum(x, weight):
    """The gradient of what every rank has lacks the parts of the others."""
    return _Unsummed.apply(x) @ weight.T
