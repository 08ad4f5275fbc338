"""The calls that a spec takes: sizes that end with others, and what is tied, free or optional by chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from opassay.oracles.bound.terms import terms
from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.domain.copies import safe_calls
from opassay.properties.candidates.domain.deriving import derive_domain
from opassay.properties.candidates.domain.domain import Domain
from opassay.properties.candidates.host.host import CandidateHost
from opassay.properties.candidates.judge_draws import Draws
from opassay.properties.candidates.other_calls import joint_calls
from opassay.properties.candidates.session import Session
from opassay.properties.candidates.specification import specification

Tensor = torch.Tensor


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def derive(spec: Any, *args: Any) -> tuple[Domain, set[str]]:
    """The domain of a spec around one call, and its lines."""
    arguments = CallArguments.of(args).with_names(spec)
    domain = derive_domain(specification(spec), arguments)
    return domain, set(domain.describe(arguments))


class Placed(torch.nn.Module):
    """Rows, each with a place of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.places = torch.nn.Parameter(rand(12, 6))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.places[: x.shape[1]]


def largest(x: Tensor, out: Tensor, k: int) -> Tensor:
    return x.topk(k)[0].add(out * 0)


def scaled(x: Tensor, scales: Tensor) -> Tensor:
    return x * scales.repeat_interleave(16, 1)[:, : x.shape[1]]


def first_columns(x: Tensor, y: Tensor) -> Tensor:
    return x[:, : y.shape[1]] + y


LIMITS = [
    (
        lambda x, w: F.conv2d(x, w),
        (rand(1, 3, 5, 5), rand(2, 3, 3, 3)),
        {"where w.2 <= x.2", "where w.3 <= x.3"},
    ),
    (lambda x, w: F.conv1d(x, w, padding=2), (rand(2, 3, 12), rand(2, 3, 3)), {"where w.2 <= x.2+4"}),
    (Placed(), (rand(2, 12, 6),), {"where x.1 <= 12"}),
    (largest, (rand(5, 32), rand(5, 4), 4), {"where out.1 <= x.1"}),
    (scaled, (rand(3, 32), rand(3, 2)), {"where x.1 <= 16*scales.1", "scales.1, from 1"}),
    (first_columns, (rand(3, 9), rand(3, 5)), {"where y.1 <= x.1", "x.1, from 5"}),
]


@pytest.mark.parametrize(("spec", "args", "lines"), LIMITS)
def test_sizes_end_with_those_of_others(spec: Any, args: Any, lines: set[str]) -> None:
    domain, every = derive(spec, *args)
    assert lines <= every
    assert domain.allows(domain.shapes.start)
    symbol = next(s for limit in domain.shapes.limits for s in domain.shapes.symbols if limit.axis in s.axes)
    assert not domain.allows(domain.shapes.resized({symbol: 5000}))


@pytest.mark.parametrize("spec", [lambda x, y: x @ y, lambda x, y: torch.cat([x, y]), lambda x, y: x.T @ y.T])
def test_sizes_that_end_nowhere_have_no_limit(spec: Any) -> None:
    assert not derive(spec, rand(6, 6), rand(6, 6))[0].shapes.limits


def test_limits_are_declared_as_relations() -> None:
    arguments = CallArguments.of((rand(3, 9), rand(3, 5))).with_names(first_columns)
    domain = derive_domain(specification(first_columns), arguments)
    assert "    \"where\": ['A <= C']," in domain.declare(arguments)


def padded(x: Tensor, y: Tensor) -> Tensor:
    """A window over two signals, of which the two lengths together are what it needs."""
    return F.conv1d(torch.cat([x, y], 1)[:, None], torch.ones(1, 1, 9))


def test_joint_calls_are_those_that_the_spec_takes() -> None:
    arguments = CallArguments.of((rand(2, 6), rand(2, 6))).with_names(padded)
    spec = specification(padded)
    session = Session(spec, CandidateHost(spec.name, spec.function), terms("torch"), Draws.of(5), arguments, None)
    calls = list(joint_calls(session, np.random.default_rng(5)))
    assert len(calls) == 3
    assert all(sum(t.shape[1] for t in call.tensors) >= 9 for call in calls)
    short = arguments.with_tensors([t[:, :3] for t in arguments.tensors])
    assert list(safe_calls(spec, [short, arguments], ask_all=True)) == [arguments]
    assert len(list(safe_calls(spec, [short, arguments]))) == 2


def batched(a: Tensor, b: Tensor, out: Tensor, batch: int, m: int, n: int, k: int) -> Tensor:
    return out.copy_(torch.bmm(a.view(batch, m, k), b.view(batch, k, n)))


def embedded(tokens: Tensor, table: Tensor, places: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(table[tokens] + places[: tokens.shape[1]], table.shape[1:], weight, bias)


def of_experts(x: Tensor, experts: Tensor, scores: Tensor, w: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for e in range(len(w)):
        rows, ways = (experts == e).nonzero(as_tuple=True)
        out.index_add_(0, rows, (x[rows] @ w[e]) * scores[rows, ways][:, None])
    return out


def of_chunks(keys: Tensor, states: Tensor, gates: Tensor) -> Tensor:
    chunks = keys.unflatten(1, (-1, 8)).transpose(2, 3)
    decays: Tensor = gates.unflatten(1, (-1, 8)).transpose(2, 3)[..., None].exp()
    products: Tensor = chunks * states
    return products * decays


def inside(points: Tensor) -> Tensor:
    return (points[:, 0].square() + points[:, 1].square() <= 1).float().mean()


TIES = [
    # Of a view only the number of elements is given: what is at one place is tied first.
    (batched, (*[rand(16, 16, 16)] * 3, *[16] * 4), {"a.0 = b.0 = out.0 = batch, from 0"}),
    # What is left when others of the same extent have gone is one symbol, however many axes it has.
    (
        embedded, (torch.arange(40).reshape(5, 8) % 9, rand(9, 8), rand(11, 8), rand(8), rand(8)),
        {"tokens.0, from 0", "table.1 = places.1 = weight.0 = bias.0, from 0"},
    ),
    # A width that has the extent of the rows by chance hides no tie of these.
    (
        of_experts, (rand(16, 16), torch.arange(32).reshape(16, 2) % 4, rand(16, 2), rand(4, 16, 16)),
        {"x.0 = experts.0 = scores.0, from 0"},
    ),
    # A batch of one is a batch, also beside other extents of one.
    (
        of_chunks, (rand(1, 8, 2, 5), rand(1, 1, 2, 8, 5), rand(1, 8, 2)),
        {"keys.0 = states.0 = gates.0, from 0", "keys.2 = states.2 = gates.2, from 0"},
    ),
    # Of columns that no call reads there are as many as given.
    (inside, (rand(50, 2),), {"points.0, from 0", "constant: points.1=2"}),
    # What is not the least is read, too.
    (lambda x: F.gelu(x).amin(), (torch.tensor([1.0, -0.7, 0.5, 2.0]),), {"x.0, from 1"}),
]  # fmt: skip


@pytest.mark.fast_cases("embedded", "batched", "inside")
@pytest.mark.parametrize(("spec", "args", "lines"), TIES)
def test_axes_of_one_extent_are_told_apart(spec: Any, args: Any, lines: set[str]) -> None:
    assert lines <= derive(spec, *args)[1]


def test_a_tensor_takes_the_place_of_no_flag() -> None:
    _, lines = derive(F.binary_cross_entropy, rand(20).sigmoid(), rand(20, 1)[:, 0].sigmoid())
    assert "weight: None; also a tensor [], a tensor [20]" in lines
    assert not any("size_average" in line or "reduce:" in line for line in lines)
    _, lines = derive(F.nll_loss, rand(6, 5).log_softmax(-1), torch.tensor([2, 3, 4, 2, 4, 3]), rand(5).abs())
    assert not any("size_average" in line or "reduce:" in line for line in lines)


def test_a_diagonal_example_of_a_matrix_of_which_one_half_is_read_is_symmetric() -> None:
    example = torch.diag(torch.tensor([4.0, 9.0]))
    _, lines = derive(lambda a: torch.linalg.eigvalsh(a), example)
    assert "a: symmetric, positive definite in every draw" in lines
