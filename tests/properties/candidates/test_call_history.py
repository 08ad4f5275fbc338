"""What calls do besides their outputs is told wherever they do it; and the spec is computed when they have answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.judgement import Judgement, Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.specification import Specification

X = torch.linspace(-2.0, 3.0, 96).reshape(4, 24)
SOME = ("FWD:given", "PURE:untouched", "PURE:fresh", "FWD:seeds", "FWD:signs", "FWD:wide", "PURE:left")


def _later(act: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A candidate for `clone` that gives what `act` makes of its input and of the right output, from call 4 on."""
    calls = 0

    def candidate(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return act(x, x.clone()) if calls > 3 else x.clone()

    return candidate


def _spoil(x: Tensor, y: Tensor) -> Tensor:
    x.zero_()
    return y


def judge_kernel(candidate: Callable[[Tensor], Tensor], spec: Callable[[Tensor], Tensor]) -> Judgement:
    return judge(candidate, spec, (X,), questions=SOME)


@pytest.mark.parametrize(
    ("act", "words"), [(_spoil, "the input of call 4 was written"), (lambda x, y: x, "out of call 4 shares memory")]
)
def test_a_call_that_no_question_looks_at_is_looked_at(act: Callable[[Tensor, Tensor], Tensor], words: str) -> None:
    judgement = judge_kernel(_later(act), Tensor.clone)
    assert [cause.question for cause in judgement.causes] == ["PURE:left"]
    assert words in judgement.causes[0].text


def test_what_the_spec_shares_may_be_shared() -> None:
    assert judge_kernel(lambda x: x.t(), lambda x: x.transpose(0, 1)).verdict is Ruling.ACCEPTED


def test_a_question_that_tells_of_all_calls_is_the_only_cause() -> None:
    judgement = judge_kernel(lambda x: _spoil(x, x.clone()), Tensor.clone)
    assert [cause.question for cause in judgement.causes] == ["PURE:untouched"]


def test_the_spec_is_computed_when_the_candidate_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """But at zeros; what depends on shapes is known from other values."""
    computed, answered, early = set[bytes](), set[bytes](), list[Tensor]()
    own = Specification.result_at

    def result(self: Specification, arguments: CallArguments, state: dict[str, Tensor]) -> Any:
        computed.update(t.numpy(force=True).tobytes() for t in arguments.tensors if bool(t.any()))
        return own(self, arguments, state)

    def candidate(x: Tensor) -> Tensor:
        content = x.numpy(force=True).tobytes()
        early.extend([x] if content in computed - answered else [])
        answered.add(content)
        return torch.softmax(x, -1)

    monkeypatch.setattr(Specification, "result_at", result)
    assert judge(candidate, lambda x: torch.softmax(x, -1), (X,)).verdict is Ruling.ACCEPTED
    assert early == []
    assert len(answered & computed) > 20
