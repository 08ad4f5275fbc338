"""Collective operations of one rank, where each rank has what it gives; of several ranks nothing is known here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ....reference.missing import NoReadingError


def _require_one_rank(group: str) -> None:
    resolve: Any = torch._C._distributed_c10d._resolve_process_group
    if resolve(group).size() != 1:
        raise NoReadingError("the numbers of the other ranks are not known here")


def _copy(value: Any, *args: Any) -> Any:
    """A copy, of a call whose last argument is the group."""
    _require_one_rank(args[-1])
    return pytree.tree_map_only(Tensor, torch.clone, value)


def _keep(value: Any, *args: Any) -> Any:
    """What is written in place stays."""
    _require_one_rank(args[-1])
    return value


_GIVEN = (
    "all_reduce", "all_reduce_coalesced", "all_gather_into_tensor", "all_gather_into_tensor_coalesced",
    "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "all_to_all_single", "broadcast",
)  # fmt: skip
#: By the names of torch.ops._c10d_functional.
STAND_INS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_GIVEN, _copy),
    **dict.fromkeys(("all_reduce_", "all_reduce_coalesced_", "broadcast_"), _keep),
    "wait_tensor": lambda x: x,
}
