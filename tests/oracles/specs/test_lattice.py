"""Integers need no tolerance: one bit of a product, a convolution or a pooling is seen, while their sums fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from opassay.oracles.bound.contract import Products, contract
from opassay.reference.formats import BFLOAT16

from ..spec_judging import accepted, read


def _integers(*shape: int, most: int = 8, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-most, most + 1, shape, generator=generator).float()


SPECS: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "mm": (torch.mm, ((4, 50), (50, 3))),
    "linear and relu": (lambda x, w, b: functional.relu(functional.linear(x, w, b)) * 0.5, ((4, 50), (3, 50), (3,))),
    "conv2d": (lambda x, w: functional.conv2d(x, w, None, 2, 1), ((2, 3, 7, 6), (4, 3, 3, 3))),
    "conv_transpose2d": (lambda x, w: functional.conv_transpose2d(x, w, None, 2), ((2, 3, 4, 4), (3, 4, 3, 3))),
    "max of a sum": (lambda x: torch.max(torch.cumsum(x, 1), 1)[0], ((4, 9),)),
    "max_pool2d of a convolution": (
        lambda x, w: functional.max_pool2d(functional.conv2d(x, w), 2, 1, 1),
        ((1, 2, 6, 6), (3, 2, 3, 3)),
    ),
    "fold": (lambda x: functional.fold(x, (5, 5), 3), ((1, 18, 9),)),
}


@pytest.mark.parametrize("name", SPECS)
def test_one_bit_of_an_integer_result_is_seen(name: str) -> None:
    spec, shapes = SPECS[name]
    tensors = tuple(_integers(*shape, seed=i) for i, shape in enumerate(shapes))
    (ball,) = read(spec, tensors, lattice=True)
    assert not np.any(ball.radii())
    right = spec(*tensors)
    assert accepted(right, ball).all()
    (loose,) = read(spec, tensors)
    larger = torch.nextafter(right, torch.full_like(right, torch.inf))
    assert not accepted(larger, ball).any()
    assert accepted(larger, loose).any()


def test_where_sums_no_longer_fit_the_ordinary_bound_returns() -> None:
    a, b = _integers(2, 64, most=2**11), _integers(64, 2, most=2**11)
    (ball,), (loose,) = (read(torch.mm, (a, b), lattice=each) for each in (True, False))
    assert np.array_equal(ball.radii(), loose.radii())
    assert not read(torch.mm, (a.double(), b.double()), lattice=True)[0].radii().any()


@pytest.mark.parametrize(
    ("products", "most", "exact"),
    [
        (Products(factors=2.0**-11), 2**5, True),
        (Products(factors=2.0**-8), 2**9, False),
        (Products(partials=BFLOAT16), 2, True),
        (Products(partials=BFLOAT16), 2**5, False),
    ],
)
def test_formats_of_factors_and_partial_sums_must_hold_the_integers(products: Products, most: int, exact: bool) -> None:
    a, b = _integers(3, 20, most=most), _integers(20, 3, most=most, seed=1)
    (ball,) = read(torch.mm, (a, b), lattice=True, products=products)
    assert (not ball.radii().any()) == exact


def test_a_mean_is_never_credited() -> None:
    (ball,) = read(lambda x: torch.mean(x, 1), (_integers(3, 4),), lattice=True)
    assert (ball.radii() > 0).all()


def test_an_intermediate_is_exact_where_its_format_holds_it() -> None:
    small, large = (_integers(4, 8, most=most).bfloat16() for most in (4, 128))
    for x, exact in ((small, True), (large, False)):
        (ball,) = read(lambda a: a * a + 1.0, (x,), lattice=True, intermediates=True)
        assert (not ball.radii().any()) == exact


def test_a_fast_quotient_is_exact_where_its_divisor_is_a_power_of_two() -> None:
    x, y = torch.tensor([127.0, 64.0, 0.0]), torch.tensor([127.0, 8.0, 5.0])
    fast = replace(contract("float32").functions, division=5.0)
    for more, rounded in (({}, [False, False, False]), ({"functions": fast}, [True, False, False])):
        (ball,) = read(torch.div, (x, y), lattice=True, **more)
        assert (ball.radii() > 0).tolist() == rounded
