"""Products of matrices and convolutions: what torch computes is in the ball in any order, planted faults are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from opassay.oracles.bound.contract import Products, contract
from opassay.oracles.bound.rounding import balls, products
from opassay.oracles.specs import traced
from opassay.reference.exact import evaluate, to_float_pair
from opassay.reference.formats import BFLOAT16, FORMATS

from ..spec_judging import accepted, draw, gradients_agree, name_of, read


def _convolution(axes: int, *how: Any, transposed: bool = False) -> Callable[..., Tensor]:
    convolved = getattr(functional, f"conv{'_transpose' * transposed}{axes}d")

    def spec(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        result: Tensor = convolved(x, weight, bias, *how)
        return result

    return spec


SPECS: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "mm": (torch.mm, ((3, 50), (50, 4))),
    "mv": (torch.mv, ((3, 50), (50,))),
    "bmm": (torch.bmm, ((2, 3, 20), (2, 20, 4))),
    "matmul with batches": (torch.matmul, ((2, 1, 3, 5), (3, 5, 4))),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), ((4,), (3, 9), (9, 4))),
    "baddbmm": (torch.baddbmm, ((2, 3, 4), (2, 3, 9), (2, 9, 4))),
    "addbmm": (torch.addbmm, ((3, 4), (2, 3, 9), (2, 9, 4))),
    "addmv": (torch.addmv, ((3,), (3, 9), (9,))),
    "linear": (functional.linear, ((2, 3, 9), (4, 9), (4,))),
    "einsum": (lambda a, b: torch.einsum("bhid,bhjd->bihj", a, b), ((2, 2, 3, 5), (2, 2, 4, 5))),
    "bilinear": (functional.bilinear, ((3, 4), (3, 5), (2, 4, 5), (2,))),
    "conv1d": (_convolution(1, 2, 1, 2), ((2, 4, 12), (6, 4, 3), (6,))),
    "conv2d in groups": (_convolution(2, (2, 1), 1, 1, 2), ((2, 4, 7, 6), (6, 2, 3, 2), (6,))),
    "conv3d": (_convolution(3, 1, 1), ((1, 3, 4, 5, 3), (2, 3, 3, 3, 3), (2,))),
    "conv2d, depthwise": (_convolution(2, 1, 1, 1, 4), ((2, 4, 6, 6), (4, 1, 3, 3), (4,))),
    "transposed conv1d": (_convolution(1, 3, 1, 1, 2, 2, transposed=True), ((2, 4, 5), (4, 3, 3), (6,))),
    "transposed conv2d": (_convolution(2, 2, 3, transposed=True), ((2, 3, 4, 5), (3, 2, 3, 3), (2,))),
}

SUMMED_IN_HALF = {"addbmm", "bilinear", "transposed conv1d", "transposed conv2d"}


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("name", SPECS)
def test_what_torch_computes_is_in_the_ball(name: str) -> None:
    spec, shapes = SPECS[name]
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        tensors = draw(*shapes, dtype=dtype)
        # torch computes these on CPUs in steps whose results it keeps in the half format.
        terms = {"accumulate": FORMATS[name_of(dtype)]} if name in SUMMED_IN_HALF and dtype.itemsize == 2 else {}
        (ball,) = read(spec, tensors, **terms)
        assert accepted(spec(*tensors), ball).all(), dtype


@pytest.mark.parametrize("name", SPECS)
def test_the_exact_value_is_in_the_ball(name: str) -> None:
    spec, shapes = SPECS[name]
    tensors = draw(*shapes)
    (ball,) = read(spec, tensors)
    ((exact,), _) = evaluate(traced(spec, *tensors), *(x.double().numpy() for x in tensors))
    high, low = to_float_pair(exact)
    assert (np.abs((ball.centre - high) - low) <= ball.radii()).all()


@pytest.mark.parametrize("name", SPECS)
def test_gradients_are_those_of_autograd(name: str) -> None:
    spec, shapes = SPECS[name]
    assert gradients_agree(spec, *draw(*shapes))


def _split(a: Tensor, b: Tensor, parts: int) -> Tensor:
    pairs = zip(a.chunk(parts, 1), b.chunk(parts, 0), strict=True)
    return sum((x @ y for x, y in pairs), torch.zeros(len(a), b.shape[1]))


def _one_by_one(a: Tensor, b: Tensor, order: Any) -> Tensor:
    total = torch.zeros(len(a), b.shape[1])
    for k in order:
        total = total + a[:, k : k + 1] * b[k : k + 1]
    return total


def test_orders_of_summation_are_in_the_ball_and_faults_are_not() -> None:
    a, b = draw((5, 96), (96, 4))
    (ball,) = read(torch.mm, (a, b))
    right = [_split(a, b, 8), _one_by_one(a, b, range(96)), _one_by_one(a, b, reversed(range(96)))]
    assert all(accepted(each, ball).all() for each in right)
    dropped = a[:, :95] @ b[:95]
    tail = a @ b
    tail[4:, 3:] = 0.0
    wrong = [dropped, tail, (a @ b) * (1 + 1e-4)]
    assert not any(accepted(each, ball).all() for each in wrong)


def test_a_window_that_is_left_out_is_seen() -> None:
    spec, shapes = SPECS["conv2d in groups"]
    x, weight, bias = draw(*shapes)
    (ball,) = read(spec, (x, weight, bias))
    less = weight.clone()
    less[-1, -1, -1, -1] = 0.0
    assert not accepted(spec(x, less, bias), ball).all()
    assert not accepted(spec(x, weight, bias) * (1 + 1e-5), ball).all()


def test_rounded_factors_are_in_the_ball_where_the_contract_has_them() -> None:
    a, b = draw((5, 40), (40, 4))

    def short(x: Tensor, bits: int) -> Tensor:
        unit = 2.0 ** (torch.frexp(x).exponent.double() - bits)
        return ((x.double() / unit).round() * unit).float()

    tf32 = short(a, 11) @ short(b, 11)
    (strict,), (wide,) = read(torch.mm, (a, b)), read(torch.mm, (a, b), products=Products(factors=2.0**-11))
    assert accepted(tf32, wide).all()
    assert not accepted(tf32, strict).all()
    assert not accepted(short(a, 4) @ short(b, 4), wide).all()


def test_partial_sums_in_a_half_format_are_in_the_ball_where_the_contract_has_them() -> None:
    a, b = draw((5, 64), (64, 4))
    parts = [(x @ y).bfloat16().float() for x, y in zip(a.chunk(8, 1), b.chunk(8, 0), strict=True)]
    (strict,), (wide,) = read(torch.mm, (a, b)), read(torch.mm, (a, b), products=Products(partials=BFLOAT16))
    assert accepted(sum(parts, torch.zeros(5, 4)), wide).all()
    assert not accepted(sum(parts, torch.zeros(5, 4)), strict).all()


def test_large_products_in_float64_have_centres_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = draw((3, 50), (50, 4), dtype=torch.float64)
    (wide,) = read(torch.mm, tensors)
    monkeypatch.setattr(products, "LARGEST_WIDE", 1)
    (narrow,) = read(torch.mm, tensors)
    apart = np.abs(wide.centre - narrow.centre)
    assert (apart + wide.radii() <= narrow.radii()).all()
    assert (narrow.radii() <= 2.2 * wide.radii()).all()


def test_what_is_not_finite_reaches_what_it_is_a_term_of() -> None:
    a, b = np.ones((3, 2)), np.ones((2, 3))
    a[0, 0], b[1, 2] = np.nan, np.inf
    (ball,) = balls(np.matmul, [a, b], contract("float32"))
    assert np.isnan(ball.centre[0]).all()
    assert np.isinf(ball.centre[1:, 2]).all()
    assert (ball.radii()[0] == 0).all()
    assert (ball.radii()[1:, 2] == 0).all()
    (open_,) = balls(lambda x, y: np.matmul(x * (1 / 3.0) - 1 / 3.0, y), [np.ones((1, 2)), b], contract("float32"))
    assert np.isnan(open_.radii()[0, 2])  # infinity times what may be zero


def test_what_may_overflow_is_not_judged() -> None:
    (ball,) = balls(np.matmul, [np.full((1, 2), 2.0**70), np.full((2, 2), 2.0**70)], contract("float32"))
    assert np.isinf(ball.radii()).all()


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk", ((3, 4), (4, 5))),
        ("...ij,...kj->...ik", ((2, 3, 4), (5, 4))),
        ("ii->i", ((3, 3),)),
        ("i,j->ji", ((3,), (4,))),
        ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))),
        ("ij,jk->k", ((2, 3), (3, 4))),
        ("iij,jk->ik", ((3, 3, 2), (2, 4))),
        ("bi,bi->b", ((2, 3), (2, 3))),
    ],
)
def test_einsum_is_that_of_numpy(subscripts: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    arrays = [x.double().numpy() for x in draw(*shapes)]
    (ball,) = balls(lambda *xs: np.einsum(subscripts, *xs), arrays, contract("float32"))
    need = np.einsum(subscripts, *arrays)
    assert ball.shape == need.shape
    assert (np.abs(ball.centre - need) <= 2.0**-24 * ball.radii()).all()


def test_a_wrong_einsum_says_what_is_wrong() -> None:
    x = draw((2, 3))[0].double().numpy()
    with pytest.raises(ValueError, match="2 operands"):
        balls(lambda a: np.einsum("ij", a, a), [x], contract("float32"))
    with pytest.raises(ValueError, match="a letter for each axis"):
        balls(lambda a: np.einsum("ijk->i", a), [x], contract("float32"))
    with pytest.raises(ValueError, match="the same number of terms"):
        balls(lambda a: np.matmul(a, a), [x], contract("float32"))
