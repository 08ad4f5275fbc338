"""Attention: causal, grouped, windowed, capped, paged, ragged, latent, sparse; positions; partial results."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from .kind import Kind, beside, mistakes, normals

_INF = math.inf


def _attend(scores: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores, -1) @ v


def _weighted(scores: Tensor, v: Tensor) -> Tensor:
    """Exponentials first, their sum divided last, as kernels do."""
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (powers @ v) / powers.sum(-1, keepdim=True)


def _online(scores: Tensor, v: Tensor, size: int = 4) -> Tensor:
    """Blocks of keys in turn, with the largest score so far."""
    most = torch.full_like(scores[..., :1], -1e30)
    total, out = torch.zeros_like(most), torch.zeros_like(scores[..., :1] * v[..., :1, :])
    for part, values in zip(scores.split(size, -1), v.split(size, -2), strict=True):
        new = torch.maximum(most, part.amax(-1, keepdim=True))
        powers, decay = torch.exp(part - new), torch.exp(most - new)
        total, out, most = total * decay + powers.sum(-1, keepdim=True), out * decay + powers @ values, new
    return out / total


def _apart(queries: int, keys: int) -> Tensor:
    """How far each key stands before its query."""
    return torch.arange(queries)[:, None] - torch.arange(keys)


def causal(q: Tensor, k: Tensor, v: Tensor, *, scale: float = 0.25, first: int = 0) -> Tensor:
    scores = (q @ k.mT) * scale
    return _attend(scores.masked_fill(_apart(q.shape[-2], k.shape[-2]) < first, -_INF), v)


def causal_online(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _online((q @ k.mT * 0.25).masked_fill(_apart(q.shape[-2], k.shape[-2]) < 0, -_INF), v)


def windowed(q: Tensor, k: Tensor, v: Tensor, *, window: int = 4, scale: float = 0.25, first: int = 0) -> Tensor:
    apart = _apart(q.shape[-2], k.shape[-2])
    return _attend((q @ k.mT * scale).masked_fill((apart < first) | (apart >= window), -_INF), v)


def windowed_by_rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows = []
    for i in range(q.shape[-2]):
        near = slice(max(0, i - 3), i + 1)
        rows.append(_weighted(q[..., i : i + 1, :] @ k[..., near, :].mT * 0.25, v[..., near, :]))
    return torch.cat(rows, -2)


def grouped(q: Tensor, k: Tensor, v: Tensor, *, scale: float = 0.25, tiled: bool = False, axis: int = -1) -> Tensor:
    """Four heads of queries, two of keys and values."""
    k, v = (t.repeat(2, 1, 1) if tiled else t.repeat_interleave(2, 0) for t in (k, v))
    return torch.softmax(q @ k.mT * scale, axis) @ v


def grouped_at_once(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("hgqc,hkc->hgqk", q.unflatten(0, (2, 2)) * 0.25, k)
    return _weighted(scores, v[:, None]).flatten(0, 1)


def capped(
    q: Tensor, k: Tensor, v: Tensor, sink: Tensor, *, cap: float = 5.0, used: bool = True, scale: float = 0.25
) -> Tensor:
    """Scores below a cap, and one key more for each head, without a value."""
    scores = cap * torch.tanh(q @ k.mT * scale / cap)
    column = sink[:, None, None].expand(*scores.shape[:-1], 1)
    chances = torch.softmax(torch.cat([scores, column], -1), -1) if used else torch.softmax(scores, -1)
    return chances[..., : k.shape[-2]] @ v


def capped_by_sums(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> Tensor:
    scores = 5.0 * torch.tanh(q @ (k.mT * 0.25) / 5.0)
    most = torch.maximum(scores.amax(-1, keepdim=True), sink[:, None, None])
    powers = torch.exp(scores - most)
    return (powers @ v) / (powers.sum(-1, keepdim=True) + torch.exp(sink[:, None, None] - most))


def biased(q: Tensor, k: Tensor, v: Tensor, slope: Tensor, *, scale: float = 0.25, sign: float = -1.0) -> Tensor:
    """ALiBi: a slope for each head, times how far a key stands before its query."""
    apart = _apart(q.shape[-2], k.shape[-2])
    scores = q @ k.mT * scale + sign * slope[:, None, None] * apart
    return _attend(scores.masked_fill(apart < 0, -_INF), v)


def biased_online(q: Tensor, k: Tensor, v: Tensor, slope: Tensor) -> Tensor:
    apart = _apart(q.shape[-2], k.shape[-2])
    return _online((0.25 * (q @ k.mT) - slope[:, None, None] * apart).masked_fill(apart < 0, -_INF), v)


def normed(q: Tensor, k: Tensor, v: Tensor, w: Tensor, *, eps: float = 1e-6, both: bool = True) -> Tensor:
    """Queries and keys of a root mean square of 1."""
    q, k = (t * torch.rsqrt(t.square().mean(-1, keepdim=True) + eps) * w if both or t is q else t for t in (q, k))
    return _attend(q @ k.mT * 0.25, v)


def normed_by_scores(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    a, b = (torch.rsqrt(t.square().sum(-1, keepdim=True) / t.shape[-1] + 1e-6) for t in (q, k))
    return _weighted((q * w) @ (k * w).mT * a * b.mT * 0.25, v)


def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float = 0.25, turned: bool = False) -> Tensor:
    """A tree of words, of which each sees its ancestors; a row that sees none gives zeros."""
    mask = mask.mT if turned else mask
    chances = torch.softmax((q @ k.mT * scale).masked_fill(~mask, -_INF), -1)
    return torch.where(mask.any(-1, keepdim=True), chances, 0.0) @ v


def masked_by_products(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    some = mask.any(-1, keepdim=True)
    scores = torch.where(mask, q @ k.mT * 0.25, -_INF)
    powers = torch.exp(scores - torch.where(some, scores.amax(-1, keepdim=True), 0.0))
    return (powers @ v) / torch.where(some, powers.sum(-1, keepdim=True), 1.0)


def _tree() -> Tensor:
    mask = torch.eye(6, dtype=torch.bool)
    for child, parent in ((1, 0), (2, 0), (3, 1), (4, 1)):
        mask[child] |= mask[parent]
    mask[5] = False
    return mask


# -------------------------------- pages, offsets


def paged(
    q: Tensor, keys: Tensor, values: Tensor, offsets: Tensor, pages: Tensor, *, scale: float = 0.375, less: int = 0
) -> Tensor:
    """A query for each sequence; pages of two keys, which the table names between two offsets."""
    out = torch.zeros_like(q)
    for b in range(len(q)):
        own = pages[int(offsets[b]) : max(int(offsets[b + 1]) - less, int(offsets[b]) + 1)].long()
        k, v = keys[own].flatten(0, 1), values[own].flatten(0, 1)
        out[b] = torch.softmax(k @ q[b] * scale, 0) @ v
    return out


def paged_online(q: Tensor, keys: Tensor, values: Tensor, offsets: Tensor, pages: Tensor) -> Tensor:
    out = []
    for query, start, end in zip(q, offsets.tolist(), offsets[1:].tolist(), strict=False):
        own = pages[start:end].long()
        scores = torch.cat([keys[page] @ query for page in own.tolist()]) * 0.375
        out.append(_online(scores[None], values[own].flatten(0, 1), 2)[0])
    return torch.stack(out)


def paged_in_order(q: Tensor, keys: Tensor, values: Tensor, offsets: Tensor, pages: Tensor) -> Tensor:
    """Pages as they lie in memory, without the table."""
    return paged(q, keys, values, offsets, torch.arange(len(pages), dtype=torch.int32))


_PAGES = (torch.tensor([0, 1, 3, 5], dtype=torch.int32), torch.tensor([3, 0, 5, 4, 1], dtype=torch.int32))


def ragged(
    q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, *, scale: float = 0.375, causes: bool = True, joined: bool = False
) -> Tensor:
    """Sequences after one another, each causal."""
    ends = [0, len(q)] if joined else offsets.tolist()
    parts = []
    for start, end in itertools.pairwise(ends):
        scores = q[start:end] @ k[start:end].T * scale
        if causes:
            scores = scores.masked_fill(_apart(end - start, end - start) < 0, -_INF)
        parts.append(_attend(scores, v[start:end]))
    return torch.cat(parts)


def ragged_online(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> Tensor:
    parts = []
    for start, end in zip(offsets.tolist(), offsets[1:].tolist(), strict=False):
        scores = (q[start:end] @ (0.375 * k[start:end]).T).masked_fill(_apart(end - start, end - start) < 0, -_INF)
        parts.append(_online(scores, v[start:end], 2))
    return torch.cat(parts)


# -------------------------------- latent and sparse


def latent(
    q: Tensor, rotated: Tensor, cache: Tensor, places: Tensor, up: Tensor, *,
    scale: float = 0.25, base: float = math.e, part: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """MLA: keys are made of a latent of each word, beside a part that is rotated; values are the latents."""
    scores = torch.einsum("hc,khc->hk", q, torch.einsum("kl,lhc->khc", cache, up))
    scores = (scores + rotated @ places.T if part else scores) * scale
    return _attend(scores, cache), torch.logsumexp(scores, -1) / math.log(base)


def latent_absorbed(q: Tensor, rotated: Tensor, cache: Tensor, places: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    long = torch.cat([torch.einsum("hc,lhc->hl", q, up), rotated], -1)
    scores = long @ torch.cat([cache, places], -1).T * 0.25
    most = scores.amax(-1, keepdim=True)
    powers = torch.exp(scores - most)
    total = powers.sum(-1, keepdim=True)
    return (powers @ cache) / total, (most + torch.log(total))[:, 0]


def sparse(
    q: Tensor, k: Tensor, v: Tensor, seekers: Tensor, targets: Tensor, *,
    most: int = 3, folded: bool = True, scale: float = 0.375,
) -> Tensor:  # fmt: skip
    """DSA: an indexer of few heads chooses keys for each query, and attention sees these."""
    matches = torch.einsum("hqc,kc->hqk", seekers, targets)
    indices = (torch.relu(matches) if folded else matches).sum(0).topk(most, -1).indices
    scores = torch.einsum("qc,qkc->qk", q, k[indices]) * scale
    return torch.einsum("qk,qkc->qc", torch.softmax(scores, -1), v[indices])


def sparse_in_order(q: Tensor, k: Tensor, v: Tensor, seekers: Tensor, targets: Tensor) -> Tensor:
    """Chosen keys in the order of memory, one query after another."""
    indices = torch.relu(seekers @ targets.T).sum(0).topk(3, -1).indices.sort(-1).values
    return torch.cat([_weighted((row[None] * 0.375) @ k[own].T, v[own]) for row, own in zip(q, indices, strict=True)])


def blocks(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, *, size: int = 4, scale: float = 0.375, shift: int = 0
) -> Tensor:
    """NSA's second part: each block of queries sees the blocks of keys that a table names."""
    if len(q) != 4 * len(table) or len(k) % 4:
        raise ValueError(f"q has {len(q)} rows and k {len(k)}: need blocks of 4, a row of the table for each of q")
    parts = []
    for i, own in enumerate(table.tolist()):
        at = torch.cat([torch.arange(b * 4 + shift, b * 4 + shift + size) for b in own]) % len(k)
        parts.append(_attend(q[4 * i : 4 * i + 4] @ k[at].T * scale, v[at]))
    return torch.cat(parts)


def blocks_at_once(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    keys, values = (t.unflatten(0, (-1, 4))[table].flatten(1, 2) for t in (k, v))
    return _weighted(q.unflatten(0, (-1, 4)) @ keys.mT * 0.375, values).flatten(0, 1)


def merged(parts: Tensor, sums: Tensor, *, base: float = math.e, sign: float = 1.0, mean: bool = False) -> Tensor:
    """Flash decoding: results of parts of the keys, joined by the logarithms of their sums."""
    weights = torch.softmax(sign * sums * math.log(base), 0)
    weights = torch.full_like(weights, 1 / len(sums)) if mean else weights
    return (weights[..., None] * parts).sum(0)


def merged_in_turn(parts: Tensor, sums: Tensor) -> Tensor:
    most = sums.amax(0)
    out, total = torch.zeros_like(parts[0]), torch.zeros_like(sums[0])
    for part, own in zip(parts, sums, strict=True):
        power = torch.exp(own - most)
        out, total = out + part * power[..., None], total + power
    return out / total[..., None]


# -------------------------------- positions


def rotary(x: Tensor, angle: Tensor, *, sign: float = 1.0, times: float = 1.0, pairs: bool = False) -> Tensor:
    """Halves of the last axis rotated."""
    c, s = torch.cos(angle * times), sign * torch.sin(angle * times)
    a, b = (x[..., ::2], x[..., 1::2]) if pairs else x.chunk(2, -1)
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def rotary_turned(x: Tensor, angle: Tensor) -> Tensor:
    both = torch.cat([angle, angle], -1)
    a, b = x.chunk(2, -1)
    return x * torch.cos(both) + torch.cat([-b, a], -1) * torch.sin(both)


def rotary_complex(x: Tensor, angle: Tensor, *, sign: float = 1.0, times: float = 1.0, halves: bool = False) -> Tensor:
    """Pairs of neighbours rotated, as complex numbers."""
    pairs = torch.stack(x.chunk(2, -1), -1) if halves else x.unflatten(-1, (-1, 2))
    turns = torch.polar(torch.ones_like(angle), sign * times * angle)
    return torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turns).flatten(-2)


def rotary_by_pairs(x: Tensor, angle: Tensor) -> Tensor:
    c, s = torch.cos(angle), torch.sin(angle)
    return torch.stack([x[..., ::2] * c - x[..., 1::2] * s, x[..., ::2] * s + x[..., 1::2] * c], -1).flatten(-2)


_QKV = normals((2, 6, 16), (2, 6, 16), (2, 6, 8))
_FLAT = normals((8, 7), (8, 7), (8, 5))

KINDS = (
    Kind(
        "causal attention", causal, _QKV, {"online": causal_online},
        mistakes(causal, scale=1.0, first=1 - 6) | {"sees the next": lambda q, k, v: causal(q, k, v, first=-1)},
    ),
    Kind("windowed attention", windowed, _QKV, {"by rows": windowed_by_rows},
         mistakes(windowed, window=5, scale=0.5, first=-1)),
    Kind("grouped heads", grouped, normals((4, 3, 16), (2, 5, 16), (2, 5, 8)), {"at once": grouped_at_once},
         mistakes(grouped, scale=1.0, tiled=True, axis=-2)),
    Kind("softcap and sink", capped, normals((2, 3, 16), (2, 5, 16), (2, 5, 8), (2,)), {"by sums": capped_by_sums},
         mistakes(capped, cap=50.0, used=False, scale=1.0)),
    Kind("ALiBi", biased, normals((2, 5, 16), (2, 5, 16), (2, 5, 8), (2,)), {"online": biased_online},
         mistakes(biased, scale=1.0, sign=1.0) | {"slope of the other head":
                  lambda q, k, v, slope: biased(q, k, v, slope.flip(0))}),
    Kind("normed queries and keys", normed, normals((2, 4, 16), (2, 5, 16), (2, 5, 8), (16,)),
         {"by scores": normed_by_scores}, mistakes(normed, eps=1e-2, both=False) | {
             "weight once": lambda q, k, v, w: normed(q, k, v, w.abs().sqrt())}),
    Kind("tree of words", masked, beside(normals((2, 6, 16), (2, 6, 16), (2, 6, 8)), _tree()),
         {"by products": masked_by_products}, mistakes(masked, scale=1.0, turned=True) | {
             "without the mask": lambda q, k, v, mask: masked(q, k, v, torch.ones_like(mask))}),
    Kind("paged attention", paged, beside(normals((3, 7), (6, 2, 7), (6, 2, 5 + 2)), *_PAGES),
         {"online": paged_online}, mistakes(paged, scale=1.0, less=1) | {"in order": paged_in_order}),
    Kind("ragged attention", ragged, beside(_FLAT, torch.tensor([0, 3, 4, 8], dtype=torch.int32)),
         {"online": ragged_online}, mistakes(ragged, scale=1.0, causes=False, joined=True)),
    Kind("MLA", latent, normals((2, 6), (2, 4), (5, 8), (5, 4), (8, 2, 6)), {"absorbed": latent_absorbed},
         mistakes(latent, scale=0.5, base=2.0, part=False)),
    Kind("DSA", sparse, normals((4, 7), (6, 7), (6, 5), (2, 4, 8), (6, 8)), {"in order": sparse_in_order},
         mistakes(sparse, most=2, folded=False, scale=1.0)),
    Kind("NSA", blocks, beside(normals((8, 7), (12, 7), (12, 5)), torch.tensor([[2, 0], [1, 2]])),
         {"at once": blocks_at_once}, mistakes(blocks, size=3, scale=1.0, shift=1)),
    Kind("merged parts", merged, normals((3, 4, 6), (3, 4)), {"in turn": merged_in_turn},
         mistakes(merged, base=2.0, sign=-1.0, mean=True)),
    Kind("rotary, halves", rotary, normals((2, 5, 8), (5, 4)), {"turned": rotary_turned},
         mistakes(rotary, sign=-1.0, times=2.0, pairs=True)),
    Kind("rotary, complex", rotary_complex, normals((2, 5, 8), (5, 4)), {"by pairs": rotary_by_pairs},
         mistakes(rotary_complex, sign=-1.0, times=2.0, halves=True), (torch.float32, torch.float64)),
)  # fmt: skip
