"""Equal bits of sequences: one behind the other, where each is a row, and in pieces with a cache that is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import opassay
from opassay.properties.candidates.judgement import Judgement

Kernel = Callable[..., Any]
OFFSETS = torch.tensor([0, 7, 12, 25, 30])
LENGTHS = OFFSETS.diff()


def _sum_in_blocks(rows: Tensor, width: int = 8) -> Tensor:
    """The sum of rows in blocks of so many, each rounded once."""
    parts = [part.double().sum(0).float() for part in rows.split(width)]
    total = torch.zeros(rows.shape[1:])
    for part in parts:
        total = total + part
    return total


def _parts(x: Tensor, offsets: Tensor) -> list[Tensor]:
    return [x[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]


def sums(x: Tensor, offsets: Tensor) -> Tensor:
    return torch.stack([part.sum(0) for part in _parts(x, offsets)])


def _sums_in_blocks(x: Tensor, offsets: Tensor) -> Tensor:
    return torch.stack([_sum_in_blocks(part) for part in _parts(x, offsets)])


def _by_the_longest(x: Tensor, offsets: Tensor) -> Tensor:
    width = 8 if int(offsets.diff().max()) < 20 else 5
    return torch.stack([_sum_in_blocks(part, width) for part in _parts(x, offsets)])


def _by_their_number(x: Tensor, offsets: Tensor) -> Tensor:
    return torch.stack([_sum_in_blocks(part, 8 if len(offsets) < 21 else 5) for part in _parts(x, offsets)])


def _by_tiles_of_tokens(x: Tensor, offsets: Tensor) -> Tensor:
    """Tiles of eight tokens, wherever a sequence begins."""
    out = []
    for begin, part in zip(offsets.tolist(), _parts(x, offsets), strict=False):
        first = min(8 - begin % 8, len(part))
        out.append(_sum_in_blocks(part[:first]) + _sum_in_blocks(part[first:]))
    return torch.stack(out)


def attention(q: Tensor, k: Tensor, offsets: Tensor, longest: int) -> Tensor:
    pairs = zip(_parts(q, offsets), _parts(k, offsets), strict=True)
    return torch.cat([torch.exp(-(a[:, None] - b).square().sum(-1)) @ b for a, b in pairs])


def _attend(q: Tensor, k: Tensor, width: int) -> Tensor:
    weights = torch.exp(-(q[:, None] - k).double().square().sum(-1)).float()
    return torch.stack([_sum_in_blocks(row[:, None] * k, width) for row in weights])


def _attention_in_blocks(q: Tensor, k: Tensor, offsets: Tensor, longest: int, width: int = 8) -> Tensor:
    pairs = zip(_parts(q, offsets), _parts(k, offsets), strict=True)
    return torch.cat([_attend(a, b, width) for a, b in pairs])


def _attention_by_the_longest(q: Tensor, k: Tensor, offsets: Tensor, longest: int) -> Tensor:
    return _attention_in_blocks(q, k, offsets, longest, 8 if longest < 20 else 5)


def sums_of_lengths(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.stack([part.sum(0) for part in x.split(lengths.tolist())])


def _lengths_in_blocks(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.stack([_sum_in_blocks(part) for part in x.split(lengths.tolist())])


def _lengths_by_number(x: Tensor, lengths: Tensor) -> Tensor:
    width = 8 if len(lengths) < 20 else 5
    return torch.stack([_sum_in_blocks(part, width) for part in x.split(lengths.tolist())])


def _judge(kernel: Kernel, spec: Kernel | None, inputs: tuple[Any, ...], axis: str) -> Judgement:
    questions = ["FWD:given"] if spec is not None else []
    return opassay.judge(kernel, spec, inputs, invariant=[axis], questions=questions, seed=0)


def _draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(11))


_SUMS, _HEADS = (_draw(30, 4), OFFSETS), (_draw(30, 4), _draw(30, 4), OFFSETS.int(), 13)
_SPLIT = (_draw(30, 4), LENGTHS)


@pytest.mark.parametrize("with_spec", [True, False], ids=["by a spec", "alone"])
@pytest.mark.parametrize(
    ("kernel", "spec", "inputs", "axis"),
    [
        (_by_the_longest, sums, _SUMS, "neighbours"),
        (_by_their_number, sums, _SUMS, "rows"),
        (_by_tiles_of_tokens, sums, _SUMS, "position"),
        pytest.param(_attention_by_the_longest, attention, _HEADS, "neighbours", marks=pytest.mark.slow),
        (_lengths_by_number, sums_of_lengths, _SPLIT, "rows"),
    ],
)
def test_a_sequence_with_other_bits_is_found(
    kernel: Kernel, spec: Kernel, inputs: tuple[Any, ...], axis: str, with_spec: bool
) -> None:
    (cause,) = _judge(kernel, spec if with_spec else None, inputs, axis).causes
    assert cause.question == f"INV:{axis}"
    assert cause.wrong is not None
    assert "along sequences of " in cause.wrong.lines[0]


@pytest.mark.parametrize("axis", ["rows", "neighbours"])
@pytest.mark.parametrize(
    ("kernel", "spec", "inputs"),
    [
        (_sums_in_blocks, sums, _SUMS),
        pytest.param(_attention_in_blocks, attention, _HEADS, marks=pytest.mark.slow),
        (_lengths_in_blocks, sums_of_lengths, _SPLIT),
    ],
)
def test_a_sequence_with_its_bits_is_accepted(kernel: Kernel, spec: Kernel, inputs: tuple[Any, ...], axis: str) -> None:
    judgement = _judge(kernel, spec, inputs, axis)
    assert judgement.verdict == "accepted", str(judgement)
    assert judgement.findings[-1].judged > 1000


def test_tokens_that_a_formula_mixes_are_not_asked() -> None:
    def mixed(x: Tensor, offsets: Tensor) -> Tensor:
        return torch.softmax(x, 0) * sums(x, offsets).sum()

    judgement = _judge(mixed, mixed, _SUMS, "rows")
    assert judgement.causes == ()
    assert "not asked, because sequences of offsets: a row depends on the others" in judgement.findings[-1].text


# --------------------------------------------------------------------------------------------- a cache that is written


def prefill(x: Tensor, cache: Tensor, start: int) -> Tensor:
    cache[start : start + len(x)] = x
    keys = cache[: start + len(x)]
    weights = torch.exp(-(x[:, None] - keys).square().sum(-1))
    places = torch.arange(start, start + len(x))
    return torch.where(torch.arange(len(keys)) <= places[:, None], weights, 0.0) @ keys


def _prefill_in_blocks(x: Tensor, cache: Tensor, start: int, width: int = 8) -> Tensor:
    cache[start : start + len(x)] = x
    return torch.cat([_attend(row[None], cache[: start + i + 1], width) for i, row in enumerate(x)])


def _prefill_by_pieces(x: Tensor, cache: Tensor, start: int) -> Tensor:
    """Keys of this piece are summed apart from those of the cache."""
    cache[start : start + len(x)] = x
    rows = [(row[None], cache[:start], cache[start : start + i + 1]) for i, row in enumerate(x)]
    return torch.cat([_attend(row, old, 8) + _attend(row, new, 8) for row, old, new in rows])


def _prefill_by_start(x: Tensor, cache: Tensor, start: int) -> Tensor:
    return _prefill_in_blocks(x, cache, start, 8 if start == 0 else 4)


@pytest.mark.parametrize("room", [96, 16])
@pytest.mark.parametrize(
    ("kernel", "is_right"), [(_prefill_in_blocks, True), (_prefill_by_pieces, False), (_prefill_by_start, False)]
)
def test_pieces_with_a_cache_have_the_bits_of_the_whole(kernel: Kernel, is_right: bool, room: int) -> None:
    judgement = _judge(kernel, prefill, (_draw(6, 4), torch.zeros(room, 4), 0), "chunks")
    assert [cause.question for cause in judgement.causes] == ([] if is_right else ["INV:chunks"])
    assert is_right or "start further on" in str(judgement)
    assert not is_right or judgement.findings[-1].judged > 100


def test_a_state_that_is_written_is_compared_too() -> None:
    def running(x: Tensor, state: Tensor) -> Tensor:
        state += x.sum(0)
        return x * 2

    def in_blocks(x: Tensor, state: Tensor) -> Tensor:
        state += _sum_in_blocks(x)
        return x * 2

    def in_turn(x: Tensor, state: Tensor) -> Tensor:
        for row in x:
            state += row
        return x * 2

    inputs = _draw(30, 4), torch.zeros(4)
    (cause,) = _judge(in_blocks, running, inputs, "chunks").causes
    assert "written state differs" in str(cause.wrong)
    for axis in ("chunks", "runs"):  # calls in a row begin with the same state
        assert _judge(in_turn, running, inputs, axis).verdict == "accepted"


def test_rows_in_pieces_begin_with_one_alone() -> None:
    def alone_or_not(x: Tensor) -> Tensor:
        return torch.stack([_sum_in_blocks(row, 8 if len(x) > 1 else 5) for row in x])

    (cause,) = _judge(alone_or_not, lambda x: x.sum(1), (_draw(9, 40, 8),), "chunks").causes
    assert cause.wrong is not None
    assert cause.wrong.title.startswith("131 at once, or 1 and then the rest: out differs")
