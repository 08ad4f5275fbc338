"""Ways in which authors write references, and what is said of those that cannot be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import opassay
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.oracles.specs import UntraceableError, traced

from .test_casts import QUESTIONS, normal

Spec = Callable[..., Any]


class Square(torch.autograd.Function):
    """In the style with a context."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(x)
        ctx.exponent = 2
        power: Tensor = x**ctx.exponent
        return power

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        slope: Tensor = ctx.exponent * x * gradient
        return slope


class Scaled(torch.autograd.Function):
    """In the style with a context, with an argument that has a default."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float = 3.0) -> Tensor:
        return x * factor


class Multiple(torch.autograd.Function):
    """In the style with `setup_context`, which needs an argument that has a default."""

    @staticmethod
    def forward(x: Tensor, factor: float = 3.0) -> Tensor:
        return x * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.factor = inputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * ctx.factor, None


class Largest(torch.autograd.Function):
    """With an output that has no derivatives, in the style with `setup_context`."""

    @staticmethod
    def forward(x: Tensor) -> Any:
        return x.max(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> Tensor:
        x, at = ctx.saved_tensors
        return torch.zeros_like(x).scatter(-1, at[..., None], gradient[..., None])


def with_parameter(x: Tensor, w: Tensor) -> Tensor:
    layer = nn.Linear(8, 4, bias=False)
    layer.weight = nn.Parameter(w)
    return layer(x)  # type: ignore[no-any-return]


def checkpointed(x: Tensor) -> Tensor:
    return checkpoint(lambda y: y.sin() * y, x, use_reentrant=True)  # type: ignore[no-any-return]


def normalised(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return torch.ops.aten.native_layer_norm(x, [8], w, b, 1e-5)


READ: dict[str, tuple[Spec, Spec, Any]] = {
    "parameter": (with_parameter, lambda x, w: with_parameter(x, w) * 1.001, normal((3, 8), (4, 8))),
    "function": (Square.apply, lambda x: x * x * 1.001, normal((4, 8))),
    "function, new style": (Largest.apply, lambda x: x.min(-1), normal((4, 8))),
    "checkpoint": (checkpointed, lambda x: x.sin(), normal((4, 8))),
    "statistics": (
        normalised,
        lambda x, w, b: (*normalised(x, w, b)[:2], normalised(x * 1.001, w, b)[2]),
        normal((4, 8), (8,), (8,)),
    ),
}


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("name", READ)
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_spec_of_this_kind_accepts_itself_and_refuses_a_fault(name: str) -> None:
    spec, fault, inputs = READ[name]
    judgement = opassay.judge(spec, spec, inputs, questions=QUESTIONS)
    assert judgement.verdict == "accepted", str(judgement)
    assert opassay.judge(fault, spec, inputs, questions=QUESTIONS).verdict == "rejected"


@pytest.mark.parametrize("function", [Scaled, Multiple])
def test_arguments_of_a_custom_function_may_have_defaults(function: Any) -> None:
    x = torch.tensor([1.5, -2.0])
    specs: list[Spec] = [function.apply, lambda x: function.apply(x, 5.0)]
    if function is Multiple:  # The old style takes no keywords.
        specs.append(lambda x: function.apply(x, factor=5.0))  # type: ignore[no-untyped-call]
    for spec, factor in zip(specs, (3.0, 5.0, 5.0), strict=False):
        (ball,) = balls(traced(spec, x), [x.double().numpy()], contract("float32"))
        assert ball.centre.tolist() == [1.5 * factor, -2.0 * factor]


def test_what_was_changed_in_torch_for_a_trace_is_changed_back() -> None:
    (x,) = normal((4,))(0)
    traced(Square.apply, x)
    assert isinstance(nn.Parameter(x), nn.Parameter)
    assert nn.Parameter(x).requires_grad
    x.requires_grad_()
    Square.apply(x).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert torch.equal(x.grad, 2 * x.detach())
    slope = torch.func.grad(lambda x: Multiple.apply(x).sum())(x.detach())  # type: ignore[no-untyped-call]
    assert slope.tolist() == [3.0] * 4
    with pytest.raises(RuntimeError, match="must override the setup_context"):
        torch.func.grad(lambda x: Square.apply(x).sum())(x.detach())  # type: ignore[no-untyped-call]


@pytest.mark.slow
def test_a_compiled_spec_is_read_as_its_original() -> None:
    compiled = torch.compile(lambda x: torch.softmax(x, -1))
    judgement = opassay.judge(
        lambda x: 2 * torch.softmax(x, -1), lambda x: 2 * compiled(x), normal((4, 8)), questions=QUESTIONS
    )
    assert judgement.verdict == "accepted", str(judgement)
    layer = nn.Linear(8, 4)
    assert opassay.judge(layer, torch.compile(layer), normal((3, 8)), questions=QUESTIONS).verdict == "accepted"


class Making(nn.Module):
    """Makes a constant when it is called first."""

    table: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "table"):
            self.table = torch.arange(4.0)
        return x * self.table


#: Eight pairs of numbers of four bits, for which torch has products of matrices alone.
PAIRS = torch.zeros(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
HALVES = torch.zeros(3, 2).half().view(torch.complex32)
UNREAD: dict[str, tuple[Spec, tuple[Tensor, ...], str]] = {
    "complex": (
        lambda x: x * 2,
        (HALVES,),
        "complex; write its real and its imaginary",
    ),
    "complex inside": (
        lambda x: torch.linalg.det(torch.complex(x, x).view(2, 2, 2)).abs(),
        (torch.ones(8),),
        "linalg_det.*test_ways_to_write.py.*complex",
    ),
    "complex output": (lambda x: torch.complex(x, x), (torch.ones(8).half(),), "complex"),
    "pairs": (lambda x: x * x, (PAIRS,), "not implemented for 'Float4_e2m1fn_x2'"),
    "sparse": (lambda x: x.to_dense(), (torch.eye(3).to_sparse(),), "sparse_coo, need a plain tensor: .to_dense"),
    "meta": (lambda x: x * 2, (torch.empty(3, device="meta"),), "on device meta, need a tensor of numbers"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_cannot_be_read_ends_with_a_sentence(name: str) -> None:
    spec, inputs, text = UNREAD[name]
    judgement = opassay.judge(spec, spec, inputs, questions=QUESTIONS)
    assert judgement.verdict == "error"
    assert re.search(text, judgement.error), judgement.error
    assert "bug" not in judgement.error


def test_a_constant_that_the_first_call_makes_is_no_state() -> None:
    (x,) = normal((4,))(0)
    judgement = opassay.judge(lambda a: a * torch.arange(4.0), Making(), (x,), questions=QUESTIONS)
    assert judgement.verdict == "accepted", str(judgement)


def test_any_exception_of_a_rule_names_the_line_and_advises_no_numpy() -> None:
    def spec(x: Tensor, y: Tensor) -> Tensor:
        return x.index_add(0, (y / 3).long(), x)

    graph = traced(spec, torch.ones(2), torch.tensor([3.0, 0.0]))
    message = r"index_add.*line \d+ of test_ways_to_write.py.*writes at a place"
    with pytest.raises(UntraceableError, match=message) as info:
        balls(graph, [np.ones(2), np.array([3.0, 0.0])], contract("float32"))
    assert "numpy" not in str(info.value)
