"""Offsets at other extents: they rise to the same end, and are those of one group at least."""

from __future__ import annotations

import itertools

import pytest
import torch

import opassay
from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.domain.deriving import derive_domain
from opassay.properties.candidates.domain.domain import resize_all
from opassay.properties.candidates.domain.integer_roles import IntegerRole
from opassay.properties.candidates.specification import specification

Tensor = torch.Tensor


def sums(x: Tensor, ends: Tensor) -> Tensor:
    return torch.stack([x[a:b].sum(0) for a, b in itertools.pairwise(ends.tolist())])


def stops(x: Tensor, ends: Tensor) -> Tensor:
    return torch.stack([x[a:b].sum(0) for a, b in itertools.pairwise([0, *ends.tolist()])])


def offsets(first: int) -> IntegerRole:
    return IntegerRole("offsets", None, rises=True, into=((0, 0),), span=(first, 9))


@pytest.mark.parametrize(
    ("values", "rows", "expected"),
    [
        ([0, 3, 4, 9], 9, [0, 3, 4, 9]),
        ([0, 3, 4, 9], 9, [0, 1, 3, 3, 4, 6, 9]),
        ([0, 3, 4, 9], 900, [0, 150, 300, 350, 400, 650, 900]),
        ([0, 1, 2, 3, 4, 9], 9, [0, 9]),
        ([3, 4, 9], 9, [9]),
        ([9], 9, [9, 9]),
    ],
)
def test_more_offsets_are_further_groups_and_fewer_join_some(values: list[int], rows: int, expected: list[int]) -> None:
    x, ends = torch.zeros(9, 2), torch.tensor(values, dtype=torch.int32)
    other = resize_all([x, ends], ((rows, 2), (len(expected),)), {1: offsets(values[0])})[1]
    assert other.tolist() == expected
    assert other.dtype == torch.int32


@pytest.mark.parametrize(("spec", "ends", "least"), [(sums, [0, 2, 5, 9], 2), (stops, [2, 5, 9], 1)])
def test_offsets_that_begin_with_0_are_one_more_than_their_groups(spec: object, ends: list[int], least: int) -> None:
    arguments = CallArguments.of((normal(9, 4), torch.tensor(ends)))
    domain = derive_domain(specification(spec), arguments, None)
    assert next(s for s in domain.shapes.symbols if (1, 0) in s.axes).least == least


def sums_of_sixteen(x: Tensor, ends: Tensor) -> Tensor:
    """What more than sixteen groups have is left out."""
    return torch.cat([sums(x, ends[:17]), torch.zeros(len(ends) - 1, x.shape[1])[16:]])


def attend(q: Tensor, k: Tensor, rows: Tensor, keys: Tensor) -> Tensor:
    """Each group of rows sees its own keys."""
    out = torch.zeros_like(q)
    for (a, b), (c, d) in zip(itertools.pairwise(rows.tolist()), itertools.pairwise(keys.tolist()), strict=True):
        out[a:b] = torch.softmax(q[a:b] @ k[c:d].T, -1) @ k[c:d]
    return out


def attend_by_mask(q: Tensor, k: Tensor, rows: Tensor, keys: Tensor) -> Tensor:
    """Rows in no group, which a single offset leaves, see what is beyond all keys."""
    i, j = (torch.searchsorted(at, torch.arange(len(x)), right=True) for x, at in ((q, rows), (k, keys)))
    own = i[:, None] == j
    some = own.any(1, keepdim=True)
    return torch.where(some, (q @ k.T).masked_fill(~own & some, -torch.inf).softmax(-1) @ k, 0.0)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_groups_beyond_the_given_number_have_rows() -> None:
    judgement = opassay.judge(
        sums_of_sixteen, sums, (normal(9, 4), torch.tensor([0, 2, 5, 9])), questions=("FWD:given", "SIZE:sizes")
    )
    assert [finding.question for finding in judgement.causes] == ["SIZE:sizes"], judgement


def test_rows_are_in_some_group_at_all_sizes() -> None:
    inputs = normal(6, 4), normal(8, 4), torch.tensor([0, 2, 3, 6]), torch.tensor([0, 3, 6, 8])
    judgement = opassay.judge(attend_by_mask, attend, inputs, questions=("FWD:given", "SIZE:sizes"))
    assert str(judgement.verdict) == "accepted", judgement
