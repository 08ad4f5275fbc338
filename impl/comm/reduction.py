"""The sum over ranks as a function that is differentiated: of the sum of all ranks' losses, it is its own adjoint."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..function import Function
from .base import Comm


class AllReduce(Function):
    """Σ x over ranks, on every rank. Each derivative is one call more, on every rank alike."""

    @staticmethod
    def forward(x: Tensor, comm: Comm, tag: str) -> Tensor:
        return comm.all_reduce(x, tag=tag)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        _, ctx.comm, ctx.tag = inputs

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return AllReduce.apply(g, ctx.comm, f"{ctx.tag}, vjp"), None, None

    @staticmethod
    def jvp(ctx: Any, t: Tensor, comm: Any, tag: Any) -> Any:
        return AllReduce.apply(t, ctx.comm, f"{ctx.tag}, jvp")

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, comm: Comm, tag: str) -> Any:
        return AllReduce.apply(x, comm, tag), in_dims[0]
