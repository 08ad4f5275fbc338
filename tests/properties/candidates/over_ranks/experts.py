"""Tokens that go to the ranks of their experts, and back."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

placements = {"x": Shard(0), "expert": Shard(0), "weight": Shard(0), "return": Shard(0)}
EXPERTS = 4


def inputs():
    return torch.randn(10, 6), torch.tensor([0, 3, 1, 1, 2, 0, 0, 3, 1, 0]), torch.randn(EXPERTS, 6, 5)


def reference(x, expert, weight):
    return torch.einsum("td,tdo->to", x, weight[expert])


def _exchange(x, give, take):
    out = x.new_empty(sum(take), *x.shape[1:])
    dist.all_to_all_single(out, x.contiguous(), take, give)
    return out


class _Move(torch.autograd.Function):
    scale = 1

    @staticmethod
    def forward(ctx, x, give, take):
        ctx.splits = take, give
        return _exchange(x, give, take)

    @staticmethod
    def backward(ctx, g):
        return _exchange(g, *ctx.splits), None, None


class _Scaled(torch.autograd.Function):
    """The identity, whose gradient has the factor of the world's size."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * dist.get_world_size()


def _experts_here(weight):
    """How many experts each rank has, and the first of this one."""
    sizes = [torch.empty(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(weight)]))
    counts = [int(n) for n in sizes]
    return counts, sum(counts[: dist.get_rank()])


def _run(x, expert, weight, move=_Move.apply, mistake=""):
    counts, first = _experts_here(weight)
    homes = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    home = homes[expert]
    order = home.argsort(stable=True)
    give = torch.bincount(home, minlength=len(counts))
    take = torch.empty_like(give)
    dist.all_to_all_single(take, give.contiguous())
    give, take = give.tolist(), take.tolist()
    if mistake == "none" and not sum(take):
        return x.new_zeros(0, weight.shape[2])
    here = _exchange(expert[order], give, take) - first
    tokens = move(x[order], give, take)
    weights = _Scaled.apply(weight) if mistake == "scaled" else weight
    done = torch.einsum("td,tdo->to", tokens, weights[here])
    if mistake == "splits":
        take = [sum(take) - sum(take[1:]), *take[1:]][::-1]
    back = move(done, take, give)
    if mistake == "order":
        return back
    return torch.zeros_like(back).index_copy(0, order, back)


def right(x, expert, weight):
    return _run(x, expert, weight)


def wrong_splits(x, expert, weight):
    """The lengths of the way back are in another order."""
    return _run(x, expert, weight, mistake="splits")


def wrong_order(x, expert, weight):
    """The tokens stay in the order of their experts."""
    return _run(x, expert, weight, mistake="order")


def wrong_gradient(x, expert, weight):
    """The gradients of the experts have the factor of the world's size (Megatron-LM#5956)."""
    return _run(x, expert, weight, mistake="scaled")


def wrong_without_tokens(x, expert, weight):
    """A rank that gets no tokens leaves before the way back."""
    return _run(x, expert, weight, mistake="none")
