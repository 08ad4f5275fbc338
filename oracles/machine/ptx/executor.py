"""A launcher that compiles kernels and executes their PTX on tensors of the CPU, and judges every access.

Memory is a copy of the operands between guard bands. If a kernel reads what nothing was written to, the launch is
executed once more on hardware whose unwritten memory holds other bytes; the results must not show it.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...op.declaration import Tensor
from ...verdicts.verdict import Code
from ...verdicts.violation import Violation
from ..compiling import compile_for, compiled
from ..memory import bytes_of, runs_of
from ..poison import poisoned_tensor
from . import hardware
from .chunk import WARP, Context
from .executable import Kernel
from .execution import execute
from .hardware import Hardware
from .operands import BASE
from .space import Space

#: The architectures that kernels are compiled for, by name.
CAPABILITIES = {"sm_80": 80, "sm_90": 90, "sm_100": 100}
#: Bytes around every operand; and addresses of operands are multiples of this but for their storage's own alignment.
_GUARD, _ALIGNMENT = 4096, 256
#: Added to a poison, which gives another one.
_OTHER = 0x41


class Executor:
    """A launcher (`impl.gpu.launching.Launcher`) that executes PTX.

    Args:
        architecture: of `CAPABILITIES`. edit: a function of PTX, by which a test plants faults.
    """

    def __init__(self, architecture: str = "sm_90", edit: Callable[[str], str] | None = None) -> None:
        compile_for(CAPABILITIES[architecture])
        self._edit = edit
        self._kernels: dict[str, Kernel] = {}
        self._lock = threading.Lock()  # backward passes run in threads of their own

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """See `poisoned_tensor`."""
        return poisoned_tensor(shape, dtype, device)

    def launch(
        self, kernel: Any, grid: tuple[int, ...], operands: tuple[object, ...], constants: Mapping[str, object],
        warps: int,
    ) -> None:  # fmt: skip
        """Compile a kernel and execute it.

        Args:
            kernel, grid, operands, constants, warps: as `impl.gpu.launching.Launcher` has them.

        Raises:
            Violation: what a GPU traps on, or what the ISA leaves undefined.
            Unsupported: an instruction that no meaning is built for.
        """
        with self._lock:
            made = compiled(kernel, grid, operands, constants, warps)
            program = self._kernel(made)
            arguments = [
                (made.src.signature[name], value) for name, value in zip(kernel.arg_names, operands, strict=False)
            ]
            launch = PlacedLaunch(made.metadata, program, _three(grid), arguments)
            launch.run()

    def _kernel(self, made: Any) -> Kernel:
        """The program of what Triton compiled, read once."""
        program = self._kernels.get(made.hash)
        if program is None:
            text = made.asm["ptx"]
            program = self._kernels[made.hash] = Kernel(self._edit(text) if self._edit else text)
        return program


def _three(grid: tuple[int, ...]) -> tuple[int, int, int]:
    width, height, depth = (*grid, 1, 1)[:3]
    return width, height, depth


class PlacedLaunch:
    """One launch: its operands in a memory, and the bytes of its parameters.

    Args:
        metadata: of Triton's compiler. kernel: the program. grid: blocks in three dims.
        arguments: the types of the signature, and the values.
    """

    def __init__(
        self, metadata: Any, kernel: Kernel, grid: tuple[int, int, int], arguments: list[tuple[str, object]]
    ) -> None:
        self._name, self._kernel, self._grid = metadata.name, kernel, grid
        self._threads, self._dynamic = WARP * metadata.num_warps, metadata.shared
        self._arguments = [(kind, value) for kind, value in arguments if kind != "constexpr"]
        self._places: dict[int, tuple[int, Any]] = {}
        self._end = _GUARD
        for _, value in self._arguments:
            if isinstance(value, Tensor):
                self._place(value)
        self._parameters = self._packed()

    def _place(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._places:
            # The width of a kernel's accesses depends on the alignment of its operands modulo 16 bytes.
            place = -(-self._end // _ALIGNMENT) * _ALIGNMENT + storage.data_ptr() % 16
            self._places[storage.data_ptr()] = place, bytes_of(storage)
            self._end = place + storage.nbytes() + _GUARD

    def _packed(self) -> dict[str, bytes]:
        """The bytes of every parameter of the entry; those that Triton adds are null pointers."""
        parameters = {name: bytes(width) for name, width in self._kernel.entry.parameters.items()}
        for name, (kind, value) in zip(list(parameters), self._arguments, strict=False):
            parameters[name] = self._raw(kind, value, len(parameters[name]))
        return parameters

    def _raw(self, kind: str, value: Any, width: int) -> bytes:
        if isinstance(value, Tensor):
            place, _ = self._places[value.untyped_storage().data_ptr()]
            return struct.pack("<Q", BASE + place + int(value.storage_offset()) * value.element_size())
        if kind == "fp32":
            return np.float32(value).tobytes()
        if kind == "fp64":
            return struct.pack("<d", value)
        return (int(value) & ((1 << 8 * width) - 1)).to_bytes(width, "little")

    def run(self) -> None:
        """Execute on the hardware in use, and write the operands; errors as `Executor.launch`."""
        on = hardware.current()
        memory, undefined = self._executed(on)
        if undefined:
            other, _ = self._executed(replace(on, poison=(on.poison + _OTHER) & 0xFF))
            for place, content in self._places.values():
                if (memory.cells[place : place + content.size] != other.cells[place : place + content.size]).any():
                    raise Violation(
                        Code.UNDEFINED, f"{self._name}: a result depends on memory that nothing was written to"
                    )
        for place, content in self._places.values():
            content[:] = memory.cells[place : place + content.size]

    def _executed(self, on: Hardware) -> tuple[Space, int]:
        """The memory as the launch leaves it, and how often it read what was never written."""
        blocks = int(np.prod(self._grid))
        memory = Space("global", self._end, blocks, self._threads, poison=on.poison, apart=False)
        for place, content in self._places.values():
            memory.cells[place : place + content.size] = content
        for _, value in self._arguments:
            if isinstance(value, Tensor):
                place, _ = self._places[value.untyped_storage().data_ptr()]
                for first, last in runs_of(value):
                    memory.allowed[place + first : place + last] = memory.defined[place + first : place + last] = True
        shared = -(-(self._kernel.entry.size + self._dynamic) // 16) * 16
        context = Context(
            self._kernel.entry, self._grid, self._threads, memory, self._parameters, on.poison, max(shared, 16)
        )
        try:
            execute(self._kernel, context, on.order)
        except Violation as violation:
            raise Violation(
                violation.code, f"{self._name}: {violation.title}", violation.message.splitlines()[1:]
            ) from None
        return memory, memory.undefined + context.undefined
