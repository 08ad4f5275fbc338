"""Kernels of few bits: those that are right are accepted, and every mistake is rejected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import opassay
from tests.low_bit import floats, integers, pairs
from tests.low_bit.problem import DTYPES, Kernel, Problem
from tests.traced_once import traced_once

PROBLEMS = (*floats.PROBLEMS, *integers.PROBLEMS, *pairs.PROBLEMS)
#: Where most mistakes show; the slow tests ask everything.
SOME = ["FWD:given", "FWD:signs", "FWD:small", "SPECIAL:zeros", "DATA:bits", "SPECIAL:nan", "SPECIAL:inf", "FWD:ties"]


def _cases(right: bool) -> Iterator[Any]:
    for number, problem in enumerate(PROBLEMS):
        for dtype in problem.dtypes:
            kernels = {"itself": problem.spec, **problem.right} if right else problem.wrong
            for name, kernel in kernels.items():
                named = f"{problem.name}: {name}: {str(dtype).removeprefix('torch.')}"
                # The kernels of every third problem are fast, in float32.
                slow = dtype is not torch.float32 or name == "itself" or number % 3 != 0
                yield pytest.param(problem, kernel, dtype, id=named, marks=pytest.mark.slow if slow else ())


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize(("problem", "kernel", "dtype"), list(_cases(right=True)))
def test_a_right_kernel_is_accepted(problem: Problem, kernel: Kernel, dtype: torch.dtype) -> None:
    for seed in range(1 if dtype is torch.float32 else 3):
        judgement = opassay.judge(kernel, traced_once(problem.spec), problem.inputs(dtype, seed), seed=seed)
        assert judgement.verdict == "accepted", str(judgement)


@pytest.mark.one_fast_in(101)
@pytest.mark.parametrize(("problem", "kernel", "dtype"), list(_cases(right=False)))
def test_a_wrong_kernel_is_rejected(problem: Problem, kernel: Kernel, dtype: torch.dtype) -> None:
    judgement = opassay.judge(kernel, traced_once(problem.spec), problem.inputs(dtype, 0), questions=SOME)
    assert judgement.verdict == "rejected", str(judgement)


def test_there_are_many_mistakes() -> None:
    assert sum(len(problem.wrong) for problem in PROBLEMS) >= 64
    assert all(problem.right for problem in PROBLEMS)
    assert len(DTYPES) == 3


def test_a_neighbour_is_right_at_a_near_tie_alone() -> None:
    """1.0625 is in the middle of 1 and 1.125 of e4m3; the quotient of the spec may be rounded to either side of it."""

    def spec(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return (x / s).to(torch.float8_e4m3fn)

    s = torch.tensor(3.0)
    for x, right in ((1.0625 * 3.0, (1.0, 1.125)), (1.06 * 3.0, (1.0,)), (1.07 * 3.0, (1.125,))):
        operands = (torch.full((4,), x), s)
        for value in (0.9375, 1.0, 1.125, 1.25):
            computed = torch.full((4,), value).to(torch.float8_e4m3fn)
            if value in right:
                opassay.assert_conforms(computed, spec, *operands)
                continue
            with pytest.raises(AssertionError):
                opassay.assert_conforms(computed, spec, *operands)


def test_a_tie_of_a_cast_alone_has_one_result() -> None:
    x = torch.full((4,), 1.0625)
    opassay.assert_conforms(x.to(torch.float8_e4m3fn), lambda x: x.to(torch.float8_e4m3fn), x)
    with pytest.raises(AssertionError):
        opassay.assert_conforms(torch.full((4,), 1.125).to(torch.float8_e4m3fn), lambda x: x.to(torch.float8_e4m3fn), x)


def test_gradients_through_eight_bits_are_those_of_torch() -> None:
    """torch casts the cotangent of a cast to eight bits as well; a straight-through estimator does not."""

    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.float8_e4m3fn).float()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            return g

    def spec(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float8_e4m3fn).float() * 0.3

    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    judgement = opassay.judge(spec, spec, (x,), questions=["FWD:given", "VJP:grad"])
    assert judgement.verdict == "accepted", str(judgement)
    straight: Any = Straight.apply
    other = opassay.judge(lambda x: straight(x) * 0.3, spec, (x,), questions=["FWD:given", "VJP:grad"])
    assert [cause.question for cause in other.causes] == ["VJP:grad"]


def test_a_tensor_in_eight_bits_has_no_gradient_to_ask_for() -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).to(torch.float8_e5m2)
    judgement = opassay.judge(
        lambda x: x.float() * 2, lambda x: x.float() * 2, (x,), questions=["FWD:given", "VJP:grad"]
    )
    assert judgement.verdict == "accepted"
    assert "stored in float8_e5m2" in str(judgement)


@pytest.mark.slow
def test_a_property_is_not_asked_where_a_tensor_has_eight_bits() -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    for spec, operands in ((lambda x: x.to(torch.float8_e5m2), x), (lambda x: x.float(), x.to(torch.float8_e5m2))):
        judgement = opassay.judge(spec, spec, (operands,), questions=["FWD:given", "VJP"])
        assert "properties are not asked where an input or an output is of float8_e5m2" in str(judgement)
    judgement = opassay.judge(
        lambda x: x.to(torch.float8_e5m2).float(), lambda x: x.to(torch.float8_e5m2).float(), (x,)
    )
    assert judgement.verdict == "accepted"


def test_ties_are_asked_where_a_spec_has_a_grid() -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    plain = opassay.judge(torch.relu, torch.relu, (x,))
    assert "FWD:ties" not in [finding.question for finding in plain.findings]
    named = opassay.judge(torch.relu, torch.relu, (x,), questions=["FWD:ties"])
    assert "rounds to no integers" in str(named)
    for spec in (lambda x: x.to(torch.float8_e5m2), lambda x: torch.round(x * 3)):
        judgement = opassay.judge(spec, spec, (x,), questions=["FWD:given", "FWD:ties"])
        assert [finding.question for finding in judgement.findings] == ["FWD:given", "FWD:ties"]
