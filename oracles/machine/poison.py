"""What stands in the memory of an output before a kernel writes it."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def poisoned_tensor(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of NaN, or of the lowest integers, so that an element that no kernel writes is seen."""
    poison = float("nan") if dtype.is_floating_point else torch.iinfo(dtype).min
    return torch.full(tuple(shape), poison, dtype=dtype, device=device)
