"""The cross entropy of logits whose classes lie on the ranks."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

placements = {"logits": Shard(1), "target": Replicate(), "return": Replicate()}


def inputs():
    return torch.randn(7, 12), torch.tensor([0, 11, 5, 3, 8, 6, 1])


def reference(logits, target):
    return torch.nn.functional.cross_entropy(logits, target, reduction="none")


class _Loss(torch.autograd.Function):
    mistake = ""

    @classmethod
    def _forward(cls, ctx, logits, target):
        rank, size = dist.get_rank(), dist.get_world_size()
        ctx.dtype, logits = logits.dtype, logits.float()
        sizes = [torch.empty(1, dtype=torch.int64) for _ in range(size)]
        dist.all_gather(sizes, torch.tensor([logits.shape[1]]))
        first = int((torch.cat(sizes) * (torch.arange(size) < rank)).sum()) - (
            1 if cls.mistake == "first" and rank else 0
        )
        own = logits.new_full((len(logits),), -torch.inf) if not logits.shape[1] else logits.amax(1)
        most = own.clone()
        if cls.mistake != "maximum":
            dist.all_reduce(most, dist.ReduceOp.MAX)
        shifted = torch.exp(logits - most[:, None])
        total = shifted.sum(1)
        dist.all_reduce(total)
        here = (target >= first) & (target < first + logits.shape[1])
        at = torch.where(here, target - first, 0)
        hit = logits.gather(1, at[:, None])[:, 0] if logits.shape[1] else most
        hits = torch.where(here, hit - most, 0.0)
        dist.all_reduce(hits)
        counts = target != -100  # what torch ignores
        ctx.save_for_backward(shifted / total[:, None], at, here, counts)
        return torch.where(counts, total.log() - hits, 0.0).to(ctx.dtype)

    @classmethod
    def _backward(cls, ctx, g):
        share, at, here, counts = ctx.saved_tensors
        slopes = share.clone()
        if share.shape[1]:
            slopes.scatter_add_(1, at[:, None], -here.to(share.dtype)[:, None])
        slopes = slopes * torch.where(counts, g, 0.0)[:, None] * (dist.get_world_size() if cls.mistake == "size" else 1)
        return slopes.to(ctx.dtype), None

    @staticmethod
    def forward(ctx, logits, target):
        return _Loss._forward(ctx, logits, target)

    @staticmethod
    def backward(ctx, g):
        return _Loss._backward(ctx, g)


def _loss_with(fault):
    class Faulty(_Loss):
        mistake = fault

        @staticmethod
        def forward(ctx, logits, target):
            return Faulty._forward(ctx, logits, target)

        @staticmethod
        def backward(ctx, g):
            return Faulty._backward(ctx, g)

    return Faulty


def right(logits, target):
    return _Loss.apply(logits, target)


def wrong_maximum(logits, target):
    """Each rank subtracts its own maximum, and the sums are added."""
    return _loss_with("maximum").apply(logits, target)


def wrong_first(logits, target):
    """The first class of a rank is one too low."""
    return _loss_with("first").apply(logits, target)


def wrong_size(logits, target):
    """The gradient has the factor of the world's size."""
    return _loss_with("size").apply(logits, target)
