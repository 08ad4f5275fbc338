"""An op of somebody else's whose subject ends its process where a tensor has no elements."""

from __future__ import annotations

import os

import torch

from opassay import Op, Promises
from opassay.properties.declaring import strategies

from .contaminating import formula


def subject(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    if not x.numel():
        os.abort()
    return scale * (x * x)


op = Op(
    name="op",
    reference=formula,
    subjects={"opassay": subject},
    samples=strategies.same_shape(2),
    differentiable=("x", "scale"),
    promises=Promises(dtypes=lambda args: (args[0].dtype,)),
)
