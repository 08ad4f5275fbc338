"""AUTOCAST finds another dtype or lost digits under autocast, plain and in a batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from opassay.properties.checks.autocast import check_autocast
from tests.oracles.planted_ops import Subject, custom, declared, judge, right_backward, sample, scaled, violation


def _on() -> bool:
    return torch.is_autocast_enabled("cpu")


def _half_under_autocast(x: Tensor, w: Tensor) -> Tensor:
    return (x * w).bfloat16() if _on() else x * w


def _half_in_between(x: Tensor, w: Tensor) -> Tensor:
    return (x.bfloat16() * w.bfloat16()).to(x.dtype) if _on() else x * w


def _half_in_a_batch(x: Tensor, w: Tensor) -> Tensor:
    batched = torch._C._functorch.is_functorch_wrapped_tensor(x)
    return (x * w).bfloat16() if _on() and batched else x * w


def _half_gradient(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    d_x, d_w = right_backward(g, x, w)
    return d_x, d_w.bfloat16().to(d_w.dtype)


FAULTS: dict[str, tuple[Subject, str]] = {
    "another dtype": (_half_under_autocast, "ATTRIBUTE"),
    "computed in bfloat16": (_half_in_between, "VALUE"),
    "another dtype in a batch": (_half_in_a_batch, "ATTRIBUTE"),
    "a gradient in bfloat16": (custom(backward=_half_gradient), "VALUE"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    subject, code = FAULTS[name]
    result = violation(check_autocast, declared(subject, subjects={"opassay": subject, "torch": torch.mul}), sample(1))
    assert result is not None
    assert result.code.name == code, result.message
    assert not _on()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_right_op_passes(dtype: str) -> None:
    op = declared(scaled, subjects={"opassay": scaled, "torch": torch.mul})
    assert judge(check_autocast, op, sample(1, dtype), dtype).judged > 0
