"""lgamma, digamma and polygamma: right evaluations are accepted, and wrong ones are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import opassay
from opassay.oracles.bound import accept
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.oracles.bound.terms import terms
from opassay.oracles.specs import traced
from opassay.reference.array import gammaln, polygamma
from opassay.reference.derivative import vjp
from opassay.reference.formats import FORMATS
from tests.traced_once import traced_once

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
_LARGE = 8
Function = Callable[[Tensor], Tensor]


def _stirling(x: Tensor, terms: int) -> Tensor:
    """log |Γ| by Stirling's series, of numbers that are moved to the right, and below 1/2 reflected, in float64."""
    wide = x.double()
    reflected = torch.where(wide < 0.5, 1 - wide, wide)
    y = reflected + _LARGE
    total = (y - 0.5) * y.log() - y + 0.5 * math.log(2 * math.pi)
    total = total + sum(c * y ** -(2 * k + 1) for k, c in enumerate(_STIRLING[:terms]))
    total = total - sum((reflected + k).log() for k in range(_LARGE))
    sine = torch.sin(math.pi * (wide - wide.round())).abs()
    return torch.where(wide < 0.5, (math.pi / sine).log() - total, total).to(x.dtype)


def _psi(x: Tensor, terms: int = 5, shift: float = 0.5, reflects: bool = True) -> Tensor:
    wide = x.double()
    reflected = torch.where(wide < 0.5, 1 - wide, wide)
    y = reflected + _LARGE
    series = sum((2 * k + 1) * c * y ** -(2 * k + 2) for k, c in enumerate(_STIRLING[:terms]))
    total = y.log() - shift / y - series - sum(1 / (reflected + k) for k in range(_LARGE))
    cotangent = 1 / torch.tan(math.pi * (wide - wide.round()))
    return torch.where(wide < 0.5, total - math.pi * cotangent * reflects, total).to(x.dtype)


def _with_slope(value: Function, slope: Function) -> Function:
    """The value, differentiated by another function."""

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return value(x)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return g * slope(x)

    def applied(x: Tensor) -> Tensor:
        result: Tensor = Own.apply(x)  # type: ignore[no-untyped-call]
        return result

    return applied


#: A spec, right candidates, and wrong ones.
_CASES: dict[str, tuple[Function, dict[str, Function], dict[str, Function]]] = {
    "lgamma": (
        torch.lgamma,
        {"the other name": torch.special.gammaln, "float64": lambda x: torch.lgamma(x.double()).to(x.dtype)},
        {
            "one term of the series": lambda x: _stirling(x, 1),
            "reflection left out": lambda x: torch.lgamma(torch.where(x < 0, -x, x)),
            "slope of log x": _with_slope(torch.lgamma, lambda x: x.log() - 0.5 / x),
        },
    ),
    "digamma": (
        torch.digamma,
        {"the other name": torch.special.psi, "series": _with_slope(_psi, lambda x: torch.polygamma(1, x))},
        {
            "one term of the series": lambda x: _psi(x, 1),
            "sign of half a reciprocal": lambda x: _psi(x, shift=-0.5),
            "slope with its sign lost": _with_slope(torch.digamma, lambda x: -torch.polygamma(1, x)),
            "no cotangent": lambda x: _psi(x, reflects=False),
        },
    ),
    "trigamma": (
        lambda x: torch.polygamma(1, x),
        {"the other name": lambda x: torch.special.polygamma(1, x)},
        {
            "order 2": lambda x: torch.polygamma(2, x),
            "asymptotic": lambda x: 1 / x + 0.5 / x**2 + 1 / (6 * x**3),
            "sign": lambda x: -torch.polygamma(1, x),
        },
    ),
}


def _numbers() -> Tensor:
    return torch.tensor([0.003, 0.4, 0.97, 1.0, 1.46, 2.0, 2.2, 3.75, 8.0, 40.0, -0.3, -1.5, -2.46, -3.9])


@pytest.mark.fast_cases("lgamma")
@pytest.mark.parametrize("name", _CASES)
def test_right_evaluations_are_accepted_and_wrong_ones_are_not(name: str) -> None:
    spec, right, wrong = _CASES[name]
    for what, candidate in right.items():
        report = opassay.judge(candidate, traced_once(spec), (_numbers(),))
        assert report.verdict == "accepted", f"{what}: {report}"
    for what, candidate in wrong.items():
        report = opassay.judge(candidate, traced_once(spec), (_numbers(),), questions=["FWD:given", "VJP:grad"])
        assert report.verdict == "rejected", what


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch_is_within_the_ball_of_its_contract(dtype: str) -> None:
    rng = np.random.default_rng(0)
    near = -rng.integers(0, 12, 300) + rng.choice([-1, 1], 300) * np.exp(-rng.uniform(0.7, 12, 300))
    ranges = (rng.uniform(0, 12, 600), np.exp(rng.uniform(-30, 9, 600)), -rng.uniform(0, 60, 600), near)
    x = torch.from_numpy(np.concatenate(ranges)).to(getattr(torch, dtype))
    orders = (0, 1, 3) if dtype == "float32" else (0, 3)  # `_trigamma_of_float64`
    pairs = [(gammaln, torch.lgamma)]
    pairs += [(lambda x, n=n: polygamma(n, x), lambda x, n=n: torch.polygamma(n, x)) for n in orders]  # type: ignore[misc]
    for formula, function in pairs:
        (ball,) = balls(formula, [x.double().numpy()], contract(dtype))
        error = np.abs(function(x).double().numpy() - ball.centre.astype(np.float64))
        judged = np.isfinite(ball.radii())
        assert judged.mean() > 0.9
        assert (error <= ball.radii())[judged].all()


@pytest.mark.slow
def test_trigamma_of_torch_has_ten_digits_of_float64() -> None:
    """Its asymptotic series ends at x^-7, where x is 6 to 7: what is left out is 4.9e-10 of the value."""
    report = opassay.judge(torch.digamma, torch.digamma, (torch.tensor([1.1, 2.3], dtype=torch.float64),))
    assert report.verdict == "rejected"
    assert "its own evaluation of the spec is outside here as well" in str(report)


def _count_refusals(function: Function, order: int, x: Tensor) -> int:
    """How many values and gradients of a function are outside of the accept sets of the polygamma function."""
    spec = traced(lambda x: torch.polygamma(order, x), x)
    g = (0.5 + torch.rand(len(x), generator=torch.Generator().manual_seed(0))).to(x.dtype)
    at = x.clone().requires_grad_()
    value = function(at)
    (gradient,) = torch.autograd.grad(value, at, g)
    operands, name = [t.double().numpy() for t in (x, g)], str(x.dtype).removeprefix("torch.")
    allowed = terms("torch").contract(name)
    bounds = [*balls(spec, operands[:1], allowed), *balls(lambda x, g: vjp(spec, (x,))[1](g), operands, allowed)]
    places = [
        accept.place_in_accept_sets(t.detach().double().numpy(), FORMATS[name], bound, None)
        for t, bound in zip((value, gradient), bounds, strict=True)
    ]
    return sum(int((each.judged & ~each.accepted).sum()) for each in places)


@pytest.mark.one_fast_in(8)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_torch_may_store_the_parts_of_a_polygamma_function(order: int, dtype: torch.dtype) -> None:
    x = torch.arange(-(2**15), 2**15, 83).short().view(dtype)
    x = x[x.isfinite()]
    assert _count_refusals(lambda x: torch.polygamma(order, x), order, x) == 0
    near = x[(x > 0.5) & (x < 8)]
    assert _count_refusals(lambda x: torch.polygamma(order, x) * 1.125, order, near) > len(near)


def test_a_polygamma_function_of_large_numbers_has_parts_that_are_subnormal() -> None:
    x = torch.from_numpy(np.exp(np.random.default_rng(0).uniform(-10, 85, 600)))
    for order in (2, 4):
        assert _count_refusals(lambda x, n=order: torch.polygamma(n, x), order, x.float()) == 0  # type: ignore[misc]
        assert _count_refusals(lambda x, n=order: torch.polygamma(n, x), order, x) == 0  # type: ignore[misc]
