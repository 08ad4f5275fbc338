"""Runs texts of PTX on tensors, without Triton: whole entries, or one instruction on every element of some arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from opassay.oracles.machine.ptx import hardware
from opassay.oracles.machine.ptx.executable import Kernel
from opassay.oracles.machine.ptx.executor import Geometry, PlacedLaunch, three_extents
from opassay.oracles.machine.ptx.formats import BITS, WIDTHS

HEAD = ".version 8.7\n.target sm_90\n.address_size 64\n"
_REGISTERS = {1: "%b", 2: "%h", 4: "%r", 8: "%d"}
_SIGNED = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def run(
    text: str,
    tensors: Sequence[torch.Tensor],
    blocks: int = 1,
    warps: int = 1,
    shared: int = 0,
    on: Any = hardware.NEAREST,
    grid: tuple[int, ...] = (),
    block: tuple[int, ...] = (),
    cluster: tuple[int, ...] = (),
) -> None:
    """Run an entry whose parameters are pointers.

    Args:
        text: of the module. tensors: what the pointers point to; they are written.
        blocks, warps: of the launch. shared: bytes of dynamic shared memory. on: the hardware.
        grid, block: of the launch, in place of `blocks` and `warps`. cluster: of it, one block by default.
    """
    sizes = three_extents(grid or (blocks,)), three_extents(block or (32 * warps,))
    geometry = Geometry("kernel", *sizes, shared, three_extents(cluster or (1,)))
    arguments = [("*", tensor, f"p{number}") for number, tensor in enumerate(tensors)]
    with hardware.on(on):
        PlacedLaunch(geometry, Kernel(text), arguments).run()


def entry(body: str, parameters: int, registers: str = "", outside: str = "") -> str:
    """A module with one entry, whose pointers are in %rd0, %rd1, and whose thread's number is in %t.

    Args:
        body: statements. parameters: how many pointers. registers: further declarations. outside: of the entry.
    """
    names = ",\n".join(f".param .u64 .ptr .global .align 1 p{number}" for number in range(parameters))
    loads = "\n".join(f"ld.param.b64 %rd{number}, [p{number}];" for number in range(parameters))
    return (
        f"{HEAD}{outside}.visible .entry kernel(\n{names}\n)\n{{\n.reg .pred %p<8>;\n.reg .b64 %rd<64>;\n"
        f".reg .b32 %t;\n.reg .b32 %c;\n.reg .b32 %r<64>;\n{registers}\n{loads}\nmov.u32 %t, %tid.x;\n"
        f"mov.u32 %c, %ctaid.x;\n{body}\nret;\n}}\n"
    )


def at(register: int, width: int, index: str = "%t", into: int = 60) -> str:
    """Statements that put into a register the address of an element of `width` bytes behind %rd`register`."""
    return f"mad.wide.u32 %rd{into}, {index}, {width}, %rd{register};\n"


def compute(
    opcode: str,
    operands: Sequence[Any],
    kinds: Sequence[str],
    result: str,
    on: Any = hardware.NEAREST,
    execute: Callable[..., None] = run,
) -> Any:
    """One instruction on arrays.

    Args:
        opcode: with its modifiers. operands: arrays of bits, all of one length. kinds: the PTX types of the operands,
            "pred" for truth values. result: that of the result. on: the hardware. execute: `run`, or what takes the
            same and runs the text elsewhere.

    Returns:
        The bits of the results.
    """
    count = -(-len(operands[0]) // 32) * 32
    widths = [4 if kind == "pred" else WIDTHS[kind] for kind in (*kinds, result)]
    body, sources = at(len(kinds), widths[-1], into=61), []
    for number, (kind, width) in enumerate(zip(kinds, widths, strict=False)):
        name = f"%s{number}"
        body += at(number, width) + f"ld.global.b{8 * width} {name}, [%rd60];\n"
        if kind == "pred":
            body += f"setp.ne.b32 %p{number}, {name}, 0;\n"
        sources.append(f"%p{number}" if kind == "pred" else name)
    target = "%p7" if result == "pred" else "%out"
    body += f"{opcode} {target}, {', '.join(sources)};\n"
    if result == "pred":
        body += "selp.b32 %out, 1, 0, %p7;\n"
    body += f"st.global.b{8 * widths[-1]} [%rd61], %out;"
    body = "mad.lo.s32 %t, %c, 32, %t;\n" + body
    registers = "".join(f".reg .b{8 * width} %s{number};\n" for number, width in enumerate(widths[:-1]))
    registers += f".reg .b{8 * widths[-1]} %out;\n"
    tensors = [_padded(bits, width, count) for bits, width in zip(operands, widths, strict=False)]
    out = torch.zeros(count, dtype=_SIGNED[widths[-1]])
    execute(entry(body, len(kinds) + 1, registers), [*tensors, out], blocks=count // 32, on=on)
    return out.numpy().view(BITS[widths[-1]])[: len(operands[0])]


def _padded(bits: Any, width: int, count: int) -> torch.Tensor:
    whole = np.zeros(count, BITS[width])
    whole[: len(bits)] = bits
    return torch.from_numpy(whole.view(f"i{width}" if width > 1 else "u1"))
