"""Routers of experts: which they choose, with what weights, and what the experts make of it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .chooser import Chooser, first_of_ties, last_of_ties, normal

TOKENS, WIDTH, EXPERTS, TOP, GROUPS = 12, 16, 8, 2, 4
Top = Callable[[Tensor, int], tuple[Tensor, Tensor]]


def _inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    x, router = normal(TOKENS, WIDTH, dtype=dtype), normal(WIDTH, EXPERTS, seed=1, dtype=dtype)
    router[:, 5] = router[:, 2]  # Two experts with the same scores: whoever is asked for both has a tie.
    return x, router, normal(EXPERTS, WIDTH, 6, seed=2, dtype=dtype)


def _biased_inputs(dtype: torch.dtype) -> tuple[Tensor, ...]:
    x, router, w = _inputs(dtype)
    return x, router, normal(EXPERTS, seed=3, dtype=dtype) / 4, w


# ------------------------------------------------------------------------------------------------ indices and weights


def shares(x: Tensor, router: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of the best experts, which add up to 1, and these experts."""
    best, which = torch.softmax(x @ router, -1).topk(TOP)
    return best / best.sum(-1, keepdim=True), which


def _shares(top: Top, k: int = TOP, normed: bool = True, ascending: bool = False) -> Callable[..., object]:
    def kernel(x: Tensor, router: Tensor) -> tuple[Tensor, Tensor]:
        best, which = top(torch.softmax(x @ router, -1), k)
        best, which = best[:, -TOP:], which[:, -TOP:]
        best = best / best.sum(-1, keepdim=True) if normed else best
        return (best.flip(-1), which.flip(-1)) if ascending else (best, which)

    return kernel


def _of_logits(x: Tensor, router: Tensor) -> tuple[Tensor, Tensor]:
    """The same: softmax keeps the order, and the sum of the others cancels."""
    best, which = torch.topk((x.flip(-1) @ router.flip(0)), TOP)
    return torch.softmax(best, -1), which


def _exponentials_of_shares(x: Tensor, router: Tensor) -> tuple[Tensor, Tensor]:
    best, which = torch.softmax(x @ router, -1).topk(TOP)
    return torch.softmax(best, -1), which


def _twice(x: Tensor, router: Tensor) -> tuple[Tensor, Tensor]:
    """The best of either half, and the halves have a column in common."""
    scores = torch.softmax(x @ router, -1)
    cut = EXPERTS // 2
    parts = [scores[:, : cut + 1].topk(TOP), scores[:, cut:].topk(TOP)]
    values = torch.cat([parts[0][0], parts[1][0]], -1)
    places = torch.cat([parts[0][1], parts[1][1] + cut], -1)
    best, at = values.topk(TOP)
    return best / best.sum(-1, keepdim=True), places.gather(1, at)


def _both_ties_dropped(x: Tensor, router: Tensor) -> tuple[Tensor, Tensor]:
    """One after the other, where all that equal the largest are masked."""
    scores = torch.softmax(x @ router, -1)
    first = scores.max(-1)
    second = scores.masked_fill(scores == first.values[:, None], -1.0).max(-1)
    best = torch.stack([first.values, second.values], -1)
    return best / best.sum(-1, keepdim=True), torch.stack([first.indices, second.indices], -1)


def _of_padding(x: Tensor, router: Tensor) -> tuple[Tensor, Tensor]:
    """Columns are filled up with zeros, which are larger than negative scores."""
    best, which = torch.nn.functional.pad(x @ router, (0, 8)).topk(TOP)
    return best, which


def best_scores(x: Tensor, router: Tensor) -> tuple[Tensor, Tensor]:
    """The best scores, and whose they are."""
    best, which = (x @ router).topk(TOP)
    return best, which


def _passes_over_nans(x: Tensor, router: Tensor) -> tuple[Tensor, Tensor]:
    scores = x @ router
    which = scores.nan_to_num(-1e30, torch.inf, -torch.inf).topk(TOP).indices
    return scores.gather(1, which), which


def _narrow_indices(x: Tensor, router: Tensor) -> tuple[Tensor, Tensor]:
    weights, which = shares(x, router)
    return weights, which.int()


# ------------------------------------------------------------------------------------------------ a layer of experts


def layer(x: Tensor, router: Tensor, bias: Tensor, w: Tensor) -> Tensor:
    """A bias helps to choose the experts, and has no part in their weights."""
    scores = torch.sigmoid(x @ router)
    which = (scores + bias).topk(TOP, sorted=False).indices
    weights = scores.gather(1, which)
    weights = weights / weights.sum(-1, keepdim=True)
    return torch.einsum("tk,td,tkdh->th", weights, x, w[which])


def _layer(top: Top, biased: bool = False, normed: bool = True) -> Callable[..., object]:
    def kernel(x: Tensor, router: Tensor, bias: Tensor, w: Tensor) -> Tensor:
        scores = torch.sigmoid(x @ router)
        which = top(scores + bias, TOP)[1]
        weights = (scores + bias if biased else scores).gather(1, which)
        weights = weights / weights.sum(-1, keepdim=True) if normed else weights
        every = torch.zeros_like(scores).scatter(1, which, weights)
        total = torch.zeros(len(x), w.shape[2], dtype=x.dtype)
        for expert in range(len(w)):
            part = every[:, expert, None] * (x @ w[expert])
            total = torch.where((which == expert).any(-1, keepdim=True), total + part, total)
        return total

    return kernel


def _grouped(of_group: Callable[[Tensor], Tensor], dropped: float = 0.0) -> Callable[..., object]:
    """The best experts of the best half of the groups, and their weights."""

    def kernel(x: Tensor, router: Tensor) -> tuple[Tensor, Tensor]:
        scores = torch.sigmoid(x @ router)
        groups = scores.unflatten(-1, (GROUPS, -1))
        indices = of_group(groups).topk(GROUPS // 2, sorted=False).indices
        mask = torch.zeros(len(x), GROUPS, dtype=torch.bool).scatter(1, indices, True)
        allowed = groups.masked_fill(~mask[..., None], dropped).flatten(1)
        which = allowed.topk(TOP).indices
        return scores.gather(1, which), which

    return kernel


def _with_capacity(keeps_first: bool, top: Top = torch.topk) -> Callable[..., object]:
    """An expert takes one token, the first."""

    def kernel(x: Tensor, router: Tensor) -> Tensor:
        best, which = top(torch.softmax(x @ router, -1), 1)
        hits = torch.nn.functional.one_hot(which[:, 0], router.shape[1])
        before = hits.cumsum(0) if keeps_first else hits.flip(0).cumsum(0).flip(0)
        mask = (before * hits).sum(-1, keepdim=True) <= 1
        return torch.where(mask, best, 0.0) * x

    return kernel


def _apart(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Scores that rounding leaves in no doubt: with capacities everything depends on every choice."""
    x, router, _ = _inputs(dtype)
    router[:, 5] = -router[:, 2]
    return x, router


CHOOSERS = (
    Chooser(
        "weights of experts",
        shares,
        lambda dtype: _inputs(dtype)[:2],
        {"of logits": _of_logits, "last of ties": _shares(last_of_ties), "first of ties": _shares(first_of_ties)},
        {
            "one rank too far": _shares(torch.topk, TOP + 1),
            "the same expert twice": _twice,
            "ties are dropped": _both_ties_dropped,
            "softmax of shares": _exponentials_of_shares,
            "not normed": _shares(torch.topk, normed=False),
            "ascending": _shares(torch.topk, ascending=True),
            "indices of 32 bits": _narrow_indices,
        },
    ),
    Chooser(
        "best scores",
        best_scores,
        lambda dtype: _inputs(dtype)[:2],
        {
            "last of ties": lambda x, router: last_of_ties(x @ router, TOP),
            "in another order": lambda x, router: first_of_ties(x.flip(-1) @ router.flip(0), TOP),
        },
        {"index of the padding": _of_padding, "passes over NaNs": _passes_over_nans},
    ),
    Chooser(
        "layer of experts",
        layer,
        _biased_inputs,
        {"last of ties": _layer(last_of_ties), "first of ties": _layer(first_of_ties)},
        {"bias in the weights": _layer(torch.topk, biased=True), "layer, not normed": _layer(torch.topk, normed=False)},
    ),
    Chooser(
        "groups of experts",
        _grouped(lambda groups: groups.topk(2, -1).values.sum(-1)),
        lambda dtype: _inputs(dtype)[:2],
        {"by a sort": _grouped(lambda groups: groups.sort(-1).values[..., -2:].sum(-1))},
        {"groups by their best": _grouped(lambda groups: groups.amax(-1))},
    ),
    Chooser(
        "experts of a capacity",
        _with_capacity(keeps_first=True),
        _apart,
        {"first of ties": _with_capacity(keeps_first=True, top=first_of_ties)},
        {"drops the first": _with_capacity(keeps_first=False)},
    ),
)
