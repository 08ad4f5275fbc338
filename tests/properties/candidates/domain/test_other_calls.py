"""Candidates that are right around the given call, and wrong at another call that the spec takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import opassay

Tensor = torch.Tensor
Case = tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def whole(*values: int) -> Tensor:
    return torch.tensor(values)


def project(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


class LostRows(torch.autograd.Function):
    """x @ w, whose weight gradient leaves out the rows behind the last whole block of 16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        rows = max(len(x) // 16 * 16, min(len(x), 16))
        return g @ w.mT, x[:rows].mT @ g[:rows]


class LostRowsOfNorm(torch.autograd.Function):
    """A norm whose weight gradient leaves out the rows behind the last whole block of 8.

    Over one number a norm has a gradient of zero, so that there right ones differ from torch as much as this one.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        y = F.layer_norm(x, x.shape[-1:])
        ctx.save_for_backward(x, y, w)
        return y * w

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, y, w = ctx.saved_tensors
        r = torch.rsqrt(x.var(-1, keepdim=True, correction=0) + 1e-5)
        gw, rows = g * w, len(x) // 8 * 8
        dx = r * (gw - gw.mean(-1, keepdim=True) - y * (gw * y).mean(-1, keepdim=True))
        return dx, (g * y)[:rows].sum(0)


def norm(x: Tensor, w: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:]) * w


def takes_square(x: Tensor, w: Tensor) -> Tensor:
    """The columns beside a square are lost."""
    few = min(x.shape[0], w.shape[1])
    return torch.cat([(x @ w)[:, :few], torch.zeros(x.shape[0], w.shape[1] - few)], 1)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT, -1) @ v


def first_batch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """All batches have the keys of the first."""
    return attend(q, k[:1].expand_as(k), v)


def beyond(x: Tensor) -> Tensor:
    """Above 8,192 columns the rest is lost."""
    return torch.softmax(x[..., :8192], -1) if x.shape[-1] > 8192 else torch.softmax(x, -1)


def padded(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def segments(x: Tensor, ends: Tensor) -> Tensor:
    cuts = [0, *ends.tolist()]
    return torch.stack([x[a:b].sum(0) for a, b in itertools.pairwise(cuts)])


def means(x: Tensor, ends: Tensor) -> Tensor:
    """An empty segment has the row before it."""
    cuts = [0, *ends.tolist()]
    return torch.stack([x[a:b].sum(0) if b > a else x[max(a - 1, 0)] for a, b in itertools.pairwise(cuts)])


def loss(x: Tensor, t: Tensor) -> Tensor:
    return F.cross_entropy(x, t, reduction="none")


def loss_of_all(x: Tensor, t: Tensor) -> Tensor:
    """An ignored label is taken for the first class."""
    return F.cross_entropy(x, t.clamp_min(0), reduction="none")


def scatter(x: Tensor, i: Tensor) -> Tensor:
    return torch.zeros(7, x.shape[1]).index_add(0, i, x)


def scatter_once(x: Tensor, i: Tensor) -> Tensor:
    """Of rows with one index the last remains."""
    out = torch.zeros(7, x.shape[1])
    out[i] = x
    return out


def scaled(x: Tensor, w: Tensor, scale: float = 1.0, transposed: bool = False) -> Tensor:
    y = x @ w * scale
    return y.mT if transposed else y


def classes(t: Tensor) -> Tensor:
    return F.one_hot(t, 8).float()


def first_classes(t: Tensor) -> Tensor:
    """The last class is lost."""
    return torch.stack([t == i if i < 7 else t != t for i in range(8)], -1).float()


def square_loss(x: Tensor, y: Tensor, reduction: str) -> Tensor:
    return F.mse_loss(x, y, reduction=reduction)


def activated(x: Tensor, bias: Tensor | None = None, act: str = "gelu") -> Tensor:
    y = x if bias is None else x + bias
    return F.gelu(y) if act == "gelu" else F.relu(y)


def by_groups(x: Tensor, w: Tensor, group: Tensor) -> Tensor:
    out = torch.zeros(len(x), w.shape[2])
    for k in range(len(w)):
        rows = (group == k).nonzero()[:, 0]
        out = out.index_put((rows,), x[rows] @ w[k])
    return out


def by_sorted_groups(x: Tensor, w: Tensor, group: Tensor) -> Tensor:
    """A group of no rows takes one of the next."""
    order, out, first = group.argsort(stable=True), torch.zeros(len(x), w.shape[2]), 0
    for k, count in enumerate(group.bincount(minlength=len(w)).tolist()):
        rows = order[first : first + max(count, 1)]
        out[rows] = x[rows] @ w[k]
        first += max(count, 1)
    return out


WRONG: dict[str, Case] = {
    "last rows of a weight gradient": (LostRows.apply, project, (rand(16, 8), rand(8, 4))),
    "last rows of a norm's weight gradient": (LostRowsOfNorm.apply, norm, (rand(16, 32), rand(32))),
    "equal extents": (takes_square, project, (rand(12, 12), rand(12, 12))),
    "a batch of one": (first_batch, attend, (rand(1, 4, 8), rand(1, 5, 8), rand(1, 5, 3))),
    "above 8,192": (beyond, padded, (rand(3, 40),)),
    "an empty segment": (means, segments, (rand(9, 4), whole(2, 5, 9))),
    "an ignored label": (loss_of_all, loss, (rand(6, 5), whole(1, 0, 3, 4, 2, 2))),
    "equal indices": (scatter_once, scatter, (rand(4, 3), whole(1, 6, 2, 0))),
    "an option": (lambda x, w, scale=1.0, transposed=False: x @ w, scaled, (rand(5, 6), rand(6, 5), 1.0, False)),
    "a flag": (
        lambda x, w, scale=1.0, transposed=False: x @ w * scale, scaled, (rand(5, 5), rand(5, 5), 1.0, False)
    ),
    "a mask": (lambda x, m: x * 1, lambda x, m: x * m, (rand(4, 8), torch.ones(4, 8, dtype=torch.bool))),
    "an index beyond the given ones": (lambda w, i: w[i % 6], lambda w, i: w[i], (rand(6, 5), whole(0, 2, 5, 3, 3))),
    "the last class": (first_classes, classes, (whole(3, 0, 5, 2, 2),)),
    "a default": (lambda x, bias=None, act="gelu": F.gelu(x), activated, (rand(4, 8),)),
    "the default of a word": (
        lambda x, bias=None, act="gelu": F.gelu(x if bias is None else x + bias), activated, (rand(4, 8), rand(8)),
    ),
    "a group of none": (by_sorted_groups, by_groups, (rand(8, 4), rand(3, 4, 5), whole(0, 1, 2, 0, 1, 2, 0, 1))),
    "a word": (lambda x, y, _: (x - y).square().mean(), square_loss, (rand(4, 4), rand(4, 4) + 1, "mean")),
}  # fmt: skip


def right_segments(x: Tensor, ends: Tensor) -> Tensor:
    owner = torch.searchsorted(ends, torch.arange(len(x)), right=True)
    inside = owner < len(ends)
    return torch.zeros(len(ends), x.shape[1]).index_add(0, owner[inside], x[inside])


def sliced_segments(x: Tensor, ends: Tensor) -> Tensor:
    """The ends are tensors, which slices take."""
    return torch.stack([x[ends[i] : ends[i + 1]].sum(0) for i in range(len(ends) - 1)])


def right_sliced_segments(x: Tensor, ends: Tensor) -> Tensor:
    return right_segments(x[: ends[-1]], ends)[1:]


def products(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def right_products(a: Tensor, b: Tensor) -> Tensor:
    """Where the axis that is summed over has one number, the backward of `einsum` sums products that are stored."""
    return torch.einsum("bij,bjk->bik", a, b)


def choose_experts(x: Tensor, w: Tensor, expert: Tensor) -> Tensor:
    """At an expert of -1 the index counts from the end."""
    return torch.einsum("td,tdo->to", x, w[expert])


def by_experts(x: Tensor, w: Tensor, expert: Tensor, stops: bool = False) -> Tensor:
    out = torch.zeros(len(x), w.shape[2])
    for i, own in enumerate(w):
        if stops and not (expert == i).any():
            break
        out[expert == i] = x[expert == i] @ own
    return out


def right_loss(x: Tensor, t: Tensor) -> Tensor:
    keep = t != -100
    picked = x.log_softmax(-1).gather(1, torch.where(keep, t, 0)[:, None])[:, 0]
    return torch.where(keep, -picked, 0.0)


def right_attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = q @ k.mT
    e = torch.exp(s - s.amax(-1, keepdim=True))
    return (e @ v) / e.sum(-1, keepdim=True)


def attend_to_some(q: Tensor, k: Tensor, length: Tensor) -> Tensor:
    n = int(length)
    return torch.softmax(q @ k[:n].mT, -1) @ k[:n]


def right_attend_to_some(q: Tensor, k: Tensor, length: Tensor) -> Tensor:
    """NaN where the length is 0, and the spec sums over no key."""
    return torch.softmax((q @ k.mT).masked_fill(torch.arange(len(k)) >= length, -torch.inf), -1) @ k


def bag(w: Tensor, i: Tensor, offsets: Tensor) -> Tensor:
    return F.embedding_bag(i, w, offsets, mode="sum")


def right_bag(w: Tensor, i: Tensor, offsets: Tensor) -> Tensor:
    owner = torch.searchsorted(offsets, torch.arange(len(i)), right=True) - 1
    return torch.zeros(len(offsets), w.shape[1]).index_add(0, owner, w[i])


def focal(x: Tensor, y: Tensor) -> Tensor:
    p = torch.sigmoid(x)
    return -(y * (1 - p).square() * F.logsigmoid(x) + (1 - y) * p.square() * F.logsigmoid(-x))


def right_focal(x: Tensor, y: Tensor) -> Tensor:
    signed = torch.where(y == 1, x, -x)
    return -torch.sigmoid(-signed).square() * F.logsigmoid(signed)


def resets(x: Tensor, cuts: Tensor) -> Tensor:
    return torch.cat([x[a:b].cumsum(0) for a, b in itertools.pairwise(cuts.tolist())])


def right_resets(x: Tensor, cuts: Tensor) -> Tensor:
    i = torch.arange(len(x))
    owner = torch.searchsorted(cuts, i, right=True)
    inside = (owner[:, None] == owner) & (i[:, None] >= i)
    return torch.where(inside[..., None], x, 0.0).sum(1)


def experts(x: Tensor, w: Tensor, counts: Tensor) -> Tensor:
    return torch.cat([part @ w[e] for e, part in enumerate(torch.split(x, counts.tolist()))])


def right_experts(x: Tensor, w: Tensor, counts: Tensor) -> Tensor:
    return torch.bmm(x[:, None], w[torch.repeat_interleave(torch.arange(len(counts)), counts)])[:, 0]


def add_rows(x: Tensor, index: Tensor, out: Tensor) -> Tensor:
    return out.index_add(0, index, x)


def add_sorted_rows(x: Tensor, index: Tensor, out: Tensor) -> Tensor:
    ends = torch.searchsorted(index, torch.arange(len(out) + 1)).tolist()
    return torch.stack([out[i] + x[a:b].sum(0) for i, (a, b) in enumerate(itertools.pairwise(ends))])


def visible(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(~mask, -torch.inf).softmax(-1)


def right_visible(x: Tensor, mask: Tensor) -> Tensor:
    """The gradient of a row of which nothing is visible is NaN, as its values are, and not 0 as behind a mask."""
    e = torch.where(mask, (x - x.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)).exp(), 0.0)
    return e / e.sum(-1, keepdim=True)


def draw_labels(seed: int) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(8, 5, generator=rng), (torch.randn(8, 5, generator=rng) > 0).float()


RIGHT: dict[str, tuple[Any, Any, Any]] = {
    "segments": (right_segments, segments, (rand(9, 4), whole(2, 5, 9))),
    "labels": (right_loss, loss, (rand(6, 5), whole(1, 0, 3, 4, 2, 2))),
    "attention": (right_attend, attend, (rand(1, 4, 8), rand(1, 5, 8), rand(1, 5, 3))),
    "one length": (right_attend_to_some, attend_to_some, (rand(4, 8), rand(6, 8), whole(6)[0])),
    "bags": (right_bag, bag, (rand(9, 6), whole(1, 2, 5, 8, 8, 0, 3, 3), whole(0, 3, 6))),
    "resets": (right_resets, resets, (rand(15, 4), whole(0, 4, 9, 15))),
    "experts": (right_experts, experts, (rand(12, 6), rand(3, 6, 5), whole(4, 3, 5))),
    "sorted indices": (add_sorted_rows, add_rows, (rand(9, 4), whole(0, 0, 1, 3, 3, 3, 4, 5, 5), rand(6, 4))),
    "labels of 0 and 1": (right_focal, focal, draw_labels),
    "a mask": (
        lambda x, m: torch.where(m, x, x * 0),
        lambda x, m: x * m,
        (rand(4, 8), torch.ones(4, 8, dtype=torch.bool)),
    ),
    "a mask of softmax": (right_visible, visible, (rand(4, 8), rand(4, 8) > -0.5)),
    "a default": (lambda x, bias=None, act="gelu": activated(x * 1, bias, act), activated, (rand(4, 8),)),
    "groups": (
        lambda x, w, group: torch.einsum("td,tdo->to", x, w[group]),
        by_groups,
        (rand(8, 4), rand(3, 4, 5), whole(0, 1, 2, 0, 1, 2, 0, 1)),
    ),
    "ends of slices": (right_sliced_segments, sliced_segments, (rand(9, 4), whole(0, 2, 5, 9))),
    "products of half types": (right_products, products, (rand(3, 4, 4).half(), rand(3, 4, 5).half())),
}


@pytest.mark.fast_cases("last rows of a weight gradient", "a flag", "the last class")
@pytest.mark.parametrize("name", WRONG)
def test_what_only_another_call_shows_is_rejected(name: str) -> None:
    candidate, spec, inputs = WRONG[name]
    judgement = opassay.judge(candidate, spec, inputs, questions=("FWD:given", "VJP:grad", "SIZE:sizes"))
    assert str(judgement.verdict) == "rejected", judgement
    assert judgement.findings[0].wrong is None


@pytest.mark.fast_cases("a mask", "labels")
@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_are_accepted_at_all_calls(name: str) -> None:
    candidate, spec, inputs = RIGHT[name]
    judgement = opassay.judge(candidate, spec, inputs, questions=("FWD:given", "VJP:grad", "SIZE:sizes"))
    assert str(judgement.verdict) == "accepted", judgement


def test_an_index_below_all_given_ones_is_a_suspicion_and_no_cause() -> None:
    inputs = (rand(7, 5), rand(3, 5, 4), whole(0, 1, 2, 1, 0, 2, 2))
    judgement = opassay.judge(by_experts, choose_experts, inputs, questions=("FWD:given", "VJP:grad", "SIZE:sizes"))
    assert str(judgement.verdict) == "suspect", judgement
    assert "integers below all given ones" in judgement.report()

    def stops_early(x: Tensor, w: Tensor, expert: Tensor) -> Tensor:
        return by_experts(x, w, expert, stops=True)

    judgement = opassay.judge(stops_early, choose_experts, inputs, questions=("SIZE:sizes",))
    assert str(judgement.verdict) == "rejected", judgement


def test_large_integers_are_a_suspicion_and_no_cause() -> None:
    def product(x: Tensor, y: Tensor) -> Tensor:
        return x * y + 1

    inputs, codes = (whole(3, 40, 17, -5), whole(8, -2, 1, 30)), ("FWD:given", "SIZE:sizes")
    for d in (torch.int32, torch.float64):
        judgement = opassay.judge(lambda x, y, d=d: (x.to(d) * y.to(d)).long() + 1, product, inputs, questions=codes)
        assert str(judgement.verdict) == "suspect", judgement
        assert "integers above all given ones" in judgement.report()
    assert str(opassay.judge(lambda x, y: 1 + y * x, product, inputs, questions=codes).verdict) == "accepted"
    angles = (rand(5), whole(0, 1, 2, 3, 4))
    turned = opassay.judge(lambda x, p: x * p.float().cos(), lambda x, p: x * p.cos(), angles, questions=codes)
    assert str(turned.verdict) == "accepted", turned  # as an angle, a large number has no digits left


def test_an_index_below_zero_that_some_draw_has_is_a_cause() -> None:
    def draw(seed: int) -> tuple[Tensor, ...]:
        return rand(7, 5), rand(3, 5, 4), whole(0, 1, 2, 1, 0, 2, -1 if seed % 2 else 2)

    judgement = opassay.judge(by_experts, choose_experts, draw, questions=("SIZE:sizes",))
    assert str(judgement.verdict) == "rejected", judgement


def test_a_judgement_says_which_calls_were_asked() -> None:
    judgement = opassay.judge(scaled, scaled, (rand(5, 6), rand(6, 5), 1.0, False), questions=("SIZE:sizes",))
    text = "other sizes of x.0, w.1, x.1 = w.0; scale=1.7; scale=0.5; transposed=True"
    assert judgement.assignment.others == text
    assert f"  asked with: {text}" in judgement.report()
