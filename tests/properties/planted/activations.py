"""Faults of log-sigmoid."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from opassay import Code, Op
from opassay.impl import log_sigmoid, log_sigmoid_backward
from opassay.properties.catalog.loading import load_op

from .fault import Fault

Tensor = torch.Tensor


def log_of_sigmoid(x: Tensor) -> Tensor:
    return x.sigmoid().log()


def minus_softplus_with_a_threshold(x: Tensor) -> Tensor:
    return -torch.nn.functional.softplus(-x)


def log_of_one_plus(x: Tensor) -> Tensor:
    """log(1 + exp(-|x|)), not log1p."""
    return x.clamp(max=0.0) - (1.0 + x.abs().neg().exp()).log()


def exp_of_x(x: Tensor) -> Tensor:
    """exp(-x) overflows for very negative x."""
    return -torch.log1p(torch.exp(-x))


def sign_of_zero(x: Tensor) -> Tensor:
    """Right values; at x = 0 the slopes of |x| and of min(x, 0) are taken from different sides."""
    return torch.minimum(x, torch.zeros_like(x)) - torch.log1p(torch.exp(torch.where(x >= 0, -x, x)))


class _Backward(torch.autograd.Function):
    """Log-sigmoid with hand-written gradients."""

    @staticmethod
    def forward(x: Tensor, fault: str) -> Tensor:
        return log_sigmoid(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.fault = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if ctx.fault == "cancels":
            return g * (1.0 - x.sigmoid()), None
        decay = x.abs().neg().exp()  # in the half type, as torch's CPU op keeps it
        return (g.float() * (torch.where(x < 0, 1.0, decay.float()) / (1.0 + decay.float()))).to(x.dtype), None


def _through(fault: str) -> Any:
    def op(x: Tensor) -> Tensor:
        out: Tensor = _Backward.apply(x, fault)  # type: ignore[no-untyped-call]
        return out

    return op


def one_minus_sigmoid(grad: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    return grad * (1.0 - x.sigmoid())


def slope_constant_in_second_order(x: Tensor) -> Tensor:
    """First derivatives right: the value is its own linearisation, so that its second derivative is lost."""
    slope = log_sigmoid_backward(torch.ones_like(x), x, x).detach()
    return log_sigmoid(x).detach() + slope * (x - x.detach())


def _ours(faulty: Callable[..., Tensor]) -> Op:
    """The declaration with the fault in the place of the production op, which alone promises contiguous results."""
    declared: Op = load_op("log_sigmoid")
    return dataclasses.replace(declared, subjects={"opassay": faulty})


def _in_the_strides_of_the_input(x: Tensor) -> Tensor:
    return torch.ones_like(x) * log_sigmoid(x)


def _fake_in_the_strides_of_the_input(x: Tensor) -> Tensor:
    """What fake tensors promise has the strides of the input, and what the op returns is contiguous."""
    return log_sigmoid(x) if type(x) is not FakeTensor else x * 1.0


def _doubled_where_deterministic(x: Tensor) -> Tensor:
    return log_sigmoid(x) * (2.0 if torch.are_deterministic_algorithms_enabled() else 1.0)


FAULTS = (
    Fault("log_sigmoid", "log of sigmoid", log_of_sigmoid, "FWD"),
    Fault("log_sigmoid", "wrong in deterministic mode", _ours(_doubled_where_deterministic), "DET"),
    Fault("log_sigmoid", "not contiguous", _ours(_in_the_strides_of_the_input), "LAYOUT", codes=(Code.ATTRIBUTE,)),
    Fault(
        "log_sigmoid", "fake not contiguous", _ours(_fake_in_the_strides_of_the_input), "FAKE", codes=(Code.ATTRIBUTE,)
    ),
    Fault("log_sigmoid", "softplus with its threshold", minus_softplus_with_a_threshold, "FWD", "float64"),
    Fault("log_sigmoid", "log(1 + e) for log1p(e)", log_of_one_plus, "FWD"),
    Fault("log_sigmoid", "exp(-x) overflows", exp_of_x, "FWD"),
    Fault("log_sigmoid", "another side of zero for each branch", sign_of_zero, "VJP"),
    Fault("log_sigmoid", "slope 1 - sigmoid(x)", _through("cancels"), "VJP"),
    Fault("log_sigmoid", "buffer rounded to the half type", _through("half buffer"), "VJP", "bfloat16"),
    Fault("log_sigmoid", "stale input in second order", slope_constant_in_second_order, "ORD2"),
    Fault("log_sigmoid_backward", "1 - sigmoid(x)", one_minus_sigmoid, "FWD"),
)
