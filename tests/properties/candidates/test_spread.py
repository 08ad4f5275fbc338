"""NaNs and infinities that a candidate carries farther than the spec, or less far: said, and not counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import opassay
from opassay.oracles.verdicts.verdict import Code

Kernel = Callable[..., Any]
_QUESTIONS = ("FWD:given", "SPECIAL:nan", "SPECIAL:inf")


def _draw(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)


def _fills(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    later = torch.ones(6, 6, dtype=torch.bool).triu(1)
    return torch.softmax((q @ k.mT * 8**-0.5).masked_fill(later, -torch.inf), -1) @ v


def _adds(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.full((6, 6), -torch.inf).triu(1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype))


def _interpolates(x: Tensor) -> Tensor:
    return F.interpolate(x, size=7, mode="linear")


def _multiplies(x: Tensor) -> Tensor:
    place = ((torch.arange(7, dtype=torch.float64) + 0.5) * 4 / 7 - 0.5).clamp(0)
    low = place.long()
    matrix = torch.zeros(7, 4, dtype=torch.float64)
    matrix[torch.arange(7), low] += 1 - (place - low)
    matrix[torch.arange(7), (low + 1).clamp(max=3)] += place - low
    return (x.float() @ matrix.float().T).to(x.dtype)


def _has_sink(s: Tensor, v: Tensor, sink: Tensor) -> Tensor:
    return torch.softmax(torch.cat([s, sink[:, None]], -1), -1)[..., :-1] @ v


def _adds_sink(s: Tensor, v: Tensor, sink: Tensor) -> Tensor:
    p = torch.exp(s.float() - (m := s.float().amax(-1, keepdim=True)))
    return (p @ v.float() / (p.sum(-1, keepdim=True) + torch.exp(sink.float()[:, None] - m))).to(s.dtype)


def _lion(p: Tensor, g: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    return p - 1e-3 * torch.sign(0.9 * m + 0.1 * g), 0.99 * m + 0.01 * g


def _lion_by_lerp(p: Tensor, g: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    return p - 1e-3 * torch.sign(torch.lerp(m, g, 0.1)), torch.lerp(m, g, 0.01)


def _last_is_zero(x: Tensor) -> Tensor:
    return x * torch.tensor([1.0, 1.0, 0.0], dtype=x.dtype)


def _selects_all_but_last(x: Tensor) -> Tensor:
    return torch.where(torch.tensor([True, True, False]), x, torch.zeros((), dtype=x.dtype))


def _saturates(kernel: Kernel) -> Kernel:
    """With another operand, on whose infinities all elements depend, without being infinite."""
    return lambda y, *operands: kernel(*operands) + torch.tanh(y).sum()


_ATTENTION, _SINK, _VECTORS = ((2, 6, 8),) * 3, ((4, 6), (6, 3), (4,)), ((24,),) * 3
RIGHT: dict[str, tuple[Kernel, Kernel, tuple[tuple[int, ...], ...]]] = {
    "a mask that is added": (_fills, _adds, _ATTENTION),
    "interpolation by a matrix": (_interpolates, _multiplies, ((1, 2, 4),)),
    "a sink at infinity": (_has_sink, _adds_sink, _SINK),
    "infinities by lerp": (_lion, _lion_by_lerp, _VECTORS),
    "beside what saturates": (_saturates(_fills), _saturates(_adds), ((9,), *_ATTENTION)),
    "where, for a product": (_last_is_zero, _selects_all_but_last, ((4, 3),)),
}  # fmt: skip


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", RIGHT)
def test_what_spreads_otherwise_is_said_and_not_counted(name: str, dtype: torch.dtype) -> None:
    spec, kernel, shapes = RIGHT[name]
    if dtype == torch.bfloat16 and name == "infinities by lerp":
        return  # lerp of half types rounds in other places than the spec
    noted = 0
    for seed in range(4 if dtype == torch.float32 else 2):
        judgement = opassay.judge(kernel, spec, _draw(*shapes, dtype=dtype), seed=seed, questions=_QUESTIONS)
        assert judgement.verdict == "accepted", str(judgement)
        noted += len(judgement.spreads)
        assert all(each.wrong is not None and each.wrong.code is Code.SPREAD for each in judgement.spreads)
    assert noted or dtype == torch.bfloat16  # whose bounds may leave such elements open


def test_a_row_whose_scores_are_all_infinite_may_be_empty() -> None:
    """Of q[0, 0] at infinity the only score that is not masked is -inf: 0 / 0, and zero in torch's own attention."""
    judgement = opassay.judge(_adds, _fills, _draw(*_ATTENTION), seed=5, questions=_QUESTIONS)
    assert judgement.verdict == "accepted", str(judgement)
    assert "reaches out[0, 0, :] in the spec and not in the candidate" in str(judgement)


def test_a_note_says_what_reaches_what_and_who_allows_it() -> None:
    judgement = opassay.judge(_adds, _fills, _draw(*_ATTENTION), seed=1, questions=_QUESTIONS)
    (note,) = (each for each in judgement.spreads if each.question == "SPECIAL:nan")
    assert " reaches out[" in note.text
    assert note.text.startswith("a NaN at ")
    assert "accepted   with --contract torch+spread" in str(judgement)
    assert "spread, not counted" in judgement.summary
    allowed = opassay.judge(_adds, _fills, _draw(*_ATTENTION), seed=1, questions=_QUESTIONS, contract="torch+spread")
    assert (allowed.verdict, allowed.spreads) == ("accepted", ())


def _of_four(q: Tensor, k: Tensor) -> Tensor:
    return q @ k[:4].T


FAULTS: dict[str, tuple[Kernel, Kernel, tuple[tuple[int, ...], ...]]] = {
    "swallows NaNs of operands": (_fills, lambda *x: _fills(*(t.nan_to_num(0.0, 0.0) for t in x)), _ATTENTION),
    "swallows NaNs of the result": (_fills, lambda *x: _fills(*x).nan_to_num(0.0), _ATTENTION),
    "reads a slot that nothing reads": (_of_four, lambda q, k: _of_four(q, k) + 0 * k.sum(), ((3, 4), (6, 4))),
    "zeros for what is infinite": (
        _fills,
        lambda q, k, v: torch.where((q.isinf().any(-1) | k.isinf().any())[..., None], 0.0, _fills(q, k, v)),
        _ATTENTION,
    ),
    "no limit": (_has_sink, lambda *x: _has_sink(*x).nan_to_num(1.0), _SINK),
    "NaN for a limit": (torch.tanh, lambda x: torch.tanh(x) + 0 * x, ((4, 9),)),
    "a number for an infinity": (torch.relu, lambda x: torch.relu(x).clamp(max=1e30), ((4, 9),)),
    "NaN as 0 by max": (lambda x: torch.relu(x) ** 2, lambda x: torch.where(x > 0, x * x, 0.0), ((4, 9),)),
    "a maximum beside NaNs": (
        lambda x: torch.amax(x, -1),
        lambda x: torch.where(x.isnan(), -torch.inf, x).amax(-1),
        ((4, 9),),
    ),
    "a clamp from above": (
        lambda x: x.clamp(max=0.5),
        lambda x: torch.where(x < 0.5, x, 0.5),
        ((4, 9),),
    ),
    "an infinity as NaN": (torch.nan_to_num, lambda x: torch.nan_to_num(x, 0.0, 0.0), ((4, 9),)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_at_nans_and_infinities_stay_rejected(name: str) -> None:
    spec, kernel, shapes = FAULTS[name]
    for seed in range(3):
        judgement = opassay.judge(kernel, spec, _draw(*shapes), seed=seed, questions=(*_QUESTIONS, "POISON"))
        assert judgement.verdict == "rejected", f"seed={seed}: {judgement}"
        assert {each.question for each in judgement.causes} <= {"SPECIAL:nan", "SPECIAL:inf", "POISON"}


def test_nans_beside_an_unused_slot_are_told_apart() -> None:
    """The slot that nothing reads is left alone; a NaN elsewhere reaches what the spec selects."""

    def spec(q: Tensor, k: Tensor) -> Tensor:
        return torch.where(torch.eye(4, dtype=torch.bool), _of_four(q, k), 0.0)

    def right(q: Tensor, k: Tensor) -> Tensor:
        return _of_four(q, k) * torch.eye(4)

    def wrong(q: Tensor, k: Tensor) -> Tensor:
        return right(q, k) + 0 * k.sum()

    for seed in range(6):
        x = _draw((4, 4), (6, 4))
        assert opassay.judge(right, spec, x, seed=seed, questions=_QUESTIONS).verdict == "accepted"
    verdicts = {opassay.judge(wrong, spec, x, seed=seed, questions=_QUESTIONS).verdict for seed in range(6)}
    assert "rejected" in verdicts
