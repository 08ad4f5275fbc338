"""INV of candidates: each kernel whose rows change their bits is found along its axis, and no other is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import opassay
from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.candidates.host.host import CandidateHost
from opassay.properties.candidates.judgement import Judgement
from opassay.properties.candidates.question_plan import ALL_AXES, INVARIANT, QuestionPlan
from opassay.properties.relations import find_difference
from opassay.reports.cli.main import main
from tests.properties.candidates import invariant_kernels
from tests.properties.candidates.invariant_kernels import BREAKERS, RIGHT, Keeper

#: Calls in which a breaker must be found.
_CALLS = 60


def _draw(columns: int, seed: int = 0) -> Tensor:
    return torch.randn(4, columns, generator=torch.Generator().manual_seed(seed))


def _judge(case: Keeper, axes: list[str], *, with_spec: bool, seed: int = 0) -> Judgement:
    invariant_kernels.WORKSPACE[0] = 0
    questions = ["FWD:given"] if with_spec else []
    spec = case.spec if with_spec else None
    return opassay.judge(case.kernel, spec, case.inputs, invariant=axes, questions=questions, seed=seed)


@pytest.mark.parametrize("with_spec", [True, False], ids=["by a spec", "alone"])
@pytest.mark.parametrize("name", BREAKERS)
def test_a_breaker_is_found_along_its_axis(name: str, with_spec: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, calls = CandidateHost.ask, list[Any]()

    def counting(self: CandidateHost, call: Any) -> Any:
        calls.append(call)
        return ask(self, call)

    monkeypatch.setattr(CandidateHost, "ask", counting)
    case = BREAKERS[name]
    judgement = _judge(case, [case.axis], with_spec=with_spec)
    assert [cause.question for cause in judgement.causes] == [INVARIANT[case.axis]], str(judgement)
    assert len(calls) <= _CALLS
    (cause,) = judgement.causes
    assert cause.wrong is not None
    assert "ulp at most" in cause.wrong.title
    assert f"axis       {case.axis}" in cause.wrong.lines[0]


@pytest.mark.parametrize("with_spec", [True, False], ids=["by a spec", "alone"])
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.slow
def test_a_right_kernel_is_accused_along_no_axis(name: str, with_spec: bool) -> None:
    judgement = _judge(RIGHT[name], ["all"], with_spec=with_spec)
    assert judgement.causes == (), str(judgement)


@pytest.mark.parametrize("name", ["step by step", "parts one way"])
def test_few_right_kernels_are_accused_along_no_axis(name: str) -> None:
    judgement = _judge(RIGHT[name], ["all"], with_spec=True)
    assert judgement.causes == (), str(judgement)
    assert [each.question for each in judgement.findings] == ["FWD:given", *(INVARIANT[axis] for axis in ALL_AXES)]


def _of_columns(x: Tensor) -> Tensor:
    return torch.softmax(x, 0)


def _normal(x: Tensor) -> Tensor:
    return functional.batch_norm(x, None, None, training=True)


def _shares(x: Tensor) -> Tensor:
    return x / len(x)


def _weakly(x: Tensor) -> Tensor:
    return x + 1e-4 * x.mean(0)


@pytest.mark.parametrize("with_spec", [True, False], ids=["by a spec", "alone"])
@pytest.mark.parametrize("function", [_of_columns, _normal, _shares, _weakly])
def test_what_the_formula_mixes_is_not_asked(function: Callable[..., Any], with_spec: bool) -> None:
    axes = ["rows", "position", "neighbours", "order", "chunks"]
    case = Keeper(function, function, lambda seed: (_draw(48, seed),))
    judgement = _judge(case, axes, with_spec=with_spec)
    assert judgement.causes == ()
    of_bits = [each for each in judgement.findings if each.question in INVARIANT.values()]
    assert {each.outcome for each in of_bits} == {Outcome.UNSUPPORTED}
    texts = {each.question: each.text for each in judgement.findings}
    assert "not asked, because x.0: a row depends on the others" in texts["INV:rows"], texts
    assert judgement.verdict == "weak"
    assert any("INV:rows was not judged" in line for line in judgement.weaknesses)


def test_what_draws_numbers_is_not_asked_of_runs() -> None:
    x = (_draw(48),)
    judgement = opassay.judge(functional.dropout, functional.dropout, x, questions=["INV:runs"], seed=0)
    assert [each.text for each in judgement.findings] == ["not asked, because random numbers are drawn"]


def test_the_least_case_and_its_reason_are_told() -> None:
    judgement = _judge(BREAKERS["split-K by batch"], ["rows"], with_spec=True)
    (cause,) = judgement.causes
    assert cause.wrong is not None
    assert cause.wrong.title.startswith("1 row alone, or with 23 others: out differs in ")
    assert "a choice by size: one way below 24 rows, another from 24 on" in cause.wrong.lines[1]
    assert "by another order of a sum" in cause.wrong.lines[2]


def test_a_split_that_follows_the_number_of_rows_is_told() -> None:
    def split(x: Tensor) -> Tensor:
        return sum(part.sum(-1) for part in x.tensor_split(1 + len(x) % 7, 1))  # type: ignore[return-value]

    judgement = opassay.judge(split, None, (_draw(50),), invariant=["rows"], seed=0)
    (cause,) = judgement.causes
    assert cause.wrong is not None
    assert "follows the number of rows, as a split does: again at" in cause.wrong.lines[1]


def test_another_way_to_round_is_no_order_of_a_sum() -> None:
    def narrow(x: Tensor) -> Tensor:
        return x.exp() if len(x) < 30 else x.bfloat16().exp().float()

    judgement = opassay.judge(narrow, torch.exp, (_draw(50),), questions=["INV:rows"], seed=0)
    assert judgement.causes
    assert "not by sums of the operands alone" in str(judgement)


def test_a_person_may_say_which_axis_the_rows_are() -> None:
    x = _draw(48)
    usual = opassay.judge(_of_columns, None, (x,), invariant=["rows"], seed=0)
    assert usual.causes == ()
    columns = opassay.judge(lambda x: torch.stack([c / c.abs().sum() for c in x.unbind(1)], 1), None, (x,),
                            invariant=["rows=x:1"], seed=0)  # fmt: skip
    (finding,) = columns.findings
    assert finding.outcome is Outcome.VERIFIED, str(columns)
    wrong = opassay.judge(_of_columns, None, (x,), invariant=["rows=y:1"], seed=0)
    assert "rows=y:1" in wrong.findings[0].text
    assert "need one of x:0, x:1" in wrong.findings[0].text


def test_gradients_of_rows_are_asked() -> None:
    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            slope: Tensor = grads[0] * x * 2
            return slope if len(x) > 20 else slope * (1 + 2**-23)

    judgement = opassay.judge(Backward.apply, torch.square, (_draw(9),), questions=["INV:rows"], seed=0)
    (cause,) = judgement.causes
    assert cause.wrong is not None
    assert "gradient of " in cause.wrong.title


def test_signs_of_zeros_are_told_and_judge_nobody() -> None:
    def signed(x: Tensor) -> Tensor:
        y = torch.relu(x)
        return torch.where(y == 0, -y, y) if len(x) > 20 else y

    judgement = opassay.judge(signed, torch.relu, (_draw(9),), questions=["INV:rows"], seed=0)
    assert judgement.causes == ()
    assert "zeros have another sign" in str(judgement)
    nan = torch.tensor([float("nan")])
    assert find_difference({"out": nan}, {"out": -nan}) is None
    assert find_difference({"out": torch.tensor([0.0])}, {"out": torch.tensor([-0.0])}) is None
    assert find_difference({"out": torch.tensor([1.0])}, {"out": torch.tensor([1.0 + 2**-23])}) is not None


@pytest.mark.parametrize("words", [["row"], ["padding=x:0"], ["shared=all"], ["rows", "bits"]])
def test_a_word_that_is_no_axis_is_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match=r"invariant: got '.*need rows, position"):
        QuestionPlan(others=words)


def test_without_a_spec_nothing_else_is_asked() -> None:
    for options in ({}, {"invariant": ["rows"], "questions": ["FWD:given"]}):
        with pytest.raises(ValueError, match="spec: got none"):
            opassay.judge(torch.relu, None, (torch.zeros(3),), **options)  # type: ignore[arg-type]


_FILE = """
import torch
def kernel(x):
    return x.sum(-1) if len(x) > 20 else x[:, :7].sum(-1) + x[:, 7:].sum(-1)
def reference(x):
    return x.sum(-1)
def inputs():
    return (torch.randn(4, 40),)
"""


@pytest.mark.usefixtures("copied_candidates")
def test_the_command_asks_records_and_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(_FILE)
    assert main(["judge", "mine.py:kernel", "--invariant", "rows", "--seed", "0", "--report-dir", "report"]) == 1
    assert "kernel against itself" in capsys.readouterr().out
    (case,) = Path("report/cases").glob("*.json")
    assert main(["replay", case.stem, "--report-dir", "report"]) == 1
    assert "1 row alone, or with" in capsys.readouterr().out
    assert main(["judge", "mine.py:kernel", "--invariant", "lines"]) == 2
    assert "--invariant: got 'lines', need rows" in capsys.readouterr().err
