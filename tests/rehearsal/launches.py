"""Triton's launches on the rehearsal device: compiled as for a GPU, and executed as PTX on its memory.

What a GPU or its driver refuses of a launch is refused here: an operand that is not on the current device, a grid that
is too large.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import torch

from . import torch_cuda

#: The most blocks in each dim of a grid (CUDA C++ Programming Guide, "Compute Capabilities").
MOST_BLOCKS = (2**31 - 1, 65535, 65535)


def require_launchable(names: list[str], grid: tuple[int, ...], operands: tuple[object, ...]) -> None:
    """Refuse what CUDA refuses.

    Raises:
        RuntimeError: a grid that is too large or empty; an operand on another GPU. ValueError: one on the host.
    """
    for blocks, most in zip((*grid, 1, 1)[:3], MOST_BLOCKS, strict=True):
        if not 1 <= blocks <= most:
            raise RuntimeError(f"Triton Error [CUDA]: invalid argument (grid={grid}, need 1 to {MOST_BLOCKS})")
    here = torch.cuda.current_device()
    for name, operand in zip(names, operands, strict=False):
        if not isinstance(operand, torch.Tensor) or operand.numel() == 0:
            continue
        if not operand.is_cuda:
            raise ValueError(f"Pointer argument ({name}) cannot be accessed from Triton (cpu tensor?)")
        if operand.device.index != here:
            raise RuntimeError(
                f"CUDA error: an illegal memory access was encountered ({name} is on {operand.device}, and the kernel "
                f"was launched on cuda:{here})"
            )


def _bytes_of(storage: torch.UntypedStorage) -> Any:
    """The bytes of a storage, whatever device it is said to be on."""
    if storage.nbytes() == 0:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr()))


@functools.cache
def _executor() -> Any:
    from opassay.oracles.machine.ptx import executor

    setattr(executor, "bytes_of", _bytes_of)  # noqa: B010 (a name that the module has from another one)
    return executor.Executor("sm_90")


def _launch(kernel: Any, grid: tuple[int, ...], operands: tuple[object, ...], constants: Any, warps: int) -> None:
    """Execute a kernel, and book what it used on the current stream: what has changed was written, the rest read."""
    storages = {
        t.data_ptr(): t for t in (o.untyped_storage() for o in operands if isinstance(o, torch.Tensor)) if t.nbytes()
    }
    before = {at: _bytes_of(storage).copy() for at, storage in storages.items()}
    _executor().launch(kernel, grid, operands, constants, warps)
    for at, storage in storages.items():
        changed = np.flatnonzero(_bytes_of(storage) != before[at])
        uses = [(0, storage.nbytes(), False)]
        uses += [(int(changed[0]), int(changed[-1]) + 1, True)] if changed.size else []
        for first, last, writes in uses:
            torch_cuda.graphs.ask(
                "use", storage.device.index, ctypes.c_void_p(at), ctypes.c_int64(first), ctypes.c_int64(last), writes,
                kernel.__name__.encode(),
            )  # fmt: skip


def install() -> None:
    """Have Triton launch on the rehearsal device, in this process."""
    from triton.runtime.jit import JITFunction

    original = JITFunction.run

    @functools.wraps(original)
    def run(self: Any, *operands: object, grid: Any, warmup: bool, **more: Any) -> Any:
        if warmup:
            return original(self, *operands, grid=grid, warmup=True, **more)
        warps = more.pop("num_warps", 4)
        more.pop("enable_fp_fusion", None)
        named = dict(zip(self.arg_names, operands, strict=False)) | more
        size = tuple(grid(named)) if callable(grid) else tuple(grid)
        require_launchable(self.arg_names, size, operands)
        launch = functools.partial(_launch, self, size, operands, more, warps)
        torch_cuda.graphs.keep(torch.cuda.current_device(), launch)
        return launch()

    JITFunction.run = run
