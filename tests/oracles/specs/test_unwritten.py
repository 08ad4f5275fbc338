"""A spec that gives memory that nothing has written has no right value, and one that writes all of it has."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from opassay.oracles.specs import UntraceableError
from tests.oracles.spec_judging import Spec, accepted, draw, read


def _by_rows(x: Tensor) -> Tensor:
    result = torch.empty(2, *x.shape)
    result[0] = x
    result[1] = 2 * x
    return result


def _a_part(x: Tensor) -> Tensor:
    result = torch.empty(2, *x.shape)
    result[0] = x
    return result


def _into_place(x: Tensor) -> Tensor:
    result = torch.empty_like(x)
    torch.exp(x, out=result)
    return result


def _filled(x: Tensor) -> Tensor:
    return torch.empty_like(x).fill_(2.0) * x


def _made_smaller(x: Tensor) -> Tensor:
    return x.clone().resize_as_(torch.zeros(2))


def _places(x: Tensor) -> Tensor:
    places = torch.empty(2, dtype=torch.int64)
    places[0], places[1] = 1, 0
    return x[places]


@pytest.mark.parametrize("spec", [_by_rows, _into_place, _filled, _made_smaller, _places])
def test_memory_that_is_written_is_read(spec: Spec) -> None:
    (x,) = draw((3,))
    right = spec(x)
    (ball,) = read(spec, (x,))
    assert accepted(right, ball).all()
    assert not accepted(right * (1.0 + 1e-5), ball).any()


@pytest.mark.parametrize(
    "spec",
    [
        torch.empty_like,
        lambda x: x.new_empty(4),
        lambda x: x.new_empty_strided((4,), (1,)),
        lambda x: torch.empty_strided((2,), (1,)) + x[:2],
        _a_part,
        lambda x: x.clone().resize_(5),
        lambda x: torch.empty(3, dtype=torch.int64) * x,
    ],
)
def test_memory_that_nothing_has_written_is_refused(spec: Spec) -> None:
    with pytest.raises(UntraceableError, match=r"memory that nothing has written .*torch\.zeros"):
        read(spec, draw((3,)))


def test_what_hides_such_memory_is_read() -> None:
    (x,) = draw((3,))
    (ball,) = read(lambda x: torch.where(torch.tensor([True, True, True]), x, torch.empty(3)), (x,))
    assert accepted(x, ball).all()
