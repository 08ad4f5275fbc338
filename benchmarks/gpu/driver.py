"""Texts of PTX on the GPU itself, by CUDA's driver: what the executor of PTX is compared with."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

#: Of `cuModuleLoadDataEx`: where the compiler of the driver puts its messages, and their size (cuda.h, CUjit_option).
_ERROR_LOG, _ERROR_LOG_SIZE = 5, 6


class Entry:
    """The entry "kernel" of a text of PTX, compiled by the driver for the GPU in use.

    Raises:
        RuntimeError: the driver refuses it; the message is its own.
    """

    def __init__(self, text: str) -> None:
        torch.cuda.current_stream()  # torch makes the context
        torch.zeros(1, device="cuda")
        self._cuda = ctypes.CDLL("libcuda.so.1")
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        log = ctypes.create_string_buffer(4096)
        options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), ctypes.c_void_p(len(log)))
        code = self._cuda.cuModuleLoadDataEx(ctypes.byref(module), text.encode() + b"\0", 2, options, values)
        self._require(code, log.value.decode(errors="replace"))
        self._require(self._cuda.cuModuleGetFunction(ctypes.byref(self._function), module, b"kernel"))

    def launch(self, tensors: Sequence[torch.Tensor], blocks: int, threads: int) -> None:
        """Run it on tensors of the GPU, which its parameters point to, and wait for the end."""
        pointers = [ctypes.c_uint64(tensor.data_ptr()) for tensor in tensors]
        parameters = (ctypes.c_void_p * len(pointers))(*(ctypes.addressof(pointer) for pointer in pointers))
        size = (ctypes.c_uint(blocks), *[ctypes.c_uint(1)] * 2, ctypes.c_uint(threads), *[ctypes.c_uint(1)] * 2)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self._require(self._cuda.cuLaunchKernel(self._function, *size, ctypes.c_uint(0), stream, parameters, None))
        torch.cuda.synchronize()

    @staticmethod
    def _require(code: int, text: str = "") -> None:
        if code:
            raise RuntimeError(f"CUDA driver: error {code}: {text.strip()[:300]}")
