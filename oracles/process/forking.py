"""Copies of this process by fork, of which CUDA allows none once it has started."""

from __future__ import annotations

import os
import sys


def has_started_cuda() -> bool:
    """Whether CUDA runs in this process, so that a copy of it could not use a GPU. Torch is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def fork() -> int:
    """`os.fork`.

    Raises:
        RuntimeError: CUDA has started in this process.
    """
    if has_started_cuda():
        raise RuntimeError("fork: got a process in which CUDA has started, need one before: a copy could use no GPU")
    return os.fork()
