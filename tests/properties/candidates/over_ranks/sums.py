"""A sum over rows that lie on different ranks: by the library, by a ring, and by a tree."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

placements = {"x": Shard(0), "return": Replicate()}


def inputs():
    return (torch.randn(9, 13),)


def reference(x):
    return x.sum(0)


@torch.no_grad()
def right_library(x):
    total = x.sum(0)
    dist.all_reduce(total)
    return total


@torch.no_grad()
def right_functional(x):
    import torch.distributed._functional_collectives as functional

    return functional.all_reduce(x.sum(0), "sum", dist.group.WORLD) + 0


def _ring(x, skip=0, twice=False, hop=None, waits=True):
    """The sum by a reduce-scatter and an all-gather along a ring."""
    rank, size = dist.get_rank(), dist.get_world_size()
    total = x.sum(0)
    pad = -total.numel() % size
    chunks = list(torch.cat([total, total.new_zeros(pad)]).chunk(size))
    after, before = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1 - skip):
        give, take = (rank - step) % size, (rank - step - 1) % size
        out = chunks[give] if hop is None else chunks[give].to(hop)
        got = torch.zeros_like(out)
        works = [dist.isend(out.contiguous(), after), dist.irecv(got, before)]
        if waits:
            for work in works:
                work.wait()
        chunks[take] = chunks[take] + got.to(total.dtype) * (2 if twice and step == 0 and rank == 1 else 1)
        if not waits:
            for work in works:
                work.wait()
    for step in range(size - 1):
        give, take = (rank + 1 - step) % size, (rank - step) % size
        got = torch.zeros_like(chunks[give])
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, chunks[give].contiguous(), after), dist.P2POp(dist.irecv, got, before)
        ])  # fmt: skip
        for work in works:
            work.wait()
        chunks[take] = got
    return torch.cat(chunks)[: total.numel()]


@torch.no_grad()
def right_ring(x):
    return _ring(x)


@torch.no_grad()
def right_tree(x):
    """To rank 0 by halves, and back."""
    rank, size = dist.get_rank(), dist.get_world_size()
    total, step = x.sum(0), 1
    while step < size:
        if rank % (2 * step) == step:
            dist.send(total, rank - step)
        elif rank % (2 * step) == 0 and rank + step < size:
            other = torch.empty_like(total)
            dist.recv(other, rank + step)
            total = total + other
        step *= 2
    dist.broadcast(total, 0)
    return total


@torch.no_grad()
def wrong_twice(x):
    """One rank is counted twice."""
    return _ring(x, twice=True)


@torch.no_grad()
def wrong_last_step(x):
    """The last step of the ring is left out."""
    return _ring(x, skip=1)


@torch.no_grad()
def wrong_without_wait(x):
    """What arrives is added before it has."""
    return _ring(x, waits=False)


@torch.no_grad()
def wrong_narrow_hop(x):
    """The sums travel in bfloat16."""
    return _ring(x, hop=torch.bfloat16)


@torch.no_grad()
def wrong_own_order(x):
    """Every rank begins with its own part, so the ranks have other bits."""
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [torch.empty(x.shape[1], dtype=x.dtype) for _ in range(size)]
    dist.all_gather(parts, x.sum(0))
    total = parts[rank]
    for step in range(1, size):
        total = total + parts[(rank + step) % size]
    return total


_BUFFERS = {}


@torch.no_grad()
def wrong_moved_buffer(x):
    """A rank's buffer was registered once, and it sums into another one afterwards."""
    total = x.sum(0)
    buffer = _BUFFERS.setdefault(total.shape, torch.zeros_like(total))
    if dist.get_rank() != 1 or not bool(buffer.any()):
        buffer.copy_(total)
    shared = buffer.clone()
    dist.all_reduce(shared)
    return shared


def _group_of(ranks):
    """A group of some ranks, made once; every rank makes all groups."""
    if tuple(ranks) not in _BUFFERS:
        _BUFFERS[tuple(ranks)] = dist.new_group(list(ranks))
    return _BUFFERS[tuple(ranks)]


@torch.no_grad()
def right_named_buffer(x):
    """One buffer for all calls of a size, which every rank has at the same place."""
    total = x.sum(0)
    buffer = _BUFFERS.setdefault(total.shape, torch.zeros_like(total))
    buffer.copy_(total)
    dist.all_reduce(buffer)
    return buffer.clone()


@torch.no_grad()
def wrong_split_group(x):
    """A rank keeps its old segment where the others have new ones, and each side adds up alone (sglang#32664)."""
    total = x.sum(0)
    calls = _BUFFERS["calls"] = _BUFFERS.get("calls", 0) + 1
    alone, others = _group_of([0]), _group_of(range(1, dist.get_world_size()))
    group = dist.group.WORLD if calls < 3 else others if dist.get_rank() else alone
    dist.all_reduce(total, group=group)
    return total


@torch.no_grad()
def wrong_swallowed(x):
    """An error of the others is taken for a world of one."""
    total = x.sum(0)
    try:
        dist.all_reduce(total)
    except RuntimeError:
        return x.sum(0)
    return total
