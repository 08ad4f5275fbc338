"""y = x w with one fault each, as a module of somebody who has torch alone; `right` has none."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import torch
from torch import Tensor

_CALLS = itertools.count()


def right(x: Tensor, w: Tensor) -> Tensor:
    return x * w


def value(x: Tensor, w: Tensor) -> Tensor:
    return x * w * 1.01


def off_by_little(x: Tensor, w: Tensor) -> Tensor:
    return x * w * (1 + 2.0**-22)


def raising(x: Tensor, w: Tensor) -> Tensor:
    raise RuntimeError("no such kernel")


class Slope(torch.autograd.Function):
    """The product, with a wrong gradient of w and no wrong value."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Tensor:
        return x * w

    @staticmethod
    def setup_context(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors  # type: ignore[attr-defined]
        return g * w, (1.25 * g * x).sum_to_size(w.shape)

    @staticmethod
    def jvp(ctx: torch.autograd.function.FunctionCtx, s: Tensor, t: Tensor) -> Tensor:
        x, w = ctx.saved_tensors  # type: ignore[attr-defined]
        moved: Tensor = s * w + x * t
        return moved


def slope(x: Tensor, w: Tensor) -> Tensor:
    result: Tensor = Slope.apply(x, w)  # type: ignore[no-untyped-call]
    return result


def strided(x: Tensor, w: Tensor) -> Tensor:
    return (x if x.is_contiguous() else 2 * x) * w


def cast(x: Tensor, w: Tensor) -> Tensor:
    return x * w * (1.25 if torch.is_autocast_enabled("cpu") else 1.0)


def clipping(x: Tensor, w: Tensor) -> Tensor:
    return (x * w).clamp(max=1e30)


def writing(x: Tensor, w: Tensor) -> Tensor:
    x.detach().mul_(1.0)
    return x * w


def sharing(x: Tensor, w: Tensor) -> Tensor:
    return x.view_as(x) if bool((w == 1).all()) else x * w


def accepting(x: Tensor, w: Tensor) -> Tensor:
    return x * w if x.shape[-1] == w.shape[-1] else x


def keeping(x: Tensor, w: Tensor) -> Tensor:
    return ((x.exp().log() * 0 + x) * w).sin().asin() * 0 + x * w


def unlike_meta(x: Tensor, w: Tensor) -> Tensor:
    return (x * w).double() if x.is_meta or type(x).__name__ == "FakeTensor" else x * w


def drifting(x: Tensor, w: Tensor) -> Tensor:
    return x * w * (1 + 2.0**-23 * (next(_CALLS) % 7))


def tracked(x: Tensor, w: Tensor) -> Tensor:
    return x * w * (1 + 2.0**-22) if x.requires_grad else x * w


def by_keyword(*args: Tensor, **named: Tensor) -> Tensor:
    return right(*args, **named) * (1.25 if named else 1.0)


by_keyword.__signature__ = inspect.signature(right)  # type: ignore[attr-defined]


class _AtTheEnd(Slope):
    """The product and its right gradients, with a batch at another axis than the first taken for one at the first."""

    generate_vmap_rule = False

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return g * w, (g * x).sum_to_size(w.shape)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor) -> Any:
        x, w = (t.expand(info.batch_size, *t.shape) if d is None else t for t, d in zip((x, w), in_dims, strict=True))
        w = w.reshape(w.shape[0], *(1,) * (x.ndim - w.ndim), *w.shape[1:])
        return x * w, 0


def at_the_end(x: Tensor, w: Tensor) -> Tensor:
    out: Tensor = _AtTheEnd.apply(x, w)  # type: ignore[no-untyped-call]
    return out
