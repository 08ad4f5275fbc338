"""Derivatives as the programs observe them, and functions whose backward is written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor


def gradient(call: Callable[..., Any], *args: Tensor) -> Any:
    """The gradient of the sum of what a call gives, in its first argument, or in all of several: a tuple."""
    leaves = [each.clone().requires_grad_() for each in args]
    gradients = torch.autograd.grad(call(*leaves).sum(), leaves)
    return gradients[0] if len(gradients) == 1 else gradients


def twice_backward(call: Callable[..., Any], x: Tensor) -> Tensor:
    """The gradient of the sum of the gradient, by double backward."""
    leaf = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(call(leaf).sum(), leaf, create_graph=True)
    return torch.autograd.grad(first.sum(), leaf)[0]


def twice_forward(call: Callable[..., Any], at: float) -> float:
    """The second derivative of a function of one float64 number, by forward mode over forward mode."""
    t, one = torch.tensor(at, dtype=torch.float64), torch.ones((), dtype=torch.float64)

    def first(t: Tensor) -> Any:
        return torch.func.jvp(call, (t,), (one,))[1]

    slope: float = torch.func.jvp(first, (t,), (one,))[1].item()
    return slope


def with_backward(forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    """A function whose backward is given: (cotangent, output, arguments...) -> a gradient for each argument."""

    class PlantedGradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            ctx.save_for_backward(output := forward(*args), *args)
            return output

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            return backward(cotangent, *ctx.saved_tensors)

    return PlantedGradient.apply
