"""Candidates for a spec: one that keeps every property, one for each planted fault, and some that offer little."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def spec(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(4, 24), torch.randn(24)


def right(x: Tensor, w: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + 1e-5) * w


class Right(torch.autograd.Function):
    """A right custom function with all of its members."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Tensor:
        return spec(x, w)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> Any:
        return torch.func.vjp(spec, *ctx.saved_tensors)[1](*g)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        x, w = ctx.saved_tensors
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
        along_x = w * (r * tangents[0] - x * r**3 * (x * tangents[0]).mean(-1, keepdim=True))
        return along_x + x * r * tangents[1]


class ZeroTangent(Right):
    """Its jvp ignores the tangent of w."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        return Right.jvp(ctx, tangents[0], torch.zeros_like(tangents[1]))


class MixedRows(Right):
    """Its vmap normalizes with the mean of the whole batch."""

    generate_vmap_rule = False

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor) -> Any:
        x, w = (t if d is None else t.movedim(d, 0) for t, d in zip((x, w), in_dims, strict=True))
        mean = (x * x).mean((0, -1), keepdim=True) if in_dims[0] is not None else (x * x).mean(-1, keepdim=True)
        w = w if in_dims[1] is None else w[:, None]
        return (x * torch.rsqrt(mean + 1e-5) * w), 0


class ConstantStatistic(Right):
    """Its backward is right, and takes the statistic for a constant where it is differentiated itself."""

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> Any:
        x, w = ctx.saved_tensors
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5).detach()
        gw = g[0] * w
        return r * gw - x * r**3 * (gw * x).mean(-1, keepdim=True), (g[0] * x * r).sum(0)


class HiddenInput(Right):
    """It keeps its input where autograd does not see it."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.inputs = inputs

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> Any:
        return torch.func.vjp(spec, *ctx.inputs)[1](*g)


class OldStyle(torch.autograd.Function):
    """Its forward takes the context, so that torch.func refuses it, and it has no jvp."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return spec(x, w)

    backward = Right.backward


def _apply(function: Any, *args: Tensor) -> Any:
    return function.apply(*args)


def zero_tangent(x: Tensor, w: Tensor) -> Any:
    return _apply(ZeroTangent, x, w)


def mixed_rows(x: Tensor, w: Tensor) -> Any:
    return _apply(MixedRows, x, w)


def constant_statistic(x: Tensor, w: Tensor) -> Any:
    return _apply(ConstantStatistic, x, w)


def hidden_input(x: Tensor, w: Tensor) -> Any:
    return _apply(HiddenInput, x, w)


def old_style(x: Tensor, w: Tensor) -> Any:
    return _apply(OldStyle, x, w)


@torch.library.custom_op("opassay_tests::rms_half_fake", mutates_args=())
def half_fake(x: Tensor, w: Tensor) -> Tensor:
    return spec(x, w)


@half_fake.register_fake
def _(x: Tensor, w: Tensor) -> Tensor:
    return x.new_empty(x.shape, dtype=torch.float16)


def of_cuda_alone(x: Tensor, w: Tensor) -> Tensor:
    if not x.is_cuda:
        raise RuntimeError("rms_norm: got tensors on cpu, need cuda")
    return spec(x, w)


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(24, 3)
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(self.linear(x))
        return normed
