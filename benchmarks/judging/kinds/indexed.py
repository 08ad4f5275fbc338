"""Losses with labels that do not count, and rows that indices name, perhaps more than once."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .kind import NAN_AND_INF, Kind, beside, normals
from .packed import places_by_marks, places_of, spans
from .ragged import once_each, with_backward

# ---------------------------------------------------------------------------------- losses


def token_loss(logits: Tensor, labels: Tensor, *, none: int = -100) -> Tensor:
    """The mean over labels that count."""
    return F.cross_entropy(logits, labels, ignore_index=none)


def token_loss_by_rows(logits: Tensor, labels: Tensor, *, none: int = -100) -> Tensor:
    rows = torch.arange(len(labels))
    losses = torch.logsumexp(logits, -1) - logits[rows, labels.clamp_min(0)]
    counts = labels != none
    return torch.where(counts, losses, 0.0).sum() / counts.sum()


def token_loss_over_all(logits: Tensor, labels: Tensor, *, none: int = -100) -> Tensor:
    return token_loss_by_rows(logits, labels, none=none) * (labels != none).sum() / len(labels)


def token_loss_of_all(logits: Tensor, labels: Tensor, *, none: int = -100) -> Tensor:
    """Labels that do not count are the first class."""
    return token_loss_by_rows(logits, labels.clamp_min(0), none=none)


def token_loss_of_minus_one(logits: Tensor, labels: Tensor) -> Tensor:
    return token_loss(logits, labels, none=-1)


def token_loss_of_minus_one_by_rows(logits: Tensor, labels: Tensor) -> Tensor:
    return token_loss_by_rows(logits, labels, none=-1)


def token_loss_of_minus_one_over_all(logits: Tensor, labels: Tensor) -> Tensor:
    return token_loss_over_all(logits, labels, none=-1)


def token_loss_from_the_end(logits: Tensor, labels: Tensor) -> Tensor:
    """A label of -1 is the last class."""
    return (torch.logsumexp(logits, -1) - logits[torch.arange(len(labels)), labels]).mean()


def aligned(scores: Tensor, labels: Tensor, frames: Tensor, lengths: Tensor) -> Tensor:
    """The loss of all alignments with blanks, for each sequence."""
    return F.ctc_loss(scores.log_softmax(-1), labels, frames, lengths, reduction="none")


def _step(alpha: Tensor, skip: Tensor) -> Tensor:
    """The logarithm of the sums of what comes from the same place, the one before, and perhaps two before."""
    ways = torch.stack([alpha, F.pad(alpha[:-1], (1, 0), value=-math.inf),
                        torch.where(skip, F.pad(alpha[:-2], (2, 0), value=-math.inf), -math.inf)])  # fmt: skip
    most = ways.amax(0).clamp_min(-1e30).detach()
    sums = torch.exp(ways - most).sum(0)
    return torch.where(sums == 0, -math.inf, most + torch.log(torch.where(sums == 0, 1.0, sums)))


def _aligned_forward(scores: Tensor, labels: Tensor, frames: Tensor, lengths: Tensor, alike: bool = False) -> Tensor:
    logs, losses = scores.log_softmax(-1), []
    for b, (count, size) in enumerate(zip(frames.tolist(), lengths.tolist(), strict=True)):
        own = torch.zeros(2 * size + 1, dtype=torch.long)
        own[1::2] = labels[b, :size]
        skip = torch.zeros(len(own), dtype=torch.bool)
        skip[2:] = (own[2:] != 0) & (alike | (own[2:] != own[:-2]))
        alpha = torch.full((len(own),), -math.inf, dtype=logs.dtype)
        alpha = torch.where(torch.arange(len(own)) < 2, logs[0, b, own], alpha)
        for t in range(1, count):
            alpha = _step(alpha, skip) + logs[t, b, own]
        losses.append(-torch.logsumexp(alpha[-2:], 0))
    return torch.stack(losses)


def aligned_forward(scores: Tensor, labels: Tensor, frames: Tensor, lengths: Tensor) -> Tensor:
    return _aligned_forward(scores, labels, frames, lengths)


def aligned_alike(scores: Tensor, labels: Tensor, frames: Tensor, lengths: Tensor) -> Tensor:
    """Two equal labels may follow each other without a blank."""
    return _aligned_forward(scores, labels, frames, lengths, alike=True)


def aligned_to_the_end(scores: Tensor, labels: Tensor, frames: Tensor, lengths: Tensor) -> Tensor:
    return _aligned_forward(scores, labels, frames.amax().expand(len(frames)), lengths)


def sampled(hidden: Tensor, table: Tensor, chance: Tensor, labels: Tensor, others: Tensor) -> Tensor:
    """The label among words that were drawn, less what they were drawn by; a drawn word that is the label is none."""
    own = (hidden * table[labels]).sum(-1) - chance[labels]
    scores = (hidden @ table[others].T - chance[others]).masked_fill(others == labels[:, None], -math.inf)
    return F.cross_entropy(torch.cat([own[:, None], scores], 1), torch.zeros_like(labels))


def sampled_by_sums(hidden: Tensor, table: Tensor, chance: Tensor, labels: Tensor, others: Tensor) -> Tensor:
    return _sampled_of(hidden, table, chance, labels, others, others != labels[:, None])


def _sampled_of(
    hidden: Tensor, table: Tensor, chance: Tensor, labels: Tensor, others: Tensor, counts: Tensor
) -> Tensor:
    own = (hidden * table[labels]).sum(-1) - chance[labels]
    scores = hidden @ table[others].T - chance[others]
    most = torch.maximum(own, torch.where(counts, scores, own[:, None]).amax(1)).detach()
    powers = torch.where(counts, torch.exp(torch.where(counts, scores, most[:, None]) - most[:, None]), 0.0)
    return (torch.log(torch.exp(own - most) + powers.sum(1)) + most - own).mean()


def sampled_with_hits(hidden: Tensor, table: Tensor, chance: Tensor, labels: Tensor, others: Tensor) -> Tensor:
    return _sampled_of(hidden, table, chance, labels, others, torch.ones_like(others == labels[:, None]))


def sampled_without_any(hidden: Tensor, table: Tensor, chance: Tensor, labels: Tensor, others: Tensor) -> Tensor:
    """A drawn word that is the label of any row is none of all rows."""
    counts = (others[:, None] != labels).all(1)
    return _sampled_of(hidden, table, chance, labels, others, counts.expand(len(labels), -1))


def masked_loss(x: Tensor, y: Tensor, lengths: Tensor) -> Tensor:
    """The mean square of what counts."""
    parts = [((x[b, :n] - y[b, :n]) ** 2).flatten() for b, n in enumerate(lengths.tolist())]
    return torch.cat(parts).mean()


def masked_loss_by_mask(x: Tensor, y: Tensor, lengths: Tensor) -> Tensor:
    own = (torch.arange(x.shape[1]) < lengths[:, None])[..., None]
    return torch.where(own, x - y, 0.0).square().sum() / (lengths.sum() * x.shape[2])


def masked_loss_of_means(x: Tensor, y: Tensor, lengths: Tensor) -> Tensor:
    own = (torch.arange(x.shape[1]) < lengths[:, None])[..., None]
    return (torch.where(own, x - y, 0.0).square().sum((1, 2)) / (lengths * x.shape[2])).mean()


def masked_loss_of_longest(x: Tensor, y: Tensor, lengths: Tensor) -> Tensor:
    """A sequence of the full length loses its last row."""
    return masked_loss_by_mask(x, y, torch.where(lengths == x.shape[1], lengths - 1, lengths))


# ---------------------------------------------------------------------- indices that repeat


def deduped(x: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """The words without repetition, and the sum of the rows of each."""
    own, of = torch.unique(words, return_inverse=True)
    return own, x.new_zeros(len(own), x.shape[1]).index_add(0, of, x)


def deduped_sorted(x: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    order = words.argsort(stable=True)
    own, of = torch.unique_consecutive(words[order], return_inverse=True)
    return own, (of == torch.arange(len(own))[:, None]).to(x.dtype) @ x[order]


def deduped_runs(x: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """Words that were given in order."""
    own, of = torch.unique_consecutive(words, return_inverse=True)
    return own, x.new_zeros(len(own), x.shape[1]).index_add(0, of, x)


def deduped_once(x: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    own, of = torch.unique(words, return_inverse=True)
    out = x.new_zeros(len(own), x.shape[1])
    out[of] += x
    return own, out


def reordered(states: Tensor, parents: Tensor) -> Tensor:
    """The state of each beam's parent, of the same batch."""
    return torch.stack([own[parent] for own, parent in zip(states, parents, strict=True)])


def reordered_by_gather(states: Tensor, parents: Tensor) -> Tensor:
    return states.gather(1, parents[..., None].expand(-1, -1, states.shape[2]))


def reordered_flat(states: Tensor, parents: Tensor) -> Tensor:
    """Indices into all beams, without those of the batches before."""
    return states.flatten(0, 1)[parents]


def _once_in_batch(grad: Tensor, parents: Tensor) -> Tensor:
    counts = F.one_hot(parents, grad.shape[1]).sum(1).clamp_min(1)
    return grad / counts[..., None].to(grad.dtype)


reordered_once = with_backward(reordered_by_gather, _once_in_batch)


def sparse_product(values: Tensor, dense: Tensor, ends: Tensor, columns: Tensor) -> Tensor:
    """A sparse matrix by rows times a dense one."""
    return torch.stack([values[a:b] @ dense[columns[a:b]] for a, b in spans(ends)])


def sparse_product_by_add(values: Tensor, dense: Tensor, ends: Tensor, columns: Tensor) -> Tensor:
    out = dense.new_zeros(len(ends) - 1, dense.shape[1])
    return out.index_add(0, places_of(ends, len(values)), values[:, None] * dense[columns])


def sparse_product_marked(values: Tensor, dense: Tensor, ends: Tensor, columns: Tensor) -> Tensor:
    out = dense.new_zeros(len(ends) - 1, dense.shape[1])
    return out.index_add(0, places_by_marks(ends, len(values)), values[:, None] * dense[columns])


def sparse_product_once(values: Tensor, dense: Tensor, ends: Tensor, columns: Tensor) -> Tensor:
    """Of equal columns of a row the last value counts."""
    matrix = values.new_zeros(len(ends) - 1, len(dense))
    return matrix.index_put((places_of(ends, len(values)), columns), values) @ dense


def counted(weights: Tensor, words: Tensor) -> Tensor:
    """The sum of the weights of each of eight words."""
    return torch.zeros(8, dtype=weights.dtype).index_add(0, words, weights)


def counted_by_product(weights: Tensor, words: Tensor) -> Tensor:
    return weights @ (words[:, None] == torch.arange(8)).to(weights.dtype)


def counted_once(weights: Tensor, words: Tensor) -> Tensor:
    out = torch.zeros(8, dtype=weights.dtype)
    out[words] += weights
    return out


def counted_without_last(weights: Tensor, words: Tensor) -> Tensor:
    return torch.where(torch.arange(8) < 7, counted_by_product(weights, words), 0.0)


def looked_up(table: Tensor, words: Tensor) -> Tensor:
    return table[words]


looked_up_once = with_backward(looked_up, once_each)


def looked_up_by_product(table: Tensor, words: Tensor) -> Tensor:
    return F.embedding(words, table)


def looked_up_from_front(table: Tensor, words: Tensor) -> Tensor:
    """The last row of the table is out of reach."""
    return table[words.clamp_max(len(table) - 2)]


_WORDS = torch.tensor([2, 5, 0, 3])
_SEVERAL = torch.tensor([[1, 0, 2], [2, 1, 0]])
KINDS = (
    Kind("loss of tokens, ignored ones", token_loss, beside(normals((5, 6)), torch.tensor([3, 0, 5, 2, 1])),
         {"by rows": token_loss_by_rows}, {}, unseen={"over all": token_loss_over_all, "of all": token_loss_of_all}),
    Kind("loss of tokens, -1 ignored", token_loss_of_minus_one,
         beside(normals((5, 6)), torch.tensor([3, 0, 5, 2, 1])), {"by rows": token_loss_of_minus_one_by_rows}, {},
         unseen={"over all": token_loss_of_minus_one_over_all, "from the end": token_loss_from_the_end}),
    Kind("alignments, forward", aligned,
         beside(normals((6, 2, 5)), torch.tensor([[1, 3, 2], [4, 2, 1]]), torch.tensor([6, 5]), torch.tensor([3, 2])),
         {"forward": aligned_forward}, {}, (torch.float32,),
         unseen={"equal labels": aligned_alike, "to the end": aligned_to_the_end}),
    Kind("sampled softmax", sampled,
         beside(normals((3, 4), (9, 4), (9,)), torch.tensor([1, 4, 8]), torch.tensor([0, 7, 2, 5])),
         {"by sums": sampled_by_sums}, {}, unseen={"hits": sampled_with_hits, "of any row": sampled_without_any}),
    Kind("loss of sequences", masked_loss, beside(normals((3, 5, 2), (3, 5, 2)), torch.tensor([3, 4, 2])),
         {"by mask": masked_loss_by_mask}, {},
         unseen={"means": masked_loss_of_means, "longest": masked_loss_of_longest}),
    Kind("words without repetition", deduped, beside(normals((4, 3)), torch.tensor([1, 2, 5, 7])),
         {"sorted": deduped_sorted}, {},
         unseen={"runs": deduped_runs, "once": deduped_once}, skips=NAN_AND_INF),
    Kind("words in any order", deduped, beside(normals((5, 3)), torch.tensor([4, 2, 5, 2, 4])),
         {"sorted": deduped_sorted}, {}, unseen={"runs": deduped_runs, "once": deduped_once}, skips=NAN_AND_INF),
    Kind("beams of parents", reordered, beside(normals((2, 3, 4)), _SEVERAL), {"by gather": reordered_by_gather}, {},
         unseen={"flat": reordered_flat, "once": reordered_once}),
    Kind("sparse product", sparse_product,
         beside(normals((7,), (5, 3)), torch.tensor([0, 2, 3, 7]), torch.tensor([0, 3, 4, 0, 1, 2, 4])),
         {"by add": sparse_product_by_add}, {},
         unseen={"marks": sparse_product_marked, "once": sparse_product_once}),
    Kind("weighted counts", counted, beside(normals((4,)), _WORDS), {"by product": counted_by_product}, {},
         unseen={"once": counted_once, "without the last": counted_without_last}, skips=NAN_AND_INF),
    Kind("rows of a table", looked_up, beside(normals((6, 3)), _WORDS), {"by embedding": looked_up_by_product}, {},
         unseen={"once": looked_up_once, "without the last": looked_up_from_front}),
)  # fmt: skip
