"""An argument of a call in a few words, as cards show it."""

from __future__ import annotations

from typing import Any

import torch

#: Elements of a tensor that a card shows in full.
_SHORT = 8


def describe_argument(value: Any) -> str:
    """The dtype and the shape of a tensor, and the values of a short one; other values as Python writes them."""
    if not isinstance(value, torch.Tensor):
        return repr(value)[:60]
    kind = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return f"{kind} = {value.tolist()}" if 0 < value.numel() <= _SHORT else kind
