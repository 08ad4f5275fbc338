"""Which dtypes the ops take, and the dtype that each is computed in."""

from __future__ import annotations

from typing import overload

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)
FLOATING = frozenset((torch.float64, torch.float32, *HALF))


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for the half types, else the dtype itself: the dtype of sums, statistics and derivative formulas."""
    return torch.float32 if dtype in HALF else dtype


@overload
def raised(t: Tensor) -> Tensor: ...
@overload
def raised(t: Tensor | None) -> Tensor | None: ...
def raised(t: Tensor | None) -> Tensor | None:
    """`t` in the dtype of sums, statistics and derivative formulas."""
    return t.float() if t is not None and t.dtype in HALF else t
