"""A launcher that compiles kernels and executes their PTX on tensors of the CPU, and judges every access.

Memory is a copy of the operands between guard bands. If a kernel reads what nothing was written to, the launch is
executed once more on hardware whose unwritten memory holds other bytes; the results must not show it.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...op.declaration import Tensor
from ...verdicts.violation import Code, Violation
from ..compiling import CAPABILITIES, compile_for, compiled
from ..memory import bytes_of, poisoned_tensor, runs_of
from . import far, hardware
from .account import ACCOUNT
from .chunk import Context, Extents, whole_warps
from .chunk import Geometry as Geometry
from .executable import Kernel
from .execution import execute
from .extents import Extent
from .formats import BASE, Lanes
from .hardware import ORDERS, Hardware
from .parameters import Structure, tensors_of
from .space import WARP, Space
from .sparse import PAGE, SparseSpace, StorageRegion
from .tensor_maps import host_map
from .wraps import Wraps

#: Bytes around every operand; and addresses of operands are multiples of this but for their storage's own alignment.
_GUARD, _ALIGNMENT = 4096, 256
#: Memory of more bytes is kept for what is touched alone.
_SPARSE = 2**22
#: The largest numbers of blocks along x, y and z (CUDA C++ Programming Guide, technical specifications).
MOST_BLOCKS = (2**31 - 1, 65535, 65535)
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

    empty = staticmethod(poisoned_tensor)

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
            binary = compiled(kernel, grid, operands, constants, warps)
            self.execute(binary, grid, dict(zip(kernel.arg_names, operands, strict=False)))

    def execute(self, binary: Any, grid: tuple[int, ...], values: Mapping[str, object]) -> None:
        """Execute what Triton compiled.

        Args:
            binary: a kernel of its compiler. grid: of the launch. values: of its arguments, by name.

        Raises:
            Violation, Unsupported: as `launch`.
        """
        program = self.program(binary)
        metadata = binary.metadata
        arguments = list(_arguments(binary, values))
        scratch = getattr(metadata, "global_scratch_size", 0) * math.prod(grid)
        if scratch:
            arguments.append(("*i8", torch.empty(scratch, dtype=torch.uint8), "scratch memory"))
        geometry = Geometry(metadata.name, three_extents(grid), (WARP * metadata.num_warps, 1, 1), metadata.shared)
        PlacedLaunch(geometry, program, arguments).run()

    def program(self, binary: Any) -> Kernel:
        """What Triton compiled, ready to be executed; each binary is read once."""
        if binary.hash not in self._kernels:
            text = binary.asm["ptx"]
            self._kernels[binary.hash] = Kernel(self._edit(text) if self._edit else text)
        return self._kernels[binary.hash]


def _arguments(binary: Any, values: Mapping[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Types, values and names of arguments, a descriptor of a tensor as Triton's launcher passes it."""
    metas = iter(getattr(binary.metadata, "tensordesc_meta", None) or ())
    for name, kind in binary.src.signature.items():
        if not isinstance(kind, str) or not kind.startswith("tensordesc"):
            if kind != "constexpr":
                yield kind, values[name], name
            continue
        value, meta = values[name], next(metas, None)
        sizes = [("i64", int(n), name) for n in (*value.shape, *value.strides)]
        if meta is None:
            yield "*", value.base, name
            yield from [*sizes, ("i1", value.padding == "nan", name), ("i1", value.round_f32_to_tf32, name)]
        else:
            yield "struct", host_map(value, meta), name
        yield from sizes


def three_extents(sizes: Sequence[int]) -> Extents:
    """Sizes along x, y and z of those that are named."""
    width, height, depth = (*map(int, sizes), 1, 1)[:3]
    return width, height, depth


class PlacedLaunch:
    """One launch: its operands in a memory, and the bytes of its parameters.

    Args:
        geometry: of the launch. kernel: the program.
        arguments: of each parameter its type, as Triton names them, its value and its name.
    """

    def __init__(self, geometry: Geometry, kernel: Kernel, arguments: Sequence[tuple[str, object, str]]) -> None:
        self._geometry, self._kernel, self._arguments = geometry, kernel, arguments
        self._places: dict[int, tuple[int, Any]] = {}
        self._symbols: dict[str, int] = {}
        self._blocks: Lanes | None = None
        self._unordered, self._far = False, ACCOUNT.far
        self._spaces = (_GUARD, _ALIGNMENT) if self._far is None else (far.GUARD, PAGE)
        self._end, alignment = self._spaces
        for name, content in kernel.entry.constants.items():
            self._symbols[name] = BASE + self._end
            self._end += -(-len(content) // alignment) * alignment + self._spaces[0]
        self._tensors = [each for _, value, name in self._arguments for each in tensors_of(value, name)]
        for _, tensor in self._tensors:
            self._place(tensor)
        self._parameters = self._packed()

    def _place(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._places:
            # The width of a kernel's accesses depends on the alignment of its operands modulo 16 bytes.
            guard, alignment = self._spaces
            place = -(-self._end // alignment) * alignment + storage.data_ptr() % 16
            self._places[storage.data_ptr()] = place, bytes_of(storage)
            self._end = place + storage.nbytes() + guard

    def _packed(self) -> dict[str, bytes]:
        """The bytes of every parameter of the entry; those that Triton adds are null pointers."""
        parameters = {name: bytes(width) for name, width in self._kernel.entry.parameters.items()}
        for name, (kind, value, _) in zip(list(parameters), self._arguments, strict=False):
            parameters[name] = self._raw(kind, value, len(parameters[name]))
        return parameters

    def _raw(self, kind: str, value: Any, width: int) -> bytes:
        if isinstance(value, Structure):
            return value.packed(self._address)
        if isinstance(value, Tensor):
            return struct.pack("<Q", self._address(value))
        if kind == "fp32":
            return np.float32(value).tobytes()
        if kind == "fp64":
            return struct.pack("<d", value)
        return (int(value) & ((1 << 8 * width) - 1)).to_bytes(width, "little")

    def _address(self, tensor: Tensor) -> int:
        place, _ = self._places[tensor.untyped_storage().data_ptr()]
        return BASE + place + int(tensor.storage_offset()) * tensor.element_size()

    def run(self) -> None:
        """Execute on the hardware in use, and write the operands; errors as `Executor.launch`."""
        on = hardware.current()
        memory, unwritten = self._executed(on)
        if memory.unwritten and self._far is not None:
            raise far.refusal(f"{memory.unwritten}, which was left to blocks that did not run")
        if unwritten:
            text = f"{self._geometry.name}: a result depends on memory that nothing was written to"
            fault = Violation(Code.UNDEFINED, text, [f"first read of such memory: {unwritten}"])
            self._require_equal(memory, replace(on, poison=(on.poison + _OTHER) & 0xFF), fault)
        # Where threads wait for others, results may rightly depend on who comes first.
        if memory.doubt is not None and not self._unordered and not self._kernel.waits:
            for order in ORDERS:
                if order != on.order:
                    self._require_equal(memory, replace(on, order=order), self._with_name(memory.doubt))
        if isinstance(memory, SparseSpace):
            for home, storage in enumerate(self._places, len(self._symbols)):
                if self._far is not None:
                    self._far.note(storage, memory, home, self._blocks is None)
            memory.write_back()
            return
        for place, content in self._places.values():
            content[:] = memory.cells[place : place + content.size]

    def _require_equal(self, memory: Space, on: Hardware, violation: Violation) -> None:
        """Require that the launch leaves the same on another hardware; else it is a violation."""
        other, _ = self._executed(on)
        if isinstance(memory, SparseSpace) and isinstance(other, SparseSpace):
            if memory.changes() != other.changes():
                raise violation
            return
        for place, content in self._places.values():
            cells = slice(place, place + content.size)
            if (memory.cells[cells] != other.cells[cells]).any():
                raise violation

    def _with_name(self, violation: Violation) -> Violation:
        """The same with the name of the kernel before it."""
        title = f"{self._geometry.name}: {violation.title}"
        return Violation(violation.code, title, violation.message.splitlines()[1:])

    def _memory(self, on: Hardware) -> Space:
        """Global memory before the launch."""
        count, threads = math.prod(self._geometry.grid), whole_warps(self._geometry.block)
        constants = self._kernel.entry.constants
        symbols = [(name, at - BASE, np.frombuffer(constants[name], np.uint8)) for name, at in self._symbols.items()]
        tensors = [(name, each, self._places[each.untyped_storage().data_ptr()][0]) for name, each in self._tensors]
        if self._end > _SPARSE:
            regions = [StorageRegion(place, content) for _, place, content in symbols]
            for storage, (place, content) in self._places.items():
                regions.append(StorageRegion(place, content, None if self._far is None else self._far.known(storage)))
            extents = [Extent(name, place, 1, (content.size,), (1,)) for name, place, content in symbols]
            extents += [Extent.of(value, name, place) for name, value, place in tensors]
            return SparseSpace(regions, extents, self._end, count, threads, on.poison)
        memory = Space("global", self._end, count, threads, poison=on.poison, apart=False)
        for place, content in self._places.values():
            memory.cells[place : place + content.size] = content
        for name, place, content in symbols:
            memory.cells[place : place + content.size] = content
            memory.allow(name, [(place, place + content.size)])
        for name, value, place in tensors:
            memory.allow(name, [(place + first, place + last) for first, last in runs_of(value)])
        return memory

    def _executed(self, on: Hardware) -> tuple[Space, str]:
        """The memory as the launch leaves it, and the first read of what was never written, in words."""
        entry, geometry, memory = self._kernel.entry, self._geometry, self._memory(on)
        shared = -(-(entry.sizes["shared"] + geometry.shared) // 16) * 16
        context = Context(entry, geometry, memory, self._parameters, on.poison, max(shared, 16), self._symbols)
        try:
            if self._far is None:
                execute(self._kernel, context, on.order)
            else:
                self._execute_some(context, on.order, self._far)
        except Violation as violation:
            raise self._with_name(violation) from None
        self._unordered = context.unordered
        if context.unordered:
            ACCOUNT.unordered.add(geometry.name)
        return memory, memory.unwritten or context.unwritten

    def _execute_some(self, context: Context, order: str, call: far.FarCall) -> None:
        """Execute the blocks at the ends and where indices wrap, and note what wrapped; errors as `Executor.launch`."""
        extents = [Extent.of(tensor) for _, tensor in self._tensors]
        self._blocks = far.choose_blocks(self._geometry.grid, context.threads, extents)
        context.deadline = call.deadline
        if self._blocks is not None:
            call.partial = True
            if self._kernel.joint:
                raise far.refusal("its blocks change elements together, by atomic operations, and not all of them run")
        wraps = Wraps(self._kernel.entry)
        try:
            execute(self._kernel.watched(wraps), context, order, self._blocks)
        except Violation as violation:
            where = next((f"address {words}" for access, words in wraps.lines.items() if access in violation.title), "")
            raise violation.with_lines(*filter(None, [where])) from None
        call.wraps += [f"{access}: address of {words}" for access, words in wraps.lines.items()]
