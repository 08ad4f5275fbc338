"""Slopes in half types are those of the steps that torch stores, and wrong ones stay outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.oracles.bound import accept
from opassay.oracles.bound.rounding import Ball, balls
from opassay.oracles.bound.terms import terms
from opassay.oracles.specs import traced
from opassay.reference.derivative import vjp
from opassay.reference.formats import FORMATS
from tests.oracles.spec_judging import Spec, draw, name_of, read

DTYPES = (torch.bfloat16, torch.float16, torch.float32)

SPECS: dict[str, Spec] = {
    "variance": lambda x: x.var(1),
    "variance of all": lambda x: x.var(correction=0),
    "deviation": lambda x: x.std(1, keepdim=True),
    "variance and mean": lambda x: torch.cat([t.flatten() for t in torch.var_mean(x, 0)]),
    "root": lambda x: x.abs().rsqrt(),
    "overlapping windows": lambda x: x.unfold(-1, 5, 3).mean(-1),
    "repeated rows": lambda x: x[torch.tensor([0, 0, 1, 0])] / 3,
    "expanded": lambda x: x.expand(3, *x.shape) / torch.tensor([3, 7, 11], dtype=x.dtype)[:, None, None],
    "hypotenuse": lambda x: torch.hypot(x, x.detach().flip(1)),
    "powers of two": lambda x: torch.logaddexp2(2 * x, x.detach().flip(1)),
    "interpolated": lambda x: torch.lerp(x, x.detach().flip(1), x.detach().sigmoid()),
    "interpolated to": lambda x: torch.lerp(x.detach().flip(1), x, 0.3),
    "product": lambda x: x.prod(1),
    "products so far": lambda x: x.cumprod(1),
    "scaled product": lambda x: torch.addmm(x[:, :4], x, x.detach().T, beta=0.2, alpha=0.6),
}


def _hold(spec: Spec, x: Tensor) -> tuple[Tensor, Ball]:
    """torch's gradient, and its ball."""
    leaf = x.clone().requires_grad_()
    out = spec(leaf)
    cotangent = torch.linspace(-1.0, 2.0, out.numel()).reshape(out.shape).to(out.dtype)
    (slope,) = torch.autograd.grad(out, leaf, cotangent)
    formula = traced(spec, x)

    def pulled(a: Any, g: Any) -> Any:
        return vjp(lambda b: formula(b)[0], (a,))[1](g)[0]

    operands = [x.double().numpy(), cotangent.double().numpy()]
    return slope, balls(pulled, operands, terms("torch").contract(name_of(x.dtype), "cpu", 1))[0]


def _inside(slope: Tensor, ball: Ball) -> Any:
    places = accept.place_in_accept_sets(slope.double().numpy(), FORMATS[name_of(slope.dtype)], ball, None, order=1)
    assert places.judged.all()
    return places.accepted


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("name", SPECS)
def test_slopes_of_torch_are_right(name: str, offset: float, dtype: torch.dtype) -> None:
    if "product" in name and offset:
        offset = 1.0
    (x,) = draw((4, 11))
    slope, ball = _hold(SPECS[name], (x + offset).to(dtype))
    assert _inside(slope, ball).all()


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("change", [lambda slope: slope * 1.25, lambda slope: slope.roll(1, -1)])
@pytest.mark.parametrize("name", SPECS)
def test_wrong_slopes_are_refused(name: str, change: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    (x,) = draw((4, 11))
    slope, ball = _hold(SPECS[name], x.to(dtype))
    assert not _inside(change(slope), ball).all()


def test_a_step_that_overflows_leaves_a_slope_open() -> None:
    # y³ is beyond what float16 holds, and y³ / 2 is not.
    x = torch.tensor([6.1e-4, 4.0], dtype=torch.float16)
    slope, ball = _hold(SPECS["root"], x)
    assert slope[0].isinf()
    places = accept.place_in_accept_sets(slope.double().numpy(), FORMATS["float16"], ball, None, order=1)
    assert places.judged.tolist() == [False, True]
    assert places.accepted.all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_slopes_of_products_with_a_zero_are_those_of_torch(dtype: torch.dtype) -> None:
    # Before the first zero torch divides by the element: the sum that it divides is beyond what the format holds.
    largest = torch.finfo(dtype).max
    x = torch.tensor([[2.0, 0.0, 3.0, 0.0, 4.0, 5.0], [-1.0, -0.5, -largest, 1.0, 1.0, 2.0**-6]], dtype=dtype)
    slope, ball = _hold(SPECS["products so far"], x)
    elements = accept.place_in_accept_sets(slope.double().numpy(), FORMATS[name_of(dtype)], ball, None, order=1)
    assert elements.accepted.all()
    assert not slope[1, 2].isfinite()
    assert elements.judged.tolist() == [[True] * 6, [False] * 6]
    changed = accept.place_in_accept_sets((slope * 1.25).double().numpy(), FORMATS[name_of(dtype)], ball, None, order=1)
    assert not changed.accepted[0, 1]


def test_equal_infinities_are_added_as_powers_of_two() -> None:
    x, y = torch.tensor([-torch.inf, torch.inf, -torch.inf, 1.0]), torch.tensor([-torch.inf, torch.inf, 2.0, 1.0])
    (ball,) = read(torch.logaddexp2, (x, y))
    assert ball.centre.tolist() == [-torch.inf, torch.inf, 2.0, 2.0]
    assert ball.radii()[:2].tolist() == [0.0, 0.0]
