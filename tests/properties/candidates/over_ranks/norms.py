"""A norm of tokens that lie on the ranks, whose weight is on all of them."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

placements = {"x": Shard(0), "weight": Replicate(), "return": Shard(0)}


def inputs():
    return torch.randn(8, 6), torch.randn(6)


def reference(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


class _Shared(torch.autograd.Function):
    """A parameter that every rank has: its gradient is that of all."""

    @staticmethod
    def forward(ctx, weight):
        return weight.clone()

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class _Averaged(_Shared):
    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, dist.ReduceOp.AVG)
        return g


def right(x, weight):
    return reference(x, _Shared.apply(weight))


def wrong_unsummed(x, weight):
    """Each rank has the gradient of its own tokens alone."""
    return reference(x, weight)


def wrong_average(x, weight):
    """The gradients are averaged."""
    return reference(x, _Averaged.apply(weight))
