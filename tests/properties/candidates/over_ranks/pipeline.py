"""Two layers on two ranks, with two pieces of the batch on their way."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial, Replicate

placements = {
    "x": Replicate(), "first": Replicate(), "second": Replicate(), "return": Partial(),
    "x.grad": Partial(), "first.grad": Partial(), "second.grad": Partial(),
}  # fmt: skip


def inputs():
    return torch.randn(6, 5), torch.randn(7, 5), torch.randn(4, 7)


def reference(x, first, second):
    return torch.tanh(x @ first.T) @ second.T


class _Pipeline(torch.autograd.Function):
    mistake = ""

    @classmethod
    def _forward(cls, ctx, x, first, second):
        rank, size = dist.get_rank(), dist.get_world_size()
        if size != 2:
            raise ValueError(f"world: got {size} ranks, need 2, one for each layer")
        pieces = [x[: len(x) // 2], x[len(x) // 2 :]]
        own = [torch.tanh(piece @ first.T).to(x.dtype) for piece in pieces] if rank == 0 else []
        hidden = own or [x.new_empty(len(piece), len(first)) for piece in pieces]
        if rank == 0:
            works = [dist.isend(each.contiguous(), 1, tag=i) for i, each in enumerate(hidden)]
        else:
            works = [dist.irecv(each, 0, tag=i) for i, each in enumerate(hidden)]
        for work in works[: 1 if cls.mistake == "wait" else 2]:
            work.wait()
        ctx.save_for_backward(x, first, second, *hidden)
        whole = torch.cat(hidden)
        return whole @ second.T if rank else x.new_zeros(len(x), len(second))

    @classmethod
    def _backward(cls, ctx, g):
        x, first, second, *hidden = ctx.saved_tensors
        if dist.get_rank():
            slopes = list((g @ second).to(x.dtype).split([len(each) for each in hidden]))
            for each in slopes[::-1] if cls.mistake == "order" else slopes:
                dist.send(each.contiguous(), 0)
            return torch.zeros_like(x), torch.zeros_like(first), g.T @ torch.cat(hidden)
        slopes = [torch.empty_like(each) for each in hidden]
        for each in slopes:
            dist.recv(each, 1)
        inner = torch.cat(slopes) * (1 - torch.cat(hidden).square())
        return inner @ first, inner.T @ x, torch.zeros_like(second)

    @staticmethod
    def forward(ctx, *args):
        return _Pipeline._forward(ctx, *args)

    @staticmethod
    def backward(ctx, g):
        return _Pipeline._backward(ctx, g)


class _Unordered(_Pipeline):
    mistake = "order"

    @staticmethod
    def backward(ctx, g):
        return _Unordered._backward(ctx, g)


class _Hasty(_Pipeline):
    mistake = "wait"

    @staticmethod
    def forward(ctx, *args):
        return _Hasty._forward(ctx, *args)


def right(x, first, second):
    return _Pipeline.apply(x, first, second)


def wrong_order(x, first, second):
    """The slopes of the pieces come back in the other order."""
    return _Unordered.apply(x, first, second)


def wrong_wait(x, first, second):
    """Nobody waits for the second piece."""
    return _Hasty.apply(x, first, second)
