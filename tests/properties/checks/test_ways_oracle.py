"""WAYS finds what depends on how an op is called: spelling, modes, graphs, numbers of slices and of dims."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.oracles.op.declaration import Op, Sample
from opassay.properties.checks.ways.calling import check_ways
from opassay.properties.checks.ways.following import check_subclasses, check_under_mode
from tests.oracles.planted_ops import (
    ALL,
    accumulated,
    accumulating,
    accumulating_sample,
    custom,
    declared,
    judge,
    right_backward,
    sample,
    scaled,
    violation,
)

Subject = Callable[..., Any]


def _shifted(x: Tensor, w: Tensor, shape: Any, shift: float = 0.5) -> Tensor:
    """The right op: x w + shift; shape is that of w."""
    if tuple(shape) != tuple(w.shape):
        raise RuntimeError("shape")
    return (x.double() * w.double() + shift).to(x.dtype)


def _op(subject: Subject) -> Op:
    def formula(x: Any, w: Any, shape: Any, shift: float = 0.5) -> Any:
        return x * w + shift

    return declared(subject, reference=formula)


def _sample(seed: int = 1, dtype: str = "float32", lead: tuple[int, ...] = (4,)) -> Sample:
    case = sample(seed, dtype, lead, slices=3)
    return replace(case, args=(*case.args, (5,), 0.25), slices=tuple((*a, (5,), 0.25) for a in case.slices))


def _other_default(x: Tensor, w: Tensor, shape: Any, shift: float = 0.0) -> Tensor:
    return _shifted(x, w, shape, shift)


@functools.wraps(_shifted)
def _loses_a_keyword(*args: Any, **named: Any) -> Tensor:
    named.pop("shift", None)
    return _shifted(*args, **named)


def _tuples_alone(x: Tensor, w: Tensor, shape: Any, shift: float = 0.5) -> Tensor:
    return _shifted(x, w, shape, shift) if isinstance(shape, tuple) else x * w


def _changed_if(condition: Callable[[Tensor, Tensor], bool], other: Subject | None = None) -> Subject:
    def op(x: Tensor, w: Tensor, shape: Any, shift: float = 0.5) -> Any:
        if condition(x, w):
            return _shifted(x, w, shape, shift) * 1.5 if other is None else other(x, w, shape, shift)
        return _shifted(x, w, shape, shift)

    return op


def _many(x: Tensor, w: Tensor) -> bool:
    return bool(torch._C._functorch.maybe_get_level(x) > 0 and _below(x).shape[0] > 16)


def _one(x: Tensor, w: Tensor) -> bool:
    return bool(torch._C._functorch.maybe_get_level(w) > 0 and _below(w).shape[0] == 1)


def _below(x: Tensor) -> Tensor:
    return torch._C._functorch.get_unwrapped(x)


def _last_context() -> Subject:
    """x w whose backward uses the inputs of the last call, whichever graph it belongs to."""
    memory: list[tuple[Tensor, Tensor]] = []

    def forward(x: Tensor, w: Tensor) -> Tensor:
        memory.append((x.detach(), w.detach()))
        return scaled(x, w)

    return custom(forward=forward, backward=lambda g, x, w: right_backward(g, *memory[-1]))


def _used_up() -> Subject:
    """x w whose backward doubles what it saved, so that a second one finds other values."""

    def backward(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        grads = right_backward(g, x, w)
        with torch.no_grad():
            x.data.mul_(2)
        return grads

    return custom(backward=backward)


def _in_order() -> Subject:
    """x w whose backward takes what the earliest call left, as if graphs were differentiated in their order."""
    contexts: list[tuple[Tensor, Tensor]] = []

    def forward(x: Tensor, w: Tensor) -> Tensor:
        if x.requires_grad or w.requires_grad or torch.is_grad_enabled():
            contexts.append((x.detach(), w.detach()))
        return scaled(x, w)

    return custom(forward=forward, backward=lambda g, x, w: right_backward(g, *contexts.pop(0)))


def _with_shift(product: Subject) -> Subject:
    return lambda x, w, shape, shift=0.5: product(x, w) + shift


def _refuses_twice(x: Tensor, w: Tensor, shape: Any, shift: float = 0.5) -> Tensor:
    """Its second backward gives gradients of zero, where torch has an error."""

    class Once(torch.autograd.Function):
        used = False

        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.x, ctx.w = x, w
            return scaled(x, w)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            used, Once.used = Once.used, True
            grads = right_backward(g, ctx.x, ctx.w)
            return tuple(t * 0 for t in grads) if used else grads

    apply: Subject = Once.apply
    result: Tensor = apply(x, w) + shift
    return result


def _raising(error: type[BaseException]) -> Subject:
    def op(*args: Any) -> Any:
        raise error("of the op")

    return op


FAULTS: dict[str, tuple[Subject, str, str]] = {
    "another default": (_other_default, "VALUE", "shift left out"),
    "a list is another thing": (_tuples_alone, "VALUE", "a list for shape"),
    "a keyword is lost": (_loses_a_keyword, "VALUE", "all arguments by keyword"),
    "a parameter is another thing": (
        _changed_if(lambda x, w: isinstance(w, torch.nn.Parameter)), "VALUE", "parameters in place of tensors",
    ),
    "a parameter comes back": (
        _changed_if(lambda x, w: isinstance(w, torch.nn.Parameter), lambda x, w, *rest: torch.nn.Parameter(x * w)),
        "ATTRIBUTE", "is a Parameter",
    ),
    "an argument comes back": (
        _changed_if(lambda x, w: isinstance(x, torch.nn.Parameter), lambda x, w, *rest: x),
        "ALIASED", "is an argument itself",
    ),
    "other values in inference mode": (
        _changed_if(lambda x, w: torch.is_inference_mode_enabled()), "BITS", "in inference mode",
    ),
    "other values with deterministic algorithms": (
        _changed_if(lambda x, w: torch.are_deterministic_algorithms_enabled()), "VALUE", "deterministic algorithms",
    ),
    "gradients under no_grad": (
        _changed_if(lambda x, w: x.requires_grad and not torch.is_grad_enabled(),
                    lambda *args: _shifted(*args).requires_grad_()),
        "ATTRIBUTE", "an output requires a gradient",
    ),
    "the context of the last call": (_with_shift(_last_context()), "VALUE", "whose graphs are alive"),
    "backward uses up what it saved": (_with_shift(_used_up()), "VALUE", "second backward over one graph"),
    "graphs in their order": (_with_shift(_in_order()), "VALUE", "whose graphs are alive"),
    "other gradients the second time": (_refuses_twice, "VALUE", "second backward"),
    "many slices": (_changed_if(_many), "VALUE", "vmap over 33 slices"),
    "one slice": (_changed_if(_one), "VALUE", "vmap over one slice of w"),
    "one slice is refused": (_changed_if(_one, _raising(IndexError)), "RAISED", "refused, and two slices are taken"),
    "five dims": (_changed_if(lambda x, w: x.ndim == 5), "VALUE", "5 dims"),
    "six dims": (_changed_if(lambda x, w: x.ndim == 6), "VALUE", "6 dims"),
    "an assertion fails at six dims": (
        _changed_if(lambda x, w: x.ndim == 6, _raising(AssertionError)), "RAISED", "raised AssertionError",
    ),
    "an attribute is missing at five dims": (
        _changed_if(lambda x, w: x.ndim == 5, lambda x, *rest: x.of_four_dims), "RAISED", "raised AttributeError",
    ),
    "the process is to end at five dims": (
        _changed_if(lambda x, w: x.ndim == 5, _raising(SystemExit)), "RAISED", "raised SystemExit",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    subject, code, text = FAULTS[name]
    result = violation(check_ways, _op(subject), _sample())
    assert result is not None
    assert result.code.name == code, result.message
    assert text in result.message


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("lead", [(4,), (1, 1), (0,)])
def test_the_right_op_passes(dtype: str, lead: tuple[int, ...]) -> None:
    assert judge(check_ways, _op(_shifted), _sample(2, dtype, lead), dtype).judged > 10
    assert judge(check_ways, declared(scaled), sample(2, dtype, lead, slices=3), dtype).judged > 10


@pytest.mark.parametrize("product", [custom(), functools.partial(scaled)])
def test_the_right_op_as_a_function_of_its_own_passes(product: Subject) -> None:
    assert judge(check_ways, declared(product), sample(3, slices=3)).judged > 100


@pytest.mark.parametrize("error", [TypeError, ValueError, IndexError, RuntimeError, NotImplementedError])
def test_a_refusal_of_more_dims_passes(error: type[Exception]) -> None:
    op = _op(_changed_if(lambda x, w: x.ndim > 4, _raising(error)))
    assert violation(check_ways, op, _sample()) is None


def test_an_op_that_writes_passes() -> None:
    assert judge(check_ways, accumulating(accumulated), accumulating_sample(4, slices=3)).judged > 50


def test_an_op_without_gradients_passes() -> None:
    op = declared(scaled, differentiable=())
    assert judge(check_ways, op, sample(5, slices=3)).judged > 50


@torch.library.custom_op("opassay_planted::product", mutates_args=())
def _product(x: Tensor, w: Tensor) -> Tensor:
    return scaled(x, w)


def _past_the_type(x: Tensor, w: Tensor) -> Any:
    """The right op, which does not hand on that its second operand is of a subclass."""
    return _product(x, w if type(w) is Tensor else w.as_subclass(Tensor))


def test_an_operator_that_a_type_overrides_is_called_with_operands_of_that_type() -> None:
    assert judge(check_subclasses, declared(_product), sample(6)).judged == 2
    result = violation(check_subclasses, declared(_past_the_type), sample(6))
    assert result is not None
    assert "w of a subclass of Tensor: its type was not asked for opassay_planted.product" in result.message


def _doubled_where_followed(x: Tensor, w: Tensor) -> Any:
    """The right op, whose derivatives are twice as large under a dispatch mode."""
    product = scaled(x, w)
    return 2 * product - product.detach() if torch._C._len_torch_dispatch_stack() else product


def test_derivatives_under_a_dispatch_mode_are_those_of_a_plain_call() -> None:
    assert judge(check_under_mode, declared(scaled), sample(6)).judged > 0
    result = violation(check_under_mode, declared(_doubled_where_followed), sample(6))
    assert result is not None
    assert "jvp under a dispatch mode" in result.message
