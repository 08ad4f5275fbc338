"""Kernels as machine code without a GPU: compiled for an architecture, and the resources that the code takes.

Triton itself compiles, in the same way and with the same cache as for a launch, but for a driver that has an
architecture and no device. Registers, stack and shared memory are read from the binary by `cuobjdump`; the width of
every access to memory, and arithmetic in double precision, are read from the PTX.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from opassay.oracles.machine.compiling import compile_for, compiled

from .recorder import Launch


@dataclass(frozen=True)
class Architecture:
    """What a streaming multiprocessor has, from the tables of the CUDA programming guide ("Technical Specifications").

    Attributes:
        capability: 90 for sm_90.
        shared, shared_block: bytes of shared memory of one multiprocessor, and the most that one block can have.
        warps, blocks: the most that are resident.
        in_flight: bytes that have to be under way for a multiprocessor to draw its share of the memory's bandwidth:
            bandwidth times latency over the number of multiprocessors (Little's law), of 2.0 TB/s, 0.6 µs, 108 for the
            A100; 3.35 TB/s, 0.65 µs, 132 for the H100; 8 TB/s, 0.8 µs, 148 for the B200. The latencies are assumed.
    """

    capability: int
    shared: int
    shared_block: int
    warps: int
    blocks: int
    in_flight: int


ARCHITECTURES = {
    "sm_80": Architecture(80, 164 << 10, 163 << 10, 64, 32, 11_100),
    "sm_90": Architecture(90, 228 << 10, 227 << 10, 64, 32, 16_500),
    "sm_100": Architecture(100, 228 << 10, 227 << 10, 64, 32, 43_200),
}

#: Of a multiprocessor of every architecture above; a warp takes registers in pieces of 256.
_REGISTERS, _PIECE = 65536, 256
#: Bytes of shared memory that the system takes of every block.
_RESERVED = 1024

# "@%p1 ld.global.L1::evict_last.v4.b32 {...}" is an access of 16 bytes; a copy to shared memory says its size itself.
_ACCESS = re.compile(r"\b(ld|st)\.global((?:\.[A-Za-z][\w:]*)*)\.[busf](\d+)\b")
_VECTOR = re.compile(r"\.v(\d+)\b")
_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global(?:\.[\w:]+)* *\[.*?\], *\[.*?\], *(0x[0-9a-f]+|\d+)")
_DOUBLE = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z]\S*\.f64\S*)\s", re.MULTILINE)
_IN_ORDER = re.compile(r"\b(ld|st|bar)\.(?:global[^\n]*\[ *(%rd\d+)|sync)")
_APPROXIMATE = re.compile(r"\b((?:ex2|lg2|rcp|rsqrt|sqrt|div|sin|cos|tanh)\.(?:approx|full)[\w.]*)")
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class MachineCode:
    """The resources that the machine code of a launch takes.

    Attributes:
        registers: of a thread. stack: bytes of a thread's memory apart from registers; 0 where nothing spills.
        spills: bytes that a thread writes there because it has no register for them.
        shared: bytes of a block. warps: of a block.
        loads, stores: how many of the program's accesses have so many bytes.
        unordered: addresses that a block loads and then stores to with no barrier between, by their registers.
        doubles: instructions in double precision. approximations: those of which the PTX ISA gives a bound alone.
    """

    registers: int
    stack: int
    spills: int
    shared: int
    warps: int
    loads: dict[int, int]
    stores: dict[int, int]
    unordered: frozenset[str]
    doubles: int
    approximations: frozenset[str]

    @property
    def narrow(self) -> float:
        """The part of the bytes accessed that go in accesses of fewer than 16 bytes."""
        both = Counter(self.loads) + Counter(self.stores)
        every = sum(width * count for width, count in both.items())
        return sum(width * count for width, count in both.items() if width < 16) / every if every else 0.0

    def resident(self, on: Architecture) -> int:
        """Blocks that are on a multiprocessor at once; 0 where one does not fit."""
        if self.shared > on.shared_block:
            return 0
        register_pieces = -(-self.registers * 32 // _PIECE) * self.warps
        by_registers = _REGISTERS // _PIECE // max(register_pieces, 1)
        by_shared = on.shared // (self.shared + _RESERVED)
        return min(by_registers, by_shared, on.warps // self.warps, on.blocks)

    def latency_cover(self, on: Architecture) -> float:
        """How far the accesses that can be under way at once cover the latency of memory; at most 1.

        Loads count, and stores where a kernel stores more than it loads. A loop's count once: those of one round.
        """
        thread = max(sum(width * count for width, count in of.items()) for of in (self.loads, self.stores))
        return min(1.0, thread * 32 * self.warps * self.resident(on) / on.in_flight)


def machine_code(launch: Launch, architecture: Architecture) -> MachineCode:
    """The machine code of a launch."""
    compile_for(architecture.capability)
    kernel = compiled(launch.kernel, launch.grid, launch.operands, launch.constants, launch.warps)
    return read_resources(kernel.asm["ptx"], kernel.asm["cubin"], launch.warps, architecture, kernel.metadata.shared)


def read_resources(ptx: str, cubin: bytes, warps: int, architecture: Architecture, shared: int) -> MachineCode:
    """The resources that a compiled kernel takes.

    Args:
        ptx, cubin: the kernel in both forms. warps: of a block. architecture: for which it was compiled.
        shared: bytes of shared memory that a launch asks for.
    """
    usage = _USAGE.search(_run_tool([_tool("cuobjdump"), "--dump-resource-usage"], cubin, ".cubin"))
    assert usage is not None, "cuobjdump says nothing about registers"
    registers, stack, static, local = map(int, usage.groups())
    doubles, approximations = len(_DOUBLE.findall(ptx)), frozenset(_APPROXIMATE.findall(ptx))
    spilled = _spilled(ptx, architecture) if stack or local else 0
    loads, stores = accesses(ptx, "ld"), accesses(ptx, "st")
    return MachineCode(
        registers,
        stack + local,
        spilled,
        max(static, shared),
        warps,
        loads,
        stores,
        unordered(ptx),
        doubles,
        approximations,
    )


def accesses(ptx: str, kind: str) -> dict[int, int]:
    """How many loads ("ld") or stores ("st") of global memory have so many bytes."""
    counts: Counter[int] = Counter()
    for verb, modifiers, bits in _ACCESS.findall(ptx):
        if verb == kind:
            vector = _VECTOR.search(modifiers)
            counts[int(bits) // 8 * int(vector[1] if vector else 1)] += 1
    if kind == "ld":
        counts.update(int(size, 0) for size in _COPY.findall(ptx))
    return dict(sorted(counts.items()))


def unordered(ptx: str) -> frozenset[str]:
    """The registers of addresses of global memory that are loaded from, and stored to with no barrier between."""
    loaded: set[str] = set()
    stored: set[str] = set()
    for kind, address in _IN_ORDER.findall(ptx):
        if kind == "ld":
            loaded.add(address)
        elif kind == "st":
            stored |= loaded & {address}
        else:
            loaded.clear()
    return frozenset(stored)


def _spilled(ptx: str, architecture: Architecture) -> int:
    arch = f"-arch=sm_{architecture.capability}" + "a" * (architecture.capability >= 90)
    text = _run_tool([_tool("ptxas-blackwell", "ptxas"), "-v", arch, "-o", os.devnull], ptx.encode(), ".ptx")
    return sum(int(stores) for stores, _ in _SPILLS.findall(text))


@functools.cache
def _tool(*names: str) -> str:
    """The first of these programs that Triton's wheel has."""
    import triton

    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    for name in names:
        if (folder / name).is_file():
            return str(folder / name)
    raise FileNotFoundError(f"compiler: {' or '.join(names)} is not in {folder}")


def _run_tool(command: list[str], content: bytes, suffix: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=suffix) as file:
        file.write(content)
        file.flush()
        process = subprocess.run([*command, file.name], capture_output=True, text=True, check=True)
    return process.stdout + process.stderr
