"""ADJ finds a jvp that is not the adjoint of the vjp."""

from __future__ import annotations

from typing import Any

import pytest

from opassay.properties.checks.transforms.values import check_adjointness
from tests.oracles.planted_ops import (
    ALL,
    Subject,
    custom,
    declared,
    judge,
    right_backward,
    right_jvp,
    sample,
    scaled,
    violation,
)

FAULTS: dict[str, Subject] = {
    "sign of one term": custom(jvp=lambda x, w, t_x, t_w: t_x * w - x * t_w),
    "scale of 1 + 2^-16": custom(jvp=lambda x, w, t_x, t_w: right_jvp(x, w, t_x, t_w) * (1 + 2.0**-16)),
    "one term missing": custom(jvp=lambda x, w, t_x, t_w: t_x * w),
    "a neighbour's tangent": custom(jvp=lambda x, w, t_x, t_w: t_x.roll(1, 0) * w + x * t_w),
    "a row missing in the gradient": custom(backward=lambda g, x, w: (g * w, (g * x)[1:].sum(0))),
}


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    result = violation(check_adjointness, declared(FAULTS[name]), sample(1))
    assert result is not None
    assert result.code.name == "ADJOINT"
    assert "⟨ȳ, Jv⟩" in result.message


@pytest.mark.parametrize("subject", [scaled, custom()])
@pytest.mark.parametrize("dtype", ALL)
def test_the_right_op_passes(dtype: str, subject: Subject) -> None:
    for seed in range(10):
        judgement = judge(check_adjointness, declared(subject), sample(seed, dtype), dtype)
        assert judgement.judged == 1, f"seed={seed}"
        assert judgement.measure().max_ratio <= 1, f"seed={seed}"


def test_values_alone_do_not_make_an_adjoint_pair() -> None:
    """Both halves wrong in the same way: adjoint, and left to VJP and JVP."""

    def backward(g: Any, x: Any, w: Any) -> Any:
        d_x, d_w = right_backward(g, x, w)
        return 2 * d_x, 2 * d_w

    both = custom(backward=backward, jvp=lambda x, w, t_x, t_w: 2 * right_jvp(x, w, t_x, t_w))
    result = violation(check_adjointness, declared(both), sample(1))
    assert result is None


def test_outputs_of_another_shape_are_a_finding() -> None:
    result = violation(check_adjointness, declared(lambda x, w: (x * w).reshape(-1)), sample(1))
    assert result is not None
    assert (result.code.name, "out[0] has shape" in result.title) == ("ATTRIBUTE", True)
