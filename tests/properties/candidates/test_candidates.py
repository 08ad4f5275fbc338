"""Wrong candidates of every kind are rejected by the question of their kind; right ones are accepted by all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from opassay.oracles.bound.terms import terms
from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.question_plan import USUAL
from opassay.properties.candidates.specification import specification
from tests.properties.candidates import candidates

SPEC = specification(candidates.spec)  # one object, so that it is traced once for every shape


def _inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(shape, generator=generator) for shape in ((5, 13), (11, 13), (11,)))  # type: ignore[return-value]


@pytest.mark.parametrize(("name", "make", "question"), candidates.WRONG, ids=[row[0] for row in candidates.WRONG])
def test_a_wrong_candidate_is_rejected(name: str, make: Callable[[], Callable[..., Tensor]], question: str) -> None:
    judgement = judge(make(), SPEC, _inputs(), questions=["FWD:given", question])
    causes = [each.question for each in judgement.causes]
    assert judgement.verdict is Ruling.REJECTED, str(judgement)
    assert question in causes
    # What is wrong on the given inputs already says nothing of the other question. Only memory that nobody wrote holds
    # what an earlier call happened to leave there, so that one candidate may be wrong on the given inputs or not.
    assert question in ("FWD:given", "POISON") or "FWD:given" not in causes


@pytest.mark.fast_cases("bias_first")
@pytest.mark.parametrize("candidate", candidates.RIGHT, ids=[each.__name__ for each in candidates.RIGHT])
def test_a_right_candidate_is_accepted(candidate: Callable[..., Tensor]) -> None:
    questions = [
        code for code in USUAL if candidate is candidates.spec or code not in ("SIZE:sizes", "CALLS:again", "AUTOCAST")
    ]
    judgement = judge(candidate, SPEC, _inputs(), questions=questions)
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    assert judgement.kept in ("float64", "strict", "torch")
    asked_of_it = [each.question for each in judgement.findings if each.outcome is not Outcome.UNSUPPORTED]
    assert set(questions) - set(asked_of_it) <= {"FWD:params", "FWD:ties"}


def product(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.T


@pytest.mark.parametrize(
    ("name", "candidate"),
    [
        ("float64", lambda x, w: product(x.double(), w.double()).float()),
        ("strict", lambda x, w: sum((x[:, [i]] * w[:, i] for i in range(3)), x[:, [3]] * w[:, 3])),
        ("tensor_core", lambda x, w: product(candidates.as_tf32(x), candidates.as_tf32(w))),
        ("bfloat16_factors", lambda x, w: product(x.bfloat16().float(), w.bfloat16().float())),
        ("bfloat16", lambda x, w: product(x.bfloat16(), w.bfloat16()).float()),
        ("", lambda x, w: product(x, w) * 1.1),
    ],
)
def test_the_audit_names_the_strictest_precision_that_holds(name: str, candidate: Callable[..., Tensor]) -> None:
    generator = torch.Generator().manual_seed(2)
    inputs = tuple(torch.randn(64, 4, generator=generator) for _ in range(2))
    judgement = judge(candidate, product, inputs, questions=["FWD:given", "FWD:signs"])
    assert judgement.kept == name, str(judgement)
    assert (judgement.verdict is Ruling.ACCEPTED) == (name in ("float64", "strict"))
    assert ("bfloat16" in judgement.arithmetic) == name.startswith("bfloat16")


def test_a_candidate_that_leaves_the_range_is_not_said_to_have_the_precision_of_a_smaller_one() -> None:
    def overflowing(x: Tensor) -> Tensor:
        powers = torch.exp(x)
        return powers / powers.sum(-1, keepdim=True)

    x = torch.randn(8, 32, generator=torch.Generator().manual_seed(2))
    judgement = judge(overflowing, lambda x: torch.softmax(x, -1), (x,), questions=["FWD:given", "DATA:bits"])
    assert [judgement.verdict, judgement.kept] == [Ruling.REJECTED, "strict"], str(judgement)


def test_a_spec_whose_right_output_is_constant_is_told_and_no_candidate_of_it_is_accepted() -> None:
    def zero(x: Tensor) -> Tensor:
        largest = x.amax(-1, keepdim=True)
        return largest - largest.mean(-1, keepdim=True)

    judgement = judge(
        lambda x: torch.zeros(5, 1), zero, _inputs()[:1], questions=["FWD:given", "FWD:seeds", "FWD:signs"]
    )
    assert judgement.verdict is Ruling.WEAK
    assert "is the same for all inputs that were tried: 0" in judgement.weaknesses[0]


def test_buffers_that_a_call_writes_are_outputs() -> None:
    class Counts(torch.nn.Module):
        def __init__(self, rate: float) -> None:
            super().__init__()
            self.rate = rate
            self.register_buffer("mean", torch.zeros(13))

        def forward(self, x: Tensor) -> Tensor:
            self.get_buffer("mean").mul_(1 - self.rate).add_(self.rate * x.mean(0))
            return x - x.mean(0)

    questions = ["FWD:given", "FWD:seeds", "FWD:params"]
    assert judge(Counts(0.1), Counts(0.1), _inputs()[:1], questions=questions).verdict is Ruling.ACCEPTED
    judgement = judge(Counts(0.2), Counts(0.1), _inputs()[:1], questions=questions)
    assert judgement.verdict is Ruling.REJECTED
    assert "mean[" in judgement.causes[0].text


def test_a_spec_that_writes_its_argument_is_called_once_with_it() -> None:
    questions = ["FWD:given", "PURE:untouched", "CALLS:again"]

    def doubled(x: Tensor) -> Tensor:
        return x.mul_(2.0)

    def doubled_and_more(x: Tensor) -> Tensor:
        return x.mul_(2.0).add_(1e-3)

    assert judge(doubled, doubled, _inputs()[:1], questions=questions).verdict is Ruling.ACCEPTED
    judgement = judge(doubled_and_more, doubled, _inputs()[:1], questions=questions)
    assert [each.question for each in judgement.causes] == ["FWD:given", "CALLS:again"]


def test_a_module_has_its_own_parameters_back_afterwards() -> None:
    mine, right = torch.nn.Linear(13, 3), torch.nn.Linear(13, 3)
    before = mine.weight.detach().clone()
    assert judge(mine, right, _inputs()[:1], questions=["FWD:given", "FWD:params"]).verdict is Ruling.ACCEPTED
    assert torch.equal(mine.weight, before)


def test_the_judgement_is_one_line_for_a_program_and_a_page_for_people() -> None:
    import json

    judgement = judge(
        candidates.other_eps, SPEC, _inputs(), contract="strict", seed=4, questions=["FWD:given", "FWD:small"]
    )
    data = json.loads(judgement.as_json())
    assert "\n" not in judgement.as_json()
    assert (data["verdict"], data["seed"], data["causes"][0]["question"]) == ("rejected", 4, "FWD:small")
    assert data["contract"] == str(terms("strict"))
    assert "FWD:small: out[" in str(judgement)
    assert str(judgement).splitlines()[0].endswith("seed 4")


def test_a_question_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"questions: got 'NONE' \(did you mean 'FWD:nearone'\?\), need codes of"):
        judge(candidates.spec, SPEC, _inputs(), questions=["NONE"])


def test_outputs_of_truth_values_are_held_and_what_rounding_leaves_open_may_be_either() -> None:
    def positive(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, w, b).square() > 0.5

    inputs, questions = _inputs(), ["FWD:given", "FWD:seeds", "FWD:signs", "DATA:bits"]
    assert judge(positive, positive, inputs, questions=questions).verdict is Ruling.ACCEPTED
    judgement = judge(lambda *args: ~positive(*args), positive, inputs, questions=questions)
    assert judgement.verdict is Ruling.REJECTED
    assert "need" in judgement.causes[0].text


def test_half_types_are_stored_between_operations_only_where_that_is_allowed() -> None:
    inputs = tuple(t.bfloat16() for t in _inputs())
    assert judge(candidates.spec, candidates.spec, inputs, questions=["FWD:given"]).verdict is not Ruling.REJECTED
    judgement = judge(candidates.spec, candidates.spec, inputs, contract="strict", questions=["FWD:given"])
    assert judgement.verdict is Ruling.REJECTED
    wide = judge(candidates.in_float32, candidates.spec, inputs, contract="strict", questions=["FWD:given"])
    assert (wide.verdict, wide.kept) == (Ruling.ACCEPTED, "float64")


def test_a_bound_that_is_wider_than_the_elements_is_weak_and_zeros_are_not_wide() -> None:
    def cancels(x: Tensor) -> Tensor:
        return (x + 1e8) - 1e8

    inputs, questions = _inputs()[:1], ["FWD:given", "FWD:seeds"]
    judgement = judge(cancels, cancels, inputs, questions=questions)
    assert judgement.verdict is Ruling.WEAK
    assert "wider than half of its elements" in judgement.weaknesses[0]
    assert {each.outcome for each in judgement.findings} == {Outcome.WEAK}
    assert judge(torch.relu, torch.relu, [inputs[0] - 2.0], questions=questions).verdict is Ruling.ACCEPTED


def test_kinds_of_a_property_that_are_right_share_a_line() -> None:
    judgement = judge(lambda x: x.clamp(-9, 9), lambda x: x, (torch.ones(4, 8),), questions=("FWD", "DATA:bits"))
    lines = judgement.report().splitlines()
    assert "ok      FWD             given, seeds, signs, nearone, small".ljust(84) + "160 elements" in lines
    assert [line.split()[:2] for line in lines if line.startswith("WRONG")] == [
        ["WRONG", "FWD:offset"], ["WRONG", "FWD:wide"], ["WRONG", "DATA:bits"],
    ]  # fmt: skip
    assert "ok      FWD:seeds" in judgement.report(verbose=True)
