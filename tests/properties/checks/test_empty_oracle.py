"""EMPTY: a planted fault in each of what it asks, in values, in gradients, and in gradients of gradients."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from opassay.properties.checks.transforms.values import check_empty
from tests.oracles.planted_ops import custom, declared, judge, right_backward, sample, scaled, violation


def _forward(x: Tensor, w: Tensor) -> Tensor:
    return scaled(x, w) * (1 / x.shape[0])


def _backward(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    mean = 1 / g.shape[0]
    return tuple(t * (mean / mean) for t in right_backward(g, x, w))  # type: ignore[return-value]


def _gradient_that_divides(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return custom(backward=_backward)(g, w), right_backward(g, x, w)[1]


@pytest.mark.parametrize(
    ("faulty", "path"),
    [({"forward": _forward}, "forward"), ({"backward": _backward}, "vjp"), ({"backward": _gradient_that_divides}, "∘")],
)
def test_a_division_by_no_elements_is_seen(faulty: dict[str, Any], path: str) -> None:
    result = violation(check_empty, declared(custom(**faulty)), sample(2, lead=(0,)))
    assert result is not None
    assert path in result.message
    assert "ZeroDivisionError" in result.message


def test_the_right_op_passes() -> None:
    assert judge(check_empty, declared(custom()), sample(2, lead=(0,))).judged > 0
