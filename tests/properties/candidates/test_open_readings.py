"""What is computed from choices that rounding leaves open: right by the candidate's own choice, wrong by no choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import opassay
from opassay.oracles.bound.rounding import Ball
from opassay.oracles.bound.terms import PRESETS
from opassay.oracles.specs.decisions import Decisions
from opassay.oracles.specs.dependence import Dependence
from opassay.properties.candidates.agreement import operands_of
from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.comparing import decide_by
from opassay.properties.candidates.open_readings import BEYOND, OpenReading, without_some
from opassay.properties.candidates.specification import specification
from opassay.reference.condition import condition
from tests.choices.chooser import Kernel, first_of_ties, last_of_ties, normal

TIED = 4


def _tied_scores(rows: int = 6) -> tuple[Tensor, Tensor]:
    """Scores of which the second and the third largest of every row are equal, and values of each column."""
    order = torch.argsort(normal(rows, TIED), -1)
    scores = torch.tensor([0.1, 0.5, 0.5, 0.9])[order]
    return scores, normal(rows, TIED, seed=1)


def gathered(scores: Tensor, values: Tensor) -> Tensor:
    best, which = (scores * 1.5).topk(2)
    return (best * values.gather(1, which)).sum(-1)


def with_indices(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    which = (scores * 1.5).topk(2).indices
    return values.gather(1, which), which


def mean(scores: Tensor, values: Tensor) -> Tensor:
    return gathered(scores, values).mean()


def _by(top: Any, reduce: Callable[[Tensor], Tensor] = lambda y: y) -> Callable[[Tensor, Tensor], Tensor]:
    def kernel(scores: Tensor, values: Tensor) -> Tensor:
        best, which = top(scores * 1.5, 2)
        return reduce((best * values.gather(1, which)).sum(-1))

    return kernel


def _of_both(scores: Tensor, values: Tensor) -> Tensor:
    """Half of what each choice gives, which no evaluation has."""
    return (_by(first_of_ties)(scores, values) + _by(last_of_ties)(scores, values)) / 2


def _indices_of_another(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    return values.gather(1, first_of_ties(scores, 2)[1]), last_of_ties(scores, 2)[1]


@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize(
    ("spec", "candidate", "verdict"),
    [
        (gathered, _by(first_of_ties), "accepted"),
        (gathered, _by(last_of_ties), "accepted"),
        (gathered, _of_both, "rejected"),
        (mean, _by(first_of_ties, torch.mean), "accepted"),
        (mean, _by(last_of_ties, torch.mean), "accepted"),
        (with_indices, lambda s, v: (v.gather(1, last_of_ties(s, 2)[1]), last_of_ties(s, 2)[1]), "accepted"),
        (with_indices, _indices_of_another, "rejected"),
    ],
)
def test_one_choice_must_explain_all_that_hangs_on_it(spec: Kernel, candidate: Kernel, verdict: str) -> None:
    judgement = opassay.judge(candidate, spec, _tied_scores(), questions=["FWD:given", "VJP:grad"], seed=0)
    assert judgement.verdict == verdict, str(judgement)


def test_an_index_outside_its_set_is_wrong_and_says_why() -> None:
    judgement = opassay.judge(
        lambda s, v: (v.gather(1, s.topk(3).indices[:, 1:]), s.topk(3).indices[:, 1:]),
        with_indices, _tied_scores(), questions=["FWD:given"], seed=0,
    )  # fmt: skip
    assert judgement.verdict == "rejected"
    assert "which is not chosen, has a number from 1.3499" in str(judgement)


@pytest.mark.slow
def test_more_choices_than_are_tried_leave_elements_open() -> None:
    tied = torch.ones(2, 12), normal(2, 12)
    spec = lambda s, v: v.gather(1, s.topk(6, -1).indices).sum(-1)  # noqa: E731
    right = opassay.judge(lambda s, v: v.gather(1, last_of_ties(s, 6)[1]).sum(-1), spec, tied, questions=["FWD:given"])
    assert right.verdict == "accepted", str(right)
    wrong = opassay.judge(lambda s, v: v.sum(-1), spec, tied, questions=["FWD:given"])
    assert wrong.verdict == "weak"
    assert BEYOND in str(wrong)


def test_integers_made_of_more_choices_than_are_tried_are_open() -> None:
    """A beam search gives the beam and the word of each place; of fourteen ties any three are right."""

    def spec(logits: Tensor) -> tuple[Tensor, Tensor]:
        at = torch.log_softmax(logits, -1).flatten().topk(3).indices
        return at // 7, at % 7

    def others(logits: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tensor([1, 0, 1]), torch.tensor([5, 3, 4])

    judgement = opassay.judge(others, spec, (torch.zeros(2, 7),), questions=["FWD:given"])
    assert judgement.verdict == "weak"
    assert BEYOND in str(judgement)
    apart = torch.arange(14.0).reshape(2, 7)
    assert opassay.judge(others, spec, (apart,), questions=["FWD:given"]).verdict == "rejected"


def test_several_rows_that_an_element_hangs_on_are_tried_in_combination() -> None:
    """A mean of rows of which some take the first of ties and others the last."""
    scores, values = _tied_scores(4)
    first, last = _by(first_of_ties)(scores, values), _by(last_of_ties)(scores, values)
    spec, arguments = specification(mean), CallArguments.of((scores, values))
    for pattern in range(16):
        mask = torch.tensor([bool(pattern >> i & 1) for i in range(4)])
        output = torch.where(mask, first, last).mean()
        (read,) = spec.read(arguments, {}, PRESETS["torch"])
        assert isinstance(read, OpenReading)
        (ball,) = decide_by([output], [read], operands_of(spec, arguments, {})).readings
        assert isinstance(ball, Ball)
        assert abs(float(output) - ball.centre) <= ball.radii() + 2.0**-24


def _groups(spec: Kernel, *tensors: Tensor) -> tuple[list[Any], bool]:
    read, arguments, decisions = specification(spec), CallArguments.of(tensors), Decisions()
    read.question_at(arguments, {}, PRESETS["torch"], decisions=decisions).read()
    dependence = Dependence(read.traced_at(arguments, {}).graph, decisions.open)
    labels = dependence.of_outputs()
    return [None if each is None else each.tolist() for each in labels], dependence.is_whole


@pytest.mark.parametrize(
    ("spec", "labels"),
    [
        (lambda s, v: v.gather(1, s.topk(2).indices).softmax(-1), [[0, 0], [1, 1], [2, 2]]),
        (lambda s, v: (v.gather(1, s.topk(2).indices) @ v[:2]).T, [[0, 1, 2]] * TIED),
        (lambda s, v: torch.zeros_like(s).scatter(1, s.topk(2).indices, v[:, :2]).amax(1), [0, 1, 2]),
        (lambda s, v: v.gather(1, s.topk(2).indices).sum(0), [0, 0]),
        (lambda s, v: v.T @ v.gather(1, s.topk(2).indices), [[0, 0]] * TIED),
        (
            lambda s, v: torch.cat([v[:, :1], v.gather(1, s.argmax(1, keepdim=True))], 1).relu(),
            [[-1, 0], [-1, 1], [-1, 2]],
        ),
    ],
)
def test_elements_hang_on_the_rows_that_they_are_made_of(spec: Kernel, labels: Any) -> None:
    result, whole = _groups(spec, torch.tensor([[1.0, 1.0, 1.0, 0.0]] * 3), normal(3, TIED))
    assert result[0] == labels
    assert whole == (np.max(labels) == 0)


def test_truth_values_that_are_open_stay_right_where_others_are_not_judged() -> None:
    truth = condition(np.array([True, False, False]), np.array([True, True, False]), None)
    need: Any = without_some(truth, np.array([False, False, True]))
    for answer in (False, True):
        assert need.accepts(np.array([True, answer, answer])).all()
        assert need.accepts(np.array([False, answer, answer])).tolist() == [False, True, True]
    assert need.refutable(np.array([True, True, True])).tolist() == [True, True, False]


@pytest.mark.parametrize(
    "choose",
    [
        lambda x: x.topk(2).indices.reshape(-1).argsort(stable=True),
        lambda x: x.argmax(-1).sort(stable=True).indices,
        lambda x: x.topk(2).indices.max(-1).values,
    ],
)
def test_chosen_indices_are_sorted_as_the_integers_that_they_are(choose: Callable[[Tensor], Tensor]) -> None:
    """As where tokens are brought into the order of their experts: what follows is computed from them."""

    def spec(x: Tensor) -> Tensor:
        return x[choose(x) % len(x)] * 2

    def reversed_spec(x: Tensor) -> Tensor:
        return x[choose(x).flip(0) % len(x)] * 2

    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    assert opassay.judge(spec, spec, (x,), questions=["FWD:given"]).verdict == "accepted"
    assert opassay.judge(reversed_spec, spec, (x,), questions=["FWD:given"]).verdict == "rejected"
