"""Copies of this process by fork, of which CUDA allows none once it has started."""

from __future__ import annotations

import ctypes
import os

import torch


def fork() -> int:
    """`os.fork`, of a process whose free memory has gone back to the system, where the C library can give it back.

    Raises:
        RuntimeError: CUDA has started in this process.
    """
    if torch.cuda.is_initialized():
        raise RuntimeError("fork: got a process in which CUDA has started, need one before: a copy could use no GPU")
    # A page that malloc keeps for later is mapped in the copy, too, and copied as soon as it is written to here.
    getattr(ctypes.pythonapi, "malloc_trim", int)(0)
    return os.fork()
