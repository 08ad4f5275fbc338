"""The calls that a spec takes, derived: extents that move together, roles of integers, options, and kept facts."""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.domain import copies
from opassay.properties.candidates.domain.deriving import derive_domain
from opassay.properties.candidates.domain.domain import Domain
from opassay.properties.candidates.domain.facts import facts_of, find_facts, keep_facts
from opassay.properties.candidates.domain.shape_search import OutOfTimeError, ShapeSearch
from opassay.properties.candidates.domain.symbols import Shapes
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


def product(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    n, m = q.shape[-2], k.shape[-2]
    keep = torch.ones(n, m, dtype=torch.bool).tril(m - n)
    return torch.softmax((q @ k.mT).masked_fill(~keep, float("-inf")), -1) @ v


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def pooled(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 4)


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    shared = q.shape[1] // k.shape[1]
    return torch.softmax(q @ k.repeat_interleave(shared, 1).mT, -1) @ v.repeat_interleave(shared, 1)


def experts(x: Tensor, w: Tensor, offsets: Tensor) -> Tensor:
    ends = offsets.tolist()
    return torch.cat([x[a:b] @ w[i] for i, (a, b) in enumerate(itertools.pairwise(ends))])


def group_norm(x: Tensor, w: Tensor) -> Tensor:
    return F.group_norm(x, 4, w)


def unpacked(x: Tensor, packed: Tensor, scale: Tensor) -> Tensor:
    low, high = packed & 15, packed >> 4
    weights = torch.stack([low, high], -1).reshape(packed.shape[0], -1).float() - 8
    return x @ (weights * scale.repeat_interleave(8, 1)).mT


def options(x: Tensor, w: Tensor, bias: Tensor | None = None, scale: float = 1.0, causal: bool = True) -> Tensor:
    y = x @ w * scale if bias is None else x @ w * scale + bias
    return y.tril() if causal else y


def focal(x: Tensor, y: Tensor) -> Tensor:
    p = torch.sigmoid(x)
    return -(y * (1 - p).square() * p.log() + (1 - y) * p.square() * (1 - p).log()).mean()


def bag(w: Tensor, i: Tensor, offsets: Tensor) -> Tensor:
    return F.embedding_bag(i, w, offsets, mode="sum")


def gather(x: Tensor, i: Tensor) -> Tensor:
    return x.gather(1, i)


def replaced(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    return x.index_copy(0, i, y)


def mixed(x: Tensor, gates: Tensor, places: Tensor) -> Tensor:
    return (x[places[:, :2]] * gates[:, :2, None]).sum(1)


def upsampled(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=4.0)


def ragged(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> Tensor:
    parts = []
    for start, end in itertools.pairwise(offsets.tolist()):
        keep = torch.ones(end - start, end - start, dtype=torch.bool).tril()
        scores = (q[start:end] @ k[start:end].mT).masked_fill(~keep, float("-inf"))
        parts.append(torch.softmax(scores, -1) @ v[start:end])
    return torch.cat(parts)


SHAPES = [
    # Extents that are equal by chance move alone.
    (product, (rand(32, 32), rand(32, 32)), {"x.0, from 0", "w.1, from 0", "x.1 = w.0, from 0"}),
    (
        causal,
        (rand(1, 2, 16, 8), rand(1, 2, 16, 8), rand(1, 2, 16, 8)),
        {"q.2, from 0", "k.2 = v.2, from 0", "v.3, from 0", "q.3 = k.3, from 0", "q.0 = k.0 = v.0, from 0"},
    ),
    (
        grouped,
        (rand(1, 4, 16, 8), rand(1, 2, 16, 8), rand(1, 2, 16, 8)),
        {"k.1 = v.1, from 1", "q.1, multiples of k.1, from 2"},
    ),
    (group_norm, (rand(2, 64, 5), rand(64)), {"x.1 = w.0, in steps of 4, from 0", "x.0, from 0", "x.2, from 0"}),
    (
        experts,
        (rand(12, 8), rand(3, 8, 4), whole(0, 5, 9, 12)),
        {"x.0, from 0", "w.0 = offsets.0, from 1", "x.1 = w.1, from 0"},
    ),
    (
        unpacked,
        (rand(3, 32), torch.arange(64, dtype=torch.uint8).reshape(4, 16), rand(4, 4).abs()),
        {"x.0, from 0", "x.1 by 8 = packed.1 by 4 = scale.1, from 8", "packed.0 = scale.0, from 1"},
    ),
    (torch.nn.Linear(5, 7), (rand(3, 5),), {"input.0, from 0", "constant: input.1=5"}),
    # However many extents are equal; and torch's fused attention takes more values than keys.
    (
        attention,
        (rand(8, 8, 8, 8), rand(8, 8, 8, 8), rand(8, 8, 8, 8)),
        {
            "q.2, from 0", "v.3, from 0", "k.2 = v.2, from 0", "q.3 = k.3, from 0", "q.0 = k.0 = v.0, from 0",
            "q.1 = k.1 = v.1, from 0",
        },
    ),
    # What windows leave over is not read, and does not tie an axis to others.
    (pooled, (rand(16, 14, 14),), {"x.0, from 1", "x.1, from 4", "x.2, from 4"}),
    # An index is below the axis that it picks from, whatever others have its extent, and what it does not pick is read.
    (
        gather,
        (rand(12, 12), (torch.arange(144) * 7 % 12).reshape(12, 12)),
        {"x.1, from 1", "i.1, from 0", "x.0 = i.0, from 0"},
    ),
    # Indices and weights that are cut alike move together, though the values of integers are those of other places.
    (
        mixed,
        (rand(8, 5), rand(4, 2), whole(0, 3, 5, 1, 2, 7, 4, 6).reshape(4, 2)),
        {"x.0, from 1", "x.1, from 0", "gates.0 = places.0, from 0", "gates.1 = places.1, from 0"},
    ),
    # Large arguments are asked at small sizes, with values.
    (
        replaced,
        (rand(6000, 1024), torch.arange(1500) * 4, rand(1500, 1024)),
        {"x.0, from 1", "x.1 = y.1, from 0", "i.0 = y.0, from 0"},
    ),
    (upsampled, (rand(16, 128, 32, 32),), {"x.0, from 0", "x.1, from 1", "x.2, from 1", "x.3, from 1"}),
    # An offset far beyond its axis says how much memory is taken.
    (
        ragged,
        (rand(8, 7), rand(8, 7), rand(8, 5), whole(0, 3, 4, 8)),
        {"q.0 = k.0 = v.0, from 0", "q.1 = k.1, from 0", "v.1, from 0", "offsets.0, from 2"},
    ),
    # torch wraps whatever it is given here, and an index is nevertheless below its axis.
    (
        torch.take_along_dim,
        (rand(12, 14), (torch.arange(36) * 5 % 14).reshape(12, 3), 1),
        {"input 0.1, from 1", "input 1: index below 14; also all equal, first and last, all the last"},
    ),
    # The place of an extreme is that of what is added, where its order is another.
    (torch.argmin, (rand(16, 16, 15), 1), {"input.0, from 0", "input.1, from 1", "input.2, from 0"}),
    # What is symmetric or triangular remains square.
    (
        product,
        (rand(32, 32).triu(), rand(32, 32)),
        {"x.0 = x.1 = w.0, from 0", "w.1, from 0", "x: upper triangular in every draw"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "args", "lines"), SHAPES)
def test_extents_move_with_those_that_they_have_to(spec: Any, args: Any, lines: set[str]) -> None:
    assert lines <= derive(spec, *args)[1]


def test_integers_have_roles_and_what_the_spec_takes() -> None:
    _, lines = derive(experts, rand(12, 8), rand(3, 8, 4), whole(0, 5, 9, 12))
    assert any(line.startswith("offsets: offsets, never falling; also all in the last group") for line in lines)
    _, lines = derive(F.cross_entropy, rand(6, 10), whole(1, 4, 2, 7, 7, 0))
    (labels,) = (line for line in lines if "labels" in line)
    assert "below 10, -100 ignored" in labels
    assert "one ignored" in labels
    assert "all ignored" not in labels, "a mean of no losses is NaN"


def test_ranges_that_the_spec_requires_are_facts() -> None:
    def loss(x: Tensor, mean: Tensor, var: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy(x, y) + F.gaussian_nll_loss(y, mean, var)

    domain, _ = derive(loss, rand(5, 4).sigmoid(), rand(5, 4), rand(5, 4).exp(), rand(4, 5).sigmoid().reshape(5, 4))
    assert domain.facts == {0: ("in [0, 1]",), 2: ("in [0, inf]",), 3: ("in [0, 1]",)}


@pytest.mark.slow
def test_networks_are_asked_in_some_calls() -> None:
    layers = [torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.BatchNorm2d(4)) for _ in range(60)]
    domain, lines = derive(torch.nn.Sequential(*layers), rand(10, 4, 64, 64))
    assert {"input.2, from 1", "input.3, from 1", "constant: input.1=4"} <= lines
    assert not domain.shapes.note
    _, lines = derive(torch.nn.Embedding(100_000, 256), torch.arange(2048).reshape(64, 32) * 37)
    assert {"input.0, from 0", "input.1, from 0"} <= lines
    assert any("index below 100000" in line for line in lines)


def test_a_state_that_calls_write_is_that_of_the_given_call_in_each() -> None:
    class Cache(torch.nn.Module):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            if self.calls > 1:
                raise ValueError("the cache is full")
            return x.cumsum(0)

    assert {"x.0, from 0", "x.1, from 0"} <= derive(Cache(), rand(5, 6))[1]


def test_extents_that_there_is_no_time_to_ask_for_are_not_taken() -> None:
    count = itertools.count()

    def ask(shapes: Shapes) -> bool:
        if next(count) > 3:
            raise OutOfTimeError
        return True

    domain = ShapeSearch(ask, ((9, 7),)).run()
    assert domain.note == "not all axes were asked, for want of time"
    assert [(s.axes, s.least, s.may_be_empty) for s in domain.symbols] == [([(0, 0)], 8, False)]


def test_options_have_the_other_values_that_the_spec_takes() -> None:
    domain, lines = derive(options, rand(8, 12), rand(12, 8), None, 1.0, True)
    assert domain.options[4] == (False,)
    assert domain.options[2] == ((8,), (8, 8))
    assert "scale: 1.0; also 1.7, 0.5" in lines


def test_defaults_are_options_unless_the_spec_then_writes_what_it_is_given() -> None:
    def spec(x: Tensor, scale: float = 2.0, act: str = "up", inplace: bool = False, *, late: bool = False) -> Tensor:
        y = x.mul_(scale) if inplace else x * scale
        return y if act == "up" else y - 1 if act == "down" else -y

    domain, lines = derive(spec, rand(8))
    assert domain.options == {1: (3.4, 1.0), 2: ("down",)}
    assert "act: 'up'; also 'down'" in lines


def test_what_holds_in_every_draw_is_a_fact() -> None:
    def draw(seed: int) -> tuple[Tensor, ...]:
        rng = torch.Generator().manual_seed(seed)
        return torch.randn(8, 5, generator=rng), (torch.randn(8, 5, generator=rng) > 0).float()

    assert derive(focal, *draw(0), draw=draw)[0].facts == {1: ("0 or 1",)}


def test_labels_of_two_classes_are_facts_and_remain_so() -> None:
    x, sides = rand(8, 5), rand(5, 8).sign().reshape(8, 5)
    domain, _ = derive(F.hinge_embedding_loss, x, sides)
    assert domain.facts == {1: ("-1 or 1",)}
    rng = np.random.default_rng(0)
    for values in (np.zeros((8, 5)), np.full((8, 5), np.nan), rng.normal(size=(8, 5))):
        sides_again = keep_facts(domain.facts[1], sides, values, rng)
        assert set(np.unique(sides_again)) == {-1.0, 1.0}


def test_facts_of_large_tensors_are_those_of_some_rows() -> None:
    values = rand(300, 3, 300).softmax(-1)
    values[0, :2] = torch.tensor([[0.5], [0.25]])  # of rows that are left out
    labels = (rand(1000, 500) > 0).float()
    assert find_facts([values]) == ()
    assert find_facts([rand(300, 3, 300).softmax(-1)]) == ("sums to 1 along 2",)
    assert find_facts([rand(600, 600) + rand(600, 600).mT]) == ("symmetric",)
    assert find_facts([labels]) == ("0 or 1",)
    assert not set(facts_of([labels.index_fill(0, torch.tensor([1]), 0.5)])), "what is kept is looked at as a whole"


def test_limits_that_are_no_extents_give_no_proposals_beyond_what_was_drawn() -> None:
    def lost(table: Tensor, index: Tensor) -> Tensor:
        return table.repeat(1000)[index]

    from opassay.properties.candidates.domain.integer_roles import propose

    arguments = CallArguments.of((rand(5), whole(1, 3, 2)))
    domain = derive_domain(specification(lost), arguments)
    values = [v for place, role in domain.integers.items() for _, v in propose(role, arguments.tensors[place])]
    assert values
    assert max(int(v.max()) for v in values) <= 3


def test_what_ends_the_process_at_empty_tensors_is_a_refusal() -> None:
    def ends(x: Tensor) -> Tensor:
        if not x.shape[0]:
            os.abort()
        return x * 2

    _, lines = derive(ends, rand(4, 6))
    assert lines == {"x.0, from 1", "x.1, from 0"}


def test_a_spec_that_ends_the_process_at_other_sizes_keeps_its_given_call() -> None:
    def ends(x: Tensor) -> Tensor:
        if x.shape[0] % 4 == 3:
            os.abort()
        return x.sum(int(x[0, 0] > 100))  # values are needed, so it is called with them

    _, lines = derive(ends, rand(4, 6))
    assert lines == {"constant: x.0=4 x.1=6", "the spec ends the process at other sizes"}


def test_neither_arguments_nor_the_process_change() -> None:
    shapes = []

    def writes(x: Tensor) -> Tensor:
        shapes.append(x.shape)
        torch.manual_seed(5)
        return x.mul_(2) + float(x.sum() > 1e9)

    x = rand(4, 6)
    before, state = x.clone(), torch.get_rng_state()
    derive(writes, x)
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert not shapes


def test_a_spec_that_needs_too_long_keeps_its_given_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_CLOCK", 2.0)

    def slow(x: Tensor) -> Tensor:
        while x.shape[0] != 4:
            pass
        return x

    domain, _ = derive(slow, rand(4, 6))
    assert (0, 0) in domain.shapes.constant


def test_offsets_that_torch_reads_itself_stay_in_order() -> None:
    domain, _ = derive(bag, rand(9, 6), whole(1, 2, 5, 8, 8, 0), whole(0, 3, 3))
    assert domain.integers[2].kind == "offsets"


def test_losses_are_asked_for_no_label_or_length_that_torch_reads_beyond_its_memory() -> None:
    def ctc(x: Tensor, t: Tensor, steps: Tensor, lengths: Tensor) -> Tensor:
        return F.ctc_loss(x.log_softmax(-1), t, steps, lengths, reduction="none")

    args = rand(9, 2, 5), whole(1, 4, 2, 3).reshape(2, 2), whole(9, 8), whole(2, 1)
    domain, lines = derive(ctc, *args)
    assert {"x.0, from 1", "x.1 = t.0 = steps.0 = lengths.0, from 1", "x.2, from 5", "t.1, from 0"} <= lines
    assert [domain.integers[i].kind for i in (1, 2, 3)] == ["labels", "lengths", "lengths"]
    assert [domain.integers[i].below for i in (1, 2, 3)] == [5, 10, 3]
    (labels,) = (line for line in lines if "labels" in line)
    assert "first and last" not in labels, "the first is that of a blank"


def test_where_there_are_no_copies_stand_ins_alone_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise RuntimeError("fork: got a process in which CUDA has started, need one before")

    monkeypatch.setattr(copies, "fork", fork)
    assert derive(product, rand(32, 32), rand(32, 32))[1] == {"x.0, from 1", "w.1, from 1", "x.1 = w.0, from 1"}
