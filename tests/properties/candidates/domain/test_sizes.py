"""The calls that a spec takes: numbers that are sizes, tensors that are not read, and what an example does not show."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.domain.deriving import derive_domain
from opassay.properties.candidates.domain.domain import Domain
from opassay.properties.candidates.domain.facts import find_facts, keep_facts
from opassay.properties.candidates.domain.input_rules import DomainError
from opassay.properties.candidates.specification import specification

Tensor = torch.Tensor


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def whole(*values: int) -> Tensor:
    return torch.tensor(values)


def derive(spec: Any, *args: Any, draw: Any = None) -> tuple[Domain, set[str]]:
    """The domain of a spec around one call, and its lines."""
    arguments = CallArguments.of(args).with_names(spec)
    domain = derive_domain(specification(spec), arguments, draw)
    return domain, set(domain.describe(arguments))


def added(a: Tensor, b: Tensor, n: int) -> Tensor:
    return a + b


def turned(x: Tensor, out: Tensor, rows: int, columns: int) -> Tensor:
    assert x.shape == (rows, columns)
    return out.copy_(x.T)


def halves(x: Tensor, n: int) -> Tensor:
    assert len(x) == n
    return x[: n // 2] * x[n // 2 :]


def summed(x: Tensor, n: int) -> Tensor:
    return x[:n].sum()


def product_into(x: Tensor, w: Tensor, out: Tensor) -> Tensor:
    return x @ w


def sum_into(x: Tensor, out: Tensor) -> Tensor:
    return x.sum()


def catted(a: Tensor, b: Tensor, y: Tensor) -> Tensor:
    return torch.cat([a, b]) + y


def windows_into(x: Tensor, w: Tensor, out: Tensor) -> Tensor:
    return F.conv1d(x, w)


def nearest(points: Tensor, out: Tensor) -> Tensor:
    far = (points.view(-1, 1, 3) - points.view(1, -1, 3)).square().sum(-1)
    return out.copy_((far + 99 * torch.eye(len(far))).argmin(1))


def pooled(x: Tensor, w: Tensor) -> Tensor:
    return F.max_pool2d(F.conv2d(x, w), 2)


def joined(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    return torch.cat([a, b], 1) @ w


def patches(x: Tensor) -> Tensor:
    return x.unfold(1, 16, 16) + torch.ones(1, 14, 16)


def solution(a: Tensor, b: Tensor) -> Tensor:
    return torch.cholesky_solve(b, torch.linalg.cholesky(a))


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


SHAPES = [
    # torch takes another number of heads of values, which its documentation excludes.
    (
        grouped,
        (rand(1, 3, 4, 8), rand(1, 1, 4, 8), rand(1, 1, 4, 8)),
        {"k.1 = v.1, from 0", "q.1, multiples of k.1, from 1"},
    ),
    # What windows leave over ends at the next window: no freedom.
    (patches, (rand(2, 224),), {"x.0, from 0", "constant: x.1=224"}),
    (
        torch.nn.Sequential(torch.nn.Conv2d(3, 4, 4, 4), torch.nn.Flatten(), torch.nn.Linear(36, 2)),
        (rand(2, 3, 12, 12),),
        {"input.0, from 0", "constant: input.1=3 input.2=12 input.3=12"},
    ),
    # Repeated rows are those of a singular matrix, and a spec of an inverse takes none.
    (torch.linalg.inv, (torch.tensor([[4.0, 3.0], [6.0, 3.0]]),), {"input.0 = input.1, from 0"}),
    (torch.linalg.solve, (rand(16, 16), rand(16)), {"input 0.0 = input 0.1 = input 1.0, from 0"}),
    # Numbers that are sizes follow, also where the spec does not read them.
    (added, (rand(1000), rand(1000), 1000), {"a.0 = b.0 = n, from 0"}),
    (turned, (rand(32, 8), rand(8, 32), 32, 8), {"x.0 = out.1 = rows, from 0", "x.1 = out.0 = columns, from 0"}),
    (halves, (rand(64), 64), {"x.0 = n, in steps of 2, from 0"}),
    (summed, (rand(100), 100), {"x.0 = n, from 0"}),
    (F.rms_norm, (rand(4, 8), (8,)), {"input.0, from 0", "input.1 = normalized_shape[0], from 0"}),
    (F.avg_pool1d, (rand(3, 3, 12), 3), {"input.0, from 0", "input.1, from 1", "input.2, from 3"}),
    # A tensor that is not read is what a candidate writes: it has the shape of the output, or keeps its own.
    (product_into, (rand(64, 64), rand(64, 64), rand(64, 64)), {"x.0 = out.0, from 0", "w.1 = out.1, from 0"}),
    (sum_into, (rand(64), rand(1)), {"x.0, from 0", "constant: out.0=1"}),
    (windows_into, (rand(2, 8, 64), rand(8, 8, 3), rand(2, 8, 62)), {"x.2 = out.2, from 1", "x.2 = w.2, from 1"}),
    # What is not read may be the shape of the output.
    (torch.ones_like, (rand(2, 3),), {"input.0, from 0", "input.1, from 0"}),
    # What is near stays near at any scale, and a largest number is found among others of an order alone.
    (nearest, (rand(9), whole(0, 1, 2)), {"points.0 by 3 = out.0, from 3"}),
    (lambda x: x.argmax(0), (whole(1, 3, 2, 4, 0, 5).reshape(2, 3),), {"x.0, from 1", "x.1, from 0"}),
    # Windows of windows end where a smaller call has none.
    (pooled, (rand(1, 3, 8, 8), rand(6, 3, 3, 3)), {"w.2, from 1", "w.3, from 1", "where w.2+1 <= x.2"}),
    # Each part of a sum moves with it.
    (catted, (rand(5, 4), rand(7, 4), rand(12, 4)), {"a.0 = y.0, from 1", "b.0 = y.0, from 1"}),
    (joined, (rand(4, 5), rand(4, 5), rand(10, 3)), {"a.1 = w.0, from 1", "b.1 = w.0, from 1"}),
]


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize(("spec", "args", "lines"), SHAPES)
def test_sizes_and_destinations_follow(spec: Any, args: Any, lines: set[str]) -> None:
    assert lines <= derive(spec, *args)[1]


def zeroed(x: Tensor, mask: Any = None) -> Tensor:
    return x if mask is None else x.masked_fill(mask == 0, -1)


def select(x: Tensor, mask: Any = None) -> Tensor:
    return x if mask is None else torch.where(mask, x, 0)


def windowed(x: Tensor, size: Any = None) -> Tensor:
    return x if size is None else x.tril(size)


def thinned(x: Tensor, p: Any = None) -> Tensor:
    return x if p is None else F.feature_alpha_dropout(x, p) + p


def select_sum(x: Tensor, mask: Any = None) -> Tensor:
    return select(x, mask).sum()


MASKS = {("bool", 6), ("bool", 4, 6)}


@pytest.mark.parametrize(
    ("spec", "options"), [(zeroed, MASKS), (select, MASKS), (select_sum, MASKS), (windowed, {2}), (thinned, {0.5})]
)
def test_none_becomes_a_mask_or_a_number_where_a_tensor_changes_nothing(spec: Any, options: set[Any]) -> None:
    assert options <= set(derive(spec, rand(4, 6), None)[0].options[1])


def test_numbers_that_are_sizes_have_no_other_values_alone() -> None:
    domain, lines = derive(added, rand(1000), rand(1000), 1000)
    assert not domain.options
    call = domain.at(
        CallArguments.of((rand(1000), rand(1000), 1000)), domain.shapes.resized({domain.shapes.symbols[0]: 7})
    )
    assert [len(t) for t in call.tensors] == [7, 7]
    assert call.leaves[2] == 7
    _, lines = derive(lambda x, n: x * 2, rand(3, 4), 12)
    assert not any("n: 12" in line for line in lines), "the spec does not say what another n means"
    _, lines = derive(lambda x, n: x * n, rand(3, 4), 12)
    assert "n: 12; also 13, 24, 6" in lines


def test_sizes_are_declared_as_extents_are() -> None:
    arguments = CallArguments.of((rand(1000), rand(1000), 1000)).with_names(added)
    domain = derive_domain(specification(added), arguments)
    assert '    "n": "A",' in domain.declare(arguments)
    declared = replace(specification(added), domain={"a": ("N",), "b": ("N",), "n": "N"})
    assert derive_domain(declared, arguments).describe(arguments) == domain.describe(arguments)
    with pytest.raises(DomainError, match="need 1000 of the given call"):
        derive_domain(replace(declared, domain={"a": ("N+1",), "n": "N"}), arguments)


def test_examples_that_are_written_down_show_no_facts() -> None:
    def draw(seed: int) -> tuple[Tensor, ...]:
        return torch.tensor([0, 1, 2]), torch.eye(2), torch.tensor([[0.5, -0.5], [-0.5, 0.5]])

    domain, lines = derive(lambda i, x, w: (x @ w) * i.sum(), *draw(0), draw=draw)
    assert not domain.facts
    assert {"x.0, from 0", "x.1 = w.0, from 0"} <= lines
    assert not any("never falling" in line for line in lines)


def test_bytes_and_sums_of_few_digits_show_no_facts() -> None:
    assert find_facts([rand(10_000).half() / 100]) == ()
    _, lines = derive(lambda x, w: x.float() @ w.float(), *(rand(3, 3).to(torch.float8_e4m3fn) for _ in range(2)))
    assert lines == {"x.0, from 0", "w.1, from 0", "x.1 = w.0, from 0"}
    _, lines = derive(lambda x: x.sum(0), torch.arange(64, dtype=torch.uint8) * 37)
    assert lines == {"x.0, from 0", "x: numbers; also all 0, large"}
    _, lines = derive(lambda x: x.long() * 2, torch.arange(64).to(torch.uint32) * 1)
    assert any(line.startswith("x: numbers, never falling") for line in lines)
    _, lines = derive(lambda x: x.long().bincount(minlength=256), torch.arange(256, dtype=torch.uint8) * 37 % 255)
    assert "x.0, from 0" in lines


def test_what_is_counted_is_neither_a_length_nor_an_index() -> None:
    def ordered(x: Tensor, expert: Tensor) -> tuple[Tensor, Tensor]:
        return x[expert.argsort(stable=True)], expert.bincount(minlength=4).cumsum(0)

    _, lines = derive(ordered, rand(6, 5), torch.tensor([2, 0, 3, 0, 2, 0]))
    assert any(line.startswith("expert: numbers") for line in lines), lines


def test_zeros_hide_nothing_that_is_read() -> None:
    def adapted(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return x @ a @ b

    assert {"x.1 = a.0, from 0", "a.1 = b.0, from 0"} <= derive(adapted, rand(4, 9), rand(9, 3), torch.zeros(3, 5))[1]


def test_few_numbers_are_symmetric_where_one_half_is_read() -> None:
    a = torch.tensor([[4.0, 1.0], [1.0, 3.0]])
    domain, lines = derive(solution, a, rand(2, 1), draw=lambda seed: (a, rand(2, 1)))
    assert domain.facts == {0: ("symmetric", "positive definite")}
    assert {"a.0 = a.1 = b.0, from 0", "b.1, from 0"} <= lines
    assert not derive(torch.linalg.det, a, draw=lambda seed: (a,))[0].facts


def test_definite_matrices_remain_so() -> None:
    rng, a = np.random.default_rng(0), torch.eye(5) + 0.5
    facts = derive(solution, a, rand(5, 2))[0].facts[0]
    for values in (rng.normal(size=(5, 5)), np.zeros((5, 5)), np.full((5, 5), np.nan), 1e300 * np.ones((5, 5))):
        matrix = keep_facts(facts, a, values, rng)
        assert (matrix == matrix.T).all()
        assert np.linalg.eigvalsh(matrix).min() > 0


def test_numbers_that_are_compared_and_have_several_axes_are_no_lengths() -> None:
    def by_expert(x: Tensor, experts: Tensor) -> Tensor:
        return torch.stack([x * ((experts >= n) & (experts < n + 1)).sum(1, keepdim=True) for n in range(4)])

    domain, _ = derive(by_expert, rand(5, 3), torch.arange(10).reshape(5, 2) % 4)
    assert domain.integers[1].kind == "numbers"


def test_few_sorted_numbers_are_offsets_where_they_cut_a_first_axis_alone() -> None:
    def by_counts(x: Tensor, w: Tensor, counts: Tensor) -> Tensor:
        return torch.cat([part @ w[i] for i, part in enumerate(torch.split(x, counts.tolist()))])

    def by_lengths(x: Tensor, lengths: Tensor) -> Tensor:
        return torch.stack([row[:n].sum(0) for row, n in zip(x, lengths.tolist(), strict=True)])

    def by_ends(x: Tensor, ends: Tensor) -> Tensor:
        return torch.stack([x[a:b].sum(0) for a, b in itertools.pairwise([0, *ends.tolist()])])

    assert derive(by_counts, rand(8, 4), rand(2, 4, 3), torch.tensor([4, 4]))[0].integers[2].kind == "lengths"
    assert derive(by_lengths, rand(2, 8, 4), torch.tensor([5, 8]))[0].integers[1].kind == "lengths"
    assert derive(by_ends, rand(9, 4), torch.tensor([5, 9]))[0].integers[1].kind == "offsets"
