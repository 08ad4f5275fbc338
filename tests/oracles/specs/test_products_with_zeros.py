"""Products among whose factors are zeros, and their gradients: in any order, also where one order underflows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from opassay.oracles.bound import accept
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball, balls
from opassay.oracles.specs import traced
from opassay.reference.derivative import vjp
from opassay.reference.formats import FORMATS
from tests.oracles.spec_judging import Spec, name_of, read

PLACES = torch.from_numpy(np.random.default_rng(2).integers(0, 4, (64, 12)))


def _scattered(x: Tensor) -> Tensor:
    return x[:, :4].scatter_reduce(1, PLACES, x, "prod")


SPECS: dict[str, Callable[[Tensor], Tensor]] = {
    "prod": lambda x: torch.prod(x, 1),
    "cumprod": lambda x: torch.cumprod(x, 1),
    "scatter_reduce": _scattered,
}


def _draw(largest: int, dtype: torch.dtype) -> Tensor:
    rng = np.random.default_rng(0)
    mantissas = rng.choice([-1.0, 1.0], (64, 12)) * rng.uniform(1.0, 2.0, (64, 12))
    values = np.ldexp(mantissas, rng.integers(-largest, largest, (64, 12)))
    values[rng.random((64, 12)) < 0.15] = 0.0
    return torch.from_numpy(values).to(dtype)


def _accept(computed: Tensor, ball: Ball) -> accept.Elements:
    return accept.place_in_accept_sets(computed.double().numpy(), FORMATS[name_of(computed.dtype)], ball, None, order=1)


def _of_gradient(spec: Spec, x: Tensor) -> tuple[Tensor, Ball]:
    leaf = x.clone().requires_grad_()
    out = spec(leaf)
    g = torch.linspace(-1.0, 2.0, out.numel(), dtype=x.dtype).reshape(out.shape)
    (slope,) = torch.autograd.grad(out, leaf, g)
    formula = traced(spec, x)
    operands = [x.double().numpy(), g.double().numpy()]
    return slope, balls(lambda a, b: vjp(formula, (a,))[1](b)[0], operands, contract(name_of(x.dtype), order=1))[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SPECS)
def test_products_with_zeros_and_their_gradients_are_right(name: str, dtype: torch.dtype) -> None:
    spec = SPECS[name]
    for largest in (8, 40):
        x = _draw(largest, dtype)
        assert _accept(spec(x), read(spec, (x,))[0]).accepted.all()
        slope, ball = _of_gradient(spec, x)
        assert _accept(slope, ball).accepted.all()
        if largest == 8:
            assert _accept(slope, ball).judged.all()
            assert not _accept(slope * (1.0 + 200 * torch.finfo(dtype).eps), ball).accepted.all()
            assert not _accept(torch.where(x == 0, 0.0, slope), ball).accepted.all()


def test_a_product_in_another_order_may_underflow() -> None:
    row = torch.tensor([2.0**-100, 2.0**-60, 2.0**100, 2.0**60, 1.0])
    for other in (0.0, 1.0):
        x = torch.stack([row, row.flip(0), torch.full((5,), other)])
        ball = read(lambda x: torch.prod(x, 1), (x,))[0]
        assert _accept(torch.tensor([0.0, 1.0, other]), ball).accepted.all()
        assert not _accept(torch.tensor([1.0, 1.0, other + 0.5]), ball).accepted.all()
