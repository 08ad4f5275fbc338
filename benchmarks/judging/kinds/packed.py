"""Sequences of several lengths, one after another in one tensor: attention, norms, scans, convolutions, positions.

The mistakes are those that the given call need not show: they need an empty sequence, one that is longer than all given
ones, or another number of them.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .kind import NAN_AND_INF, Kind, beside, normals


def places_of(ends: Tensor, count: int) -> Tensor:
    """The sequence of each row."""
    return torch.bucketize(torch.arange(count), ends[1:], right=True)


def places_by_marks(ends: Tensor, count: int) -> Tensor:
    """A mistake: two sequences that begin at one row set one mark, and an empty one is lost."""
    marks = torch.zeros(count + 1, dtype=torch.long)
    marks[ends[1:-1].long()] = 1
    return marks.cumsum(0)[:count]


def spans(ends: Tensor) -> list[tuple[int, int]]:
    return list(itertools.pairwise(ends.tolist()))


# ----------------------------------------------------------------------------- attention


def attended(q: Tensor, k: Tensor, v: Tensor, q_ends: Tensor, k_ends: Tensor) -> Tensor:
    """Each sequence of queries among its own keys; zeros where it has none."""
    out = torch.zeros(len(q), v.shape[1], dtype=v.dtype)
    for (a, b), (c, d) in zip(spans(q_ends), spans(k_ends), strict=True):
        if d > c:
            out[a:b] = torch.softmax(q[a:b] @ k[c:d].T / math.sqrt(q.shape[1]), -1) @ v[c:d]
    return out


def _attended_where(q: Tensor, k: Tensor, v: Tensor, own: Tensor) -> Tensor:
    some = own.any(1, keepdim=True)
    scores = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~own & some, -math.inf)
    return torch.where(some, torch.softmax(scores, -1) @ v, 0.0)


def attended_by_mask(q: Tensor, k: Tensor, v: Tensor, q_ends: Tensor, k_ends: Tensor) -> Tensor:
    return _attended_where(q, k, v, places_of(q_ends, len(q))[:, None] == places_of(k_ends, len(k)))


def attended_online(q: Tensor, k: Tensor, v: Tensor, q_ends: Tensor, k_ends: Tensor) -> Tensor:
    """One key after another, with the largest score so far."""
    out = []
    for (a, b), (c, d) in zip(spans(q_ends), spans(k_ends), strict=True):
        most = q.new_full((b - a, 1), -math.inf)
        total, sums = q.new_zeros(b - a, 1), q.new_zeros(b - a, v.shape[1])
        for j in range(c, d):
            score = (q[a:b] * k[j]).sum(-1, keepdim=True) / math.sqrt(q.shape[1])
            larger = torch.maximum(most, score)
            shift = larger.masked_fill(larger == -math.inf, 0.0)  # a score of minus infinity has no share
            old, new = torch.exp(most - shift), torch.exp(score - shift)
            most, total, sums = larger, total * old + new, sums * old + new * v[j]
        out.append(sums / total if d > c else sums)
    return torch.cat(out)


def attended_marked(q: Tensor, k: Tensor, v: Tensor, q_ends: Tensor, k_ends: Tensor) -> Tensor:
    return _attended_where(q, k, v, places_by_marks(q_ends, len(q))[:, None] == places_by_marks(k_ends, len(k)))


def attended_below_most(q: Tensor, k: Tensor, v: Tensor, q_ends: Tensor, k_ends: Tensor) -> Tensor:
    """Keys beyond the most that a block has are left out."""
    at = torch.arange(len(k)) - k_ends[places_of(k_ends, len(k)).clamp_max(len(k_ends) - 2)]
    own = (places_of(q_ends, len(q))[:, None] == places_of(k_ends, len(k))) & (at < 8)
    return _attended_where(q, k, v, own)


def paged(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    """A query for each sequence, whose keys are in pages; -1 is no page."""
    out = []
    for b, n in enumerate(lengths.tolist()):
        k, v = (t[table[b].clamp_min(0)].flatten(0, 1)[:n] for t in (keys, values))
        out.append(torch.softmax(k @ q[b] / math.sqrt(q.shape[1]), 0) @ v)
    return torch.stack(out)


def _pages(cache: Tensor, table: Tensor) -> Tensor:
    return cache[table.clamp_min(0)].flatten(1, 2)


def paged_by_mask(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    k, v = _pages(keys, table), _pages(values, table)
    own = torch.arange(k.shape[1]) < lengths[:, None]
    scores = ((k @ q[..., None])[..., 0] / math.sqrt(q.shape[1])).masked_fill(~own, -math.inf)
    chances = torch.where(own, torch.softmax(scores, -1), 0.0)  # none of a sequence without keys
    return (chances[:, None] @ torch.where(own[..., None], v, 0.0))[:, 0]


def paged_by_whole_pages(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    """Pages that are full and no others, unless there is one."""
    size = keys.shape[1]
    return paged_by_mask(q, keys, values, table, (lengths // size * size).clamp_min(size).minimum(lengths))


def paged_at_first(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    """All sequences as long as the longest of the batch."""
    return paged_by_mask(q, keys, values, table, lengths.amax().expand(len(lengths)))


# ------------------------------------------------------------------------------- norms


def normed(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Each sequence over its root mean square of all rows, times a row of weights of its own."""
    parts = [x[a:b] * torch.rsqrt(x[a:b].square().mean() + 1e-5) * weight[s] for s, (a, b) in enumerate(spans(ends))]
    return torch.cat(parts)


def _normed_at(x: Tensor, weight: Tensor, of: Tensor) -> Tensor:
    count = torch.zeros(len(weight), dtype=x.dtype).index_add(0, of, torch.ones_like(x[:, 0])) * x.shape[1]
    squares = torch.zeros(len(weight), dtype=x.dtype).index_add(0, of, x.square().sum(1))
    return x * torch.rsqrt(squares / count.clamp_min(1) + 1e-5)[of, None] * weight[of]


def normed_by_add(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return _normed_at(x, weight, places_of(ends, len(x)))


def normed_marked(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return _normed_at(x, weight, places_by_marks(ends, len(x)))


class _NormedWithoutEmpty(torch.autograd.Function):
    """The gradient of a weight of which no sequence has a row is what the memory had."""

    @staticmethod
    def forward(ctx, x, weight, ends):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, weight, ends)
        return normed_by_add(x, weight, ends)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x, weight, ends = ctx.saved_tensors
        with torch.enable_grad():
            x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
            of_x, of_weight = torch.autograd.grad(normed_by_add(x, weight, ends), (x, weight), grad)
        out = torch.empty_like(of_weight)
        used = ends.diff() > 0
        out[used] = of_weight[used]
        return of_x, out, None


def normed_unwritten(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return _NormedWithoutEmpty.apply(x, weight, ends)


def centred(x: Tensor, ends: Tensor) -> Tensor:
    """Layer norm of whole sequences, without weights."""
    return torch.cat([F.layer_norm(x[a:b], x[a:b].shape) for a, b in spans(ends) if b > a])


def _centred_at(x: Tensor, of: Tensor, groups: int) -> Tensor:
    one = F.one_hot(of, groups).to(x.dtype)
    count = (one.sum(0) * x.shape[1])[of, None]
    moved = x - (one.T @ x).sum(1)[of, None] / count
    spread = (one.T @ moved.square()).sum(1)[of, None] / count
    return moved / torch.sqrt(spread + 1e-5)


def centred_by_product(x: Tensor, ends: Tensor) -> Tensor:
    return _centred_at(x, places_of(ends, len(x)), len(ends) - 1)


def centred_with_empty(x: Tensor, ends: Tensor) -> Tensor:
    """A sequence after an empty one is joined with the one before."""
    empty = {*ends[:-1][ends.diff() == 0].tolist()} - {0}
    used = torch.tensor([at for at in ends.tolist() if at not in empty])
    return _centred_at(x, places_of(used, len(x)), len(used))


def centred_of_many(x: Tensor, ends: Tensor) -> Tensor:
    """Rows beyond those that a block has are left as they are."""
    at = torch.arange(len(x)) - ends[places_of(ends, len(x))]
    return torch.where((at < 16)[:, None], centred_by_product(x, ends), x)


# ------------------------------------------------------------------- convolutions, scans


def convolved(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """A causal convolution of each channel that begins anew with each sequence."""
    taps, out = weight.shape[1], []
    for a, b in spans(ends):
        own = F.pad(x[a:b], (0, 0, taps - 1, 0))
        out.append(sum((own[k : k + b - a] * weight[:, k] for k in range(1, taps)), own[: b - a] * weight[:, 0]))
    return torch.cat(out)


def convolved_by_place(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    of, taps, total = places_of(ends, len(x)), weight.shape[1], torch.zeros_like(x)
    for back in range(taps):
        at = torch.arange(len(x)) - back
        own = (at >= 0) & (of[at.clamp_min(0)] == of)
        total = total + torch.where(own[:, None], x[at.clamp_min(0)], 0.0) * weight[:, taps - 1 - back]
    return total


def convolved_past_short(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """A sequence that is shorter than the taps reads the one before the last."""
    of, taps, total = places_of(ends, len(x)), weight.shape[1], torch.zeros_like(x)
    for back in range(taps):
        at = torch.arange(len(x)) - back
        own = (at >= 0) & ((of[at.clamp_min(0)] == of) | (of[at.clamp_min(0)] == of - 2))
        total = total + torch.where(own[:, None], x[at.clamp_min(0)], 0.0) * weight[:, taps - 1 - back]
    return total


def convolved_in_32_bits(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Offsets are read as numbers of 32 bits, whatever they are."""
    return convolved_by_place(x, weight, ends.view(torch.int32)[: len(ends)])


def scanned(x: Tensor, decay: Tensor, ends: Tensor) -> Tensor:
    """h = decay h + x, from 0 at the start of each sequence."""
    out = torch.zeros_like(x)
    for a, b in spans(ends):
        h = torch.zeros_like(x[0])
        for t in range(a, b):
            h = torch.sigmoid(decay[t]) * h + x[t]
            out[t] = h
    return out


def scanned_at_once(x: Tensor, decay: Tensor, ends: Tensor) -> Tensor:
    """Doubling: what a span of rows does to the state before it."""
    keep = torch.sigmoid(decay)
    first = torch.zeros(len(x) + 1, dtype=torch.bool)
    first[ends[:-1].long()] = True
    keep = torch.where(first[: len(x), None], 0.0, keep)
    sums, step = x, 1
    while step < len(x):
        before, keep_before = F.pad(sums[:-step], (0, 0, step, 0)), F.pad(keep[:-step], (0, 0, step, 0))
        sums, keep, step = sums + keep * before, keep * keep_before, 2 * step
    return sums


def scanned_by_blocks(x: Tensor, decay: Tensor, ends: Tensor) -> Tensor:
    """The state is lost between blocks of sixteen rows of a sequence."""
    cuts = sorted({*ends.tolist(), *(at for a, b in spans(ends) for at in range(a, b, 16))})
    return scanned_at_once(x, decay, torch.tensor(cuts))


def scanned_from_last(x: Tensor, decay: Tensor, ends: Tensor) -> Tensor:
    """A sequence after an empty one goes on with the state before it."""
    empty = {*ends[:-1][ends.diff() == 0].tolist()} - {0}
    return scanned_at_once(x, decay, torch.tensor([at for at in ends.tolist() if at not in empty]))


def summed(x: Tensor, ends: Tensor) -> Tensor:
    """Sums so far, of each sequence."""
    return torch.cat([x[a:b].cumsum(0) for a, b in spans(ends)])


def summed_by_product(x: Tensor, ends: Tensor) -> Tensor:
    of, at = places_of(ends, len(x)), torch.arange(len(x))
    return ((of[:, None] == of) & (at <= at[:, None])).to(x.dtype) @ x


def summed_marked(x: Tensor, ends: Tensor) -> Tensor:
    """Sums of all less those at the start, which the sequence before gives: an empty one gives those of a row later."""
    of, sums = places_by_marks(ends, len(x)), F.pad(x.cumsum(0), (0, 0, 1, 0))
    return sums[1:] - sums[ends.long()][of]


def summed_below_most(x: Tensor, ends: Tensor) -> Tensor:
    of, at = places_of(ends, len(x)), torch.arange(len(x))
    return ((of[:, None] == of) & (at <= at[:, None]) & (at > at[:, None] - 16)).to(x.dtype) @ x


# ------------------------------------------------------------------- positions, one row of each


def turned(x: Tensor, ends: Tensor, *, base: float = 100.0) -> Tensor:
    """Halves of each row turned by its place in its sequence."""
    places = torch.cat([torch.arange(b - a) for a, b in spans(ends)])
    return _turned_at(x, places, base)


def _turned_at(x: Tensor, places: Tensor, base: float) -> Tensor:
    half = x.shape[1] // 2
    angles = places[:, None] * base ** (-torch.arange(half) / half)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([x[:, :half] * cos - x[:, half:] * sin, x[:, half:] * cos + x[:, :half] * sin], 1)


def turned_by_table(x: Tensor, ends: Tensor, *, base: float = 100.0) -> Tensor:
    return _turned_at(x, torch.arange(len(x)) - ends[places_of(ends, len(x))], base)


def turned_marked(x: Tensor, ends: Tensor, *, base: float = 100.0) -> Tensor:
    return _turned_at(x, torch.arange(len(x)) - ends[places_by_marks(ends, len(x))], base)


def turned_below_most(x: Tensor, ends: Tensor, *, base: float = 100.0) -> Tensor:
    places = torch.arange(len(x)) - ends[places_of(ends, len(x))]
    return _turned_at(x, places.clamp_max(31), base)


def pooled(x: Tensor, ends: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The first row, the last and the mean of each sequence; zeros of one without rows."""
    none = torch.zeros_like(x[0])
    parts = [x[a:b] for a, b in spans(ends)]
    first = torch.stack([part[0] if len(part) else none for part in parts])
    last = torch.stack([part[-1] if len(part) else none for part in parts])
    return first, last, torch.stack([part.mean(0) if len(part) else none for part in parts])


def pooled_by_index(x: Tensor, ends: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    some, most = (ends.diff() > 0)[:, None], len(x) - 1
    first, last = (torch.where(some, x[at.clamp(0, most)], 0.0) for at in (ends[:-1].long(), ends[1:].long() - 1))
    sums = torch.zeros(len(ends) - 1, x.shape[1], dtype=x.dtype).index_add(0, places_of(ends, len(x)), x)
    return first, last, sums / ends.diff().clamp_min(1)[:, None]


def pooled_with_empty(x: Tensor, ends: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The last row of an empty sequence is that of the one before."""
    first, _, mean = pooled_by_index(x, ends)
    return first, x[ends[1:].long() - 1], mean


def pooled_over_zero(x: Tensor, ends: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The mean of no row is a quotient of zeros."""
    first, last, mean = pooled_by_index(x, ends)
    return first, last, mean * (ends.diff() / ends.diff())[:, None].to(x.dtype)


_ENDS = torch.tensor([0, 3, 4, 9], dtype=torch.int32)
_LONG = _ENDS.long()
KINDS = (
    Kind("packed attention", attended,
         beside(normals((6, 4), (8, 4), (8, 4)), _ENDS.new_tensor([0, 2, 3, 6]), _ENDS.new_tensor([0, 3, 6, 8])),
         {"by mask": attended_by_mask, "online": attended_online}, {},
         unseen={"marks": attended_marked, "most": attended_below_most}),
    Kind("attention over pages of lengths", paged,
         beside(normals((3, 4), (6, 2, 4), (6, 2, 4)), torch.tensor([[3, 0, 5], [1, -1, -1], [4, 2, -1]]),
                torch.tensor([6, 2, 4])),
         {"by mask": paged_by_mask}, {}, unseen={"whole pages": paged_by_whole_pages, "longest": paged_at_first}),
    Kind("RMS norm of sequences", normed, beside(normals((9, 4), (3, 4)), _ENDS), {"by add": normed_by_add}, {},
         unseen={"marks": normed_marked, "unwritten": normed_unwritten}),
    Kind("layer norm of sequences", centred, beside(normals((9, 4)), _ENDS), {"by product": centred_by_product}, {},
         unseen={"joined": centred_with_empty, "last of many": centred_of_many}, skips=NAN_AND_INF),
    Kind("convolution of sequences", convolved, beside(normals((9, 3), (3, 3)), torch.tensor([0, 4, 9])),
         {"by place": convolved_by_place}, {},
         unseen={"past short ones": convolved_past_short, "32 bits": convolved_in_32_bits}),
    Kind("recurrence of sequences", scanned, beside(normals((9, 3), (9, 3)), _LONG), {"at once": scanned_at_once}, {},
         unseen={"blocks": scanned_by_blocks, "after empty": scanned_from_last}, skips=NAN_AND_INF),
    Kind("sums of sequences", summed, beside(normals((9, 3)), _LONG), {"by product": summed_by_product}, {},
         unseen={"marks": summed_marked, "most": summed_below_most}, skips=NAN_AND_INF),
    Kind("positions of sequences", turned, beside(normals((9, 4)), _ENDS), {"by table": turned_by_table}, {},
         unseen={"marks": turned_marked, "most": turned_below_most}),
    Kind("rows of sequences", pooled, beside(normals((9, 3)), _LONG), {"by index": pooled_by_index}, {},
         unseen={"empty": pooled_with_empty, "over zero": pooled_over_zero}),
)  # fmt: skip
