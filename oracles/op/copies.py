"""Arguments in other memory, and on other devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor


def copied(value: Any) -> Any:
    """A copy of a tensor, in memory of its own; anything else as it is."""
    return value.detach().clone() if isinstance(value, Tensor) else value


def moved_to(device: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """The values, tensors on a device; one that is there already is itself."""
    return tuple(value.to(device) if isinstance(value, Tensor) else value for value in values)
