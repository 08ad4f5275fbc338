"""Every instruction that the executor of PTX knows, on the GPU and there: `instructions.py SECONDS`.

A row for each instruction whose bits differ, and one for all that are equal; for each approximation the largest error
over all arguments of float32, beside the bound that the executor takes from the ISA.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the tables of the tests are not installed

import errors
import numpy as np
import torch
from driver import Entry
from telling import DEVICE, Time, guarded, require_gpu, tell

from opassay.oracles.machine.ptx import hardware
from opassay.oracles.machine.ptx.approximations import BOUNDS
from tests.oracles.machine.ptx.exactly import operands
from tests.oracles.machine.ptx.running import at, compute, entry
from tests.oracles.machine.ptx.test_arithmetic import SEED, TABLE

_THREADS = 256


def on_gpu(text: str, tensors: list[torch.Tensor], blocks: int = 1, warps: int = 1, on: object = None) -> None:
    """As `tests.oracles.machine.ptx.running.run`, on the GPU."""
    copies = [tensor.to(DEVICE) for tensor in tensors]
    Entry(text).launch(copies, blocks, 32 * warps)
    for tensor, copy in zip(tensors, copies, strict=True):
        tensor.copy_(copy)


def without_nans(bits: Any, kind: str) -> Any:
    """Bits of results, in which every NaN is 0: the ISA does not say which NaN comes."""
    if kind == "bf16":
        return np.where(np.isnan((bits.astype(np.uint32) << np.uint32(16)).view(np.float32)), 0, bits)
    if kind[0] != "f":
        return bits
    return np.where(np.isnan(bits.view(f"f{int(kind[1:]) // 8}")), 0, bits)


def unspecified(opcode: str, columns: list[Any]) -> Any:
    """Where the ISA leaves a result to the machine: a division by zero, a field of bits that begins or ends beyond 255.

    An H100 gives infinity for some NaNs in cvt.rna.tf32, of which the text says nothing.
    """
    name = opcode.partition(".")[0]
    if name in ("div", "rem"):
        return columns[1] == 0
    if name in ("bfe", "bfi"):
        return (columns[-1] > 255) | (columns[-2] > 255)
    if opcode == "cvt.rna.tf32.f32":
        return np.isnan(columns[0].view(np.float32))
    return np.zeros(len(columns[0]), bool)


def compare_tables() -> None:
    """The instructions of the tests' table, at the operands of the tests."""
    equal = elements = 0
    for opcode, (kinds, result, _) in TABLE.items():
        with guarded(opcode):
            columns = operands(kinds, 3000, SEED)
            there, here = (
                without_nans(compute(opcode, columns, kinds, result, **how), result)
                for how in ({"execute": on_gpu}, {})
            )
            wrong = np.flatnonzero((there != here) & ~unspecified(opcode, columns))
            elements += there.size
            equal += not wrong.size
            if wrong.size:
                first = [hex(int(column[wrong[0]])) for column in columns]
                text = f"{first}: {int(there[wrong[0]]):#x} on the GPU, {int(here[wrong[0]]):#x} here"
                tell(instruction=opcode, differs=f"{wrong.size} of {there.size}", first=text)
    tell(instructions=len(TABLE), equal=equal, elements=elements, seed=SEED)


#: What each approximation approximates, in float64; and the arguments of which the executor's bound speaks.
_EXACT: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float]] = {
    "ex2": (torch.exp2, torch.inf), "lg2": (torch.log2, torch.inf), "rcp": (torch.reciprocal, torch.inf),
    "rsqrt": (torch.rsqrt, torch.inf), "sqrt": (torch.sqrt, torch.inf), "sin": (torch.sin, 2 * torch.pi),
    "cos": (torch.cos, 2 * torch.pi), "tanh": (torch.tanh, torch.inf),
}  # fmt: skip


def unary(opcode: str) -> Entry:
    """An instruction on every element of an array of float32."""
    body = "mad.lo.s32 %t, %c, 256, %t;\n" + at(0, 4) + "ld.global.b32 %r0, [%rd60];\n"
    body += f"{opcode} %r1, %r0;\n" + at(1, 4) + "st.global.b32 [%rd60], %r1;"
    return Entry(entry(body, 2))


def measure(name: str, clock: Time) -> None:
    """The largest errors of an approximation over all arguments, and how many leave the executor's bound."""
    function, most = _EXACT[name]
    opcode, bound = f"{name}.approx.f32", BOUNDS[name]
    kernel = unary(opcode)

    def approximate(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel.launch([x, y], x.numel() // _THREADS, _THREADS)
        return y

    def allowed(size: torch.Tensor, spacing: torch.Tensor) -> torch.Tensor:
        return (bound.ulps + 0.5 * (bound.ulps > 0)) * spacing + bound.relative * size + bound.absolute

    row = errors.over_all_arguments(approximate, function, allowed, clock, most=most)
    tell(approximation=opcode, **row, bound=str(bound))


def compare_ends() -> None:
    """Special arguments of approximations: on the GPU as on some hardware of the executor."""
    for name in _EXACT:
        for opcode in (f"{name}.approx.f32", f"{name}.approx.ftz.f32"):
            if opcode == "tanh.approx.ftz.f32":
                continue
            with guarded(opcode):
                columns = operands(("f32",), 3000, SEED)
                there = without_nans(compute(opcode, columns, ("f32",), "f32", execute=on_gpu), "f32").view(np.float32)
                ends = [
                    without_nans(compute(opcode, columns, ("f32",), "f32", on=machine), "f32").view(np.float32)
                    for machine in (hardware.NEAREST, *hardware.ENDS)
                ]
                low, high = np.minimum.reduce(ends), np.maximum.reduce(ends)
                wrong = np.flatnonzero(~((low <= there) & (there <= high)))
                if wrong.size:
                    first = wrong[0]
                    text = f"{int(columns[0][first]):#x}: {there[first]!r}, here {low[first]!r} to {high[first]!r}"
                    tell(approximation=opcode, outside=f"{wrong.size} of {there.size}", first=text)
                else:
                    tell(approximation=opcode, inside=there.size)


def main() -> None:
    """Rows of all of it."""
    require_gpu()
    clock = Time()
    compare_tables()
    compare_ends()
    for name in _EXACT:
        with guarded(name):
            measure(name, clock)


if __name__ == "__main__":
    main()
