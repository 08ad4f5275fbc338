"""Kernels whose rows keep their bits whatever is computed beside them, and kernels whose rows do not: with the axis."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Keeper:
    """A kernel: axis is that along which its bits change, "" where they do not."""

    kernel: Callable[..., Any]
    spec: Callable[..., Any]
    inputs: Callable[[int], tuple[Any, ...]]
    axis: str = ""


def _draw(*shapes: tuple[int, ...]) -> Callable[[int], tuple[Any, ...]]:
    def draw(seed: int) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(seed)
        return tuple(torch.randn(shape, generator=generator) for shape in shapes)

    return draw


def _in_blocks(x: Tensor, w: Tensor, width: int) -> Tensor:
    """x @ w, the sum over blocks of so many columns, each summed in turn."""
    out = torch.zeros(*x.shape[:-1], w.shape[1], dtype=x.dtype)
    for k in range(0, x.shape[-1], width):
        part = torch.zeros_like(out)
        for i in range(k, min(k + width, x.shape[-1])):
            part = part + x[..., i : i + 1] * w[i]
        out = out + part
    return out


# ------------------------------------------------------------------------------------------------ products of rows


def product(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


def split_by_batch(x: Tensor, w: Tensor) -> Tensor:
    return _in_blocks(x, w, -(-x.shape[1] // 4) if len(x) < 24 else x.shape[1] + 1)


def tuned_by_rows(x: Tensor, w: Tensor) -> Tensor:
    return _in_blocks(x, w, {0: 4, 1: 8}.get(len(x).bit_length() // 4, 16))


def graph_of_a_bucket(x: Tensor, w: Tensor) -> Tensor:
    bucket = next(n for n in (8, 64, 512, 1 << 20) if n >= len(x))
    padded = torch.cat([x, x.new_zeros(bucket - len(x), x.shape[1])]) if bucket <= 512 else x
    return _in_blocks(padded, w, 5 if bucket == 8 else 7)[: len(x)]


def padded_to_a_bucket(x: Tensor, w: Tensor) -> Tensor:
    bucket = next(n for n in (8, 64, 512, 1 << 20) if n >= len(x))
    padded = torch.cat([x, x.new_zeros(bucket - len(x), x.shape[1])]) if bucket <= 512 else x
    return _in_blocks(padded, w, 7)[: len(x)]


def one_way(x: Tensor, w: Tensor) -> Tensor:
    return _in_blocks(x, w, 1)


def in_fixed_blocks(x: Tensor, w: Tensor) -> Tensor:
    return _in_blocks(x, w, 8)


def by_columns(x: Tensor, w: Tensor) -> Tensor:
    """What follows from the length of rows alone is the same for all rows."""
    return _in_blocks(x, w, 4 if x.shape[1] > 40 else 9)


def batched(x: Tensor, w: Tensor) -> Tensor:
    return torch.einsum("bmk,kn->bmn", x, w)


def batched_or_not(x: Tensor, w: Tensor) -> Tensor:
    """`mm` for one matrix, `bmm` for several, which cuts the sum in another way."""
    return _in_blocks(x, w, 6 if len(x) == 1 else 16)


def batched_one_way(x: Tensor, w: Tensor) -> Tensor:
    return _in_blocks(x, w, 6)


# -------------------------------------------------------------------------------------------------- rows of lengths


def sum_to_length(x: Tensor, length: Tensor) -> Tensor:
    keep = torch.arange(x.shape[1])[None] < length[:, None]
    return torch.where(keep, x, 0.0).sum(-1)


def _sum_in_blocks(x: Tensor, length: Tensor, width: int) -> Tensor:
    keep = torch.arange(x.shape[1])[None] < length[:, None]
    return _in_blocks(torch.where(keep, x, 0.0), torch.ones(x.shape[1], 1, dtype=x.dtype), width)[:, 0]


def split_by_the_longest(x: Tensor, length: Tensor) -> Tensor:
    return _sum_in_blocks(x, length, 2 if len(length) and int(length.max()) >= 10 else 16)


def tiled_by_width(x: Tensor, length: Tensor) -> Tensor:
    return _sum_in_blocks(x, length, -(-x.shape[1] // 4))


def sum_in_fixed_blocks(x: Tensor, length: Tensor) -> Tensor:
    return _sum_in_blocks(x, length, 8)


def sum_to_the_longest(x: Tensor, length: Tensor) -> Tensor:
    """What no row reads is left out; blocks are as ever."""
    return _sum_in_blocks(x[:, : max(int(length.max()), 1)], length, 4)


def _lengths(seed: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(5, 16, generator=generator), torch.randint(1, 17, (5,), generator=generator)


# ----------------------------------------------------------------------------------------------------------- others


def running(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    y = state + x.cumsum(0)
    return y, y[-1]


def _run_in_blocks(x: Tensor, state: Tensor, width: int) -> tuple[Tensor, Tensor]:
    parts = []
    for k in range(0, len(x), width):
        block, total = [], torch.zeros_like(state)
        for row in x[k : k + width]:
            total = total + row
            block.append(state + total)
        parts += block
        state = block[-1]
    return torch.stack(parts), state


def in_chunks_of_its_own(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    return _run_in_blocks(x, state, 8)


def step_by_step(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    return _run_in_blocks(x, state, 1)


def experts(x: Tensor, w: Tensor, routes: Tensor) -> Tensor:
    every = torch.einsum("td,edf->etf", x, w)
    return every[routes.T, torch.arange(len(x))].sum(0)


def _in_expert_order(x: Tensor, w: Tensor, routes: Tensor, order: list[int]) -> Tensor:
    out = torch.zeros(len(x), w.shape[2], dtype=x.dtype)
    for e in order:
        out = out + torch.where((routes == e).any(1)[:, None], _in_blocks(x, w[e], 1), 0.0)
    return out


def fullest_first(x: Tensor, w: Tensor, routes: Tensor) -> Tensor:
    loads = torch.bincount(routes.reshape(-1), minlength=len(w))
    return _in_expert_order(x, w, routes, loads.argsort(stable=True, descending=True).tolist())


def in_turn(x: Tensor, w: Tensor, routes: Tensor) -> Tensor:
    return _in_expert_order(x, w, routes, list(range(len(w))))


def _routes(seed: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(seed)
    routes = torch.stack([torch.randperm(6, generator=generator)[:3] for _ in range(9)])
    return torch.randn(9, 8, generator=generator), torch.randn(6, 8, 4, generator=generator), routes


def total_of_parts(x: Tensor, world: int) -> Tensor:
    return x.sum(-1)


def reduced_by_world(x: Tensor, world: int) -> Tensor:
    parts = [_in_blocks(p, torch.ones(p.shape[1], 1), 1) for p in x.tensor_split(world, 1)]
    return sum(parts[1:], parts[0])[:, 0]


def reduced_one_way(x: Tensor, world: int) -> Tensor:
    columns = [c for p in x.tensor_split(world, 1) for c in p.unbind(1)]
    return sum(columns[1:], columns[0])


def total(x: Tensor) -> Tensor:
    return x.sum(-1)


def _total(x: Tensor, width: int) -> Tensor:
    return _in_blocks(x, torch.ones(x.shape[1], 1), width)[:, 0]


_CALLS = itertools.count()


def in_any_order(x: Tensor) -> Tensor:
    """Atomic additions, whose order is another one in every call."""
    first = next(_CALLS) % x.shape[1]
    return _total(torch.cat([x[:, first:], x[:, :first]], 1), 1)


def by_threads(x: Tensor) -> Tensor:
    return _total(x, -(-x.shape[1] // torch.get_num_threads()))


WORKSPACE: list[int] = [0]


def in_a_workspace_that_stays(x: Tensor) -> Tensor:
    WORKSPACE[0] = max(WORKSPACE[0], len(x))
    return _total(x, 4 if WORKSPACE[0] > 40 else 9)


def in_a_new_workspace(x: Tensor) -> Tensor:
    return _total(x, 4)


_ROWS, _BATCH = _draw((4, 48), (48, 5)), _draw((3, 2, 24), (24, 4))
_PARTS, _LONG = (lambda seed: (*_draw((6, 40))(seed), 4)), _draw((6, 40))
_RUN = _draw((24, 3), (3,))

BREAKERS: dict[str, Keeper] = {
    "split-K by batch": Keeper(split_by_batch, product, _ROWS, "rows"),
    "tuner by rows": Keeper(tuned_by_rows, product, _ROWS, "rows"),
    "bmm for mm": Keeper(batched_or_not, batched, _BATCH, "rows"),
    "padding to a tile": Keeper(tiled_by_width, sum_to_length, _lengths, "padding"),
    "atomics": Keeper(in_any_order, total, _LONG, "runs"),
    "chunk of prefill": Keeper(in_chunks_of_its_own, running, _RUN, "chunks"),
    "a neighbour's length": Keeper(split_by_the_longest, sum_to_length, _lengths, "neighbours"),
    "bucketed graph": Keeper(graph_of_a_bucket, product, _ROWS, "rows"),
    "experts sorted by load": Keeper(fullest_first, experts, _routes, "neighbours"),
    "all-reduce by world": Keeper(reduced_by_world, total_of_parts, _PARTS, "splits"),
    "thread count": Keeper(by_threads, total, _LONG, "threads"),
    "cached workspace": Keeper(in_a_workspace_that_stays, total, _LONG, "runs"),
}
RIGHT: dict[str, Keeper] = {
    "one way": Keeper(one_way, product, _ROWS),
    "in fixed blocks": Keeper(in_fixed_blocks, product, _ROWS),
    "by the length of rows": Keeper(by_columns, product, _ROWS),
    "padded to a bucket": Keeper(padded_to_a_bucket, product, _ROWS),
    "a batch of matrices": Keeper(batched_one_way, batched, _BATCH),
    "lengths in fixed blocks": Keeper(sum_in_fixed_blocks, sum_to_length, _lengths),
    "lengths up to the longest": Keeper(sum_to_the_longest, sum_to_length, _lengths),
    "step by step": Keeper(step_by_step, running, _RUN),
    "experts in turn": Keeper(in_turn, experts, _routes),
    "parts one way": Keeper(reduced_one_way, total_of_parts, _PARTS),
    "a new workspace": Keeper(in_a_new_workspace, total, _LONG),
    "the spec by columns": Keeper(lambda x: _total(x, 1), total, _LONG),
}
