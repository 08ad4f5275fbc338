"""A linear layer whose weight is cut by its inputs: each rank has a part of every sum."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

placements = {"x": Shard(1), "weight": Shard(1), "bias": Replicate(), "return": Replicate()}


def inputs():
    return torch.randn(6, 8), torch.randn(5, 8), torch.randn(5)


def reference(x, weight, bias):
    return x @ weight.T + bias


def reference_of_parts(x, weight, bias):
    """The same, written for the parts of one rank."""
    y = x @ weight.T
    dist.all_reduce(y)
    return y + bias


class _Reduce(torch.autograd.Function):
    """A sum over ranks, whose result is on all of them: each has the whole cotangent already."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class _ReduceBoth(_Reduce):
    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class _Narrow(_Reduce):
    @staticmethod
    def forward(ctx, x):
        half = x.to(torch.bfloat16)
        dist.all_reduce(half)
        return half.to(x.dtype)


def right(x, weight, bias):
    return _Reduce.apply(x @ weight.T) + bias


def right_tensor(x, weight, bias):
    """By DTensor."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    if x.shape[1] == 0 or weight.shape[1] == 0:
        raise ValueError(f"x: got {x.shape[1]} columns on rank {dist.get_rank()}, need one or more")
    whole = [DTensor.from_local(t, mesh, [Shard(1)], run_check=False) for t in (x, weight)]
    return (whole[0] @ whole[1].T).redistribute(placements=[Replicate()]).to_local() + bias


def wrong_bias(x, weight, bias):
    """Every rank adds the bias, and then the ranks are added."""
    return _Reduce.apply(x @ weight.T + bias)


def wrong_gradient(x, weight, bias):
    """The gradient has the factor of the world's size."""
    return _ReduceBoth.apply(x @ weight.T) + bias


def wrong_hop(x, weight, bias):
    """The sums travel in bfloat16."""
    return _Narrow.apply(x @ weight.T) + bias


def wrong_alone(x, weight, bias):
    """No rank adds what the others have."""
    return x @ weight.T + bias
