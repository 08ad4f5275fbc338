"""Attention whose sequence lies on the ranks: by a ring of keys and values, and by an exchange of heads."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

placements = {"q": Shard(1), "k": Shard(1), "v": Shard(1), "return": Shard(1)}


def inputs():
    return tuple(torch.randn(4, 8, 6) for _ in range(3))


def reference(q, k, v):
    return torch.softmax(q @ k.mT * 6**-0.5, -1) @ v


def _require_even(t):
    """Every rank must have as many rows; whoever has other ones makes all ranks raise."""
    sizes = [torch.empty(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([t.shape[1]]))
    if len({int(n) for n in sizes}) > 1 or not t.shape[1]:
        raise ValueError(f"sequence: got {[int(n) for n in sizes]} rows on the ranks, need as many on each")


def _pass_on(tensors, waits=True):
    """The tensors of the rank before this one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        return [t.clone() for t in tensors]
    got = [torch.empty(t.shape, dtype=t.dtype) for t in tensors]
    sends = [dist.P2POp(dist.isend, t.contiguous(), (rank + 1) % size) for t in tensors]
    works = dist.batch_isend_irecv(sends + [dist.P2POp(dist.irecv, t, (rank - 1) % size) for t in got])
    for work in works:
        work.wait()
    return got


class _Ring(torch.autograd.Function):
    mistake = ""

    @classmethod
    def _forward(cls, ctx, q, k, v):
        _require_even(q)
        _require_even(k)
        size, scale = dist.get_world_size(), 6**-0.5
        out, most, total = torch.zeros_like(q[..., :1]) * v[:, :1], None, 0.0
        keys, values = k, v
        for step in range(size - (cls.mistake == "last")):
            scores = q @ keys.mT * scale
            new = scores.amax(-1, keepdim=True)
            new = new if most is None else torch.maximum(most, new)
            weights = torch.exp(scores - new)
            shrink = 1.0 if most is None else torch.exp(most - new)
            if cls.mistake == "rescale":
                out, total = out + weights @ values, total * shrink + weights.sum(-1, keepdim=True)
            else:
                out, total = out * shrink + weights @ values, total * shrink + weights.sum(-1, keepdim=True)
            most = new
            if step < size - 1:
                keys, values = _pass_on([keys, values])
        out = out / total
        ctx.save_for_backward(q, k, v, out, most + total.log())
        return out

    @classmethod
    def _backward(cls, ctx, g):
        q, k, v, out, logs = ctx.saved_tensors
        size, scale = dist.get_world_size(), 6**-0.5
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        keys, values = k, v
        mean = (g * out).sum(-1, keepdim=True)
        for step in range(size):
            stale = (k, v) if cls.mistake == "stale" else (keys, values)
            weights = torch.exp(q @ stale[0].mT * scale - logs)
            dv = dv + weights.mT @ g
            if cls.mistake == "chunk":
                mean = (g * (weights / weights.sum(-1, keepdim=True) @ stale[1])).sum(-1, keepdim=True)
            slopes = weights * (g @ stale[1].mT - (0 if cls.mistake == "mean" else mean)) * scale
            dq, dk = dq + slopes @ stale[0], dk + slopes.mT @ q
            if step < size - 1:
                keys, values, dk, dv = _pass_on([keys, values, dk, dv])
        if cls.mistake == "home":
            return dq, dk, dv
        dk, dv = _pass_on([dk, dv])
        return dq, dk, dv

    @staticmethod
    def forward(ctx, q, k, v):
        return _Ring._forward(ctx, q, k, v)

    @staticmethod
    def backward(ctx, g):
        return _Ring._backward(ctx, g)


def _ring_with(fault):
    class Faulty(_Ring):
        mistake = fault

        @staticmethod
        def forward(ctx, q, k, v):
            return Faulty._forward(ctx, q, k, v)

        @staticmethod
        def backward(ctx, g):
            return Faulty._backward(ctx, g)

    return Faulty


def right_ring(q, k, v):
    return _Ring.apply(q, k, v)


def wrong_rescale(q, k, v):
    """The sum so far is not scaled where the maximum grows."""
    return _ring_with("rescale").apply(q, k, v)


def wrong_last(q, k, v):
    """The last keys of the ring are left out."""
    return _ring_with("last").apply(q, k, v)


def wrong_stale(q, k, v):
    """The backward uses its own keys and values at every step (diffusers#14265)."""
    return _ring_with("stale").apply(q, k, v)


def wrong_home(q, k, v):
    """The gradients of keys and values stay one rank before their home."""
    return _ring_with("home").apply(q, k, v)


def wrong_chunk(q, k, v):
    """The mean of a row's slopes is that of the keys at hand, and not of all (tt-metal#53216)."""
    return _ring_with("chunk").apply(q, k, v)


def wrong_mean(q, k, v):
    """The backward of the softmax lacks the term of its mean."""
    return _ring_with("mean").apply(q, k, v)


class _Swap(torch.autograd.Function):
    """Parts of the first axis go to the ranks, which give parts of the second."""

    @staticmethod
    def forward(ctx, x, to_heads):
        ctx.to_heads = to_heads
        return _swap(x, to_heads)

    @staticmethod
    def backward(ctx, g):
        return _swap(g.contiguous(), not ctx.to_heads), None


def _swap(x, to_heads):
    size = dist.get_world_size()
    if to_heads:
        parts = x.contiguous()  # [heads, rows here, d] -> [heads here, rows, d]
        out = torch.empty_like(parts)
        dist.all_to_all_single(out, parts)
        return torch.cat(out.chunk(size, 0), 1)
    parts = torch.cat(x.chunk(size, 1), 0).contiguous()
    out = torch.empty_like(parts)
    dist.all_to_all_single(out, parts)
    return out


def _require_heads(q):
    if q.shape[0] % dist.get_world_size():
        raise ValueError(f"q: got {q.shape[0]} heads, need a multiple of {dist.get_world_size()} ranks")


def right_heads(q, k, v):
    _require_even(q)
    _require_even(k)
    _require_heads(q)
    q, k, v = (_Swap.apply(t, True) for t in (q, k, v))
    return _Swap.apply(reference(q, k, v), False)


def wrong_heads(q, k, v):
    """The rows of the ranks are taken for heads."""
    _require_even(q)
    _require_even(k)
    _require_heads(q)
    q, k, v = (_Swap.apply(t, True) for t in (q, k, v))
    y = reference(q, k, v)
    out = torch.empty_like(y)
    dist.all_to_all_single(out, y.contiguous())
    return out.reshape(q.shape[0] * dist.get_world_size(), -1, y.shape[2])
