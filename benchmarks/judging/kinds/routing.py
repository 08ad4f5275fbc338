"""Experts, and other products whose rows or matrices are named by integers; sums over segments."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .kind import HALVES, Kind, beside, mistakes, normals

_OFFSETS = torch.tensor([0, 3, 3, 4, 9], dtype=torch.int32)


def _of(offsets: Tensor, count: int) -> Tensor:
    """The segment of each row."""
    return torch.bucketize(torch.arange(count), offsets[1:], right=True)


def routed(
    x: Tensor, up: Tensor, gates: Tensor, expert: Tensor, *, few: int = 0, weigh: bool = True, top: int = 2
) -> Tensor:
    """A loop over experts, each with the rows that were routed to it; two experts for a row."""
    out = torch.zeros(len(x), up.shape[2], dtype=x.dtype)
    for e in range(len(up) - few):
        rows, place = (expert[:, :top] == e).nonzero(as_tuple=True)
        own = F.silu(x[rows] @ up[e])
        out = out.index_add(0, rows, own * gates[rows, place, None] if weigh else own)
    return out


def routed_at_once(x: Tensor, up: Tensor, gates: Tensor, expert: Tensor) -> Tensor:
    return (F.silu(torch.einsum("tc,tkcd->tkd", x, up[expert[:, :2]])) * gates[:, :2, None]).sum(1)


def multiplied(
    x: Tensor, weights: Tensor, sizes: Tensor, *, shift: int = 0, scale: float = 1.0, few: int = 0
) -> Tensor:
    """A grouped product: rows in groups of some sizes, a matrix for each."""
    parts = torch.split(x, sizes.tolist())
    return torch.cat([p @ weights[(e + shift) % len(weights)][: x.shape[1]] * (scale if e + few < len(parts) else 0.0)
                      for e, p in enumerate(parts)])  # fmt: skip


def multiplied_by_rows(x: Tensor, weights: Tensor, sizes: Tensor) -> Tensor:
    of = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    return torch.bmm(x[:, None], weights[of])[:, 0]


def permuted(
    x: Tensor, expert: Tensor, *, descending: bool = False, shift: int = 0, first: int = 0
) -> tuple[Tensor, Tensor]:
    """Rows in the order of their experts, and where each expert's rows end."""
    order = torch.argsort(expert, stable=True, descending=descending).roll(shift)
    return x[order], torch.cumsum(torch.bincount(expert[first:], minlength=4), 0)


def permuted_by_place(x: Tensor, expert: Tensor) -> tuple[Tensor, Tensor]:
    rows = [row for e in range(4) for row, own in enumerate(expert.tolist()) if own == e]
    return x[torch.tensor(rows)], (expert[:, None] <= torch.arange(4)).sum(0)


def restored(
    x: Tensor, gates: Tensor, places: Tensor, *, turned: bool = False, weigh: bool = True, top: int = 2
) -> Tensor:
    """Rows of experts back to their words: each word sums the rows at its places, weighted."""
    gates = gates.flip(1) if turned else gates
    return (x[places[:, :top]] * (gates[:, :top, None] if weigh else 1.0)).sum(1)


def restored_at_once(x: Tensor, gates: Tensor, places: Tensor) -> Tensor:
    return (x[places[:, 0]] * gates[:, :1]) + x[places[:, 1]] * gates[:, 1:2]


def balanced(logits: Tensor, expert: Tensor, *, times: float = 4.0, axis: int = -1, first: int = 0) -> Tensor:
    """The loss that keeps experts busy alike: shares of words times mean chances."""
    share = torch.bincount(expert[first:].flatten(), minlength=4).to(logits.dtype) / expert.numel()
    return times * (share * torch.softmax(logits, axis).mean(0)).sum()


def balanced_by_word(logits: Tensor, expert: Tensor) -> Tensor:
    powers = torch.exp(logits - logits.amax(-1, keepdim=True))
    chances = powers / powers.sum(-1, keepdim=True)
    counts = F.one_hot(expert, 4).sum((0, 1)).to(logits.dtype)
    return (chances @ counts).sum() * 4.0 / (len(logits) * expert.numel())


def capacity(x: Tensor, expert: Tensor, *, most: int = 2, descending: bool = False, scale: float = 1.0) -> Tensor:
    """Places for two words of each expert; later ones are dropped."""
    out = torch.zeros(4, most, x.shape[1], dtype=x.dtype)
    for e in range(4):
        rows = (expert == e).nonzero()[:, 0]
        rows = rows.flip(0)[:most] if descending else rows[:most]
        out[e, : len(rows)] = x[rows] * scale
    return out[:, :2] if most > 2 else F.pad(out, (0, 0, 0, 2 - most))


def capacity_by_counts(x: Tensor, expert: Tensor) -> Tensor:
    one = F.one_hot(expert, 4)
    place = (one.cumsum(0) * one).sum(1) - 1
    fits = place < 2
    return torch.zeros(4, 2, x.shape[1], dtype=x.dtype).index_put((expert[fits], place[fits]), x[fits])


def adapted(
    x: Tensor, down: Tensor, up: Tensor, which: Tensor, *, scale: float = 2.0, shift: int = 0, base: bool = True
) -> Tensor:
    """A low-rank adapter for each row, named by an integer; -1 is none."""
    out = []
    for row, own in zip(x, which.tolist(), strict=True):
        own = (own + shift) % len(down) if own >= 0 else own
        out.append(row * float(base) + (row @ down[own] @ up[own] * scale if own >= 0 else 0.0))
    return torch.stack(out)


def adapted_at_once(x: Tensor, down: Tensor, up: Tensor, which: Tensor) -> Tensor:
    own = which.clamp_min(0)
    extra = torch.einsum("tr,trd->td", torch.einsum("tc,tcr->tr", x, down[own]), up[own])
    return torch.where((which >= 0)[:, None], x + 2.0 * extra, x)


# -------------------------------- segments


def jagged_sum(x: Tensor, offsets: Tensor, *, mean: bool = False, less: int = 0, first: int = 0) -> Tensor:
    ends = offsets.tolist()
    parts = [x[start + first : max(end - less, start)] for start, end in itertools.pairwise(ends)]
    return torch.stack([part.sum(0) / (max(len(part), 1) if mean else 1) for part in parts])


def jagged_sum_by_add(x: Tensor, offsets: Tensor) -> Tensor:
    return torch.zeros(len(offsets) - 1, x.shape[1], dtype=x.dtype).index_add(0, _of(offsets, len(x)), x)


def jagged_softmax(x: Tensor, offsets: Tensor, *, axis: int = 0, joined: bool = False, scale: float = 1.0) -> Tensor:
    ends = [0, len(x)] if joined else offsets.tolist()
    return torch.cat([torch.softmax(x[a:b] * scale, axis) for a, b in itertools.pairwise(ends) if b > a])


def jagged_softmax_by_add(x: Tensor, offsets: Tensor) -> Tensor:
    of = _of(offsets, len(x))
    alike = of[:, None] == of
    powers = torch.exp(x - torch.where(alike[..., None], x[None], -math.inf).amax(1))
    return powers / torch.zeros(len(offsets), x.shape[1], dtype=x.dtype).index_add(0, of, powers)[of]


def jagged_most(x: Tensor, offsets: Tensor, *, least: bool = False, less: int = 0, empty: float = 0.0) -> Tensor:
    """The largest of each segment, 0 for an empty one."""
    ends, out = offsets.tolist(), []
    for start, end in itertools.pairwise(ends):
        part = x[start : max(end - less, min(start + 1, end))]
        out.append((part.amin(0) if least else part.amax(0)) if len(part) else torch.full_like(x[0], empty))
    return torch.stack(out)


def jagged_most_by_mask(x: Tensor, offsets: Tensor) -> Tensor:
    own = _of(offsets, len(x)) == torch.arange(len(offsets) - 1)[:, None]
    most = torch.where(own[..., None], x, -math.inf).amax(1)
    return torch.where(own.any(1)[:, None], most, 0.0)


def padded(x: Tensor, offsets: Tensor, *, fill: float = 0.0, left: bool = False, less: int = 0) -> Tensor:
    """Segments as rows of five, filled up."""
    ends, out = offsets.tolist(), []
    for start, end in itertools.pairwise(ends):
        part = x[start : max(end - less, start)]
        room = 5 - len(part)
        out.append(F.pad(part, (0, 0, room, 0) if left else (0, 0, 0, room), value=fill))
    return torch.stack(out)


def padded_by_places(x: Tensor, offsets: Tensor) -> Tensor:
    at = offsets[:-1, None] + torch.arange(5)
    return torch.where((at < offsets[1:, None])[..., None], x[at.clamp(max=len(x) - 1)], 0.0)


def bags(
    table: Tensor,
    weights: Tensor,
    words: Tensor,
    offsets: Tensor,
    *,
    mean: bool = False,
    weigh: bool = True,
    shift: int = 0,
) -> Tensor:
    """Sums of rows of a table, weighted, for each bag."""
    rows = table[(words + shift) % len(table)] * (weights[:, None] if weigh else 1.0)
    return jagged_sum(rows, offsets, mean=mean)


def bags_by_torch(table: Tensor, weights: Tensor, words: Tensor, offsets: Tensor) -> Tensor:
    return F.embedding_bag(words, table, offsets[:-1].long(), mode="sum", per_sample_weights=weights)


def graph_mean(x: Tensor, edges: Tensor, *, turned: bool = False, loops: bool = True, mean: bool = True) -> Tensor:
    """A mean over neighbours and itself."""
    source, target = edges.flip(0) if turned else edges
    total = x * float(loops)
    count = torch.bincount(target, minlength=len(x)).to(x.dtype) + 1
    return total.index_add(0, target, x[source]) / (count[:, None] if mean else 1.0)


def graph_mean_of_shares(x: Tensor, edges: Tensor) -> Tensor:
    source, target = edges
    share = 1 / (F.one_hot(target, len(x)).sum(0) + 1).to(x.dtype)[:, None]
    return (x * share).index_add(0, target, x[source] * share[target])


def jagged_scan(
    x: Tensor, decay: Tensor, offsets: Tensor, *, reset: bool = True, first: bool = False, times: float = 1.0
) -> Tensor:
    """h = decay h + x, from nothing at each start."""
    starts, h, out = set(offsets.tolist()), torch.zeros_like(x[0]), []
    for i, row in enumerate(x):
        h = row * times if i in starts and reset else torch.sigmoid(decay) * h + (row * times if not first else h)
        out.append(h)
    return torch.stack(out)


def jagged_scan_by_matrix(x: Tensor, decay: Tensor, offsets: Tensor) -> Tensor:
    at = torch.arange(len(x))
    of = _of(offsets, len(x))
    apart = (at[:, None] - at)[..., None]
    terms = torch.sigmoid(decay) ** apart.clamp_min(0) * x
    return torch.where((apart >= 0) & (of[:, None] == of)[..., None], terms, 0.0).sum(1)


def penalised(logits: Tensor, words: Tensor, *, by: float = 1.3, signs: bool = True, first: int = 0) -> Tensor:
    """Words that were said have logits nearer to none."""
    own = logits.gather(1, words[:, first:])
    less = torch.where(own > 0, own / by, own * by) if signs else own / by
    return logits.scatter(1, words[:, first:], less)


def penalised_by_mask(logits: Tensor, words: Tensor) -> Tensor:
    occurs = F.one_hot(words, logits.shape[1]).sum(1) > 0
    return torch.where(occurs, torch.minimum(logits / 1.3, logits * 1.3), logits)


_EXPERTS = torch.tensor([[0, 2], [2, 1], [0, 1], [1, 2]])
_EXPERT = torch.tensor([2, 0, 3, 0, 2, 0])
_JAGGED = beside(normals((9, 5)), _OFFSETS)
_WORDS = torch.tensor([3, 0, 3, 5, 1, 2, 2, 4, 5])

KINDS = (
    Kind("routed experts", routed, beside(normals((4, 6), (3, 6, 5), (4, 2)), _EXPERTS), {"at once": routed_at_once},
         mistakes(routed, few=1, weigh=False, top=1)),
    Kind("grouped product", multiplied, beside(normals((6, 7), (3, 7, 5)), torch.tensor([2, 3, 1])),
         {"by rows": multiplied_by_rows}, mistakes(multiplied, shift=1, scale=1.01, few=1)),
    Kind("words to experts", permuted, beside(normals((6, 5)), _EXPERT), {"by places": permuted_by_place},
         mistakes(permuted, descending=True, shift=1, first=1)),
    Kind("words from experts", restored,
         beside(normals((8, 5), (4, 2)), torch.tensor([[0, 3], [5, 1], [2, 7], [4, 6]])),
         {"at once": restored_at_once}, mistakes(restored, turned=True, weigh=False, top=1)),
    Kind("balance of experts", balanced, beside(normals((4, 4)), _EXPERTS), {"by word": balanced_by_word},
         mistakes(balanced, times=1.0, axis=0, first=1)),
    Kind("capacity of experts", capacity, beside(normals((6, 5)), _EXPERT), {"by counts": capacity_by_counts},
         mistakes(capacity, most=1, descending=True, scale=1.01)),
    Kind("adapters", adapted, beside(normals((4, 6), (3, 6, 2), (3, 2, 6)), torch.tensor([2, -1, 0, 2])),
         {"at once": adapted_at_once}, mistakes(adapted, scale=1.0, shift=1, base=False)),
    Kind("jagged sums", jagged_sum, _JAGGED, {"by additions": jagged_sum_by_add},
         mistakes(jagged_sum, mean=True, less=1, first=1)),
    Kind("jagged softmax", jagged_softmax, _JAGGED, {"by additions": jagged_softmax_by_add},
         mistakes(jagged_softmax, axis=1, joined=True, scale=1.01)),
    Kind("jagged maximum", jagged_most, _JAGGED, {"by mask": jagged_most_by_mask},
         mistakes(jagged_most, least=True, less=1, empty=-1.0)),
    Kind("jagged to padded", padded, _JAGGED, {"by places": padded_by_places},
         mistakes(padded, fill=-1.0, left=True, less=1)),
    Kind("bags of words", bags, beside(normals((6, 5), (9,)), _WORDS, _OFFSETS), {"torch's": bags_by_torch},
         mistakes(bags, mean=True, weigh=False, shift=1)),
    Kind("mean over a graph", graph_mean, beside(normals((5, 4)), torch.tensor([[0, 1, 2, 4, 0], [1, 2, 0, 3, 2]])),
         {"of shares": graph_mean_of_shares}, mistakes(graph_mean, turned=True, loops=False, mean=False)),
    Kind("jagged scan", jagged_scan, beside(normals((6, 4), (4,)), torch.tensor([0, 2, 6])),
         {"by a matrix": jagged_scan_by_matrix}, mistakes(jagged_scan, reset=False, first=True, times=1.01)),
    Kind("penalty of repetition", penalised, beside(normals((2, 8)), torch.tensor([[1, 4, 6], [0, 7, 2]])),
         {"by mask": penalised_by_mask}, mistakes(penalised, by=1.2, signs=False, first=1), (torch.float32, *HALVES)),
)  # fmt: skip
