"""Arguments in other memory, on other devices, and in a few words, as cards show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

#: Elements of a tensor that a card shows in full.
_SHORT = 8


def copied(value: Any) -> Any:
    """A copy of a tensor, in memory of its own; anything else as it is."""
    return value.detach().clone() if isinstance(value, Tensor) else value


def moved_to(device: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """The values, tensors on a device; one that is there already is itself."""
    return tuple(value.to(device) if isinstance(value, Tensor) else value for value in values)


def describe_argument(value: Any) -> str:
    """The dtype and the shape of a tensor, and the values of a short one; other values as Python writes them."""
    if not isinstance(value, Tensor):
        return repr(value)[:60]
    kind = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return f"{kind} = {value.tolist()}" if 0 < value.numel() <= _SHORT else kind
