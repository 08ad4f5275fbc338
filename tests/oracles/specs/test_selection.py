"""Pooling, scans and sorting: what torch computes and chooses is right, planted faults are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball, balls
from opassay.oracles.specs import traced
from opassay.reference.choice import Choice
from opassay.reference.derivative import vjp
from opassay.reference.exact import evaluate, to_float_pair
from opassay.reference.missing import NoReadingError

from ..spec_judging import accepted, draw, gradients_agree, read

Spec = Callable[..., Any]
PLANE, ROWS = (2, 3, 7, 8), (3, 9, 2)

POOLING: dict[str, tuple[Spec, tuple[int, ...]]] = {
    "avg_pool1d": (lambda x: functional.avg_pool1d(x, 4, 3, 2, True, False), (2, 3, 11)),
    "avg_pool2d": (lambda x: functional.avg_pool2d(x, 3, 2, 1), PLANE),
    "avg_pool2d, ceil": (lambda x: functional.avg_pool2d(x, (2, 3), 2, 1, True, True), PLANE),
    "avg_pool2d, divisor": (lambda x: functional.avg_pool2d(x, 3, 2, 1, divisor_override=5), PLANE),
    "avg_pool3d": (lambda x: functional.avg_pool3d(x, 2, ceil_mode=True), (1, 2, 5, 5, 4)),
    "adaptive_avg_pool1d": (lambda x: functional.adaptive_avg_pool1d(x, 4), (2, 3, 10)),
    "adaptive_avg_pool2d": (lambda x: functional.adaptive_avg_pool2d(x, (3, 2)), PLANE),
    "adaptive_avg_pool3d": (lambda x: functional.adaptive_avg_pool3d(x, (2, None, 3)), (1, 2, 4, 5, 6)),
    "fold": (lambda x: functional.fold(x, (5, 6), (3, 2), 1, 1, 2), (2, 12, 12)),
    "unfold": (lambda x: functional.unfold(x, (3, 2), (1, 2), 1, 2), PLANE),
    "windows": (lambda x: x.unfold(1, 3, 2), (2, 9)),
    "max_pool1d": (lambda x: functional.max_pool1d(x, 3, 2, 1, dilation=2, return_indices=True), (3, 11)),
    "max_pool2d": (
        lambda x: functional.max_pool2d(x, (3, 2), 2, 1, dilation=(2, 1), ceil_mode=True, return_indices=True),
        PLANE,
    ),
    "max_pool3d": (lambda x: functional.max_pool3d(x, 2, ceil_mode=True, return_indices=True), (1, 2, 5, 5, 4)),
    "adaptive_max_pool1d": (lambda x: functional.adaptive_max_pool1d(x, 5, return_indices=True), (2, 3, 10)),
    "adaptive_max_pool2d": (lambda x: functional.adaptive_max_pool2d(x, (7, 2), return_indices=True), PLANE),
    "adaptive_max_pool3d": (lambda x: functional.adaptive_max_pool3d(x, (2, 3, 2)), (1, 2, 4, 5, 6)),
}
ORDERS: dict[str, tuple[Spec, tuple[int, ...]]] = {
    "cumsum": (lambda x: torch.cumsum(x, 1), ROWS),
    "cumprod": (lambda x: torch.cumprod(x, 1), ROWS),
    "prod": (lambda x: torch.prod(x, 1), ROWS),
    "prod of all": (torch.prod, (3, 2)),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x, 1), ROWS),
    "cummax": (lambda x: torch.cummax(x, 1), ROWS),
    "cummin": (lambda x: torch.cummin(x, -1), (3, 9)),
    "sort": (lambda x: torch.sort(x, 1, descending=True), ROWS),
    "sort of a vector": (torch.sort, (9,)),
    "topk": (lambda x: torch.topk(x, 3, 1), ROWS),
    "topk of the smallest": (lambda x: torch.topk(x, 3, 0, largest=False), (9, 2)),
    "kthvalue": (lambda x: torch.kthvalue(x, 3, 1), ROWS),
    "median along": (lambda x: torch.median(x, 1, keepdim=True), ROWS),
    "median": (torch.median, (3, 8)),
    "max along": (lambda x: torch.max(x, 1), ROWS),
    "min along": (lambda x: torch.min(x, 1, keepdim=True), ROWS),
    "min": (torch.min, ROWS),
}
SELECTIONS: dict[str, tuple[Spec, tuple[int, ...]]] = {
    "argmax": (lambda x: torch.argmax(x, 1), ROWS),
    "argmax of all": (torch.argmax, ROWS),
    "argmin": (lambda x: torch.argmin(x, 0, keepdim=True), ROWS),
    "argsort": (lambda x: torch.argsort(x, 1), ROWS),
}
SPECS = POOLING | ORDERS
#: Kernels of torch that add or multiply in the half format itself, or have none for it.
IN_HALF = {"avg_pool3d", "adaptive_avg_pool3d", "cumprod", "cumsum", "prod", "prod of all", "logcumsumexp", "fold"}


def _listed(output: Any) -> list[Any]:
    return list(output) if isinstance(output, tuple) else [output]


def _values(spec: Spec) -> Spec:
    """The outputs of a spec that are not indices, of which there is one."""
    return lambda x: _listed(spec(x))[0]


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("name", SPECS | SELECTIONS)
def test_what_torch_computes_and_chooses_is_right(name: str) -> None:
    spec, shape = (SPECS | SELECTIONS)[name]
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        if name in IN_HALF and dtype != torch.float32:
            continue
        (x,) = draw(shape, dtype=dtype)
        for output, result in zip(_listed(spec(x)), read(spec, (x,)), strict=True):
            if isinstance(result, Choice):
                assert result.accepts(output.numpy()).all()
                assert result.accepts(result.likely()).all()
                assert not result.accepts(np.full(result.shape, -1)).any()
                assert not result.accepts(output.numpy() + 1).all()
            else:
                assert accepted(output, result).all(), dtype


@pytest.mark.parametrize("name", SPECS)
def test_a_relative_error_and_a_wrong_element_are_refused(name: str) -> None:
    spec, shape = SPECS[name]
    (x,) = draw(shape)
    (ball,) = read(_values(spec), (x,))
    right = _values(spec)(x)
    assert not accepted(right * (1 + 1e-5), ball).all()
    wrong = right.clone()
    wrong.view(-1)[int(right.abs().argmax())] = 0.0
    assert not accepted(wrong, ball).all()


@pytest.mark.parametrize("name", SPECS)
def test_gradients_are_those_of_autograd(name: str) -> None:
    spec, shape = SPECS[name]
    assert gradients_agree(_values(spec), *draw(shape))


@pytest.mark.parametrize("name", ["avg_pool2d, ceil", "max_pool2d", "fold", *ORDERS])
def test_the_exact_value_is_in_the_ball(name: str) -> None:
    spec, shape = SPECS[name]
    (x,) = draw(shape)
    (ball,) = read(_values(spec), (x,))
    ((exact,), _) = evaluate(traced(_values(spec), x), x.double().numpy())
    high, low = to_float_pair(exact)
    assert (np.abs((ball.centre - high) - low) <= ball.radii()).all()


@pytest.mark.parametrize("product", [torch.cumprod, torch.prod])
def test_products_with_zeros_have_the_gradients_of_autograd(product: Any) -> None:
    (x,) = draw((2, 5))
    x[0, 2] = x[1, 1] = x[1, 3] = 0.0
    assert gradients_agree(lambda a: product(a, 1), x)


def test_any_order_of_a_prefix_sum_is_in_the_ball() -> None:
    (x,) = draw((64,))
    (ball,) = read(lambda a: torch.cumsum(a, 0), (x,))
    blocks = torch.cumsum(x.reshape(8, 8), 1)
    before = torch.cumsum(blocks[:, -1], 0) - blocks[:, -1]
    backwards = torch.stack([x[: k + 1].flip(0).cumsum(0)[-1] for k in range(64)])
    assert accepted(backwards, ball).all()
    assert accepted((blocks + before[:, None]).reshape(-1), ball)[:8].all()
    assert not accepted(torch.cat([torch.zeros(1), x.cumsum(0)[:-1]]), ball).all()


def _scan_of_pairs(x: Tensor) -> Tensor:
    """log Σ exp along dim 1 by pairs of the largest number and the sum, joined along a tree."""
    largest, total, step = x, torch.ones_like(x), 1
    while step < x.shape[1]:
        new = torch.maximum(largest[:, step:], largest[:, :-step])
        joined = total[:, step:] * torch.exp(largest[:, step:] - new)
        joined = joined + total[:, :-step] * torch.exp(largest[:, :-step] - new)
        total, largest = torch.cat([total[:, :step], joined], 1), torch.cat([largest[:, :step], new], 1)
        step *= 2
    return largest + total.log()


def test_a_scan_by_pairs_of_the_largest_number_and_a_sum_is_in_the_ball() -> None:
    """Where the result is near 0 it has lost what a sum by log1p keeps; a part of 1e-5 of a term is no rounding."""
    for seed in range(40):
        x = 3 * torch.randn(3, 12, generator=torch.Generator().manual_seed(seed))
        (ball,) = read(lambda a: torch.logcumsumexp(a, 1), (x,))
        assert accepted(_scan_of_pairs(x), ball).all()
        assert accepted(torch.logcumsumexp(x, 1), ball).all()
        assert not accepted(_scan_of_pairs(x) + 1e-5, ball).all()
    masked = torch.tensor([[-torch.inf, -torch.inf, 0.5, -torch.inf]])
    (ball,) = read(lambda a: torch.logcumsumexp(a, 1), (masked,))
    assert np.array_equal(ball.centre, [[-np.inf, -np.inf, 0.5, 0.5]])


def test_the_index_of_what_may_be_the_largest_is_accepted() -> None:
    """After a division that rounds, two elements are too near for a decision, and a third is not."""
    x = torch.tensor([[3.0, 3.0 * (1 + 2.0**-23), 1.0]])
    (result,) = read(lambda a: torch.argmax(a / 7.0, 1), (x,))
    assert isinstance(result, Choice)
    assert [bool(result.accepts(np.array([i]))[0]) for i in range(3)] == [True, True, False]
    assert not result.sure().any()
    with pytest.raises(NoReadingError, match="rounding decides"):
        np.asarray(result)
    with pytest.raises(ValueError, match="need"):
        result.accepts(np.zeros(2, dtype=int))


def test_sorted_indices_are_a_permutation_that_sorts() -> None:
    x = torch.tensor([2.0, 1.0, 2.0, 5.0])
    _, result = read(torch.sort, (x,))
    assert isinstance(result, Choice)
    right = ([1, 0, 2, 3], [1, 2, 0, 3])
    wrong = ([1, 0, 0, 3], [0, 1, 2, 3], [1, 2, 3, 0])
    assert all(result.accepts(np.array(each)).all() for each in right)
    assert not any(result.accepts(np.array(each)).all() for each in wrong)
    _, largest = read(lambda a: torch.topk(a, 2), (x,))
    assert isinstance(largest, Choice)
    assert largest.accepts(np.array([3, 2])).all()
    assert not largest.accepts(np.array([3, 1])).all()


def test_a_gradient_through_a_tie_may_go_either_way() -> None:
    def pulled(x: Any, g: Any) -> Any:
        return vjp(lambda a: np.sort(a), [x])[1](g)

    (ball,) = balls(pulled, [np.array([2.0, 1.0, 2.0]), np.array([4.0, 8.0, 16.0])], contract("float32"))
    for candidate in ([8.0, 4.0, 16.0], [16.0, 4.0, 8.0]):
        assert (np.abs(ball.centre - candidate) <= ball.radii()).all()
    assert not abs(ball.centre[0] - 25.0) <= ball.radii()[0]


def test_a_nan_is_the_largest_and_makes_a_median_nan() -> None:
    (x,) = draw((9,))
    x[3] = torch.nan
    for spec in (torch.median, lambda a: torch.sort(a)[0], lambda a: torch.cumsum(a, 0), lambda a: torch.max(a, 0)[0]):
        (ball,) = read(spec, (x,))
        need = np.isnan(spec(x).numpy())
        assert isinstance(ball, Ball)
        assert (np.isnan(ball.centre) == need).all()
        assert (np.broadcast_to(ball.radii(), need.shape)[need] == 0).all()


def test_products_that_overflow_on_the_way_are_not_judged() -> None:
    x = torch.tensor([1e30, 1e30, 1e-30, 1e-30])
    (ball,) = read(lambda a: torch.prod(a, 0), (x,))
    assert np.isinf(ball.radii())


#: Of a tensor (rows, 4): elements at indices that its own elements choose.
_CHOSEN: dict[str, Callable[[Tensor], Tensor]] = {
    "argmax": lambda x: x.argmax(1, keepdim=True),
    "argmin": lambda x: x.argmin(1, keepdim=True),
    "max": lambda x: x.max(1, keepdim=True).indices,
    "min": lambda x: x.min(1, keepdim=True).indices,
    "topk": lambda x: x.topk(3, 1).indices,
    "topk of the least": lambda x: x.topk(3, 1, largest=False).indices,
    "sort": lambda x: x.sort(1, descending=True).indices,
    "stable sort": lambda x: x.sort(dim=1, stable=True).indices,
    "argsort": lambda x: x.argsort(1),
    "kthvalue": lambda x: x.kthvalue(2, 1, keepdim=True).indices,
    "median": lambda x: x.median(1, keepdim=True).indices,
    "mode": lambda x: x.mode(1, keepdim=True).indices,
}


@pytest.mark.parametrize("name", _CHOSEN)
def test_exact_values_choose_as_balls_do_at_nan_infinities_and_ties(name: str) -> None:
    nan, inf = np.nan, np.inf
    rows = [[1, nan, 3, 2], [1, inf, inf, 0], [nan, nan, 1, 2], [-inf] * 4, [inf, nan, 1, 2], [0, nan, nan, -inf]]
    x = torch.tensor([*rows, [1.0, 2.0, 2.0, 1.0], [2.0, nan, inf, 1.0]])
    formula = traced(lambda x, g: x.gather(1, _CHOSEN[name](x)) + g.sum() * 0, x, torch.ones(1))
    operands = [x.double().numpy(), np.ones(1)]
    (bound,) = balls(formula, operands, contract("float32"))
    ((exact,), _) = evaluate(formula, *operands)
    assert np.array_equal(to_float_pair(exact)[0], bound.centre, equal_nan=True)
    if name in ("argmax", "argmin", "max", "min", "median"):
        assert np.array_equal(x.gather(1, _CHOSEN[name](x)).numpy(), bound.centre, equal_nan=True)
