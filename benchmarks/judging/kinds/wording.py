"""Losses of words, and sampling from numbers that are given."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .kind import Draw, Kind, beside, mistakes, normals

# -------------------------------- losses of words


def smoothed(
    x: Tensor, w: Tensor, word: Tensor, *, smooth: float = 0.1, squared: float = 1e-2, scale: float = 1.0
) -> Tensor:
    """A linear layer, cross entropy with smoothed labels, and the square of the normaliser."""
    logits = x @ w * scale
    lse = torch.logsumexp(logits, -1)
    right = logits.gather(-1, word[:, None])[:, 0]
    return (lse - (1 - smooth) * right - smooth * logits.mean(-1) + squared * lse.square()).mean()


def smoothed_in_chunks(x: Tensor, w: Tensor, word: Tensor) -> Tensor:
    total = torch.zeros((), dtype=x.dtype)
    for rows, words in zip(x.split(2), word.split(2), strict=True):
        logits = rows @ w
        most = logits.amax(-1, keepdim=True)
        lse = torch.log(torch.exp(logits - most).sum(-1)) + most[:, 0]
        loss = F.cross_entropy(logits, words, reduction="none", label_smoothing=0.1)
        total = total + (loss + 1e-2 * lse * lse).sum()
    return total / len(x)


def ignored(x: Tensor, word: Tensor, *, none: int = -100, mean: bool = True, scale: float = 1.0) -> Tensor:
    """Cross entropy without the words that are -100."""
    loss = F.cross_entropy(x * scale, word, ignore_index=none, reduction="sum") if none == -100 else (
        F.cross_entropy(x, word.clamp_min(0), reduction="sum"))  # fmt: skip
    return loss / ((word >= 0).sum() if mean else len(word))


def ignored_by_mask(x: Tensor, word: Tensor) -> Tensor:
    counts = word >= 0
    chances = torch.log_softmax(x, -1).gather(-1, word.clamp_min(0)[:, None])[:, 0]
    return -torch.where(counts, chances, 0.0).sum() / counts.sum()


def policy(
    new: Tensor, old: Tensor, gain: Tensor, *, clip: float = 0.2, least: bool = True, penalty: float = 0.1
) -> Tensor:
    """GRPO: the clipped ratio of chances times the gain, and a penalty for leaving the old policy."""
    ratio = torch.exp(new - old)
    pair = torch.stack([ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain])
    apart = torch.exp(old - new) - (old - new) - 1
    return -((pair.amin(0) if least else pair[1]) - penalty * apart).mean()


def policy_by_where(new: Tensor, old: Tensor, gain: Tensor) -> Tensor:
    ratio = torch.exp(new - old)
    bound = torch.where(gain > 0, torch.clamp_max(ratio, 1.2), torch.clamp_min(ratio, 0.8))
    apart = torch.exp(old - new) + (new - old) - 1
    return (0.1 * apart - bound * gain).sum() / gain.numel()


def preferred(
    a: Tensor, b: Tensor, c: Tensor, d: Tensor, *, beta: float = 0.1, sign: float = 1.0, smooth: float = 0.0
) -> Tensor:
    """DPO: the chosen answer and the other, beside a reference's chances of both."""
    margin = sign * beta * ((a - b) - (c - d))
    return -((1 - smooth) * F.logsigmoid(margin) + smooth * F.logsigmoid(-margin)).mean()


def preferred_by_softplus(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return F.softplus(-0.1 * (a - b - c + d)).mean()


def divergence(x: Tensor, y: Tensor, *, share: float = 0.5, turned: bool = False, heat: float = 1.0) -> Tensor:
    """Of Jensen and Shannon, for distillation."""
    p, q = torch.log_softmax(x / heat, -1), torch.log_softmax(y / heat, -1)
    middle = torch.log(share * torch.exp(p) + (1 - share) * torch.exp(q))
    first, other = (middle, p) if turned else (p, middle)
    return (share * torch.exp(first) * (first - other) + (1 - share) * torch.exp(q) * (q - middle)).sum(-1)


def divergence_by_lse(x: Tensor, y: Tensor) -> Tensor:
    p, q = x - torch.logsumexp(x, -1, keepdim=True), y - torch.logsumexp(y, -1, keepdim=True)
    middle = torch.logaddexp(p, q) - math.log(2)
    return 0.5 * (torch.exp(p) * (p - middle)).sum(-1) + 0.5 * (torch.exp(q) * (q - middle)).sum(-1)


def contrast(a: Tensor, b: Tensor, *, heat: float = 0.5, both: bool = True, normal: bool = True) -> Tensor:
    """CLIP's loss: rows of two matrices belong together."""
    a, b = (F.normalize(t, dim=-1) if normal else t for t in (a, b))
    scores = a @ b.T / heat
    word = torch.arange(len(a))
    first = F.cross_entropy(scores, word)
    return (first + F.cross_entropy(scores.T, word)) / 2 if both else first


def contrast_by_lse(a: Tensor, b: Tensor) -> Tensor:
    lengths = torch.outer(torch.linalg.vector_norm(a, dim=-1), torch.linalg.vector_norm(b, dim=-1))
    scores = (a @ b.T) / lengths * 2
    lse = torch.logsumexp(scores, 1) + torch.logsumexp(scores, 0)
    return (lse / 2 - scores.diagonal()).mean()


# -------------------------------- sampling from given numbers


def draw(logits: Tensor, uniform: Tensor, *, heat: float = 0.7, shift: int = 0, exclusive: bool = False) -> Tensor:
    """The word at which the sum of chances passes a given number."""
    chances = torch.softmax(logits / heat, -1)
    sums = chances.cumsum(-1) - (chances if exclusive else 0.0)
    return (sums < uniform[:, None]).sum(-1) + shift


def drawn_by_powers(logits: Tensor, uniform: Tensor) -> Tensor:
    powers = torch.exp((logits - logits.amax(-1, keepdim=True)) / 0.7)
    return (powers.cumsum(-1) < uniform[:, None] * powers.sum(-1, keepdim=True)).sum(-1)


def likely(logits: Tensor, *, share: float = 0.1, renews: bool = True, less: float = 0.0) -> Tensor:
    """min-p: words of at least a tenth of the best word's chance."""
    chances = torch.softmax(logits, -1)
    likely = torch.where(chances >= share * chances.amax(-1, keepdim=True), chances, less)
    return likely / likely.sum(-1, keepdim=True) if renews else likely


def likely_by_logits(logits: Tensor) -> Tensor:
    powers = torch.exp(logits - logits.amax(-1, keepdim=True))
    likely = torch.where(powers >= 0.1, powers, 0.0)
    return likely / likely.sum(-1, keepdim=True)


def verified(
    p: Tensor, q: Tensor, word: Tensor, uniform: Tensor, *, strict: bool = True, turned: bool = False, row: int = 0
) -> Tensor:
    """Speculative decoding: how many words of a draft are taken, one after another."""
    p, q = (q, p) if turned else (p, q)
    own, draft = (torch.softmax(t, -1).roll(row, 0).gather(-1, word[:, None])[:, 0] for t in (p, q))
    accepts = uniform * draft <= own if strict else uniform <= own
    return accepts.to(torch.int64).cumprod(0).sum()


def verified_by_ratio(p: Tensor, q: Tensor, word: Tensor, uniform: Tensor) -> Tensor:
    at = torch.arange(len(word))
    ratio = torch.exp(torch.log_softmax(p, -1)[at, word] - torch.log_softmax(q, -1)[at, word])
    rejection = ~(uniform <= ratio)
    return torch.where(rejection.any(), rejection.to(torch.int64).argmax(), len(word))


def beams(
    scores: Tensor, logits: Tensor, *, most: int = 3, adds: bool = True, normed: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """The best three of all words after two beams: scores, places, beams."""
    chances = torch.log_softmax(logits, -1) if normed else logits
    total = chances + scores[:, None] if adds else chances
    best, at = (F.pad(t, (0, 3 - most)) for t in total.flatten().topk(most))
    return best, at, at // logits.shape[1]


def beams_each(scores: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    best, word = (logits - torch.logsumexp(logits, -1, keepdim=True)).topk(3, -1)
    best, at = (best + scores[:, None]).flatten().topk(3)
    return best, at // 3 * logits.shape[1] + word.flatten()[at], at // 3


def _uniform(*shape: int, seed: int = 5) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def _with_uniform(draw: Draw, count: int, *others: Tensor) -> Draw:
    return lambda dtype: (*draw(dtype), *others, _uniform(count).to(dtype))


_WORD = torch.tensor([2, 0, 6, 5])

KINDS = (
    Kind("smoothed cross entropy", smoothed, beside(normals((4, 5), (5, 7)), _WORD), {"in chunks": smoothed_in_chunks},
         mistakes(smoothed, smooth=0.0, squared=0.0, scale=1.01)),
    Kind("cross entropy without some", ignored, beside(normals((4, 7)), torch.tensor([2, -100, 6, -100])),
         {"by mask": ignored_by_mask}, mistakes(ignored, none=-1, mean=False, scale=1.1)),
    Kind("GRPO", policy, normals((4, 5), (4, 5), (4, 5)), {"by comparison": policy_by_where},
         mistakes(policy, clip=0.1, least=False, penalty=0.0)),
    Kind("DPO", preferred, normals(*[(6,)] * 4), {"by softplus": preferred_by_softplus},
         mistakes(preferred, beta=0.2, sign=-1.0, smooth=0.1)),
    Kind("distillation", divergence, normals((4, 7), (4, 7)), {"by logaddexp": divergence_by_lse},
         mistakes(divergence, share=0.4, turned=True, heat=1.1)),
    Kind("contrast of pairs", contrast, normals((4, 6), (4, 6)), {"by logsumexp": contrast_by_lse},
         mistakes(contrast, heat=1.0, both=False, normal=False)),
    Kind("sample of given numbers", draw, _with_uniform(normals((6, 7)), 6), {"by powers": drawn_by_powers},
         mistakes(draw, heat=1.4, shift=1, exclusive=True)),
    Kind("min-p", likely, normals((6, 7)), {"by logits": likely_by_logits},
         mistakes(likely, share=0.2, renews=False, less=1e-3)),
    Kind("speculative decoding", verified, _with_uniform(normals((4, 7), (4, 7)), 4, _WORD),
         {"by ratio": verified_by_ratio}, mistakes(verified, strict=False, turned=True, row=1)),
    Kind("beam search", beams, normals((2,), (2, 7)), {"each first": beams_each},
         mistakes(beams, most=2, adds=False, normed=False)),
)  # fmt: skip
