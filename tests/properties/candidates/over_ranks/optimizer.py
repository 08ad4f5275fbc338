"""A step with momentum, whose state lies on the ranks: gradients are summed there, and weights gathered."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial, Replicate, Shard

placements = {
    "weight": Replicate(), "gradient": Partial(), "momentum": Shard(0), "return[0]": Replicate(), "return[1]": Shard(0),
}  # fmt: skip


def inputs():
    return torch.randn(12), torch.randn(12), torch.randn(12)


def reference(weight, gradient, momentum):
    momentum = 0.9 * momentum + gradient
    return weight - 0.1 * momentum, momentum


def _step(weight, gradient, momentum, mistake=""):
    size, rank = dist.get_world_size(), dist.get_rank()
    each = -(-len(weight) // size)
    pad = each * size - len(weight)
    own = gradient.new_empty(each)
    dist.reduce_scatter_tensor(own, torch.cat([gradient, gradient.new_zeros(pad)]))
    own = own[: len(momentum)]
    if mistake == "average":
        own = own / size
    momentum = 0.9 * momentum + own
    at = rank - 1 if mistake == "shard" and rank else rank
    part = weight[each * at :][: len(momentum)] - 0.1 * momentum
    part = torch.cat([part, part.new_zeros(each - len(part))])
    whole = weight.new_empty(each * size)
    work = dist.all_gather_into_tensor(whole, part, async_op=True)
    early = torch.cat([whole])
    work.wait()
    whole = early if mistake == "stale" else whole
    return whole[: len(weight)].clone(), momentum


@torch.no_grad()
def right(weight, gradient, momentum):
    return _step(weight, gradient, momentum)


@torch.no_grad()
def wrong_average(weight, gradient, momentum):
    """The gradients are averaged."""
    return _step(weight, gradient, momentum, "average")


@torch.no_grad()
def wrong_shard(weight, gradient, momentum):
    """The shard of the rank before is updated."""
    return _step(weight, gradient, momentum, "shard")


@torch.no_grad()
def wrong_stale(weight, gradient, momentum):
    """The weights are read before they have arrived."""
    return _step(weight, gradient, momentum, "stale")
