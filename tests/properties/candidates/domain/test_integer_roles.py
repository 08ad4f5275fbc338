"""What integers are for: groups by their names, ends by the slices between them, labels that do not count, repeats."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.domain.deriving import derive_domain
from opassay.properties.candidates.domain.facts import find_facts
from opassay.properties.candidates.domain.integer_roles import propose
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.specification import specification

Tensor = torch.Tensor


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def whole(*values: int) -> Tensor:
    return torch.tensor(values)


def loss(x: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(x, labels, ignore_index=-1)


def loss_from_the_end(x: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(x, labels % x.shape[1])


def added(x: Tensor, at: Tensor) -> Tensor:
    return torch.zeros(8, dtype=x.dtype).index_add(0, at, x)


def added_once(x: Tensor, at: Tensor) -> Tensor:
    return torch.zeros(8, dtype=x.dtype).index_put((at,), x)


def store(x: Tensor, at: Tensor) -> Tensor:
    out = torch.zeros(8, dtype=x.dtype)
    out[at] = x
    return out


def groups(x: Tensor, of: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for s in range(int(of.max()) + 1):
        out[of == s] = torch.softmax(x[of == s], 0)
    return out


def groups_of_runs(x: Tensor, of: Tensor) -> Tensor:
    return groups(x, torch.unique_consecutive(of, return_inverse=True)[1])


def summed(x: Tensor, of: Tensor) -> Tensor:
    return torch.zeros(int(of.max()) + 1, x.shape[1], dtype=x.dtype).index_add(0, of, x)


def products(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    """The rows beyond the last end are zeros."""
    out, start = torch.zeros(len(x), w.shape[2], dtype=x.dtype), 0
    for e, end in enumerate(ends.tolist()):
        out[start:end] = x[start:end] @ w[e]
        start = end
    return out


def products_by_row(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    """Ends that fall are none for a search among them."""
    of = torch.bucketize(torch.arange(len(x)), ends, right=True)
    return torch.bmm(x[:, None], torch.cat([w, torch.zeros_like(w[:1])])[of])[:, 0]


def mean(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.cat([row[:n] for row, n in zip(x, lengths.tolist(), strict=True)]).mean(0)


def mean_by_mask(x: Tensor, lengths: Tensor) -> Tensor:
    """Lengths beyond the axis would be counted, which the spec's slices cut without a word."""
    own = (torch.arange(x.shape[1]) < lengths[:, None])[..., None]
    return torch.where(own, x, 0.0).sum((0, 1)) / lengths.sum()


def scored(q: Tensor, k: Tensor, lengths: Tensor) -> Tensor:
    """Of no key it has no number, so a call with one length of 0 is not asked."""
    return torch.stack([torch.logsumexp(k[b, :n] @ q[b], 0) for b, n in enumerate(lengths.tolist())])


def scored_by_mask(q: Tensor, k: Tensor, lengths: Tensor) -> Tensor:
    scores = (k @ q[..., None])[..., 0]
    own = torch.arange(k.shape[1]) < lengths[:, None]
    return torch.logsumexp(scores.masked_fill(~own, -math.inf), -1)


def scored_to_all(q: Tensor, k: Tensor, lengths: Tensor) -> Tensor:
    return torch.logsumexp((k @ q[..., None])[..., 0], -1)


ROLES = [
    (loss, (rand(5, 6), whole(3, 0, 5, 2, 1)), "labels below 6, -1 ignored; also all equal, first and last, "
     "all the last, each once, one ignored"),
    (added, (rand(4), whole(2, 5, 0, 3)), "index below 8; also all equal, first and last, all the last, each once"),
    # Each is there once, and what is written twice has no order.
    (added, (rand(8), whole(2, 5, 0, 3, 7, 1, 6, 4)), "index below 8; also each once"),
    (store, (rand(4), whole(2, 5, 0, 3)), "index below 8, -1 from the end; also each once, -1"),
    (groups, (rand(7, 3), whole(0, 2, 1, 0, 2, 2, 1)), "labels; also all equal, first and last, all the last"),
    (summed, (rand(7, 3), whole(0, 2, 1, 0, 2, 2, 1)), "index; also all equal, first and last, all the last"),
    (products, (rand(9, 4), rand(3, 4, 2), whole(3, 4, 7)), "offsets, never falling; also all in the last group, "
     "all in the first group, one group empty, groups of one"),
    (mean, (rand(3, 5, 2), whole(5, 5, 5)), "lengths; also all in the first, all in the last, one of length 1, "
     "one of length 0"),
    (scored, (rand(3, 4), rand(3, 5, 4), whole(5, 5, 5)), "lengths; also one of length 1"),
]  # fmt: skip


@pytest.mark.fast_cases("loss", "added", "groups", "summed", "mean")
@pytest.mark.parametrize(("spec", "args", "line"), ROLES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_role_follows_from_what_takes_the_integers(spec: Any, args: Any, line: str) -> None:
    arguments = CallArguments.of(args)
    domain = derive_domain(specification(spec), arguments)
    assert f"input {len(args) - 1}: {line}" in domain.describe(arguments)


@pytest.mark.parametrize("spec", [groups, summed])
def test_numbers_of_groups_have_an_axis_that_moves_with_their_rows(spec: Any) -> None:
    arguments = CallArguments.of((rand(7, 3), whole(0, 2, 1, 0, 2, 2, 1)))
    lines = derive_domain(specification(spec), arguments).describe(arguments)
    assert any(line.startswith("input 0.0 = input 1.0, from ") for line in lines)


def test_no_length_that_is_proposed_is_beyond_its_axis() -> None:
    lengths = whole(3, 4, 2)
    role = derive_domain(specification(mean), CallArguments.of((rand(3, 5, 2), lengths))).integers[1]
    assert role.fits == 5
    assert {max(values.tolist()) for _, values in propose(role, lengths)} == {0, 5}


WRONG = [
    (loss, loss_from_the_end, (rand(5, 6), whole(3, 0, 5, 2, 1))),
    (added, added_once, (rand(4), whole(2, 5, 0, 3))),
    (groups, groups_of_runs, (rand(4, 3), whole(0, 0, 1, 1))),
    (scored, scored_to_all, (rand(3, 4), rand(3, 5, 4), whole(5, 5, 5))),
]
RIGHT = [
    (products, products_by_row, (rand(9, 4), rand(3, 4, 2), whole(3, 4, 7))),
    (mean, mean_by_mask, (rand(3, 5, 2), whole(3, 4, 2))),
    (scored, scored_by_mask, (rand(3, 4), rand(3, 5, 4), whole(5, 5, 5))),
]


@pytest.mark.fast_cases("loss")
@pytest.mark.parametrize(("spec", "way", "args"), [*WRONG, *RIGHT], ids=lambda value: getattr(value, "__name__", ""))
def test_other_integers_tell_wrong_kernels_and_no_right_ones(spec: Any, way: Any, args: Any) -> None:
    judgement = judge(way, spec, args, questions=["FWD:given", "SIZE:sizes"])
    wrong = ["SIZE:sizes"] if any(way is each for _, each, _ in WRONG) else []
    assert [cause.question for cause in judgement.causes] == wrong, str(judgement)
    assert judgement.verdict is (Ruling.REJECTED if wrong else Ruling.ACCEPTED), str(judgement)


def test_equal_lengths_are_not_sorted_and_half_numbers_have_a_norm_within_their_roundings() -> None:
    def attend(q: Tensor, k: Tensor, lengths: Tensor) -> Tensor:
        return torch.stack([torch.softmax(q[b] @ k[b, :n].T, -1) @ k[b, :n] for b, n in enumerate(lengths.tolist())])

    k = (torch.randn(4, 6, 64, generator=torch.Generator().manual_seed(3)) / 9).bfloat16()
    arguments = CallArguments.of((k[:, 0], k, whole(6, 6, 6, 6)))
    domain = derive_domain(specification(attend), arguments, None)
    assert domain.integers[2].kind == "lengths"
    assert not domain.facts
    unit = torch.nn.functional.normalize(k.float(), dim=-1).bfloat16()
    assert find_facts([unit]) == ("of norm 1 along 2",)
