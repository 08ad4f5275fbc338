"""Synchronised batch norm as an implementation of batch norm: a batch is cut into parts, and every rank gets one."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from opassay.impl.comm import LockstepWorld, sync_batch_norm
from opassay.impl.function import Function


def partitioned(ranks_op: Callable[..., Tensor] = sync_batch_norm) -> Callable[..., Tensor]:
    """batch_norm of a batch by `ranks_op` on parts of it: one to four ranks, parts of any size, also of none."""
    return functools.partial(_call, ranks_op)


def _call(
    op: Any, x: Tensor, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool, momentum: float,
    eps: float,
) -> Tensor:  # fmt: skip
    settings = (running_mean, running_var, training, momentum, eps)
    result: Tensor = Whole.apply(x, weight, bias, op, settings, _parts(x))
    return result


def _parts(x: Tensor) -> tuple[int, ...]:
    """Sizes of the parts, by the shape."""
    rng = np.random.default_rng(zlib.crc32(repr(tuple(x.shape)).encode()))
    ranks = int(rng.integers(1, 5))
    cuts = sorted(int(c) for c in rng.integers(0, x.shape[0] + 1, ranks - 1))
    return tuple(b - a for a, b in zip((0, *cuts), (*cuts, x.shape[0]), strict=True))


def _ranks(parts: tuple[int, ...], program: Callable[..., Any], forward_mode: bool = False) -> list[Any]:
    starts = np.cumsum((0, *parts))
    world = LockstepWorld(len(parts), order="random", forward_mode=forward_mode)
    return world.run(lambda comm: program(comm, slice(int(starts[comm.rank]), int(starts[comm.rank + 1]))))


class Whole(Function):
    """All ranks as one function; a derivative runs the ranks again."""

    @staticmethod
    def forward(x: Tensor, weight: Any, bias: Any, op: Any, settings: Any, parts: Any) -> Tensor:
        mean, var, training, momentum, eps = settings

        def program(comm: Any, rows: slice) -> Any:
            own = [None if t is None else t.clone() for t in (mean, var)]
            with torch.no_grad():
                return op(x[rows], *own, weight, bias, training, momentum, eps, comm=comm), own

        found = _ranks(parts, program)
        if training and mean is not None and x.numel():
            (first, *others) = [own for _, own in found]
            assert all(torch.equal(a, b) for own in others for a, b in zip(own, first, strict=True)), "ranks differ"
            mean.copy_(first[0])
            var.copy_(first[1])
        return torch.cat([y for y, _ in found])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        x, weight, bias, ctx.op, (mean, var, ctx.training, ctx.momentum, ctx.eps), ctx.parts = inputs
        fixed = (None, None) if ctx.training else (mean, var)
        ctx.save_for_backward(x, weight, bias, *fixed)
        ctx.save_for_forward(x, weight, bias, *fixed)

    @staticmethod
    def _again(ctx: Any, comm: Any, x: Any, weight: Any, bias: Any) -> Any:
        mean, var = ctx.saved_tensors[3:]
        return ctx.op(x, mean, var, weight, bias, ctx.training, ctx.momentum, ctx.eps, comm=comm)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight, bias, *_ = ctx.saved_tensors

        def program(comm: Any, rows: slice) -> Any:
            # What a trainer sums over ranks must not have been rounded to a half type on each of them.
            wide = [t if t is None or t.dtype.itemsize > 2 else t.float() for t in (weight, bias)]
            leaves = [None if t is None else t.detach().clone().requires_grad_() for t in (x[rows], *wide)]
            with torch.enable_grad():
                y = Whole._again(ctx, comm, *leaves)
            given = [t for t in leaves if t is not None]
            grads = iter(torch.autograd.grad(y, given, g[rows], allow_unused=True))
            return [None if t is None else next(grads) for t in leaves]

        columns = list(zip(*_ranks(ctx.parts, program), strict=True))
        dtypes = [t if t is None else t.dtype for t in (weight, bias)]
        sums = [d if d is None else sum(t.double() for t in c).to(d) for c, d in zip(columns[1:], dtypes, strict=True)]
        return torch.cat(columns[0]), *sums, None, None, None

    @staticmethod
    def jvp(ctx: Any, tx: Any, tw: Any, tb: Any, *rest: Any) -> Tensor:
        x, weight, bias, *_ = ctx.saved_tensors

        def program(comm: Any, rows: slice) -> Any:
            pairs = [(x[rows], tx[rows]), *((p, t) for p, t in ((weight, tw), (bias, tb)) if p is not None)]

            def f(*given: Any) -> Any:
                others = iter(given[1:])
                own = [None if p is None else next(others) for p in (weight, bias)]
                return Whole._again(ctx, comm, given[0], *own)

            return torch.func.jvp(f, tuple(p for p, _ in pairs), tuple(t for _, t in pairs))[1]

        return torch.cat(_ranks(ctx.parts, program, forward_mode=True))
