"""The tensors of host code at a size that no memory has: what it allocates is reserved, and with none it computes.

What this is for: host code allocates results and launches kernels, and these run in a few of their blocks. Whatever
else host code computes of tensors of that size would take their memory, and of results that some blocks have written it
would be wrong.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .ptx.account import ACCOUNT
from .ptx.far import FarCall, refusal
from .reserved import untouched

#: Bytes from which on memory is reserved and not filled.
_LARGE = 2**26
#: Seconds of the process in which the blocks that are chosen have to end.
_SECONDS = 20.0
_ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
_ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})


class _FarTensors(TorchDispatchMode):
    """Allocates, passes views on, and refuses what computes with large or incomplete tensors."""

    call: FarCall

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        name = function.overloadpacket.__name__
        if name in _ALLOCATIONS | _ZEROS:
            return self._allocate(name, function, args, options)
        tensors = [leaf for leaf in pytree.tree_leaves((args, options)) if isinstance(leaf, torch.Tensor)]
        large = any(t.untyped_storage().nbytes() >= _LARGE or self.call.is_partial(t) for t in tensors)
        if large and not _is_view(function):
            fault = refusal(f"the host's code computes {name} of a tensor beyond 2^31 elements, or of kernels' results")
            ACCOUNT.fault = ACCOUNT.fault or fault  # whatever the host's code makes of the exception
            raise fault
        if function._schema.is_mutable:
            self.call.fresh -= {t.untyped_storage().data_ptr() for t in tensors}
        return function(*args, **options)

    def _allocate(self, name: str, function: Any, args: Any, options: dict[str, Any]) -> Any:
        meta = function(*args, **{**options, "device": torch.device("meta"), "pin_memory": False})
        count = meta.untyped_storage().nbytes() // meta.itemsize
        if count * meta.itemsize < _LARGE:
            tensor = function(*args, **options)
        else:
            device = options.get("device") or next((t.device for t in args if isinstance(t, torch.Tensor)), "cpu")
            tensor = untouched(count, meta.dtype, device).as_strided(meta.shape, meta.stride())
        self.call.homes.append(tensor)
        if name in _ALLOCATIONS and tensor.numel():
            self.call.fresh.add(tensor.untyped_storage().data_ptr())
        return tensor


def _is_view(function: Any) -> bool:
    """Whether an operator gives its argument's memory, and writes nothing there."""
    returns = function._schema.returns
    return bool(returns) and all(each.alias_info is not None and not each.alias_info.is_write for each in returns)


@contextmanager
def far_call() -> Iterator[FarCall]:
    """Within it, launches run some of their blocks, and host code has tensors of any size. It gives what is known."""
    call = ACCOUNT.far = FarCall(time.process_time() + _SECONDS)
    try:
        mode: Any = _FarTensors
        with mode() as tensors:
            tensors.call = call
            yield call
    finally:
        ACCOUNT.far = None
