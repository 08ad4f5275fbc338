"""What a call writes: caches, destinations, arguments in place, buffers; and state that goes from call to call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opassay
from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.candidates.judge_files import judge_file
from opassay.properties.candidates.judgement import Judgement, Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.question_plan import QuestionPlan

GENERATOR = torch.Generator().manual_seed(7)


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


# ------------------------------------------------------------------------------------------------------- arguments


def decode(x: Tensor, cache: Tensor, at: Tensor) -> Tensor:
    """One step with a cache of keys, (4, 3)."""
    cache.index_copy_(0, at, x)
    return torch.softmax(cache @ x.T, 0)


def _step(x: Tensor, cache: Tensor, at: Tensor, write: Callable[[Tensor], object]) -> Tensor:
    new = cache.index_copy(0, at, x)
    write(new)
    return torch.softmax(new @ x.T, 0)


def cache_as_it_was(x: Tensor, cache: Tensor, at: Tensor) -> Tensor:
    return _step(x, cache, at, lambda new: None)


def one_row_off(x: Tensor, cache: Tensor, at: Tensor) -> Tensor:
    return _step(x, cache, at, lambda new: cache.index_copy_(0, (at + 1) % 4, x))


def a_wrong_last_column(x: Tensor, cache: Tensor, at: Tensor) -> Tensor:
    return _step(x, cache, at, lambda new: cache[:, :-1].copy_(new[:, :-1]))


def positions_moved(x: Tensor, cache: Tensor, at: Tensor) -> Tensor:
    result = decode(x, cache, at)
    at += 1
    return result


def written_through_a_copy(x: Tensor, cache: Tensor, at: Tensor) -> Tensor:
    return _step(x, cache, at, cache.copy_)


def _inputs_of_decode() -> tuple[Tensor, Tensor, Tensor]:
    return _normal(1, 3), _normal(4, 3), torch.tensor([2])


def _ask(candidate: Callable[..., Any], spec: Any, inputs: tuple[Any, ...], *codes: str) -> Judgement:
    return judge(
        candidate,
        spec,
        inputs,
        questions=codes or ("FWD:given", "PURE:untouched", "CALLS:again", "FWD:seeds", "FWD:signs"),
    )


@pytest.mark.parametrize(
    ("candidate", "question"),
    [
        (cache_as_it_was, "FWD:given"),
        (one_row_off, "FWD:given"),
        (a_wrong_last_column, "FWD:given"),
        (positions_moved, "PURE:untouched"),
    ],
)
def test_a_cache_that_is_written_wrongly_is_rejected(candidate: Callable[..., Tensor], question: str) -> None:
    result = _ask(candidate, decode, _inputs_of_decode())
    assert result.verdict is Ruling.REJECTED
    assert result.causes[0].question == question, str(result)
    line = "it is as it was before the call, and the spec writes it"
    assert (line in str(result)) is (candidate is cache_as_it_was)


def doubled(x: Tensor) -> None:
    x *= 2


def test_a_call_that_returns_what_it_should_write_is_told_so() -> None:
    result = _ask(lambda x: 2 * x, doubled, (_normal(4, 3),))
    (cause,) = result.causes
    assert cause.text == "the result is a tensor, need None: the spec writes into an argument, and returns nothing"


@pytest.mark.fast_cases("written_through_a_copy")
@pytest.mark.parametrize("candidate", [written_through_a_copy, decode])
def test_a_right_cache_is_accepted_by_all_questions_and_counted(candidate: Callable[..., Tensor]) -> None:
    judgement = judge(candidate, decode, _inputs_of_decode())
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    assert [(each.output, each.judged, each.elements) for each in judgement.coverage] == [
        ("out", 4, 4),
        ("written cache", 12, 12),
    ]
    (gradients,) = [each for each in judgement.findings if each.question == "VJP:grad"]
    assert gradients.outcome is Outcome.UNSUPPORTED
    assert gradients.text == "the spec writes cache"


def into(x: Tensor, out: Tensor) -> None:
    torch.mul(x, 2, out=out)


def into_by_a_sum(x: Tensor, out: Tensor) -> None:
    out.copy_(x + x)


def advance(x: Tensor, at: Tensor, flags: Tensor) -> Tensor:
    """Writes integers and truth values."""
    at.add_(1)
    flags.logical_not_()
    return 3 * x


def in_place(x: Tensor) -> Tensor:
    return x.mul_(2)


X = _normal(4, 6)


@pytest.mark.parametrize(
    ("spec", "inputs", "right", "wrong"),
    [
        (into, (X, torch.zeros(4, 6)), into_by_a_sum, lambda x, out: None),
        (into, (X, torch.zeros(4, 6)), into, lambda x, out: into(x + 1, out)),
        (into, (X, torch.zeros(4, 6)), into_by_a_sum, lambda x, out: out.copy_(x + x)),
        (
            advance,
            (X, torch.tensor([3]), torch.tensor([True, False])),
            advance,
            lambda x, at, flags: (at.add_(2), flags.logical_not_(), 3 * x)[2],
        ),
        (
            advance,
            (X, torch.tensor([3]), torch.tensor([True, False])),
            advance,
            lambda x, at, flags: (at.add_(1), 3 * x)[1],
        ),
        (in_place, (X,), lambda x: x.add_(x), lambda x: 2 * x),
    ],
)
def test_destinations_and_arguments_in_place(
    spec: Callable[..., Any], inputs: tuple[Tensor, ...], right: Callable[..., Any], wrong: Callable[..., Any]
) -> None:
    accepted = _ask(right, spec, inputs)
    assert accepted.verdict is Ruling.ACCEPTED, str(accepted)
    rejected = _ask(wrong, spec, inputs)
    assert rejected.verdict is Ruling.REJECTED, str(rejected)
    assert rejected.causes[0].question == "FWD:given"


def test_what_is_written_is_what_conforms_where_nothing_is_returned() -> None:
    opassay.assert_conforms(X + X, into, X, torch.zeros(4, 6))
    with pytest.raises(AssertionError, match="into: written input 1"):
        opassay.assert_conforms(X, into, X, torch.zeros(4, 6))
    balls = opassay.bound(into, X, torch.zeros(4, 6))
    assert isinstance(balls, opassay.Bound)
    assert balls.centre.shape == (4, 6)


# ------------------------------------------------------------------------------------------------------------ state


class Smoothed(nn.Module):
    """An exponential moving average of what came so far."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.ones(4))
        self.h: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.h.mul_(0.9).add_(x)
        return self.h * 2


class Replaced(Smoothed):
    def forward(self, x: Tensor) -> Tensor:
        self.h = self.h * 0.9 + x
        return self.h + self.h


class Lent(Smoothed):
    """Gives its own buffer."""

    def forward(self, x: Tensor) -> Tensor:
        return self.h.mul_(0.9).add_(x)


class Twice(Smoothed):
    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        self.h.mul_(0.9).add_(x)
        return out


class Never(Smoothed):
    def forward(self, x: Tensor) -> Tensor:
        return (self.h * 0.9 + x) * 2


class ReplacedByWrong(Smoothed):
    def forward(self, x: Tensor) -> Tensor:
        out = (self.h * 0.9 + x) * 2
        self.h = out
        return out


class Plain(Smoothed):
    """Keeps what it computes in a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        del self.h
        self.h = torch.ones(4)


class PlainReplaced(Plain, Replaced):
    pass


class PlainNever(Plain, Never):
    pass


class Counting(Smoothed):
    """Right in its first two calls, by a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) * (1 if self.calls < 3 else 1.5)


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize(
    ("spec", "candidate"),
    [
        (Smoothed, Smoothed), (Smoothed, Replaced), (Replaced, Smoothed), (Lent, Lent), (Plain, Plain),
        (Plain, PlainReplaced), (PlainReplaced, Plain), (Plain, Smoothed), (Smoothed, PlainReplaced),
    ],
)  # fmt: skip
def test_a_module_with_state_is_compared_call_by_call(spec: type[nn.Module], candidate: type[nn.Module]) -> None:
    module = candidate()
    judgement = judge(module, spec(), (_normal(4),))
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    assert [each.output for each in judgement.coverage] == ["out", "h"]
    assert isinstance(module.h, Tensor)
    assert torch.equal(module.h, torch.ones(4))  # set back


@pytest.mark.parametrize(
    ("candidate", "question"),
    [
        (Twice, "FWD:given"),
        (Never, "FWD:given"),
        (PlainNever, "FWD:given"),
        (ReplacedByWrong, "FWD:given"),
        (Counting, "CALLS:again"),
    ],
)
def test_a_wrong_state_is_rejected(candidate: type[nn.Module], question: str) -> None:
    result = _ask(candidate(), Smoothed(), (_normal(4),))
    assert result.causes[0].question == question, str(result)


class HalfDetached(Smoothed):
    """Right values, and half of the gradient."""

    def forward(self, x: Tensor) -> Tensor:
        half = x / 2
        self.h.copy_((self.h * 0.9 + x).detach())
        return (self.h.clone() + half - half.detach()) * 2


class Apart(Smoothed):
    """Keeps what it has seen without a gradient, and gives the right one."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.h * 0.9 + x
        self.h.copy_(h.detach())
        return h * 2


def test_gradients_go_through_a_module_that_writes_its_buffers() -> None:
    for candidate, verdict in ((Smoothed, Ruling.ACCEPTED), (Apart, Ruling.ACCEPTED), (HalfDetached, Ruling.REJECTED)):
        result = _ask(candidate(), Smoothed(), (_normal(4),), "FWD:given", "FWD:seeds", "PURE:untouched", "VJP:grad")
        assert result.verdict is verdict, str(result)
        assert [each.question for each in result.causes] == ["VJP:grad"] * (verdict is Ruling.REJECTED)
        assert result.findings[-1].outcome is not Outcome.UNSUPPORTED


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 3.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Wearing(Scaled):
    """Changes a parameter that the spec leaves."""

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        self.weight.data.mul_(1.0 + 2.0**-20)
        return out


def test_a_parameter_that_the_spec_leaves_is_not_written() -> None:
    result = _ask(Wearing(), Scaled(), (_normal(4),), "FWD:given", "PURE:untouched")
    assert [str(each.wrong) for each in result.causes] == ["weight was written"]


def test_a_candidate_without_the_buffer_is_weak() -> None:
    class Without(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (0.9 + x) * 2

    result = _ask(Without(), Smoothed(), (_normal(4),))
    assert result.verdict is Ruling.WEAK, str(result)
    assert result.weaknesses == ("h could not be judged: the candidate has no such tensor",)


def test_a_buffer_that_grows_is_an_error_with_a_sentence() -> None:
    class Growing(Smoothed):
        def forward(self, x: Tensor) -> Tensor:
            self.h = torch.cat([self.h, x])
            return 2 * x

    judgement = judge(Growing(), Growing(), (_normal(4),), questions=["FWD:given"])
    assert judgement.verdict is Ruling.ERROR
    assert "leaves h with shape (8,)" in judgement.error
    assert "give such a tensor back as a result" in judgement.error


FILE = """import torch
def reference(cache, k, at):
    cache.index_copy_(1, at, k)
def candidate(cache, k, at):
    cache.index_copy_(1, at, k)
def kernel(cache, k, at):
    cache.index_copy_(1, at, 3 * k + 1)
def inputs():
    return torch.zeros(2, 8, 4), torch.randn(2, 3, 4), torch.tensor([1, 4, 5])
"""


@pytest.mark.slow
def test_a_process_apart_says_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "spec.py"
    path.write_text(FILE)
    questions = ("FWD:given", "PURE:untouched", "CALLS:again", "FWD:seeds")
    right = judge_file(str(path), str(path), contract="torch", plan=QuestionPlan(questions))
    assert right.verdict is Ruling.ACCEPTED, str(right)
    wrong = judge_file(f"{path}:kernel", f"{path}:reference", contract="torch", plan=QuestionPlan(questions))
    assert wrong.causes[0].question == "FWD:given", str(wrong)
    assert "written cache" in str(wrong.causes[0].wrong)
