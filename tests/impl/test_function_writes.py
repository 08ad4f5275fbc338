"""Custom functions under vmap whose outputs all slices share, and those that write one argument from another."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import grad, jacfwd, jvp, vjp, vmap

from opassay.impl.function import Function

X = torch.tensor([0.5, -1.25, 2.0])


class Filled(Function):
    """room <- 2 w in place, and v w beside."""

    generate_vmap_rule = True

    @staticmethod
    def forward(room: Tensor, w: Tensor, v: Tensor) -> Any:
        return room.copy_(2 * w), v * w

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> Any:
        w, v = ctx.saved_tensors
        return None, 2 * g + v * h, w * h

    @staticmethod
    def jvp(ctx: Any, t_room: Tensor, t: Tensor, s: Tensor) -> Any:
        w, v = ctx.saved_tensors
        return t_room.copy_(2 * t), s * w + v * t


def test_a_gradient_by_a_write_that_all_slices_share_counts_once() -> None:
    """The written room depends on w alone, so of all slices together there is one of it, and one gradient by it."""
    v, w = torch.tensor([[3.0], [5.0], [7.0]]), torch.tensor([2.0])

    def f(w: Tensor) -> Tensor:
        room = torch.zeros(1)
        products = vmap(lambda v: Filled.apply(room, w, v)[1])(v)
        both: Tensor = room.sum() + products.sum()
        return both

    assert torch.equal(grad(f)(w), torch.tensor([2.0 + 3.0 + 5.0 + 7.0]))


def test_a_room_that_is_filled_gets_the_tangents_of_what_fills_it() -> None:
    def f(w: Tensor) -> Tensor:
        filled: Tensor = Filled.apply(torch.zeros_like(w), w, w)[0]
        return filled * filled

    assert torch.equal(jacfwd(f)(X), torch.diag(8 * X))
    assert torch.equal(jvp(f, (X,), (torch.ones_like(X),))[1], 8 * X)
    assert torch.equal(jacfwd(jacfwd(lambda w: f(w).sum()))(X), 8 * torch.eye(len(X)))


class Squared(Function):
    """v w, and beside it w², which does not depend on v; its tangent is written as if it might."""

    generate_vmap_rule = True

    @staticmethod
    def forward(v: Tensor, w: Tensor) -> Any:
        return v * w, w * w

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> Any:
        v, w = ctx.saved_tensors
        return g * w, g * v + 2 * h * w

    @staticmethod
    def jvp(ctx: Any, t: Tensor, s: Tensor) -> Any:
        v, w = ctx.saved_tensors
        return t * w + v * s, 2 * w * s + 0 * t


def test_derivatives_of_an_output_that_all_slices_share() -> None:
    v, w = torch.tensor([3.0, 5.0, 7.0]), torch.tensor(2.0)

    def custom(v: Tensor, w: Tensor) -> Any:
        return vmap(Squared.apply, in_dims=(0, None))(v, w)

    def plain(v: Tensor, w: Tensor) -> Any:
        return v * w, (w * w).expand(3)

    tangents = (torch.tensor([1.0, 10.0, 100.0]), torch.tensor(4.0))
    for result, need in zip(jvp(custom, (v, w), tangents)[1], jvp(plain, (v, w), tangents)[1], strict=True):
        assert torch.equal(result, need)
    cotangents = (torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0.5, 8.0, 16.0]))
    for result, need in zip(vjp(custom, v, w)[1](cotangents), vjp(plain, v, w)[1](cotangents), strict=True):
        assert torch.equal(result, need)


class Root(Function):
    """v w, and beside it the root of w, whose slope at 0 is infinite."""

    generate_vmap_rule = True

    @staticmethod
    def forward(v: Tensor, w: Tensor) -> Any:
        return v * w, w.sqrt()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> Any:
        v, w = ctx.saved_tensors
        return g * w, g * v + h * 0.5 / w.sqrt()


def test_an_infinite_slope_of_an_output_that_slices_share_is_infinite() -> None:
    v = torch.tensor([3.0, 5.0])

    def f(w: Tensor) -> Tensor:
        products, roots = vmap(Root.apply, in_dims=(0, None))(v, w)
        both: Tensor = products.sum() + roots.sum()
        return both

    assert grad(f)(torch.tensor(0.0)).item() == torch.inf
