"""Specs whose shapes and places follow from integers: offsets, lengths, page tables, routes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from opassay.oracles.specs import UntraceableError, formula_of
from opassay.properties.candidates.inputs import reorder_sequences
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.specification import Specification, specification

QUESTIONS = ["FWD:given", "CALLS:same", "FWD:seeds", "FWD:signs", "DATA:integers", "VJP:grad", "SIZE:sizes"]
GENERATOR = torch.Generator().manual_seed(3)
Call = tuple[Tensor, ...]


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


# ------------------------------------------------------------------------------- attention over pages, by offsets


def paged(q: Tensor, keys: Tensor, values: Tensor, offsets: Tensor, pages: Tensor) -> Tensor:
    out = torch.zeros_like(q)
    for b in range(len(q)):
        own = pages[int(offsets[b].item()) : int(offsets[b + 1])].long()
        out[b] = torch.softmax(keys[own] @ q[b], 0) @ values[own]
    return out


def paged_by_mask(q: Tensor, keys: Tensor, values: Tensor, offsets: Tensor, pages: Tensor) -> Tensor:
    at = torch.arange(len(pages))
    own = (at >= offsets[:-1, None]) & (at < offsets[1:, None])
    scores = (q @ keys[pages.long()].T).masked_fill(~own, -torch.inf)
    return torch.softmax(scores, 1) @ values[pages.long()]


def paged_without_last(q: Tensor, keys: Tensor, values: Tensor, offsets: Tensor, pages: Tensor) -> Tensor:
    short = offsets.clone()
    short[1:] -= (offsets[1:] - offsets[:-1] > 2).int()
    at = torch.arange(len(pages))
    own = (at >= offsets[:-1, None]) & (at < short[1:, None])
    scores = (q @ keys[pages.long()].T).masked_fill(~own, -torch.inf)
    return torch.softmax(scores, 1) @ values[pages.long()]


def paged_at_old_offsets(q: Tensor, keys: Tensor, values: Tensor, offsets: Tensor, pages: Tensor) -> Tensor:
    """The offsets of the given inputs, as a compiled kernel has them that took them for constants."""
    return paged(q, keys, values, torch.tensor([0, 2, 6, 9], dtype=torch.int32), pages)


def pages() -> Call:
    order = torch.randperm(12, generator=GENERATOR)[:9].int()
    return _normal(3, 7), _normal(12, 7), _normal(12, 7), torch.tensor([0, 2, 6, 9], dtype=torch.int32), order


# ------------------------------------------------------------------------------------------ a table beside lengths


def by_table(x: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    rows = [x[table[b, :n].long()].mean(0) for b, n in enumerate(lengths.tolist())]
    return torch.stack(rows)


def by_table_weighted(x: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    own = (torch.arange(table.shape[1]) < lengths[:, None]).to(x.dtype)
    return (x[table.clamp_min(0).long()] * own[..., None]).sum(1) / lengths[:, None]


def by_table_of_most(x: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    return by_table_weighted(x, table, lengths) * lengths[:, None] / lengths.max()


def table() -> Call:
    # Places without a page say -1: whoever reads there reads what is none.
    return _normal(9, 5), torch.tensor([[4, 1, -1, -1], [0, 8, 2, 3], [7, -1, -1, -1]]), torch.tensor([2, 4, 1])


# -------------------------------------------------------------------------------------- tokens of experts, segments


def routed(x: Tensor, weights: Tensor, expert: Tensor) -> Tensor:
    out = torch.zeros(x.shape[0], weights.shape[2], dtype=x.dtype)
    for e in range(len(weights)):
        rows = (expert == e).nonzero(as_tuple=True)[0]
        out[rows] = x[rows] @ weights[e]
    return out


def routed_at_once(x: Tensor, weights: Tensor, expert: Tensor) -> Tensor:
    return torch.bmm(x[:, None], weights[expert])[:, 0]


def routed_without_last(x: Tensor, weights: Tensor, expert: Tensor) -> Tensor:
    mask = (expert < len(weights) - 1).to(x.dtype)
    return routed_at_once(x, weights, expert) * mask[:, None]


def routes() -> Call:
    return _normal(6, 4), _normal(3, 4, 5), torch.tensor([0, 2, 1, 2, 0, 1])


def by_segment(x: Tensor, sizes: Tensor) -> Tensor:
    return torch.cat([torch.softmax(part, 0) for part in torch.split(x, sizes.tolist())])


def by_segment_numbered(x: Tensor, sizes: Tensor) -> Tensor:
    of = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    least = x.new_full((len(sizes), x.shape[1]), -torch.inf)
    most = least.scatter_reduce(0, of[:, None].expand_as(x), x, "amax")
    powers = torch.exp(x - most[of])
    return powers / torch.zeros(len(sizes), x.shape[1], dtype=x.dtype).index_add(0, of, powers)[of]


def by_segment_sorted(x: Tensor, sizes: Tensor) -> Tensor:
    return by_segment_numbered(x, sizes.sort().values)


def segments() -> Call:
    return _normal(10, 3), torch.tensor([3, 2, 5])


def count(labels: Tensor) -> Tensor:
    return torch.bincount(labels, minlength=6)


def counted_without_first(labels: Tensor) -> Tensor:
    return torch.bincount(labels[1:], minlength=6)


PROBLEMS: list[tuple[Callable[[], Call], Callable[..., Tensor], Callable[..., Tensor], list[Callable[..., Tensor]]]] = [
    (pages, paged, paged_by_mask, [paged_without_last, paged_at_old_offsets]),
    (table, by_table, by_table_weighted, [by_table_of_most]),
    (routes, routed, routed_at_once, [routed_without_last]),
    (segments, by_segment, by_segment_numbered, [by_segment_sorted]),
    (lambda: (torch.tensor([0, 3, 3, 5, 1]),), count, count, [counted_without_first]),
]


#: Where a spec calls several operations for each sequence, a judgement takes seconds.
_LONG = (paged, routed)


@pytest.mark.fast_cases("count")
@pytest.mark.parametrize(
    ("draw", "spec", "right", "wrong"),
    [pytest.param(*row, id=row[1].__name__, marks=pytest.mark.slow if row[1] in _LONG else []) for row in PROBLEMS],
)
def test_a_spec_that_reads_integers_is_judged(
    draw: Callable[[], Call], spec: Callable[..., Tensor], right: Callable[..., Tensor],
    wrong: list[Callable[..., Tensor]],
) -> None:  # fmt: skip
    operands = draw()
    for candidate, questions in ((spec, ["FWD:given"]), (right, QUESTIONS)):
        judgement = judge(candidate, spec, operands, questions=questions)
        assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    for candidate in wrong:
        judgement = judge(candidate, spec, operands, questions=["FWD:given"])
        assert judgement.verdict is Ruling.REJECTED, str(judgement)


@pytest.mark.parametrize(
    "spec",
    [
        lambda x, n: x * 2 if x.max() > 0 else x,
        lambda x, n: x[: int(x.argmax()) + 1].sum(),
        lambda x, n: x[x > 0].sum(),
        lambda x, n: (x > n).nonzero().sum() * x,
        lambda x, n: x * float(x[0]),
    ],
    ids=["branch", "size", "mask", "places", "number"],
)
def test_what_rounding_may_decide_is_not_read(spec: Callable[..., Tensor]) -> None:
    arguments = (torch.tensor([1.0, -2.0]), torch.tensor(0))
    judgement = judge(spec, spec, arguments, questions=["FWD:given"])
    assert judgement.verdict is Ruling.ERROR
    assert "depends on values of floating tensors" in str(judgement)


@pytest.mark.slow
def test_a_mask_that_is_given_may_choose_elements() -> None:
    def spec(x: Tensor, mask: Tensor) -> Tensor:
        return x[mask].cumsum(0)

    operands = (_normal(6), torch.tensor([True, False, True, True, False, True]))
    assert judge(spec, spec, operands, questions=QUESTIONS).verdict is Ruling.ACCEPTED
    judgement = judge(lambda x, mask: x[: int(mask.sum())].cumsum(0), spec, operands, questions=QUESTIONS)
    assert judgement.verdict is Ruling.REJECTED


@pytest.mark.slow
def test_a_size_at_which_a_loop_becomes_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop over thousands of steps would be read for half a minute; one over a hundred is read."""
    lengths: list[int] = []

    def traced_at(self: Specification, *args: Any) -> Any:
        traced = read(self, *args)
        lengths.append(len(traced.graph.graph.nodes))
        return traced

    def spec(x: Tensor) -> Tensor:
        total = torch.zeros_like(x[0])
        for row in x.unbind():
            total = total * 0.5 + row
        return total

    def of_few(x: Tensor) -> Tensor:
        return spec(x[:99])

    read = Specification.traced_at
    monkeypatch.setattr(Specification, "traced_at", traced_at)
    judgement = judge(of_few, spec, (_normal(5, 3),), questions=["FWD:given", "SIZE:sizes"])
    assert judgement.verdict is Ruling.REJECTED
    assert [cause.question for cause in judgement.causes] == ["SIZE:sizes"]
    assert 3 * 99 < max(lengths) < 3000


def test_a_size_at_which_products_become_too_long_is_not_asked() -> None:
    """Each product of rows with rows takes the cube of a size, however few elements the argument has."""
    rows: list[int] = []

    def spec(x: Tensor) -> Tensor:
        gram = x @ x.T
        return gram @ gram @ x

    def kernel(x: Tensor) -> Tensor:
        rows.append(len(x))
        return spec(x)

    assert judge(kernel, spec, (_normal(4, 3),), questions=["SIZE:sizes"]).verdict is Ruling.ACCEPTED
    assert 100 < max(rows) < 1000


@pytest.mark.slow
def test_a_loop_over_rows_is_not_read_at_a_million_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def traced_at(self: Specification, *args: Any) -> Any:
        lengths.extend(len(t) for t in args[0].tensors)
        return read(self, *args)

    def spec(x: Tensor) -> Tensor:
        rows = [torch.zeros_like(x[0])]
        for row in x:
            rows.append(rows[-1] * 0.5 + row)
        return torch.stack(rows[1:])

    def kernel(x: Tensor) -> Tensor:  # It differs from torch, so it is read at larger sizes.
        return spec(x.double()).float()

    read = Specification.traced_at
    monkeypatch.setattr(Specification, "traced_at", traced_at)
    assert judge(kernel, spec, (_normal(4, 3),), questions=["SIZE:sizes"]).verdict is Ruling.ACCEPTED
    assert 100 < max(lengths) < 1000


def test_a_formula_is_read_with_the_integers_of_each_call() -> None:
    formula = formula_of(lambda x, n: x[: int(n)].sum())
    x = np.array([1.0, 2.0, 4.0])
    assert [float(formula(x, np.array(n))[0]) for n in (1, 3, 1)] == [1, 7, 1]
    with pytest.raises(UntraceableError, match="depends on values of floating tensors"):
        formula_of(lambda x: x[: int(x[0])])(x)


def test_other_specs_are_read_without_values() -> None:
    def loss(x: Tensor, labels: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(x, labels)

    spec = specification(loss)
    judge(loss, spec, (_normal(4, 5), torch.tensor([0, 4, 2, 1])), questions=["FWD:given", "FWD:signs"])
    assert not spec.reads_values


def test_sequences_change_places_with_all_that_belongs_to_them() -> None:
    offsets, lengths = torch.tensor([0, 2, 2, 7, 8], dtype=torch.int32), torch.tensor([2, 0, 5, 1])
    rows = torch.tensor([[2, -1], [-1, -1], [5, 5], [1, -1]])
    elements = torch.tensor([10, 10, 12, 12, 12, 12, 12, 13])
    x, count = torch.zeros(8), torch.tensor(4)
    for seed in range(20):
        tensors = reorder_sequences([x, offsets, lengths, rows, elements, count], np.random.default_rng(seed))
        same, ends, sizes, places, tokens, number = tensors
        assert same is x
        assert number is count
        assert ends.dtype == torch.int32
        assert ends.diff().tolist() == sizes.tolist() == [max(row[0], 0) for row in places.tolist()]
        kinds = {2: 10, 5: 12, 1: 13}
        assert tokens.tolist() == [kinds[n] for n in sizes.tolist() for _ in range(n)]


def test_offsets_stay_offsets_where_memory_is_laid_out_otherwise() -> None:
    """Equal along axis 0 they would be no offsets; a kernel that takes the last for the number of rows is right."""

    def sums(x: Tensor, offsets: Tensor) -> Tensor:
        return torch.stack([x[i:j].sum(0) for i, j in itertools.pairwise(offsets.tolist())])

    def to_the_end(x: Tensor, offsets: Tensor) -> Tensor:
        return torch.stack([part.sum(0) for part in torch.tensor_split(x, offsets[1:-1])])

    def of_dense_offsets(x: Tensor, offsets: Tensor) -> Tensor:
        return sums(x, torch.as_strided(offsets, offsets.shape, (1,)))

    operands = (_normal(9, 5), torch.tensor([0, 3, 3, 9]))
    assert judge(to_the_end, sums, operands, questions=["LAYOUT:strides"]).verdict is Ruling.ACCEPTED
    assert judge(of_dense_offsets, sums, operands, questions=["LAYOUT:strides"]).verdict is Ruling.REJECTED


@pytest.mark.fast_cases("FWD:seeds")
@pytest.mark.parametrize("question", ["FWD:seeds", "SIZE:sizes"])
def test_a_kind_that_is_asked_alone_keeps_integers_that_the_spec_reads(question: str) -> None:
    judgement = judge(by_table_weighted, by_table, table(), questions=(question,), seed=0)
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
