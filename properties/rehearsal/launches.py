"""Triton's launches on the rehearsal device: compiled as for a GPU, and executed as PTX on its memory.

What a GPU or its driver refuses of a launch is refused here: an operand that is not on the current device, a grid that
is too large.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...oracles.machine.compiling import architecture, prepare_to_compile
from ...oracles.machine.memory import bytes_of
from ...oracles.machine.ptx.account import ACCOUNT
from ...oracles.machine.ptx.cuda_source import CudaKernel
from ...oracles.machine.ptx.executor import Executor
from ...oracles.machine.ptx.far import refusal
from ...oracles.machine.ptx.parameters import tensors_of
from ...oracles.machine.ptx.triton_launches import TritonLaunches
from . import torch_cuda

#: The most blocks in each dim of a grid (CUDA C++ Programming Guide, "Compute Capabilities").
MOST_BLOCKS = (2**31 - 1, 65535, 65535)


def require_launchable(grid: tuple[int, ...], operands: Mapping[str, torch.Tensor]) -> None:
    """Refuse what CUDA refuses.

    Raises:
        RuntimeError: a grid that is too large; an operand on another GPU. ValueError: one on the host.
    """
    for blocks, most in zip((*grid, 1, 1)[:3], MOST_BLOCKS, strict=True):
        if not 0 <= blocks <= most:
            raise RuntimeError(f"Triton Error [CUDA]: invalid argument (grid={grid}, need at most {MOST_BLOCKS})")
    here = torch.cuda.current_device()
    for name, operand in operands.items():
        if operand.numel() and not (operand.is_cuda or operand.is_pinned()):
            raise ValueError(f"Pointer argument ({name}) cannot be accessed from Triton (cpu tensor?)")
        if operand.numel() and operand.is_cuda and operand.device.index != here:
            raise RuntimeError(
                f"CUDA error: an illegal memory access was encountered ({name} is on {operand.device}, and the kernel "
                f"was launched on cuda:{here})"
            )


class DeviceExecutor(Executor):
    """Executes kernels on the current stream of the current device, and keeps them for a graph that is captured."""

    def __init__(self, of: str) -> None:
        super().__init__(of)
        self._alone = threading.Lock()  # each device has a thread for backward passes

    def execute(self, binary: Any, grid: tuple[int, ...], values: Mapping[str, object]) -> None:
        """As that of any executor; errors also as `require_launchable`, and RuntimeError where it races with others."""
        pointed = dict(each for name, value in values.items() for each in tensors_of(value, name))
        require_launchable(grid, pointed)
        execute = functools.partial(super().execute, binary, grid, values)

        def launch() -> None:
            with self._alone:
                execute_booked(binary.metadata.name, [*pointed.values()], execute)

        torch_cuda.IN_USE.graphs.keep(torch.cuda.current_device(), launch)
        launch()


def execute_booked(name: str, tensors: Sequence[torch.Tensor], execute: Callable[[], None]) -> None:
    """Execute a kernel, and book what was used on the current stream: what has changed was written, the rest read.

    Args:
        name: of the kernel. tensors: what it is given. execute: does it.

    Raises:
        RuntimeError: it races with other work.
    """
    # No memory could hold a copy of what a call beyond 2^31 elements has: nothing of it is booked.
    memories = [each.untyped_storage() for each in tensors] if ACCOUNT.far is None else []
    storages = {t.data_ptr(): t for t in memories if t.nbytes()}
    before = {at: bytes_of(storage).copy() for at, storage in storages.items()}
    execute()
    here = torch.cuda.current_device()
    for at, storage in storages.items():
        changed = (bytes_of(storage) != before[at]).nonzero()[0]
        stores = [(int(changed[0]), int(changed[-1]) + 1, True)] if changed.size else []
        for first, last, writes in [(0, storage.nbytes(), False), *stores]:
            torch_cuda.IN_USE.graphs.ask(
                "use", here, ctypes.c_void_p(at), ctypes.c_int64(first), ctypes.c_int64(last), writes, name.encode()
            )


def execute_raw(kernel: CudaKernel, values: Sequence[bytes]) -> None:
    """Execute a kernel on the current stream, and keep it for a graph that is captured.

    Args:
        kernel: which is launched. values: the bytes of each argument.

    Raises:
        RuntimeError: it races with other work. Violation, Unsupported: as a `CudaKernel` does.
    """
    if ACCOUNT.far is not None:  # an address in memory that is only reserved would be nobody's
        ACCOUNT.fault = ACCOUNT.fault or refusal("a kernel is launched by its operands' addresses")
        raise ACCOUNT.fault
    tensors = list[torch.Tensor]()
    arguments = [_argument(raw, kind, tensors) for raw, kind in zip(values, kernel.kinds, strict=True)]

    def launch() -> None:
        execute_booked(kernel.__name__, tensors, lambda: kernel(*arguments))

    torch_cuda.IN_USE.graphs.keep(torch.cuda.current_device(), launch)
    launch()


def _argument(raw: bytes, kind: str, tensors: list[torch.Tensor]) -> Any:
    """An argument as `cuda_kernel` takes it, of its bytes; memory that it points to is added to `tensors`."""
    if kind in ("f32", "f64"):
        return float(np.frombuffer(raw, f"f{len(raw)}")[0])
    pieces = [_eight_bytes(raw[at : at + 8], tensors) for at in range(0, len(raw), 8)]
    if kind:
        return pieces[0] if isinstance(pieces[0], torch.Tensor) else int.from_bytes(raw, "little")
    return tuple(pieces) if any(isinstance(piece, torch.Tensor) for piece in pieces) else raw


def _eight_bytes(raw: bytes, tensors: list[torch.Tensor]) -> Any:
    """Of eight bytes the memory that they point to, or the number that they are."""
    if len(raw) < 8:
        return np.frombuffer(raw, f"u{len(raw)}")[0]
    begin = ctypes.c_void_p()
    address = int.from_bytes(raw, "little")
    size = torch_cuda.find_memory(address, begin)
    if not size:
        return np.uint64(address)
    content = (ctypes.c_uint8 * size).from_address(int(begin.value or 0))
    memory = torch.frombuffer(content, dtype=torch.uint8)
    tensors.append(memory)
    return memory[address - int(begin.value or 0) :]


def install() -> None:
    """Have Triton launch on the rehearsal device, in this process; it must have been imported."""
    from triton.runtime import driver

    from . import triton_driver

    prepare_to_compile()
    launches = TritonLaunches(architecture(), DeviceExecutor(architecture()))
    launches.install()
    driver.set_active(triton_driver.RehearsalDriver())
    triton_driver.take_no_times()
    triton_driver.launch_binaries(launches.execute)
