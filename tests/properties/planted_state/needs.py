"""Layer norms whose gradients depend on which others are asked for; each is right where all of them are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opassay.impl import layer_norm, native_layer_norm

Shape = tuple[int, ...]
Subject = Callable[..., Tensor]
#: (cotangent, normalised input, weight, which of the two need a gradient) -> their gradients.
Rule = Callable[[Tensor, Tensor, Tensor, tuple[bool, bool]], tuple[Any, Any]]


def _products(g: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return g * w, (g * y).sum_to_size(w.shape)


def _weighted(rule: Rule) -> Subject:
    """A layer norm whose weight is multiplied by a function with this backward."""

    class Weighted(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(y: Tensor, w: Tensor) -> Tensor:
            return y * w

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            y, w = ctx.saved_tensors
            return rule(g, y, w, ctx.needs_input_grad)

        @staticmethod
        def jvp(ctx: Any, t_y: Tensor, t_w: Tensor) -> Tensor:
            y, w = ctx.saved_tensors
            moved: Tensor = t_y * w + y * t_w
            return moved

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        if w is None:
            return layer_norm(x, shape, w, b, eps)
        y: Tensor = Weighted.apply(layer_norm(x, shape, None, None, eps), w)  # type: ignore[no-untyped-call]
        return y if b is None else y + b

    return op


def _zero_weight_alone(g: Tensor, y: Tensor, w: Tensor, needs: tuple[bool, bool]) -> tuple[Any, Any]:
    d_y, d_w = _products(g, y, w)
    return d_y, d_w if all(needs) else torch.zeros_like(d_w)


def _none_for_the_input_alone(g: Tensor, y: Tensor, w: Tensor, needs: tuple[bool, bool]) -> tuple[Any, Any]:
    d_y, d_w = _products(g, y, w)
    return d_y if needs[1] else None, d_w


def _second_lost_where_the_weight_needs_none(
    g: Tensor, y: Tensor, w: Tensor, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    d_y, d_w = _products(g, y, w)
    return d_y if needs[1] else (g.detach() * w.detach() + (g - g.detach()) * 0), d_w


def _rounded_where_the_weight_needs_none(g: Tensor, y: Tensor, w: Tensor, needs: tuple[bool, bool]) -> tuple[Any, Any]:
    d_y, d_w = _products(g, y, w)
    return d_y if needs[1] else d_y.half().to(d_y.dtype), d_w


def _raises_for_the_weight_alone(g: Tensor, y: Tensor, w: Tensor, needs: tuple[bool, bool]) -> tuple[Any, Any]:
    d_y, d_w = _products(g, y, w)
    if not needs[0]:
        raise RuntimeError("grad_input is undefined")
    return d_y, d_w


def needs_of_the_inputs_changed(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    if torch.is_grad_enabled() and x.is_leaf and not torch._C._are_functorch_transforms_active() and w is not None:
        w.requires_grad_()
    return layer_norm(x, shape, w, b, eps)


def always_a_graph(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    y = layer_norm(x, shape, w, b, eps)
    return y if y.requires_grad or y.dtype.itemsize == 8 else y.detach().requires_grad_(torch.is_grad_enabled())


def bias_only_beside_the_weight(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    if w is None or b is None:
        return layer_norm(x, shape, w, b, eps)
    beside = b if w.requires_grad or torch._C._are_functorch_transforms_active() else b.detach()
    return layer_norm(x, shape, w, beside, eps)


def no_graph_without_the_input(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    y = layer_norm(x, shape, w, b, eps)
    return y if x.requires_grad or torch.autograd.forward_ad._current_level >= 0 else y.detach()


def tangent_only_with_that_of_the_input(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    y = layer_norm(x, shape, w, b, eps)
    if torch.autograd.forward_ad._current_level < 0 or torch._C._are_functorch_transforms_active():
        return y
    return y if torch.autograd.forward_ad.unpack_dual(x).tangent is not None else y.detach()


def no_tangent_in_func_without_the_input(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    y = layer_norm(x, shape, w, b, eps)
    stack = torch._C._functorch.peek_interpreter_stack()
    if stack is None or stack.key() != torch._C._functorch.TransformType.Jvp:
        return y
    return y if torch._C._functorch.is_gradtrackingtensor(x) else y.detach()


def gradient_left_in_the_input(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    if b is not None and b.is_leaf and not torch._C._are_functorch_transforms_active() and x.requires_grad:
        b.grad = torch.zeros_like(b)
    return layer_norm(x, shape, w, b, eps)


class _ScaleBesideMean(torch.autograd.Function):
    """What it is given; the cotangent of the third is lost where the second has none."""

    @staticmethod
    def forward(ctx: Any, *outputs: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(y.clone() for y in outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        out, mean, rstd = cotangents
        return out, mean, None if mean is None else rstd


class _HalfTangent(torch.autograd.Function):
    """A mean; its tangent is zero in half precision where the weight alone has one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, w: Tensor) -> Tensor:
        return mean.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None) -> tuple[Tensor | None, None]:
        return g, None

    @staticmethod
    def jvp(ctx: Any, t_mean: Tensor | None, t_w: Tensor | None) -> Tensor:
        return torch.zeros_like(ctx.saved_tensors[0], dtype=torch.float16) if t_mean is None else t_mean


def scale_lost_without_the_mean(*args: Any) -> tuple[Tensor, ...]:
    result: tuple[Tensor, ...] = _ScaleBesideMean.apply(*native_layer_norm(*args))  # type: ignore[no-untyped-call]
    return result


def half_tangent_without_that_of_the_input(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Any:
    out, mean, rstd = native_layer_norm(x, shape, w, b, eps)
    # The op's own mean has a tangent of zeros there; without it the mean has none.
    alone = mean if w is None or not _without_tangent(x) else mean.detach()
    return out, mean if w is None else _HalfTangent.apply(alone, w), rstd  # type: ignore[no-untyped-call]


def _without_tangent(x: Tensor) -> bool:
    within = torch.autograd.forward_ad._current_level >= 0 and not torch._C._are_functorch_transforms_active()
    return within and torch.autograd.forward_ad.unpack_dual(x).tangent is None


def _those_that_are_needed(g: Tensor, y: Tensor, w: Tensor, needs: tuple[bool, bool]) -> tuple[Any, Any]:
    d_y, d_w = _products(g, y, w)
    return d_y if needs[0] else None, d_w if needs[1] else None


def _behind(rule: Callable[[Tensor | None, torch.Size], Tensor]) -> Subject:
    """A layer norm with a function of the same values behind it: (cotangent or None, shape) -> that of the norm."""

    class Behind(torch.autograd.Function):
        @staticmethod
        def forward(y: Tensor) -> Tensor:
            return y.clone()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
            ctx.set_materialize_grads(False)
            ctx.shape = output.shape

        @staticmethod
        def backward(ctx: Any, g: Tensor | None) -> Tensor:
            return rule(g, ctx.shape)

        @staticmethod
        def jvp(ctx: Any, t: Tensor) -> Tensor:
            return t.clone()

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        y: Tensor = Behind.apply(layer_norm(x, shape, w, b, eps))  # type: ignore[no-untyped-call]
        return y

    return op


def _ones_for_none(g: Tensor | None, shape: torch.Size) -> Tensor:
    return torch.ones(shape) if g is None else g


def _read_as_a_number(g: Tensor | None, shape: torch.Size) -> Tensor:
    return torch.zeros(shape) if g is None or float(g.abs().sum()) == 0.0 else g


FAULTS: dict[str, Subject] = {
    "weight's gradient zero alone": _weighted(_zero_weight_alone),
    "no gradient for the input alone": _weighted(_none_for_the_input_alone),
    "second derivative lost": _weighted(_second_lost_where_the_weight_needs_none),
    "rounded to half where one is missing": _weighted(_rounded_where_the_weight_needs_none),
    "raises for the weight alone": _weighted(_raises_for_the_weight_alone),
    "needs of the inputs changed": needs_of_the_inputs_changed,
    "always a graph": always_a_graph,
    "bias only beside the weight": bias_only_beside_the_weight,
    "no graph without the input": no_graph_without_the_input,
    "tangent only with that of the input": tangent_only_with_that_of_the_input,
    "no tangent in torch.func without the input": no_tangent_in_func_without_the_input,
    "a gradient left in the input": gradient_left_in_the_input,
    "a missing cotangent taken for ones": _behind(_ones_for_none),
    "a cotangent read as a number": _behind(_read_as_a_number),
}
RIGHT: dict[str, Subject] = {
    "the production op": layer_norm,
    "all gradients, whatever is needed": _weighted(lambda g, y, w, needs: _products(g, y, w)),
    "those that are needed": _weighted(_those_that_are_needed),
}
