"""Arguments in other memory, on other devices, and in a few words, as cards show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

#: Elements of a tensor that a card shows in full.
_SHORT = 8
#: How many objects are made in search of one with the identity of an object that is gone.
_REBIRTHS = 32


def copied(value: Any) -> Any:
    """A copy of a tensor, in memory of its own; anything else as it is."""
    return value.detach().clone() if isinstance(value, Tensor) else value


def moved_to(device: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """The values, tensors on a device; one that is there already is itself."""
    return tuple(value.to(device) if isinstance(value, Tensor) else value for value in values)


def put_another(tensors: list[Any], i: int) -> None:
    """Put a new tensor in the place of one in a list: in the same memory, and with the same `id` if Python gives that.

    It does where nobody else holds the earlier one.
    """
    dtype, old_id, storage = tensors[i].dtype, id(tensors[i]), tensors[i].untyped_storage()
    view, others = (tensors[i].storage_offset(), tensors[i].shape, tensors[i].stride()), list[Tensor]()
    tensors[i] = None
    while len(others) < _REBIRTHS and id(tensors[i]) != old_id:
        tensors[i] = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, *view)
        others.append(tensors[i])


def describe_argument(value: Any) -> str:
    """The dtype and the shape of a tensor, and the values of a short one; other values as Python writes them."""
    if not isinstance(value, Tensor):
        return repr(value)[:60]
    kind = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return f"{kind} = {value.tolist()}" if 0 < value.numel() <= _SHORT else kind
