"""An accumulator may begin with what is added to a sum: a bias, a residual, another product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import opassay

from ..spec_judging import draw

INNER = 256


def _begun_with(start: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """start + x w, one product after another added to what has been added up."""
    total = start.expand(x.shape[0], w.shape[1]).clone()
    for k in range(x.shape[1]):
        total += x[:, k : k + 1] * w[k]
    return total


SPECS: dict[str, Callable[..., Tensor]] = {
    "addmm": lambda c, x, w: torch.addmm(c, x, w),
    "baddbmm": lambda c, x, w: torch.baddbmm(c[None], x[None], w[None])[0],
    "product + c": lambda c, x, w: x @ w + c,
    "c + product": lambda c, x, w: c + x @ w,
    "product - c": lambda c, x, w: x @ w - (-c),
    "of three dims": lambda c, x, w: (x[None] @ w)[0] + c,
    "moved": lambda c, x, w: ((w.T @ x.T) + c.T).T,
    "alpha": lambda c, x, w: torch.addmm(c, x, w, alpha=0.5, beta=0.5) * 2.0,
    # 0.7 is no float32 number: what is added may be divided by it as it is rounded.
    "alpha that is rounded": lambda c, x, w: torch.addmm(c, x, w, alpha=0.7, beta=0.7) / 0.7,
    "halves": lambda c, x, w: x[:, ::2] @ w[::2] + (c + x[:, 1::2] @ w[1::2]),
}


@pytest.mark.one_fast_in(10)
@pytest.mark.parametrize("name", SPECS)
def test_an_accumulator_that_begins_with_a_matrix_is_accepted(name: str) -> None:
    x, w, c = draw((4, INNER), (INNER, 6), (4, 6))
    x, c = x / INNER, c * 1000
    opassay.assert_conforms(_begun_with(c, x, w), SPECS[name], c, x, w)


@pytest.mark.parametrize("shape", [(6,), (1, 6), (4, 1)])
def test_a_bias_may_come_first(shape: tuple[int, ...]) -> None:
    x, w, b = draw((4, INNER), (INNER, 6), shape)
    x, b = x / INNER, b * 1000
    opassay.assert_conforms(_begun_with(b, x, w), lambda x, w, b: x @ w + b, x, w, b)


def test_two_products_may_share_an_accumulator() -> None:
    a, b, c, d = draw((4, INNER), (INNER, 6), (4, INNER), (INNER, 6))
    a, c = a * 1000, c / INNER
    opassay.assert_conforms(_begun_with(a @ b, c, d), lambda a, b, c, d: a @ b + c @ d, a, b, c, d)


def test_a_convolution_may_begin_with_its_bias_and_a_sum_with_a_residual() -> None:
    x, w, bias = draw((1, 16, 5, 5), (3, 16, 3, 3), (3,))
    x, bias = x / 100, bias * 1000
    columns = functional.unfold(x, 3)[0].T
    first = _begun_with(bias, columns, w.reshape(3, -1).T).T.reshape(1, 3, 3, 3)
    opassay.assert_conforms(first, functional.conv2d, x, w, bias)
    terms, start = draw((4, INNER), (4,))
    total = start * 1000
    for k in range(INNER):
        total = total + terms[:, k]
    opassay.assert_conforms(total, lambda t, s: s * 1000 + t.sum(-1), terms, start)


def test_the_scores_of_attention_may_begin_with_its_mask() -> None:
    """Also where scores are of one of two algorithms, of which each is a sum; each product is lost beside the mask."""
    q, k, v, mask = draw((4, INNER), (12, INNER), (12, 8), (4, 12))
    q, k, mask = q.abs() / 400, k.abs() * torch.linspace(0.1, 1, 12)[:, None], mask + 4000
    scores = _begun_with(mask, q / 16, k.T)  # 1/16 is the scale of attention
    attention = functional.scaled_dot_product_attention
    opassay.assert_conforms(torch.softmax(scores, -1) @ v, lambda q, k, v, m: attention(q, k, v, m), q, k, v, mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_contract_that_allows_more_is_never_narrower(dtype: torch.dtype) -> None:
    q, k, v, mask = draw((4, 64), (12, 64), (12, 8), (4, 12), dtype=dtype)
    attention = functional.scaled_dot_product_attention
    radii = []
    for terms in ("strict", "torch", "fast_math"):
        bound = opassay.bound(lambda q, k, v, m: attention(q, k, v, m), q, k, v, mask, contract=terms)
        assert isinstance(bound, opassay.Bound)
        radii.append(bound.radius)
    assert bool((radii[0] <= radii[1]).all())
    assert bool((radii[1] <= radii[2]).all())


def test_what_is_added_with_too_large_an_error_is_refused() -> None:
    x, w, c = draw((4, INNER), (INNER, 6), (4, 6))
    c = c * 1000
    for spec in (SPECS["addmm"], SPECS["product + c"]):
        with pytest.raises(AssertionError):
            opassay.assert_conforms(spec(c * (1 + 1e-4), x, w), spec, c, x, w)


def test_a_mean_that_is_subtracted_is_no_accumulator() -> None:
    """x − mean(x) is as narrow as ever: nothing begins its sum with x."""
    (x,) = draw((2, 4096))

    def spec(x: Any) -> Any:
        return x - x.mean(-1, keepdim=True)

    bound = opassay.bound(spec, x)
    assert isinstance(bound, opassay.Bound)
    assert float(bound.radius.max()) < 4096 * 2.0**-24 * 1.5
