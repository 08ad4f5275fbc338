"""Gradients at other inputs, in other memory, alone and twice; inputs as they lie; other sizes of integer operands."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from opassay.properties.candidates.judgement import Judgement, Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.layouts import MemoryLayout, place, strides_of
from tests.traced_once import traced_once

ROWS, COLUMNS = 8, 16


def reference(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


class _Norm(torch.autograd.Function):
    """An RMS norm with its usual backward, in which `how` plants a fault."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, how: str) -> Tensor:
        r = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(x, w, r)
        ctx.how, ctx.spent = how, False
        return x * r * w

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        (x, w, r), (g,) = ctx.saved_tensors, cotangents
        how = ctx.how
        if how == "dense":  # reads a cotangent as if it lay without gaps
            flat = torch.as_strided(g, (g.untyped_storage().nbytes() // g.element_size(),), (1,), 0)
            g = torch.cat([flat, flat.new_zeros(g.numel())])[: g.numel()].reshape(g.shape)
        inner = g * w * w if how == "twice" else g * w
        d_x = r * (g * w) - x * r**3 * (inner * x).mean(-1, keepdim=True)
        d_w = (g * x * r).sum(0)
        if how == "positive":  # as if no input were negative
            d_x = d_x * (x > 0)
        if how == "coupled" and not ctx.needs_input_grad[0]:
            d_w = None
        if how == "spoiled":
            x.copy_(d_x)
        if how == "once":
            d_x, ctx.spent = d_x * (2.0 if ctx.spent else 1.0), True
        return d_x, d_w, None


def _kernel(how: str) -> Callable[..., Tensor]:
    def kernel(x: Tensor, w: Tensor) -> Tensor:
        return _Norm.apply(x, w, how)  # type: ignore[no-any-return, no-untyped-call]

    return kernel


def _inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.rand(ROWS, COLUMNS, generator=generator) + 0.5, torch.ones(COLUMNS)


def _causes(judgement: Judgement) -> list[str]:
    return [each.question for each in judgement.causes]


def test_a_right_backward_is_accepted_everywhere() -> None:
    judgement = judge(_kernel("right"), traced_once(reference), _inputs(), questions=["FWD:given", "VJP:grad"])
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("twice", "at other inputs and parameters"),
        ("positive", "at other inputs and parameters"),
        ("dense", "layout     cotangents expanded along axis 0"),
        ("coupled", "in which this operand alone requires a gradient"),
        ("once", "second backward through the same graph"),
        ("spoiled", "was written by the call or by its backward"),
    ],
)
def test_a_backward_that_is_right_in_one_call_alone_is_refused(how: str, line: str) -> None:
    judgement = judge(_kernel(how), traced_once(reference), _inputs(), questions=["FWD:given", "VJP:grad"])
    # All given inputs are positive, so what is wrong at negative ones alone is no cause.
    wrong = judgement.suspicions if how == "positive" else judgement.causes
    assert [finding.question for finding in wrong] == ["VJP:grad"], str(judgement)
    assert line in str(judgement)


def test_the_outputs_of_a_call_that_records_gradients_are_held() -> None:
    def kernel(x: Tensor, w: Tensor) -> Tensor:
        y = reference(x, w)
        return y + 0.5 if y.requires_grad else y

    judgement = judge(kernel, traced_once(reference), _inputs(), questions=["FWD:given", "VJP:grad"])
    assert _causes(judgement) == ["VJP:grad"], str(judgement)
    assert "call       that records gradients" in str(judgement)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _as_rows(x: Tensor) -> Tensor:
    """Copies where the last stride is not 1, and else trusts that rows lie without gaps."""
    if x.stride(-1) != 1:
        x = x.contiguous()
    return softmax(torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), x.storage_offset()))


def _as_transposed(x: Tensor) -> Tensor:
    wrong = x.dim() == 2 and 0 < x.stride(0) < x.stride(1)
    return softmax(torch.as_strided(x, x.shape, (x.shape[1], 1), x.storage_offset()) if wrong else x)


def _as_expanded(x: Tensor) -> Tensor:
    return softmax(x + 0.01 * torch.arange(x.shape[-1]) if 0 in x.stride() else x)


@pytest.mark.parametrize(
    ("kernel", "layout"),
    [(_as_rows, MemoryLayout.ROWS), (_as_transposed, MemoryLayout.TRANSPOSED), (_as_expanded, MemoryLayout.EXPANDED)],
)
def test_every_layout_is_asked_and_that_of_the_given_inputs_is_kept(
    kernel: Callable[[Tensor], Tensor], layout: MemoryLayout
) -> None:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(ROWS, COLUMNS, generator=generator)
    judgement = judge(kernel, traced_once(softmax), (x,), questions=["FWD:given", "LAYOUT:strides"])
    assert _causes(judgement) == ["LAYOUT:strides"], str(judgement)
    assert f"layout     {layout}" in str(judgement)
    values = x[:1].expand(x.shape) if layout is MemoryLayout.EXPANDED else x
    verdict = judge(
        kernel, traced_once(softmax), (place(values, strides_of(layout, x.shape)),), questions=["FWD:given"]
    )
    assert _causes(verdict) == ["FWD:given"], str(verdict)
    assert judge(softmax, softmax, (x,), questions=["FWD:given", "LAYOUT:strides"]).verdict is Ruling.ACCEPTED


def test_a_layout_that_is_refused_is_told() -> None:
    def kernel(x: Tensor) -> Tensor:
        if x.stride(-1) != 1:
            raise ValueError(f"x: got stride {x.stride(-1)}, need 1")
        return softmax(x)

    judgement = judge(kernel, traced_once(softmax), _inputs()[:1], questions=["FWD:given", "LAYOUT:strides"])
    assert judgement.verdict is Ruling.ACCEPTED
    assert "the candidate refuses every second element, transposed" in str(judgement)


@pytest.mark.parametrize("layout", MemoryLayout)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3), (2, 3, 4)])
def test_a_placed_tensor_has_equal_values_and_its_strides(layout: MemoryLayout, shape: tuple[int, ...]) -> None:
    x = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    x = x[:1].expand(shape).clone() if layout is MemoryLayout.EXPANDED and shape and shape[0] else x
    strides = strides_of(layout, shape)
    placed = place(x, strides)
    assert torch.equal(placed, x)
    if x.numel() and shape:
        assert [s for n, s in zip(shape, placed.stride(), strict=True) if n > 1] == [
            s for n, s in zip(shape, strides, strict=True) if n > 1
        ]


@pytest.mark.slow
def test_sizes_beside_integers_are_asked() -> None:
    def embed(w: Tensor, at: Tensor) -> Tensor:
        return w[at]

    def without_a_tail(w: Tensor, at: Tensor) -> Tensor:
        y = embed(w, at).clone()
        y[:, y.shape[1] // 16 * 16 :] = 0.0
        return y

    arguments = torch.randn(10, 32, generator=torch.Generator().manual_seed(5)), torch.tensor([3, 9, 0, 4])
    assert judge(embed, embed, arguments, questions=["FWD:given", "SIZE:sizes"]).verdict is Ruling.ACCEPTED
    assert _causes(judge(without_a_tail, embed, arguments, questions=["FWD:given", "SIZE:sizes"])) == ["SIZE:sizes"]


@pytest.mark.parametrize("wrong", [lambda n: n % 4 == 0, lambda n: n > 1024, lambda n: n % 2 == 1 and n > 1])
def test_aligned_odd_and_large_sizes_are_asked(wrong: Callable[[int], bool]) -> None:
    def kernel(x: Tensor) -> Tensor:
        n = x.shape[-1]
        return softmax(x) * (1.5 if wrong(n) and n != 30 else 1.0)

    arguments = (torch.randn(ROWS, 30, generator=torch.Generator().manual_seed(6)),)
    assert _causes(judge(kernel, traced_once(softmax), arguments, questions=["FWD:given", "SIZE:sizes"])) == [
        "SIZE:sizes"
    ]


@pytest.mark.every_call
@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize("size", [32, 63, 129, 511])
def test_a_size_at_which_alone_a_kernel_is_wrong_is_asked(size: int) -> None:
    def kernel(x: Tensor) -> Tensor:
        return softmax(x) * (1.001 if x.shape[-1] == size else 1)

    arguments = (torch.randn(8, 64),)
    assert _causes(judge(kernel, traced_once(softmax), arguments, questions=["FWD:given", "SIZE:sizes"])) == [
        "SIZE:sizes"
    ]


def _scaled(x: Tensor, w: Tensor, factor: float = 1.01) -> Tensor:
    return reference(x, w) * factor


def _for_parameters(x: Tensor, w: Tensor) -> Tensor:
    return _scaled(x, w) if isinstance(w, torch.nn.Parameter) else reference(x, w)


def _for_compilers(x: Tensor, w: Tensor) -> Tensor:
    return _scaled(x, w) if torch.compiler.is_compiling() else reference(x, w)


def _gradient_for_compilers(x: Tensor, w: Tensor) -> Tensor:
    y = reference(x, w)
    return y.detach() + 1.01 * (y - y.detach()) if torch.compiler.is_compiling() else y


def _for_many_elements(x: Tensor, w: Tensor) -> Tensor:
    y = reference(x, w)
    return torch.cat([y[:-1], y[-1:] * 0]) if y.numel() > 2**20 else y


def _turning_gradients_off(x: Tensor, w: Tensor) -> Tensor:
    y = reference(x, w)
    torch.set_grad_enabled(False)
    return y


def _seeding(generator: Callable[[int], object]) -> Callable[..., Tensor]:
    def kernel(x: Tensor, w: Tensor) -> Tensor:
        generator(0)
        return reference(x, w)

    return kernel


def _with_tf32(x: Tensor, w: Tensor) -> Tensor:
    torch.backends.cuda.matmul.allow_tf32 = True
    return reference(x, w)


@pytest.mark.parametrize(
    ("kernel", "question"),
    [
        (_for_parameters, "VJP:grad"),
        (_for_compilers, "COMP:compiled"),
        (_gradient_for_compilers, "COMP:compiled"),
        (_for_many_elements, "SIZE:sizes"),
        (_turning_gradients_off, "VJP:grad"),
        (_seeding(torch.manual_seed), "PURE:untouched"),
        (_seeding(random.seed), "PURE:untouched"),
        (_seeding(np.random.seed), "PURE:untouched"),
        (_with_tf32, "PURE:untouched"),
    ],
)
def test_a_kernel_that_is_wrong_in_one_surrounding_alone_is_refused(
    kernel: Callable[..., Tensor], question: str
) -> None:
    verdict = judge(kernel, traced_once(reference), _inputs(), questions=["FWD:given", "VJP:grad", question])
    assert _causes(verdict)[:1] == [question], str(verdict)


@pytest.mark.parametrize("function", [F.max_pool1d, F.adaptive_max_pool1d])
def test_a_verdict_does_not_hang_on_what_was_compiled_before(function: Callable[..., Tensor]) -> None:
    def pool(function: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: function(x, 3)

    x = torch.arange(10.0).reshape(1, 1, 10)
    for other in (F.max_pool1d, F.adaptive_max_pool1d):
        torch.compile(pool(other), backend="eager", dynamic=False)(x)
    assert judge(pool(function), pool(function), (x,), questions=["COMP:compiled"]).verdict is Ruling.ACCEPTED
