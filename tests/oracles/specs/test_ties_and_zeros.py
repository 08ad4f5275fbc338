"""At ties, at places that are written twice, and at zeros, values and slopes are those that torch has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from opassay.oracles.bound import accept
from opassay.oracles.bound.rounding import balls
from opassay.oracles.bound.terms import terms
from opassay.oracles.specs import traced
from opassay.reference.derivative import vjp
from opassay.reference.formats import FORMATS
from tests.oracles.spec_judging import Spec, accepted, draw, name_of, read

HALF_TYPES = (torch.bfloat16, torch.float16)
DTYPES = (torch.float32, *HALF_TYPES)


def _slopes(function: Spec, tensors: tuple[Tensor, ...]) -> tuple[list[Tensor], Tensor]:
    leaves = [x.clone().requires_grad_() for x in tensors]
    out = function(*leaves)
    cotangent = torch.linspace(-1.0, 2.0, out.numel()).reshape(out.shape).to(out.dtype)
    return list(torch.autograd.grad(out, leaves, cotangent)), cotangent


def _are_right(gradients: list[Tensor], spec: Spec, tensors: tuple[Tensor, ...], cotangent: Tensor) -> bool:
    """Whether gradients are in the balls of the spec's, in the contract "torch"."""
    name = name_of(tensors[0].dtype)
    formula = traced(spec, *tensors)

    def pulled(*arrays: Any) -> Any:
        return vjp(lambda *xs: formula(*xs)[0], arrays[:-1])[1](arrays[-1])

    operands = [x.double().numpy() for x in (*tensors, cotangent)]
    result = balls(pulled, operands, terms("torch").contract(name, "cpu", 1))
    return all(
        bool(accept.place_in_accept_sets(g.double().numpy(), FORMATS[name], ball, None, order=1).accepted.all())
        for g, ball in zip(gradients, result, strict=True)
    )


def _own_are_right(spec: Spec, *tensors: Tensor) -> bool:
    gradients, cotangent = _slopes(spec, tensors)
    return _are_right(gradients, spec, tensors, cotangent)


def _doubled_are_right(spec: Spec, *tensors: Tensor) -> bool:
    """The same of gradients of which the first is twice what it should be."""
    (first, *rest), cotangent = _slopes(spec, tensors)
    return _are_right([2.0 * first, *rest], spec, tensors, cotangent)


# ------------------------------------------------------------------------------------------------------------- signs


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sign_of_a_zero_is_copied(dtype: torch.dtype) -> None:
    x, sign = torch.tensor([3.0, -3.0, 3.0, -2.0], dtype=dtype), torch.tensor([-0.0, -0.0, 0.0, 0.0], dtype=dtype)
    right = torch.copysign(x, sign)
    assert accepted(right, read(torch.copysign, (x, sign))[0]).all()
    assert not accepted(-right, read(torch.copysign, (x, sign))[0]).any()
    (ball,) = read(lambda x: torch.copysign(x, -0.0), (x,))
    assert accepted(-x.abs(), ball).all()
    assert not accepted(x.abs(), ball).any()
    assert _own_are_right(torch.copysign, x, sign)


def test_the_sign_of_a_zero_that_was_computed_is_open() -> None:
    x, zero = torch.tensor([3.0]), torch.tensor([0.0])
    (ball,) = read(lambda x, sign: torch.copysign(x, 1.0 * sign + sign), (x, zero))
    assert all(accepted(computed, ball).all() for computed in (x, -x))


# ---------------------------------------------------------------------------------------------------------- x log y


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("function", "end"), [(torch.xlogy, 0.0), (torch.special.xlog1py, -1.0)])
def test_zero_times_a_logarithm_has_the_slopes_of_torch(function: Spec, end: float, dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.5, 2.0], dtype=dtype)
    y = torch.tensor([0.5, end, 2.0, 3.0, 0.25, 1.5], dtype=dtype)
    assert _own_are_right(function, x, y)
    assert not _doubled_are_right(function, x, y)
    # Beside an infinite slope, too, that of two zeros may be NaN, as torch has it.
    assert _own_are_right(function, torch.tensor([0.0, 1.0], dtype=dtype), torch.tensor([end, end], dtype=dtype))


# -------------------------------------------------------------------------------------------------------- logsumexp


@pytest.mark.parametrize("offset", [0.0, 100.0, 10_000.0])
def test_the_slope_of_a_logsumexp_may_be_made_of_its_rounded_result(offset: float) -> None:
    (x,) = draw((9, 7))
    x = x + offset

    def spec(x: Tensor) -> Tensor:
        return torch.logsumexp(x, 1)

    assert _own_are_right(spec, x)
    gradients, cotangent = _slopes(spec, (x,))
    wrong = [gradients[0] * (1.0 + 4e-7 * max(offset, 4.0))]
    assert not _are_right(wrong, spec, (x,), cotangent)


# ------------------------------------------------------------------------------------------------------------- ties

_INDEX = torch.tensor([[0, 1, 0], [0, 2, 1], [0, 1, 1], [2, 1, 0]])


def _reduced_at(how: str) -> Spec:
    return lambda x, source: x.scatter_reduce(0, _INDEX, source, how)


def _reduced_rows(how: str) -> Spec:
    return lambda x, source: x.index_reduce(0, torch.tensor([0, 2, 0, 0]), source, how)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", ["amax", "amin"])
@pytest.mark.parametrize("spec_of", [_reduced_at, _reduced_rows])
def test_equal_elements_share_a_slope(spec_of: Callable[[str], Spec], how: str, dtype: torch.dtype) -> None:
    # Places to which a different number of elements goes, of which some are equal.
    x, source = torch.ones(3, 3, dtype=dtype), torch.ones(4, 3, dtype=dtype)
    source[1:, 2] = torch.tensor([2.0, 0.5, 2.0])
    assert _own_are_right(spec_of(how), x, source)
    assert not _doubled_are_right(spec_of(how), x, source)


# ------------------------------------------------------------------------------------------------------ written twice


def _written_to(x: Tensor, source: Tensor) -> Tensor:
    return x.index_put((torch.tensor([1, 1, 3, 1]),), source)


def test_of_several_elements_that_go_to_one_place_any_may_stay() -> None:
    x, source = torch.zeros(5), torch.tensor([3.0, -1.0, 7.0, 2.0])
    (ball,) = read(_written_to, (x, source))
    for stays in (3.0, -1.0, 2.0):
        assert accepted(torch.tensor([0.0, stays, 0.0, 7.0, 0.0]), ball).all()
    assert accepted(torch.tensor([0.0, 4.0, 0.5, 7.5, 0.0]), ball).tolist() == [True, False, False, False, True]
    assert _own_are_right(_written_to, x, source)
    gradients, cotangent = _slopes(_written_to, (x, source))
    gradients[1][2] *= 1.001  # which goes to a place of its own
    assert not _are_right(gradients, _written_to, (x, source), cotangent)


def test_unpooling_to_one_place_has_the_slopes_of_torch() -> None:
    places = torch.tensor([[[0, 3, 3, 7]]])
    (x,) = draw((1, 1, 4))

    def spec(x: Tensor) -> Tensor:
        return F.max_unpool1d(x, places, [2], [2])

    assert _own_are_right(spec, x)
    assert not _doubled_are_right(spec, x)


def test_writing_to_tensors_without_axes_and_to_wider_ones_is_read() -> None:
    x, source = torch.tensor(1.0), torch.tensor(2.0)
    for spec in (
        lambda x, source: torch.as_strided_scatter(x, source, (), ()),
        lambda x, source: torch.index_copy(x, 0, torch.tensor([0]), source),
    ):
        assert read(spec, (x, source))[0].centre == 2.0
    at, one = torch.tensor([0]), torch.ones(1)
    assert read(lambda x, source: torch.index_add(x, 0, at, source.reshape(1)), (x, source))[0].centre == 3.0
    assert read(lambda x, source: torch.index_fill(x, 0, at, 5.0) * source, (x, source))[0].centre == 10.0
    assert read(lambda x: torch.index_fill(x, 0, at[:0], 5.0), (one,))[0].centre == 1.0
    mask = torch.tensor([[True, False], [False, True]])
    (ball,) = read(lambda x, source: torch.masked_scatter(x, mask, source), (torch.zeros(2), torch.ones(4)))
    assert ball.centre.tolist() == [[1.0, 0.0], [0.0, 1.0]]


# ------------------------------------------------------------------------------------------------------- embeddings


def _by_frequency(weight: Tensor, indices: Tensor, by_frequency: bool = True) -> Tensor:
    return F.embedding(indices, weight, scale_grad_by_freq=by_frequency).mean(1)


def _bags_by_frequency(weight: Tensor, indices: Tensor) -> Tensor:
    return F.embedding_bag(indices, weight, scale_grad_by_freq=True)


@pytest.mark.parametrize("spec", [_by_frequency, _bags_by_frequency])
def test_rows_that_are_looked_up_often_have_smaller_slopes_where_that_is_asked_for(spec: Spec) -> None:
    # Of bags torch itself divides by how often another row is looked up: pytorch 2.13 on CPUs.
    (weight,) = draw((5, 4))
    indices = torch.tensor([[1, 1, 3], [0, 1, 3]])
    for by_frequency in (True, False):
        gradients, cotangent = _slopes(
            lambda weight, rows=by_frequency: _by_frequency(weight, indices, rows), (weight,)
        )
        assert _are_right(gradients, lambda weight: spec(weight, indices), (weight,), cotangent) == by_frequency


# ------------------------------------------------------------------------------------------------------------ logits


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("eps", [None, 0.125])
def test_what_is_no_probability_has_the_logit_and_the_slope_of_torch(eps: float | None, dtype: torch.dtype) -> None:
    x = torch.tensor([-0.5, 0.0625, 0.25, 0.498, 0.75, 0.99, 1.5], dtype=dtype)

    def spec(x: Tensor) -> Tensor:
        return torch.logit(x, eps)

    assert _own_are_right(spec, x)
    assert not _doubled_are_right(spec, x)
