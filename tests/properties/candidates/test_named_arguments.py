"""Arguments by name, keyword-only ones too, and candidates that write their outputs into destinations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from opassay.properties.candidates.judge_files import judge_file
from opassay.properties.candidates.judgement import Judgement, Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.question_plan import QuestionPlan

Tensor = torch.Tensor
X, W = torch.randn(6, 5), torch.randn(5)
ARGUMENTS = {"x": X, "k": 3, "w": W}


def scaled(x: Tensor, *, k: float = 2, w: Tensor) -> Tensor:
    return x * k * w


def by_name(x: Tensor, *, w: Tensor, k: float = 2) -> Tensor:
    return k * x * w


def in_order(a: Tensor, b: float, c: Tensor) -> Tensor:
    return a * b * c


def default_alone(x: Tensor, *, k: float = 2, w: Tensor) -> Tensor:
    return 2 * x * w


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.ones(5))

    def forward(self, x: Tensor, *, k: float, w: Tensor) -> Tensor:
        return x * k * w + self.bias


def _failing(judgement: Judgement) -> list[str]:
    return [cause.question for cause in judgement.causes]


@pytest.mark.fast_cases("by_name-inputs0")
@pytest.mark.parametrize("inputs", [ARGUMENTS, lambda: ARGUMENTS, lambda seed: ARGUMENTS])
@pytest.mark.parametrize("candidate", [by_name, in_order])
def test_arguments_by_name_reach_keyword_only_parameters(candidate: Callable[..., Tensor], inputs: Any) -> None:
    judgement = judge(candidate, scaled, inputs)
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)


def test_an_argument_by_name_that_is_ignored_is_seen() -> None:
    assert "FWD:given" in _failing(judge(default_alone, scaled, ARGUMENTS))
    assert (
        judge(Scaled(), Scaled(), ARGUMENTS, questions=("FWD:given", "FWD:params", "VJP:grad")).verdict
        is Ruling.ACCEPTED
    )


def test_inputs_that_are_no_arguments_are_refused() -> None:
    for inputs in (None, 3, "x"):
        with pytest.raises(TypeError, match=r"inputs: got a \w+, need the arguments of a call, as \(x,\) or {'x': x}"):
            judge(scaled, scaled, inputs)


def test_a_function_of_nothing_gives_other_inputs_for_another_seed() -> None:
    judgement = judge(torch.relu, torch.relu, lambda: (torch.randn(3),), seed=1, questions=("FWD:given", "FWD:seeds"))
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)


# ----------------------------------------------------------------------------------------------------- destinations


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def into(x: Tensor, out: Tensor) -> None:
    out.copy_(softmax(x))


def into_and_back(x: Tensor, *, out: Tensor) -> Tensor:
    return out.copy_(softmax(x))


def added(x: Tensor, out: Tensor) -> None:
    out.add_(softmax(x))


def without_the_tail(x: Tensor, out: Tensor) -> None:
    out[:, :-1].copy_(softmax(x)[:, :-1])


def elsewhere(x: Tensor, out: Tensor) -> Tensor:
    return softmax(x)


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(-1), x.argmax(-1)


def both_into(x: Tensor, total: Tensor, largest: Tensor) -> None:
    total.copy_(x.sum(-1))
    largest.copy_(x.argmax(-1))


@pytest.mark.fast_cases("both_into")
@pytest.mark.parametrize(("candidate", "spec"), [(into, softmax), (into_and_back, softmax), (both_into, moments)])
def test_a_candidate_may_write_into_destinations(candidate: Callable[..., Any], spec: Callable[..., Any]) -> None:
    judgement = judge(candidate, spec, (X,))
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    (sizes,) = [each for each in judgement.findings if each.question == "SIZE:sizes"]
    assert sizes.judged


@pytest.mark.parametrize("candidate", [added, without_the_tail])
def test_what_a_destination_had_before_is_no_input(candidate: Callable[..., Any]) -> None:
    assert "FWD:given" in _failing(judge(candidate, softmax, (X,), questions=("FWD:given",)))


def test_a_parameter_that_nobody_wrote_is_named() -> None:
    (cause,) = judge(elsewhere, softmax, (X,), questions=("FWD:given",)).causes
    assert "TypeError: takes out, which the spec does not take: so it was given memory" in cause.text


@pytest.mark.slow
def test_destinations_of_a_large_problem() -> None:
    x = torch.randn(2**13, 2**8)
    assert judge(into, softmax, (x,), questions=("FWD:given", "CALLS:again", "CALLS:kept")).verdict is Ruling.ACCEPTED
    assert "FWD:given" in _failing(judge(without_the_tail, softmax, (x,), questions=("FWD:given",)))


SPEC = """
import torch

def reference(x, *, scale):
    return torch.softmax(x * scale, -1)

def inputs():
    return {"x": torch.randn(6, 5), "scale": 0.5}
"""
KERNEL = """
import torch

def kernel(x, *, scale, out):
    out.copy_(torch.softmax(scale * x, -1)%s)
"""


@pytest.mark.parametrize(
    ("text", "verdict"),
    [(" * 1.01", Ruling.REJECTED), pytest.param("", Ruling.ACCEPTED, marks=pytest.mark.slow)],
)
@pytest.mark.usefixtures("copied_candidates")
def test_files_give_names_and_take_destinations(text: str, verdict: Ruling, tmp_path: Path) -> None:
    spec, kernel = tmp_path / "spec.py", tmp_path / "kernel.py"
    spec.write_text(SPEC)
    kernel.write_text(KERNEL % text)
    plan = QuestionPlan(("FWD:given", "FWD:signs", "SIZE:sizes", "VJP:grad"), timed=True)
    judgement = judge_file(f"{kernel}:kernel", str(spec), contract="torch", plan=plan)
    assert judgement.verdict is verdict, str(judgement)
    if verdict is Ruling.ACCEPTED:
        assert judgement.timing is not None
        assert not judgement.timing.failure
