"""Groups that integers name: bags, experts, labels, lengths, indices that repeat, rows of sparse matrices.

The mistakes are those that the given call need not show: they need a group without members, an index that repeats, a
label that is ignored, or another number of any of these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .kind import Kind, Way, beside, normals
from .packed import places_by_marks, places_of, spans


def with_backward(way: Way, change: Callable[..., Tensor]) -> Way:
    """A function of a table and others with a backward of its own; `change`: (its gradient, others) -> another."""

    class WithBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, table: Tensor, *others: Tensor) -> Tensor:
            ctx.save_for_backward(table, *others)
            return way(table, *others)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
            saved = ctx.saved_tensors
            with torch.enable_grad():
                own = [t.detach().requires_grad_() if t.is_floating_point() else t for t in saved]
                wanted = [t for t in own if t.requires_grad]
                grads = iter(torch.autograd.grad(way(*own), wanted, grad))
            every = [next(grads) if t.requires_grad else None for t in own]
            return change(every[0], *own[1:]), *every[1:]

    return WithBackward.apply


# -------------------------------------------------------------------------------- segments


def softmax_of(x: Tensor, of: Tensor) -> Tensor:
    """A softmax among the rows of each number; the numbers need not be sorted."""
    out = torch.zeros_like(x)
    for s in range(int(of.max()) + 1):
        own = of == s
        out[own] = torch.softmax(x[own], 0)
    return out


def softmax_of_by_add(x: Tensor, of: Tensor) -> Tensor:
    groups = int(of.max()) + 1
    at = of[:, None].expand_as(x)
    most = x.new_full((groups, x.shape[1]), -math.inf).scatter_reduce(0, at, x.detach(), "amax")
    powers = torch.exp(x - most[of])
    return powers / x.new_zeros(groups, x.shape[1]).index_add(0, of, powers)[of]


def softmax_of_runs(x: Tensor, of: Tensor) -> Tensor:
    """Each run of a number is a group of its own."""
    return softmax_of_by_add(x, torch.unique_consecutive(of, return_inverse=True)[1])


def softmax_of_all(x: Tensor, of: Tensor) -> Tensor:
    """The largest element of all groups is that of none."""
    powers = torch.exp(x - x.max())
    return powers / x.new_zeros(int(of.max()) + 1, x.shape[1]).index_add(0, of, powers)[of]


def reduced(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sum, the mean and the largest of each segment; zeros of one without rows."""
    parts, none = torch.split(x, lengths.tolist()), torch.zeros_like(x[0])
    mean = torch.stack([part.mean(0) if len(part) else none for part in parts])
    return torch.stack([part.sum(0) for part in parts]), mean, torch.stack(
        [part.amax(0) if len(part) else none for part in parts]
    )  # fmt: skip


def _reduced_at(x: Tensor, lengths: Tensor, of: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    sums = x.new_zeros(len(lengths), x.shape[1]).index_add(0, of, x)
    most = x.new_zeros(len(lengths), x.shape[1]).scatter_reduce(
        0, of[:, None].expand_as(x), x, "amax", include_self=False
    )
    return sums, sums / count[:, None], most


def reduced_by_add(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    of = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    return _reduced_at(x, lengths, of, lengths.clamp_min(1))


def reduced_marked(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    of = places_by_marks(F.pad(lengths.cumsum(0), (1, 0)), len(x))
    return _reduced_at(x, lengths, of, torch.bincount(of, minlength=len(lengths)).clamp_min(1))


def reduced_from_lowest(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The largest of no row is what the search began with."""
    sums, mean, most = reduced_by_add(x, lengths)
    return sums, mean, torch.where((lengths > 0)[:, None], most, -3e4)


# ------------------------------------------------------------------------------------ bags


def bagged_sum(table: Tensor, share: Tensor, index: Tensor, ends: Tensor) -> Tensor:
    return F.embedding_bag(
        index, table, ends, mode="sum", per_sample_weights=share, include_last_offset=True
    )  # fmt: skip


def bagged_sum_by_add(table: Tensor, share: Tensor, index: Tensor, ends: Tensor) -> Tensor:
    rows = table[index] * share[:, None]
    return rows.new_zeros(len(ends) - 1, table.shape[1]).index_add(0, places_of(ends, len(index)), rows)


def bagged_sum_marked(table: Tensor, share: Tensor, index: Tensor, ends: Tensor) -> Tensor:
    rows = table[index] * share[:, None]
    return rows.new_zeros(len(ends) - 1, table.shape[1]).index_add(0, places_by_marks(ends, len(index)), rows)


def bagged_mean(table: Tensor, index: Tensor, starts: Tensor) -> Tensor:
    return F.embedding_bag(index, table, starts, mode="mean")


def _with_end(starts: Tensor, index: Tensor) -> Tensor:
    return torch.cat([starts, starts.new_tensor([len(index)])])


def bagged_mean_by_loop(table: Tensor, index: Tensor, starts: Tensor) -> Tensor:
    parts = [table[index[a:b]] for a, b in spans(_with_end(starts, index))]
    return torch.stack([part.mean(0) if len(part) else part.sum(0) for part in parts])


def bagged_mean_over_zero(table: Tensor, index: Tensor, starts: Tensor) -> Tensor:
    return torch.stack([table[index[a:b]].mean(0) for a, b in spans(_with_end(starts, index))])


def once_each(grad: Tensor, index: Tensor, *others: Tensor) -> Tensor:
    """The gradient of a row that several indices name, as if one did."""
    return grad / torch.bincount(index.flatten(), minlength=len(grad)).clamp_min(1)[:, None].to(grad.dtype)


bagged_mean_once = with_backward(bagged_mean_by_loop, once_each)
bagged_sum_once = with_backward(bagged_sum_by_add, lambda grad, share, index, ends: once_each(grad, index))


def bagged_most(table: Tensor, index: Tensor, starts: Tensor) -> Tensor:
    return F.embedding_bag(index, table, starts, mode="max")


def bagged_most_by_loop(table: Tensor, index: Tensor, starts: Tensor) -> Tensor:
    parts = [table[index[a:b]] for a, b in spans(_with_end(starts, index))]
    return torch.stack([part.max(0).values if len(part) else part.sum(0) for part in parts])


def bagged_most_below(table: Tensor, index: Tensor, starts: Tensor) -> Tensor:
    """The largest of no row is that of a minimum."""
    parts = [table[index[a:b]] for a, b in spans(_with_end(starts, index))]
    return torch.stack([part.max(0).values if len(part) else part.sum(0) - 3e4 for part in parts])


def bagged_most_of_few(table: Tensor, index: Tensor, starts: Tensor) -> Tensor:
    parts = [table[index[a : min(b, a + 8)]] for a, b in spans(_with_end(starts, index))]
    return torch.stack([part.max(0).values if len(part) else part.sum(0) for part in parts])


# --------------------------------------------------------------------------------- experts


def grouped(weights: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    """The rows up to each end times a matrix of their own; rows beyond the last are zeros."""
    out, start = x.new_zeros(len(x), weights.shape[2]), 0
    for e, end in enumerate(ends.tolist()):
        out[start:end] = x[start:end] @ weights[e]
        start = end
    return out


def grouped_by_rows(weights: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    of = torch.bucketize(torch.arange(len(x)), ends, right=True)
    every = torch.cat([weights, torch.zeros_like(weights[:1])])
    return torch.where((of < len(weights))[:, None], torch.bmm(x[:, None], every[of])[:, 0], 0.0)


def grouped_to_the_end(weights: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    """The last group goes on to the last row."""
    of = torch.bucketize(torch.arange(len(x)), ends, right=True).clamp_max(len(ends) - 1)
    return torch.bmm(x[:, None], weights[of])[:, 0]


def grouped_marked(weights: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    return torch.bmm(x[:, None], weights[places_by_marks(F.pad(ends, (1, 0)), len(x))])[:, 0]


def _unwritten(grad: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    """The gradient of the matrix of no row is what the memory had."""
    out, used = torch.empty_like(grad), ends.diff(prepend=ends.new_zeros(1)) > 0
    out[used] = grad[used]
    return out


grouped_unwritten = with_backward(grouped_by_rows, _unwritten)


def mixed(logits: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    """Two experts for each row, by the largest chances, which then sum to one."""
    gates, expert = torch.softmax(logits, -1).topk(2, -1)
    gates, out = gates / gates.sum(-1, keepdim=True), x.new_zeros(len(x), weights.shape[2])
    for e in range(len(weights)):
        own = expert == e
        share = torch.where(own, gates, 0.0).sum(-1, keepdim=True)
        out = out + torch.where(own.any(-1, keepdim=True), (x @ weights[e]) * share, 0.0)
    return out


def _mixed_in_order(logits: Tensor, x: Tensor, weights: Tensor, counted: Callable[[Tensor], Tensor]) -> Tensor:
    largest, expert = logits.topk(2, -1)
    gates, order = torch.softmax(largest, -1).flatten(), expert.flatten().argsort(stable=True)
    ends, parts = [0, *counted(expert.flatten()).cumsum(0).tolist()], []
    for e, (a, b) in enumerate(itertools.pairwise(ends)):
        parts.append((x[order[a:b] // 2] @ weights[e]) * gates[order[a:b], None])
    return x.new_zeros(len(x), weights.shape[2]).index_add(0, order // 2, torch.cat(parts))


def mixed_sorted(logits: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    return _mixed_in_order(logits, x, weights, lambda expert: torch.bincount(expert, minlength=len(weights)))


def mixed_of_used(logits: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    """Counts of the experts that have rows, as if no other came before them."""
    return _mixed_in_order(logits, x, weights, lambda expert: torch.unique(expert, return_counts=True)[1])


def mixed_within(logits: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    """An expert takes no more than sixteen rows."""
    expert = logits.topk(2, -1).indices.flatten()
    one = F.one_hot(expert, len(weights))
    fits = ((one.cumsum(0) * one).sum(1) <= 16).view(-1, 2)
    gates = torch.where(fits, torch.softmax(logits.topk(2, -1).values, -1), 0.0)
    return (torch.einsum("tc,tkcd->tkd", x, weights[expert.view(-1, 2)]) * gates[..., None]).sum(1)


# ------------------------------------------------------------------------ jagged and dense


def densed(x: Tensor, lengths: Tensor) -> Tensor:
    """Sequences as rows that are as long as the longest one, filled up with zeros."""
    most = int(lengths.max())
    return torch.stack([F.pad(part, (0, 0, 0, most - len(part))) for part in torch.split(x, lengths.tolist())])


def densed_by_mask(x: Tensor, lengths: Tensor) -> Tensor:
    own = torch.arange(int(lengths.max())) < lengths[:, None]
    return x.new_zeros(*own.shape, x.shape[1]).index_put(own.nonzero(as_tuple=True), x)


def densed_by_gather(x: Tensor, lengths: Tensor) -> Tensor:
    at, starts = torch.arange(int(lengths.max())), lengths.cumsum(0) - lengths
    rows = x[(starts[:, None] + at).clamp_max(len(x) - 1)]
    return torch.where((at < lengths[:, None])[..., None], rows, 0.0)


def densed_unfilled(x: Tensor, lengths: Tensor) -> Tensor:
    """Rows are filled up by the sequence after them, but for the last one."""
    at, starts = torch.arange(int(lengths.max())), lengths.cumsum(0) - lengths
    own = (at < lengths[:, None]) | ((lengths[:, None] == 0) & (at == 0))
    return torch.where(own[..., None], x[(starts[:, None] + at).clamp_max(len(x) - 1)], 0.0)


def densed_of_few(x: Tensor, lengths: Tensor) -> Tensor:
    dense = densed_by_gather(x, lengths)
    return torch.where((torch.arange(dense.shape[1]) < 8)[:, None], dense, 0.0)


def ragged_from(x: Tensor, lengths: Tensor) -> Tensor:
    """The rows that count of each sequence, one after another."""
    return torch.cat([row[:n] for row, n in zip(x, lengths.tolist(), strict=True)])


def ragged_by_mask(x: Tensor, lengths: Tensor) -> Tensor:
    return x[torch.arange(x.shape[1]) < lengths[:, None]]


def ragged_of_first(x: Tensor, lengths: Tensor) -> Tensor:
    """A sequence without rows ends the others."""
    alive = (lengths > 0).cumprod(0)
    return F.pad(own := ragged_by_mask(x, lengths * alive), (0, 0, 0, int(lengths.sum()) - len(own)))


def ragged_at_least_one(x: Tensor, lengths: Tensor) -> Tensor:
    return ragged_by_mask(x, lengths.clamp_min(1))[: int(lengths.sum())]


_ENDS = torch.tensor([0, 3, 4, 9])
_LENGTHS = torch.tensor([3, 1, 5])
_INDEX = torch.tensor([4, 1, 0, 5, 3, 2, 4, 1, 0])
KINDS = (
    Kind("softmax of numbered rows", softmax_of, beside(normals((7, 3)), torch.tensor([0, 2, 1, 0, 2, 2, 1])),
         {"by add": softmax_of_by_add}, {}, unseen={"runs": softmax_of_runs, "most of all": softmax_of_all}),
    Kind("sum, mean, most of segments", reduced, beside(normals((9, 3)), _LENGTHS), {"by add": reduced_by_add}, {},
         unseen={"marks": reduced_marked, "from lowest": reduced_from_lowest}),
    Kind("bags, weighted", bagged_sum, beside(normals((6, 4), (9,)), _INDEX, _ENDS),
         {"by add": bagged_sum_by_add}, {},
         unseen={"marks": bagged_sum_marked, "once": bagged_sum_once}),
    Kind("bags, mean", bagged_mean, beside(normals((6, 4)), _INDEX, torch.tensor([0, 3, 4])),
         {"by loop": bagged_mean_by_loop}, {},
         unseen={"over zero": bagged_mean_over_zero, "once": bagged_mean_once}),
    Kind("bags, most", bagged_most, beside(normals((6, 4)), _INDEX, torch.tensor([0, 3, 4])),
         {"by loop": bagged_most_by_loop}, {},
         unseen={"empty": bagged_most_below, "of few": bagged_most_of_few}),
    Kind("product of groups, by ends", grouped, beside(normals((3, 4, 2), (9, 4)), torch.tensor([3, 4, 9])),
         {"by rows": grouped_by_rows}, {}, unseen={"marks": grouped_marked, "unwritten": grouped_unwritten}),
    Kind("product of groups, with a rest", grouped, beside(normals((3, 4, 2), (9, 4)), torch.tensor([3, 4, 7])),
         {"by rows": grouped_by_rows}, {}, unseen={"to the end": grouped_to_the_end, "unwritten": grouped_unwritten}),
    Kind("mixture of two experts", mixed, normals((5, 4), (5, 3), (4, 3, 2)), {"sorted": mixed_sorted}, {},
         unseen={"used": mixed_of_used, "sixteen": mixed_within}),
    Kind("jagged to dense", densed, beside(normals((9, 3)), _LENGTHS),
         {"by mask": densed_by_mask, "by gather": densed_by_gather}, {},
         unseen={"unfilled": densed_unfilled, "of few": densed_of_few}),
    Kind("dense to jagged", ragged_from, beside(normals((3, 5, 2)), _LENGTHS), {"by mask": ragged_by_mask}, {},
         unseen={"first": ragged_of_first, "one at least": ragged_at_least_one}),
)  # fmt: skip
