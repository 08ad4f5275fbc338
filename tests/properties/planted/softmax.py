"""Faults of softmax and log-softmax."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from opassay import Code, Op
from opassay.impl import log_softmax, log_softmax_backward_data, softmax, softmax_backward_data
from opassay.properties.catalog.loading import load_op

from .fault import Fault

Tensor = torch.Tensor


def _top(x: Tensor, dim: int) -> Tensor:
    return x.amax(dim, keepdim=True).detach()


def no_max_subtracted(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    weights = x.exp()
    return weights / weights.sum(dim, keepdim=True)


def log_of_softmax(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return softmax(x, dim, dtype).log()


def max_and_log_sum_added_first(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    if not x.numel():
        return x.clone()
    top = _top(x, dim)
    return x - (top + (x - top).exp().sum(dim, keepdim=True).log())


def dim_minus_one_always(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return softmax(x, -1, dtype)


def sums_in_the_half_type(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    weights = (x - _top(x, dim)).exp() if x.numel() else x.exp()
    total = weights.sum(dim, keepdim=True)  # rounds to the half type
    return weights / total


def rows_of_minus_infinity_are_zero(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    out = softmax(x, dim, dtype)
    absent = x.isneginf().all(dim, keepdim=True) if x.ndim else x.isneginf()
    return out.masked_fill(absent, 0.0)


class _Backward(torch.autograd.Function):
    """Softmax with hand-written gradients: the place for faults of the backward pass."""

    @staticmethod
    def forward(x: Tensor, dim: int, fault: str) -> Tensor:
        return softmax(x, dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.dim, ctx.fault = inputs[1], inputs[2]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        dim = ctx.dim
        if ctx.fault == "wrong dim" and y.ndim:
            return y * (g - (y * g).sum((dim + 1) % y.ndim, keepdim=True)), None, None
        if ctx.fault == "tiny":
            y = torch.where(y < 1e-6, 0.0, y)
        return y * (g - (y * g).sum(dim, keepdim=True)), None, None


def _through(fault: str) -> Any:
    def op(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
        out: Tensor = _Backward.apply(x if dtype is None else x.to(dtype), dim, fault)  # type: ignore[no-untyped-call]
        return out

    return op


def output_constant_in_second_order(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """First derivatives right: the output is its own linearisation, so that its second derivative is lost."""
    x = x if dtype is None else x.to(dtype)
    y = softmax(x, dim).detach()
    moved = torch.where(x.isfinite(), x - x.detach(), 0.0)
    return y + y * (moved - (y * moved).sum(dim, keepdim=True))


class _DimUnderVmap(torch.autograd.Function):
    """The batch goes in front, and dim is not moved along."""

    @staticmethod
    def forward(x: Tensor, dim: int) -> Tensor:
        return softmax(x, dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, dim: int) -> Any:
        return softmax(x.movedim(in_dims[0], 0), dim), 0


def dim_not_moved_under_vmap(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    out: Tensor = _DimUnderVmap.apply(x if dtype is None else x.to(dtype), dim)  # type: ignore[no-untyped-call]
    return out


def result_in_place(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """A row of one element: the logits' own memory comes back, filled."""
    out = log_softmax(x, dim, dtype)
    return x.detach().mul_(0.0) if x.ndim and x.shape[dim] == 1 and dtype is None else out


def probabilities_for_their_logarithms(g: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    return log_softmax_backward_data(g, output.exp(), dim, input_dtype)


def output_constant(g: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    return softmax_backward_data(g, output.detach(), dim, input_dtype)


def _with_sums_that_threads_share() -> Op:
    """torch's own op in place of ours: its gradients of gradients sum over a row as its threads come."""
    declared: Op = load_op("log_softmax")
    subjects = {"opassay": lambda input, dim, dtype: torch.log_softmax(input, dim, dtype=dtype)}
    return dataclasses.replace(declared, subjects=subjects)


FAULTS = (
    Fault("log_softmax", "gradients of gradients by threads", _with_sums_that_threads_share(), "DET"),
    Fault("softmax", "no max subtracted", no_max_subtracted, "FWD"),
    Fault("softmax", "dim -1 whatever is asked for", dim_minus_one_always, "FWD"),
    Fault("softmax", "sums in the half type", sums_in_the_half_type, "FWD", "bfloat16"),
    Fault("softmax", "rows of -inf are zero", rows_of_minus_infinity_are_zero, "FWD"),
    Fault("softmax", "sum over another dim in the gradient", _through("wrong dim"), "VJP"),
    Fault("softmax", "small probabilities have no gradient", _through("tiny"), "VJP"),
    Fault("softmax", "stale output in second order", output_constant_in_second_order, "ORD2"),
    Fault("softmax", "dim not moved under vmap", dim_not_moved_under_vmap, "VMAP"),
    Fault("log_softmax", "log of softmax", log_of_softmax, "FWD"),
    Fault("log_softmax", "max and log of the sum added first", max_and_log_sum_added_first, "FWD"),
    Fault("log_softmax", "result in the input's memory", result_in_place, "PURE", codes=(Code.MUTATED, Code.ALIASED)),
    Fault("softmax_backward_data", "output taken for a constant", output_constant, "VJP"),
    Fault("log_softmax_backward_data", "exp of the output twice", probabilities_for_their_logarithms, "FWD"),
)
