"""The identity for module hooks: one node in reverse mode, and what torch's hooks do with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from opassay.impl import BackwardHookFunction, backward_hook_identity


def test_one_node_stands_for_all_arguments() -> None:
    x, y = torch.randn(2, requires_grad=True), torch.randn(3, requires_grad=True)
    a, b, c = backward_hook_identity(x, y, torch.randn(2))
    assert a.grad_fn is b.grad_fn
    assert a.grad_fn is not None
    assert a.grad_fn.name() == "BackwardHookFunctionBackward"
    assert c.grad_fn is None
    assert not c.requires_grad


def test_what_is_no_tensor_is_returned_as_it_is() -> None:
    x, index, text = torch.randn(2, requires_grad=True), torch.arange(3), "text"
    outputs = backward_hook_identity(x, None, 3, text, index)
    assert outputs[1:4] == (None, 3, text)
    assert outputs[3] is text
    assert torch.equal(outputs[4], index)
    assert outputs[4] is not index
    assert outputs[0].requires_grad
    assert backward_hook_identity() == ()
    assert backward_hook_identity(7) == (7,)


def _hooked(module: torch.nn.Module, x: Tensor) -> tuple[list[Any], Tensor]:
    cotangents: list[Any] = []
    handle = module.register_full_backward_hook(lambda m, grad_in, grad_out: cotangents.append((grad_in, grad_out)))
    (gradient,) = torch.autograd.grad(module(x).square().sum(), x)
    handle.remove()
    return cotangents, gradient


def test_module_hooks_see_the_same_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = torch.nn.Linear(3, 2), torch.randn(4, 3, requires_grad=True)
    (theirs,), gradient = _hooked(module, x)
    monkeypatch.setattr(torch.nn.modules._functions, "BackwardHookFunction", BackwardHookFunction)
    (ours,), again = _hooked(module, x)
    assert torch.equal(gradient, again)
    for a, b in zip(theirs, ours, strict=True):
        assert all(torch.equal(s, t) for s, t in zip(a, b, strict=True))


def test_writing_to_an_output_is_refused_where_one_node_stands_for_all() -> None:
    (y,) = backward_hook_identity(torch.randn(2, requires_grad=True) * 1)
    with pytest.raises(RuntimeError, match="view and is being modified inplace"):
        y.add_(1)


def test_a_tangent_alone_needs_no_gradient() -> None:
    x, w, t = torch.randn(2, requires_grad=True), torch.randn(2), torch.randn(2)
    with forward_ad.dual_level():
        a, b, c = BackwardHookFunction.apply(forward_ad.make_dual(x, t), forward_ad.make_dual(w, 2 * t), w)
        assert (a.requires_grad, b.requires_grad, c.requires_grad) == (True, False, False)
        tangents = [forward_ad.unpack_dual(y).tangent for y in (a, b, c)]
    assert torch.equal(tangents[0], t)
    assert torch.equal(tangents[1], 2 * t)
    assert tangents[2] is None


def test_a_missing_tangent_is_zeros_where_another_argument_has_one() -> None:
    x, y, t = torch.randn(2, requires_grad=True), torch.randn(2, requires_grad=True), torch.randn(2)
    with forward_ad.dual_level():
        a, b = backward_hook_identity(forward_ad.make_dual(x, t), y)
        tangents = [forward_ad.unpack_dual(output).tangent for output in (a, b)]
    assert torch.equal(tangents[0], t)
    assert torch.equal(tangents[1], torch.zeros_like(y))


def test_nothing_needs_a_gradient_where_gradients_are_disabled() -> None:
    x = torch.randn(2, requires_grad=True)
    with torch.no_grad():
        assert not any(y.requires_grad for y in backward_hook_identity(x, 2 * x))


def test_a_missing_cotangent_is_zeros_for_hooks() -> None:
    x, y = torch.randn(2, requires_grad=True), torch.randn(2, requires_grad=True)
    a, b = backward_hook_identity(x, y)
    cotangents: list[Any] = []
    assert a.grad_fn is not None
    a.grad_fn.register_hook(lambda grad_in, grad_out: cotangents.append(grad_in))
    torch.autograd.grad(a.sum(), x)
    assert torch.equal(cotangents[0][1], torch.zeros_like(b))


def test_nested_transforms() -> None:
    x = torch.randn(3, 2)

    def f(row: Tensor) -> Tensor:
        (y,) = BackwardHookFunction.apply(row)
        total: Tensor = y.pow(3).sum()
        return total

    hessians = torch.func.vmap(torch.func.hessian(f))(x)
    assert torch.equal(hessians, torch.diag_embed(6 * x))
