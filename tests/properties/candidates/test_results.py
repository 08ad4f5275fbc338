"""The result of a call beside its elements: the form, what is no tensor in it, and memory that outputs share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import opassay
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.results import overlaps, result_of, unlike

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(5))
HALF = 1 / 80**0.5


class Pair(NamedTuple):
    double: Tensor
    sums: Tensor


@dataclass
class Record:
    double: Tensor


def nested(x: Tensor) -> dict[str, Any]:
    return {"double": 2 * x, "rest": (x.sum(-1), 7, "mean", None, HALF, True)}


def other(**changes: Any) -> Callable[[Tensor], dict[str, Any]]:
    """`nested` with other entries in its tuple, by position: _1 is the number."""

    def candidate(x: Tensor) -> dict[str, Any]:
        result = nested(x)
        rest = list(result["rest"])
        for place, value in changes.items():
            rest[int(place[1:])] = value
        return {**result, "rest": rest}

    return candidate


def swapped(x: Tensor) -> dict[str, Any]:
    result = nested(x)
    return {"rest": result["double"], "double": result["rest"]}


def renamed(x: Tensor) -> dict[str, Any]:
    return {"twice": 2 * x, "rest": nested(x)["rest"]}


def beside(x: Tensor) -> dict[str, Any]:
    return {**nested(x), "more": 0}


WRONG = {
    "another number": other(_1=-999),
    "a number of another type": other(_1=7.0),
    "one for true": other(_5=1),
    "another text": other(_2="sum"),
    "a number for None": other(_3=0),
    "a float three ulps away": other(_4=HALF * (1 + 4 * 2.0**-52)),
    "swapped keys": swapped,
    "another key": renamed,
    "one key more": beside,
    "the tensors alone": lambda x: (2 * x, x.sum(-1)),
    "a record": lambda x: Record(2 * x),
}
RIGHT = {
    "as it is": nested,
    "a list for a tuple, and another order of the keys": lambda x: OrderedDict(reversed(other()(x).items())),
    "a float that was rounded another way": other(_4=80**-0.5),
}


@pytest.mark.parametrize("candidate", WRONG.values(), ids=WRONG)
def test_another_form_or_another_plain_value_is_rejected(candidate: Callable[..., Any]) -> None:
    judgement = judge(candidate, nested, (X,), questions=["FWD:given"])
    assert judgement.verdict is Ruling.REJECTED, str(judgement)
    with pytest.raises(AssertionError, match=r"nested: (the result|got \d outputs)"):
        opassay.assert_conforms(candidate(X), nested, X)


@pytest.mark.parametrize("candidate", RIGHT.values(), ids=RIGHT)
def test_an_equal_result_is_accepted(candidate: Callable[..., Any]) -> None:
    judgement = judge(candidate, nested, (X,), questions=["FWD:given", "FWD:seeds", "CALLS:again"])
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    opassay.assert_conforms(candidate(X), nested, X)


def test_a_tensor_in_a_container_is_not_the_tensor() -> None:
    for candidate in (lambda x: (2 * x,), lambda x: {"k": [2 * x]}):
        judgement = judge(candidate, lambda x: 2 * x, (X,), questions=["FWD:given"])
        assert [str(each.wrong) for each in judgement.causes] == [
            f"the result is {result_of(candidate(X)).form}, need a tensor"
        ]


def test_named_tuples_and_those_of_torch_are_tuples() -> None:
    def name_of(x: Tensor) -> Pair:
        return Pair(2 * x, x.sum(-1))

    for candidate in (name_of, lambda x: (2 * x, x.sum(-1)), lambda x: [2 * x, x.sum(-1)]):
        assert judge(candidate, name_of, (X,), questions=["FWD:given", "FWD:seeds"]).verdict is Ruling.ACCEPTED
    top = judge(
        lambda x: list(torch.topk(x, 2)), lambda x: torch.topk(x, 2), (X,), questions=["FWD:given", "FWD:seeds"]
    )
    assert top.verdict is Ruling.ACCEPTED, str(top)


def test_a_number_that_changes_from_call_to_call_is_rejected() -> None:
    calls: list[int] = []

    def counting(x: Tensor) -> tuple[Tensor, int]:
        calls.append(7)
        return 2 * x, 7 if len(calls) < 3 else len(calls)

    judgement = judge(counting, lambda x: (2 * x, 7), (X,), questions=["FWD:given", "CALLS:again"])
    assert [each.question for each in judgement.causes] == ["CALLS:again"], str(judgement)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (lambda x: Record(2 * x), "gives a Record, need tensors"),
        (lambda x: (2 * x, Record(x)), "gives a Record, need tensors"),
        (lambda x: (2 * x).numpy(), "gives a ndarray, need tensors"),
        (lambda x: None, "gives NoneType and writes no tensor"),
        (lambda x: (3, "a"), r"gives \[int, str\] and writes no tensor"),
    ],
)
def test_a_spec_of_which_nothing_could_be_compared_is_an_error(spec: Callable[..., Any], message: str) -> None:
    judgement = judge(lambda x: x * 0, spec, (X,))
    assert judgement.verdict is Ruling.ERROR
    assert message.replace("\\", "") in judgement.error
    with pytest.raises(opassay.SpecError, match=message):
        opassay.assert_conforms(X * 0, spec, X)
    with pytest.raises(opassay.SpecError, match=message):
        opassay.bound(spec, X)


def test_arrays_for_arguments_are_an_error() -> None:
    judgement = judge(lambda a: a * 0, lambda a: a * a, (np.ones(3),))
    assert judgement.verdict is Ruling.ERROR
    assert "called with a NumPy array" in judgement.error
    opassay.assert_conforms(np.ones(3), lambda a: a * a, np.ones(3))  # which takes arrays for tensors


def test_one_tensor_for_two_outputs_is_aliased_only_where_the_spec_shares_none() -> None:
    def two(x: Tensor) -> tuple[Tensor, Tensor]:
        return 2 * x, x + x

    def one_twice(x: Tensor) -> tuple[Tensor, Tensor]:
        return (2 * x,) * 2

    def neighbours(x: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.stack([2 * x, x + x])
        return both[0], both[1]

    wrong = judge(one_twice, two, (X,), questions=["FWD:given", "PURE:fresh"])
    assert [str(each.wrong) for each in wrong.causes] == ["out[1] shares memory with out[0]"]
    for candidate, spec in ((one_twice, one_twice), (two, one_twice), (neighbours, two)):
        judgement = judge(candidate, spec, (X,), questions=["FWD:given", "FWD:seeds", "PURE:fresh"])
        assert judgement.verdict is Ruling.ACCEPTED, str(judgement)


def test_elements_in_common_are_seen_behind_strides() -> None:
    x = torch.zeros(4, 6)
    assert overlaps([x[:, :3], x[:, 3:], x[::2], x + 1]) == [(2, 0), (2, 1)]
    assert overlaps([x.view(torch.int32), x[1], torch.zeros(0)]) == [(1, 0)]
    assert overlaps([x.T, x]) == [(1, 0)]
    assert overlaps([*x.unfold(1, 2, 2).unbind(-1)]) == []


def test_infinite_and_missing_numbers_are_compared() -> None:
    need = result_of((X, float("inf"), float("nan"), 2**80))
    assert not unlike(need.form, [float("inf"), float("nan"), repr(2**80)], need)
    assert unlike(need.form, [float("-inf"), float("nan"), repr(2**80)], need)
    assert unlike(need.form, [float("inf"), 0.0, repr(2**80)], need)
    assert unlike(need.form, [float("inf"), float("nan"), repr(2**80 + 1)], need)
    assert unlike(need.form, [float("inf")], need)
