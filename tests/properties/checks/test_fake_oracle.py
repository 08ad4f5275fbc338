"""FAKE finds meta and fake outputs that eager tensors do not keep."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from opassay.properties.checks.fake import check_fakes
from tests.oracles.planted_ops import ALL, Subject, declared, judge, sample, scaled, violation


def _is_fake(x: Any) -> bool:
    return isinstance(x, FakeTensor) or x.is_meta


def _unless_fake(other: Subject) -> Subject:
    return lambda x, w: other(x, w) if _is_fake(x) else x * w


def _in_a_fake_batch(other: Subject) -> Subject:
    """Wrong only where vmap has a batch of fake tensors."""

    def op(x: Tensor, w: Tensor) -> Tensor:
        batch = torch._C._functorch.is_batchedtensor(x)
        return other(x, w) if batch and _is_fake(torch._C._functorch.get_unwrapped(x)) else x * w

    return op


FAULTS: dict[str, tuple[Subject, str, str]] = {
    "another shape": (_unless_fake(lambda x, w: (x * w)[:1]), "ATTRIBUTE", "shape: got (1, 5), eager has (4, 5)"),
    "another dtype": (_unless_fake(lambda x, w: (x * w).double()), "ATTRIBUTE", "dtype: got torch.float64"),
    "other strides": (_unless_fake(lambda x, w: (x.t().contiguous().t() * w)), "ATTRIBUTE", "stride: got (1, 4)"),
    "another device": (
        lambda x, w: (x * w).to("meta") if isinstance(x, FakeTensor) else x * w, "ATTRIBUTE", "device: got meta",
    ),
    "one output more": (_unless_fake(lambda x, w: (x * w, x + w)), "ATTRIBUTE", "got 4 outputs, eager has 3"),
    "another shape in a batch": (_in_a_fake_batch(lambda x, w: (x * w)[:1]), "ATTRIBUTE", "shape: got (7, 1, 5)"),
    "a batch refused": (_in_a_fake_batch(lambda x, w: x.view(-1, 11)), "RAISED", "fake tensors, vmap"),
    "reads a value": (lambda x, w: x * w if x.sum().item() < 1e9 else x, "RAISED", "fake tensors"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    subject, code, text = FAULTS[name]
    result = violation(check_fakes, declared(subject), sample(1))
    assert result is not None
    assert result.code.name == code, result.message
    assert text in result.message


@pytest.mark.parametrize("rule", ["as the kernel", "another shape", "none"])
def test_the_shape_rule_of_an_operator_is_asked_of_outputs_that_nobody_sees(rule: str) -> None:
    def keep(x: Tensor) -> Tensor | None:
        return None if rule == "none" else x.new_empty((*x.shape, 1) if rule == "another shape" else x.shape)

    def op(x: Tensor, w: Tensor) -> Tensor:
        torch.ops.planted_rules.product(x.detach(), w.detach())
        return x * w

    with torch.library._scoped_library("planted_rules", "DEF") as library:
        library.define("product(Tensor x, Tensor w) -> (Tensor, Tensor)")
        library.impl(
            "product", lambda x, w: ((x * w).contiguous(), x.clone(memory_format=torch.contiguous_format)), "CPU"
        )
        torch.library.register_fake("planted_rules::product", lambda x, w: (x.new_empty(x.shape), keep(x)), lib=library)
        result = violation(check_fakes, declared(op), sample(1))
    assert (result is None) is (rule == "as the kernel")
    assert result is None or result.code.name == "ATTRIBUTE"
    assert result is None or "the shape rule of planted_rules::product" in result.message


@pytest.mark.one_fast_in(7)
@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("lead", [(), (3,), (0,), (2, 1)])
def test_the_right_op_passes(dtype: str, lead: tuple[int, ...]) -> None:
    assert judge(check_fakes, declared(scaled), sample(1, dtype, lead), dtype).judged == 9


def test_what_vmap_refuses_of_real_tensors_is_not_asked_of_fake_ones() -> None:
    def op(x: Tensor, w: Tensor) -> Tensor:
        if torch._C._functorch.is_batchedtensor(x):
            raise RuntimeError("no vmap")
        return x * w

    assert judge(check_fakes, declared(op), sample(1)).judged == 6


def test_strides_of_axes_with_one_element_say_nothing() -> None:
    def op(x: Tensor, w: Tensor) -> Tensor:
        y = x * w
        return torch.as_strided(y, y.shape, (7, 1)) if _is_fake(x) else y

    assert violation(check_fakes, declared(op), sample(1, lead=(1,))) is None
