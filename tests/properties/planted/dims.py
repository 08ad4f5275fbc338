"""Faults at numbers of dims, of counts, and of elements, which few samples of any op have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opassay.properties.catalog.loading import load_op

from .fault import Fault

Tensor = torch.Tensor
#: Ops that take any number of dims, each with the place of a tensor that has all of them.
ANY_DIMS = {
    "layer_norm": 0, "rms_norm": 0, "group_norm": 0, "batch_norm": 0, "softmax": 0, "log_softmax": 0,
    "softmax_backward_data": 0, "log_sigmoid": 0, "nll_loss": 0, "cross_entropy": 0, "scatter": 2,
}  # fmt: skip


def _right(op: str) -> Callable[..., Any]:
    subject: Callable[..., Any] = load_op(op).subjects["opassay"]
    return subject


def _at_dims(op: str, dims: int) -> Fault:
    """The op, wrong where its tensor has so many dims: the first element is counted twice."""
    at, right = ANY_DIMS[op], _right(op)

    def faulty(*args: Any) -> Any:
        x = args[at]
        if x.dim() == dims and x.numel():
            factors = torch.ones_like(x)
            factors.view(-1)[0] = 2
            args = (*args[:at], x * factors, *args[at + 1 :])
        return right(*args)

    return Fault(op, f"wrong at {dims} dims alone", faulty, "FWD")


FAULTS = tuple(_at_dims(op, dims) for op in ANY_DIMS for dims in (5, 6))
