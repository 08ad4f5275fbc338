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

import numpy as np
import torch
from driver import Entry
from telling import DEVICE, Time, guarded, require_gpu, tell

from opassay.oracles.machine.ptx import hardware
from opassay.oracles.machine.ptx.approximations import BOUNDS
from tests.oracles.machine.ptx.exactly import operands
from tests.oracles.machine.ptx.running import at, compute, entry
from tests.oracles.machine.ptx.test_arithmetic import SEED, TABLE

#: Arguments of an approximation that are computed at once.
_CHUNK = 1 << 26
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


def compare_tables() -> None:
    """The instructions of the tests' table, at the operands of the tests."""
    equal = elements = 0
    for opcode, (kinds, result, _) in TABLE.items():
        with guarded(opcode):
            columns = operands(kinds, 3000, SEED)
            there, here = (
                without_nans(compute(opcode, columns, kinds, result, **how), result) for how in ({"execute": on_gpu}, {})
            )
            wrong = np.flatnonzero(there != here)
            elements += there.size
            equal += not wrong.size
            if wrong.size:
                first = [hex(int(column[wrong[0]])) for column in columns]
                shown = f"{first}: {int(there[wrong[0]]):#x} on the GPU, {int(here[wrong[0]]):#x} here"
                tell(instruction=opcode, differs=f"{wrong.size} of {there.size}", first=shown)
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
    opcode = f"{name}.approx.f32"
    kernel, bound = unary(opcode), BOUNDS[name]
    ulps = relative = absolute = 0.0
    outside = count = inexact = 0
    worst = ""
    for start in range(-(1 << 31), 1 << 31, _CHUNK):
        if clock.left() < 0:
            tell(approximation=opcode, failed=f"no time was left; {count} arguments")
            return
        x = torch.arange(start, start + _CHUNK, device=DEVICE, dtype=torch.int64).to(torch.int32)
        y = torch.empty_like(x)
        kernel.launch([x, y], _CHUNK // _THREADS, _THREADS)
        argument, result = x.view(torch.float32), y.view(torch.float32)
        exact = function(argument.double())
        size = exact.abs()
        sure = argument.isfinite() & (argument.abs() <= most) & result.isfinite()
        sure &= (size >= 2.0**-126) & (size < 2.0**128)
        argument, result, exact, size = (each[sure] for each in (argument, result, exact, size))
        if not argument.numel():
            continue
        error = (result.double() - exact).abs()
        spacing = torch.exp2((torch.frexp(size).exponent - 24).double())
        away = error / spacing
        top = int(away.argmax())
        if float(away[top]) > ulps:
            ulps, worst = float(away[top]), f"{float(argument[top]):.9g}"
        relative, absolute = max(relative, float((error / size).max())), max(absolute, float(error.max()))
        allowed = bound.ulps * spacing + bound.relative * size + bound.absolute
        outside += int((error > allowed).sum())
        inexact += int((away > 0.5).sum())
        count += int(error.numel())
    tell(
        approximation=opcode, arguments=count, ulps=ulps, at=worst, relative=relative, absolute=absolute,
        not_nearest=inexact, outside=outside, bound=str(bound),
    )  # fmt: skip


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
                    shown = f"{int(columns[0][first]):#x}: {there[first]!r}, here {low[first]!r} to {high[first]!r}"
                    tell(approximation=opcode, outside=f"{wrong.size} of {there.size}", first=shown)
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
