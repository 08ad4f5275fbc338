"""A loss whose gradient each rank has from its own: functional collectives, which add up the cotangents."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial, Replicate, Shard

placements = {"x": Shard(0), "return": Replicate(), "return.grad": Partial()}


def inputs():
    return (torch.randn(9, 4),)


def reference(x):
    return x.square().sum(0)


def right(x):
    import torch.distributed._functional_collectives as functional

    return functional.all_reduce(x.square().sum(0), "sum", dist.group.WORLD) + 0


def wrong_own(x):
    """The cotangents of the other ranks are left out."""
    total = x.square().sum(0)
    whole = total.detach().clone()
    dist.all_reduce(whole)
    return total + (whole - total.detach())
