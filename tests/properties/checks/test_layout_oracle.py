"""LAYOUT finds an op that reads its operands' memory instead of their values, or writes where it must not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from opassay.properties.checks.layout import LAYOUTS, check_layouts, lay_out
from tests.oracles.planted_ops import (
    ALL,
    Subject,
    accumulating,
    accumulating_sample,
    custom,
    declared,
    right_backward,
    right_jvp,
    sample,
    scaled,
    violations,
)

SEEDS = range(12)


def in_memory_order(t: Tensor) -> Tensor:
    """The elements as they lie in memory, whatever the strides say."""
    strides: list[int] = []
    step = 1
    for extent in reversed(t.shape):
        strides.insert(0, step)
        step *= extent
    return torch.as_strided(t.detach(), t.shape, strides, t.storage_offset())


def _writes_first(x: Tensor, w: Tensor) -> Tensor:
    if x.stride(0):  # an expanded tensor cannot be written to
        x.detach()[..., 0] = 0.5
    return x * w


def _writes_before_its_input(x: Tensor, w: Tensor) -> Tensor:
    torch.as_strided(w.detach(), (1,), (1,), w.storage_offset() - 1).fill_(0.0)
    return x * w


def _writes_between_strides(x: Tensor, w: Tensor) -> Tensor:
    if w.stride(0) == 2:
        torch.as_strided(w.detach(), (1,), (1,), w.storage_offset() + 1).fill_(0.0)
    return x * w


def _backward_in_memory_order(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return right_backward(in_memory_order(g), x, w)


def _tangent_in_memory_order(x: Tensor, w: Tensor, t_x: Tensor, t_w: Tensor) -> Tensor:
    return right_jvp(x, w, in_memory_order(t_x), t_w)


FAULTS: dict[str, tuple[Subject, set[str]]] = {
    "writes into its input": (_writes_first, {"MUTATED", "VALUE"}),
    "writes before its input": (_writes_before_its_input, {"MUTATED"}),
    "writes between the elements of its input": (_writes_between_strides, {"MUTATED"}),
    "ignores the input's strides": (lambda x, w: in_memory_order(x) * w, {"VALUE", "SPECIAL", "RAISED"}),
    "ignores the weight's strides": (lambda x, w: x * in_memory_order(w), {"VALUE", "SPECIAL", "RAISED"}),
    "ignores the cotangent's strides": (
        custom(backward=_backward_in_memory_order), {"VALUE", "SPECIAL", "RAISED"},
    ),
    "ignores the tangent's strides": (custom(jvp=_tangent_in_memory_order), {"VALUE"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    subject, codes = FAULTS[name]
    result = violations(check_layouts, declared(subject), [sample(seed) for seed in SEEDS])
    assert set(result) - {"-"} <= codes
    assert len(result) - result.count("-") >= 2, result


@pytest.mark.parametrize("dtype", ALL)
def test_the_right_op_passes(dtype: str) -> None:
    samples = [sample(seed, dtype, (2, 3, 4)[: seed % 4], 5) for seed in range(12)]
    assert set(violations(check_layouts, declared(scaled), samples, dtype)) == {"-"}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4, 5), (0, 3), (1, 3)])
def test_a_relaid_tensor_has_equal_values_and_canaries_on_both_sides(layout: str, shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    view, buffer = lay_out(tensor, layout)
    assert view.shape == tensor.shape
    assert torch.equal(view, tensor)
    assert view.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr()
    if layout != "expanded":
        assert buffer[:5].isnan().all()
        assert buffer[-5:].isnan().all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layouts_are_what_their_names_say(layout: str) -> None:
    tensor: Any = torch.ones(2, 3, 4, 5)
    view, _ = lay_out(tensor, layout)
    assert view.is_contiguous() is (layout == "offset")
    assert (view.stride(0) == 0) is (layout == "expanded")
    assert view.is_contiguous(memory_format=torch.channels_last) is (layout == "channels_last")
    assert (view.stride(-1) == 2) is (layout == "stepped")


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5, 6)])
def test_channels_lie_last_in_tensors_of_three_dims_and_of_five(shape: tuple[int, ...]) -> None:
    view, _ = lay_out(torch.ones(shape), "channels_last")
    assert view.stride(1) == 1
    assert view.movedim(1, -1).is_contiguous()


def test_an_output_must_have_the_strides_that_are_promised() -> None:
    op = declared(scaled)
    promising = op.changed(strides=lambda args: (torch.empty(args[0].shape).stride(),))

    def made_anew(x: Tensor, w: Tensor) -> Tensor:
        return scaled(x, w).contiguous()

    samples = [sample(seed, "float32", (3, 2, 2), 4) for seed in range(8)]
    assert "ATTRIBUTE" in violations(check_layouts, promising, samples)
    assert set(violations(check_layouts, replace(promising, subjects={"opassay": made_anew}), samples)) == {"-"}


def test_one_element_of_stride_0_is_written_as_any_other() -> None:
    def writes(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
        total.detach().fill_(2.0)
        return x * w

    def refuses(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
        if not total.stride(0):
            raise RuntimeError("total is expanded")
        return writes(x, w, total)

    def find(subject: Subject) -> list[str]:
        op = replace(accumulating(subject), reference=lambda x, w, total: (x * w, total * 0.0 + 2.0))
        return violations(check_layouts, op, [accumulating_sample(1)])

    assert find(writes) == ["-"]
    assert find(refuses) == ["RAISED"]


def test_a_nan_that_is_written_may_have_another_sign_in_a_view() -> None:
    """IEEE 754 leaves the sign of a NaN to the instruction, and other strides may take another one."""
    signs = set()

    def writes(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
        whole = total.untyped_storage().nbytes() == total.element_size()
        signs.add(whole)
        total.detach().fill_(math.copysign(math.nan, 1.0 if whole else -1.0))
        return x * w

    op = replace(accumulating(writes), reference=lambda x, w, total: (x * w, total + np.nan))
    assert violations(check_layouts, op, [accumulating_sample(seed) for seed in range(2)]) == ["-", "-"]
    assert signs == {True, False}
