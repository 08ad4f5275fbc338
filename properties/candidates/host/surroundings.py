"""What surrounds a call of a candidate, by its manner: modes of torch that are set for it and set back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .calls import Manner

#: The number of threads of torch for `Manner.THREADS`.
_THREADS = 4


@contextlib.contextmanager
def surrounding(manner: Manner, device: str) -> Iterator[None]:
    """What surrounds a call of a manner with tensors on a device."""
    if manner is Manner.AUTOCAST:
        with torch.autocast(device, dtype=torch.bfloat16):
            yield
        return
    if manner is Manner.THREADS:
        count = torch.get_num_threads()
        torch.set_num_threads(_THREADS)
        try:
            yield
        finally:
            torch.set_num_threads(count)
        return
    if manner is not Manner.POISONED:
        yield
        return
    before, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    # The switch is a property of the module's class, which its annotations do not show.
    switch: Any = torch.utils.deterministic
    fill = switch.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    switch.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
        switch.fill_uninitialized_memory = fill
