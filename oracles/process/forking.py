"""Copies of this process by fork, of which CUDA allows none once it has started."""

from __future__ import annotations

import os

import torch


def fork() -> int:
    """`os.fork`.

    Raises:
        RuntimeError: CUDA has started in this process.
    """
    if torch.cuda.is_initialized():
        raise RuntimeError("fork: got a process in which CUDA has started, need one before: a copy could use no GPU")
    return os.fork()
