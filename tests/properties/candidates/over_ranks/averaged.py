"""A loss that is the mean over the ranks, each of which has its own rows, and a weight that all have."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial, Replicate, Shard

placements = {"x": Shard(0), "weight": Replicate(), "return": Partial("avg"), "return.grad": Replicate()}
domain = {"x": ("4*N", "K"), "weight": ("M", "K")}


def inputs():
    return torch.randn(8, 6), torch.randn(5, 6).requires_grad_()


def reference(x, weight):
    return (x @ weight.T).square().mean()


class _Average(torch.autograd.Function):
    """A weight whose gradients are averaged, as a data-parallel wrapper does."""

    @staticmethod
    def forward(ctx, weight):
        return weight.clone()

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g / dist.get_world_size()


class _Sum(_Average):
    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


def right(x, weight):
    return reference(x, _Average.apply(weight))


def wrong_sum(x, weight):
    """The gradients are added up."""
    return reference(x, _Sum.apply(weight))


def wrong_none(x, weight):
    """Each rank goes on with its own gradient."""
    return reference(x, weight)
