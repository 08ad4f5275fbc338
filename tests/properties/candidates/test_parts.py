"""Large problems: which specs keep rows apart, and that rows in place of the whole show what the whole would show."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from opassay.oracles.bound.terms import terms
from opassay.oracles.specs import traced
from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.candidates import row_sample
from opassay.properties.candidates.inputs import WAYS
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.layouts import MemoryLayout
from opassay.properties.candidates.row_independence import keeps_rows

KEEP: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "product": (torch.matmul, ((9, 4), (4, 3))),
    "convolution": (nn.Conv2d(2, 4, 3, padding=1), ((9, 2, 5, 5),)),
    "layer norm": (nn.LayerNorm((2, 3)), ((9, 2, 3),)),
    "group norm": (lambda x: functional.group_norm(x, 2), ((9, 4, 3),)),
    "softmax": (lambda x: torch.softmax(x, 1), ((9, 4),)),
    "max pool": (nn.MaxPool2d(3, 2, 1), ((9, 2, 5, 5),)),
    "running sum": (lambda x: torch.cumsum(x, 1), ((9, 4),)),
}
MIX: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "softmax of columns": (lambda x: torch.softmax(x, 0), ((9, 4),)),
    "divided by their number": (lambda x: x / x.shape[0], ((9, 4),)),
    "batch norm": (lambda x: functional.batch_norm(x, None, None, training=True), ((9, 4),)),
    "loss": (lambda x: functional.mse_loss(x, 2 * x), ((9, 4),)),
    "running sum of columns": (lambda x: torch.cumsum(x, 0), ((9, 4),)),
    "max pool over rows": (lambda x: functional.max_pool1d(x.T[None], 3, 1, 1)[0].T, ((9, 4),)),
    "turned round": (lambda x: x.flip(0), ((9, 4),)),
    "numbered": (lambda x: x + torch.arange(x.shape[0]).float()[:, None], ((9, 4),)),
    "transposed product": (lambda a, b: torch.mm(a.T, b), ((9, 4), (9, 3))),
    "batches of products": (torch.bmm, ((9, 4, 2), (9, 2, 3))),
    "squeezed": (lambda x: x[:, None].squeeze() * 1.5, ((9, 4),)),
}


def _keeps(spec: Callable[..., Tensor], shapes: tuple[tuple[int, ...], ...]) -> bool:
    def at(count: int) -> tuple[Any, list[tuple[int, ...]]]:
        result = traced(spec, *(torch.zeros((count, *shapes[0][1:])), *map(torch.zeros, shapes[1:])))
        return result, [operand.shape for operand in result.inputs]

    operands = at(9)[1]
    return keeps_rows(at, [i == 0 for i in range(len(operands))], (9, 1), terms("torch").contract("float32"))


@pytest.mark.parametrize("name", KEEP)
def test_a_spec_that_keeps_rows_apart_is_known(name: str) -> None:
    assert _keeps(*KEEP[name])


@pytest.mark.parametrize("name", MIX)
def test_a_spec_that_mixes_rows_is_known(name: str) -> None:
    assert not _keeps(*MIX[name])


def spec(x: Tensor, w: Tensor) -> Tensor:
    return torch.softmax(x @ w, -1)


def _in_order(x: Tensor, w: Tensor) -> Tensor:
    product = x[:, :3] @ w[:3] + x[:, 3:] @ w[3:]
    powers = torch.exp(product - product.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def _with(change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def changed(x: Tensor, w: Tensor) -> Tensor:
        return change(spec(x, w))

    return changed


class _Memory:
    """Returns the same memory at every call."""

    def __init__(self) -> None:
        self.memory: Tensor | None = None

    def __call__(self, x: Tensor, w: Tensor) -> Tensor:
        result = spec(x, w)
        if self.memory is None or self.memory.shape != result.shape:
            self.memory = torch.empty_like(result)
        return self.memory.copy_(result) if not result.requires_grad else result


class _Shortens:
    """Returns new memory in every call, and makes its last output short in the next."""

    def __init__(self) -> None:
        self.last: Tensor | None = None

    def __call__(self, x: Tensor, w: Tensor) -> Tensor:
        if self.last is not None:
            self.last.resize_(1, self.last.shape[1])
        out = spec(x, w)
        self.last = None if out.requires_grad else out
        return out


class _ByAddress:
    """Remembers results by the address of the first operand."""

    def __init__(self) -> None:
        self.known: dict[int, Tensor] = {}

    def __call__(self, x: Tensor, w: Tensor) -> Tensor:
        return self.known.setdefault(x.data_ptr(), spec(x, w)).clone()


class _Later:
    """Is right in its first call alone, and then off by a little."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Tensor, w: Tensor) -> Tensor:
        self.calls += 1
        return spec(x, w) * (1.0 if self.calls != 5 else 1.001)


def _tail(out: Tensor) -> Tensor:
    return torch.cat([out[:30], out[30:] * 1.001])


def _wrong_slope(x: Tensor, w: Tensor) -> Tensor:
    return spec(x.detach(), w) + 0.0 * x.sum()


def _writes(x: Tensor, w: Tensor) -> Tensor:
    result = spec(x, w)
    x.detach()[0, 0] += 1.0
    return result


WRONG: dict[str, tuple[Callable[[], Callable[..., Tensor]], str]] = {
    "tail": (lambda: _with(_tail), "FWD:given"),
    "half": (lambda: lambda x, w: spec(x.bfloat16(), w.bfloat16()).float(), "FWD:given"),
    "shape": (lambda: _with(lambda out: out[:, :-1]), "FWD:given"),
    "no maximum": (lambda: lambda x, w: torch.exp(x @ w) / torch.exp(x @ w).sum(-1, keepdim=True), "FWD:offset"),
    "not a number": (lambda: _with(torch.nan_to_num), "SPECIAL:nan"),
    "same memory": (_Memory, "CALLS:kept"),
    "shorter memory": (_Shortens, "CALLS:kept"),
    "by address": (_ByAddress, "CALLS:same"),
    "later": (_Later, "CALLS:again"),
    "written": (lambda: _writes, "PURE:untouched"),
    "gradient": (lambda: _wrong_slope, "VJP:grad"),
}


@pytest.fixture(autouse=True)
def _every_problem_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sample, "LARGE", 32)
    monkeypatch.setattr(row_sample, "READ", 200)


def _inputs(rows: int = 40) -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    return torch.randn(rows, 6), torch.randn(6, 5)


@pytest.mark.fast_cases("3")
@pytest.mark.parametrize("rows", [40, 3])
def test_rows_of_a_right_candidate_are_accepted_and_told(rows: int) -> None:
    judgement = judge(_in_order, spec, _inputs(rows))
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    sampled = json.loads(judgement.as_json())["sampled"]
    questions = {each.question for each in judgement.findings if each.outcome in (Outcome.VERIFIED, Outcome.WEAK)}
    assert {*WAYS, "FWD:given", "CALLS:kept", "CALLS:again", "VJP:grad"} <= questions
    assert set(WAYS) <= set(sampled)
    assert all(f"of {rows} rows" in sampled[code] for code in WAYS)
    assert sampled["FWD:given"] in str(judgement)


@pytest.mark.fast_cases("tail")
@pytest.mark.parametrize("name", WRONG)
def test_rows_of_a_wrong_candidate_show_it(name: str) -> None:
    make, question = WRONG[name]
    judgement = judge(make(), spec, _inputs())
    assert judgement.verdict is Ruling.REJECTED, str(judgement)
    assert question in [each.question for each in judgement.causes], str(judgement)


class _Sized:
    """Notes how many rows each call has; subclasses say what it does with other numbers of rows than 40."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, x: Tensor, w: Tensor) -> Tensor:
        self.rows.append(len(x))
        return spec(x, w) if len(x) == 40 else self.otherwise(x, w)

    def otherwise(self, x: Tensor, w: Tensor) -> Tensor:
        return spec(x, w)


class _Picky(_Sized):
    def otherwise(self, x: Tensor, w: Tensor) -> Tensor:
        raise ValueError(f"x: got {len(x)} rows, need 40")


class _ForForty(_Sized):
    def otherwise(self, x: Tensor, w: Tensor) -> Tensor:
        return spec(x, w) * (40 / len(x))


class _Dense(_Sized):
    """Takes every memory for a contiguous one."""

    def otherwise(self, x: Tensor, w: Tensor) -> Tensor:
        return spec(torch.as_strided(x, x.shape, (x.shape[1], 1)), w)


def _with_tail_of_forty(x: Tensor, w: Tensor) -> Tensor:
    return spec(x, w) * (1.001 if len(x) == 40 else 1.0)


OF_ROWS_ALONE = ("FWD:given", "LAYOUT:strides", "LAYOUT:align", "POISON", "VJP:grad", "AUTOCAST")


@pytest.mark.parametrize(("make", "whole"), [(_Sized, False), (_Picky, True)])
def test_calls_that_need_not_have_the_given_size_are_of_rows_alone(make: type[_Sized], whole: bool) -> None:
    candidate = make()
    judgement = judge(candidate, spec, _inputs(), questions=OF_ROWS_ALONE)
    assert {each.outcome for each in judgement.findings} == {Outcome.VERIFIED}, str(judgement)
    size = candidate.rows[1]
    assert 0 < size < 40
    if whole:
        assert candidate.rows == [40, size, *[40] * (len(MemoryLayout) + 4)]
    else:  # FWD:given and POISON are of the given size; the second call is that which asks whether rows do.
        assert candidate.rows == [40, *[size] * (len(MemoryLayout) + 2), 40, size, size, size]
    assert all("of 40 rows" in each.sampled for each in judgement.findings)


def test_rows_alone_that_are_wrong_are_a_matter_of_other_sizes() -> None:
    candidate = _ForForty()
    judgement = judge(candidate, spec, _inputs(), questions=(*OF_ROWS_ALONE, "SIZE:sizes"))
    assert [each.question for each in judgement.causes] == ["SIZE:sizes"], str(judgement)
    assert sum(rows != 40 for rows in candidate.rows) == 1


def test_rows_alone_show_what_the_whole_would() -> None:
    judgement = judge(_Dense(), spec, _inputs(), questions=OF_ROWS_ALONE)
    assert [each.question for each in judgement.causes] == ["LAYOUT:strides"], str(judgement)


class _WithTail(_Sized):
    def __call__(self, x: Tensor, w: Tensor) -> Tensor:
        return super().__call__(x, w) * (1.001 if len(x) == 40 else 1.0)


@pytest.mark.slow
def test_what_is_wrong_at_the_given_size_is_asked_of_rows_alone_from_there_on() -> None:
    candidate = _WithTail()
    judgement = judge(candidate, spec, _inputs(), seed=1)
    assert [each.question for each in judgement.causes] == ["FWD:given"], str(judgement)
    assert candidate.rows.count(40) == 1
    of_values = {
        *WAYS,
        "CALLS:same",
        "CALLS:reborn",
        "CALLS:again",
        "LAYOUT:strides",
        "LAYOUT:align",
        "POISON",
        "VJP:grad",
        "AUTOCAST",
    }
    findings = {each.question: each for each in judgement.findings}
    assert {findings[code].outcome for code in of_values} <= {Outcome.VERIFIED, Outcome.WEAK}, str(judgement)
    assert all("of 40 rows" in findings[code].sampled for code in {*of_values, "CALLS:kept"}), str(judgement)


@pytest.mark.fast_cases("0")
@pytest.mark.parametrize("at", [0, 39])
def test_the_first_row_and_the_last_are_always_among_those_that_are_held(at: int) -> None:
    def wrong(x: Tensor, w: Tensor) -> Tensor:
        result = spec(x, w)
        result[at % len(result)] *= 1.001
        return result

    for seed in range(8):
        assert judge(wrong, spec, _inputs(), questions=["FWD:given"], seed=seed).verdict is Ruling.REJECTED


def test_a_spec_that_mixes_rows_is_asked_as_a_whole() -> None:
    judgement = judge(
        lambda x: torch.softmax(x, 0), lambda x: torch.softmax(x, 0), (torch.randn(40, 6),), questions=["FWD:given"]
    )
    assert judgement.findings[0].judged == 240
    assert not judgement.findings[0].sampled
