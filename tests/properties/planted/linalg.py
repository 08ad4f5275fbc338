"""Faults of trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from opassay import Code, Op
from opassay.impl import trace
from opassay.properties.catalog.loading import load_op

from .fault import Fault

Tensor = torch.Tensor


def strides_ignored(x: Tensor) -> Tensor:
    """Every (m + 1)-th element of the memory, as if the matrix were contiguous."""
    n, m = x.shape
    return x.as_strided((min(n, m),), (m + 1,)).sum() if x.numel() else trace(x)


def diagonal_off_by_one(x: Tensor) -> Tensor:
    return x.diagonal(1).sum()


def last_of_the_diagonal_missing(x: Tensor) -> Tensor:
    along = x.diagonal()
    return along[: max(along.shape[0] - 1, 1)].sum()


def square_part_of_tall_matrices_transposed(x: Tensor) -> Tensor:
    """The length of the diagonal taken for n, which reads beyond a tall matrix: there the whole column counts."""
    return trace(x) if x.shape[0] <= x.shape[1] else x[:, : x.shape[1]].diagonal().sum() + x[-1, -1] * 0.5


def half_sums(x: Tensor) -> Tensor:
    out = x.new_zeros(())
    for value in x.diagonal().unbind():
        out = out + value  # rounds to the half type at every step
    return out


class _Gradient(torch.autograd.Function):
    """Trace with hand-written gradients."""

    @staticmethod
    def forward(x: Tensor, fault: str) -> Tensor:
        return trace(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.shape, ctx.fault = inputs[0].shape, inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        if ctx.fault == "no zeros":
            return g.expand(ctx.shape).clone(), None
        eye = torch.eye(*ctx.shape, dtype=g.dtype, device=g.device)
        return eye * g.detach(), None

    @staticmethod
    def jvp(ctx: Any, t: Tensor, _: Any) -> Tensor:
        return trace(t)


def _through(fault: str) -> Any:
    def op(x: Tensor) -> Tensor:
        out: Tensor = _Gradient.apply(x, fault)  # type: ignore[no-untyped-call]
        return out

    return op


def view_of_one_element(x: Tensor) -> Tensor:
    return x[0, 0] if x.shape == (1, 1) else trace(x)


def names_exchanged(input: Tensor) -> Tensor:
    if not isinstance(input, Tensor):
        raise TypeError(f"input: got trace={input!r}, need a Tensor.")
    return trace(input)


def _own(subject: Callable[..., Tensor]) -> Op:
    """Trace declared with a subject that promises the words of its errors, as only the production op does."""
    declared: Op = load_op("trace")
    return dataclasses.replace(declared, subjects={"opassay": subject})


FAULTS = (
    Fault("trace", "strides ignored", strides_ignored, "LAYOUT"),
    Fault("trace", "diagonal off by one", diagonal_off_by_one, "FWD"),
    Fault("trace", "last of the diagonal missing", last_of_the_diagonal_missing, "DATA"),
    Fault("trace", "tall matrices read beyond their diagonal", square_part_of_tall_matrices_transposed, "LAW"),
    Fault("trace", "sums in the half type", half_sums, "FWD", "bfloat16"),
    Fault("trace", "gradient without zeros", _through("no zeros"), "VJP"),
    Fault("trace", "gradient cut off from its cotangent", _through("detached"), "ORD2"),
    Fault("trace", "view of the only element", view_of_one_element, "PURE", codes=(Code.ALIASED,)),
    Fault("trace", "op and argument exchanged in an error", _own(names_exchanged), "ERROR", codes=(Code.NOT_RAISED,)),
)
