"""The same launches on the GPU and as executed PTX, bit by bit: `launches.py [OP]... SECONDS`.

Every op is called at every shape class, forward, backward and with tangents. Each launch runs on the GPU; what Triton
compiled for it is executed on copies of the operands as they were, too: with approximations at their nearest and at
the ends of their bounds. A kernel without approximations must give the same bits. One with them is within the model
where each number lies between those of the executions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the workshop is not installed

import numpy as np
import torch
from telling import DEVICE, Time, guarded, require_gpu, tell
from torch import Tensor
from torch.autograd import forward_ad

from opassay import impl
from opassay.impl.gpu import launching
from opassay.oracles.machine.ptx import approximations, hardware
from opassay.oracles.machine.ptx.chunk import WARP
from opassay.oracles.machine.ptx.executable import Kernel
from opassay.oracles.machine.ptx.executor import Geometry, PlacedLaunch, three_extents
from workshop.kernels.classes import CLASSES, ShapeClass
from workshop.kernels.source import Source, gradients, outputs_of

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
WORKERS = 14


def copies_of(operands: Sequence[object]) -> list[object]:
    """The operands on the CPU: tensors that share memory share it there, and strides and offsets are the same."""
    storages: dict[int, torch.UntypedStorage] = {}
    copies: list[object] = []
    for operand in operands:
        if isinstance(operand, Tensor):
            source = operand.untyped_storage()
            if source.data_ptr() not in storages:
                storages[source.data_ptr()] = source.cpu()
            place = torch.empty(0, dtype=operand.dtype).set_(
                storages[source.data_ptr()], operand.storage_offset(), operand.shape, operand.stride()
            )
            copies.append(place)
        else:
            copies.append(operand)
    return copies


def executed(binary: Any, grid: tuple[int, ...], names: Sequence[str], operands: list[object], on: Any) -> list[Any]:
    """What the operands hold after the PTX of a launch was executed on a hardware."""
    copies = copies_of(operands)
    values = dict(zip(names, copies, strict=False))
    arguments = [(kind, values[name], name) for name, kind in binary.src.signature.items() if kind != "constexpr"]
    metadata = binary.metadata
    geometry = Geometry(metadata.name, three_extents(grid), (WARP * metadata.num_warps, 1, 1), metadata.shared)
    with hardware.on(on):
        PlacedLaunch(geometry, Kernel(binary.asm["ptx"]), arguments).run()
    return [copy for copy in copies if isinstance(copy, Tensor)]


class Compared(launching.Device):
    """The GPU, and beside it the executor; rows of what differs."""

    def __init__(self, label: str) -> None:
        self._label, self._lock = label, threading.Lock()  # backward passes run in threads of their own
        self.launches = self.elements = self.equal = self.within = self.exact = 0

    def launch(
        self, kernel: Any, grid: tuple[int, ...], operands: tuple[object, ...], constants: Mapping[str, object],
        warps: int,
    ) -> None:  # fmt: skip
        with self._lock:
            torch.cuda.synchronize()
            before = copies_of(operands)
            binary = kernel[grid](*operands, **constants, num_warps=warps, enable_fp_fusion=False)
            torch.cuda.synchronize()
            after = [copy for copy in copies_of(operands) if isinstance(copy, Tensor)]
            with guarded(f"{self._label}: {binary.metadata.name}"):
                self._compare(binary, grid, kernel.arg_names, before, after)

    def _compare(
        self, binary: Any, grid: tuple[int, ...], names: Sequence[str], before: list[object], after: list[Tensor]
    ) -> None:
        approximations.executed.clear()
        runs = [executed(binary, grid, names, before, hardware.NEAREST)]
        names_of = ", ".join(sorted(approximations.executed))
        if approximations.executed:
            runs += [executed(binary, grid, names, before, machine) for machine in hardware.ENDS]
        self.launches += 1
        self.exact += len(runs) == 1
        for number, there in enumerate(after):
            here = [run[number] for run in runs]
            if not there.is_floating_point():
                self._count(
                    there, there == here[0], torch.zeros_like(there, dtype=torch.bool), binary, number, here, names_of
                )
                continue
            same = (there == here[0]) | (there.isnan() & here[0].isnan())
            stacked = torch.stack([each.double() for each in here])
            inside = (stacked.amin(0) <= there.double()) & (there.double() <= stacked.amax(0))
            self._count(there, same, inside, binary, number, here, names_of)

    def _count(self, there: Tensor, same: Tensor, inside: Tensor, binary: Any, number: int, here: Any, by: str) -> None:
        self.elements += there.numel()
        self.equal += int(same.sum())
        self.within += int((~same & inside).sum())
        outside = ~same & ~inside
        if bool(outside.any()):
            at = tuple(int(index[0]) for index in outside.nonzero(as_tuple=True)) if there.dim() else ()
            numbers = [float(each[at]) for each in here]
            spread = max(numbers) - min(numbers)
            tell(
                launch=self._label, kernel=binary.metadata.name, operand=number, outside=int(outside.sum()),
                of=there.numel(), at=str(at), gpu=float(there[at]), executed=numbers, spread=spread, approximations=by,
            )  # fmt: skip


def call(kind: ShapeClass, dtype: torch.dtype) -> None:
    """One class: forward, backward and, where there is a kernel for it, with tangents; a row of the figures."""
    source = Source(dtype, torch.device(DEVICE), torch.Generator(DEVICE).manual_seed(0))
    compared = Compared(f"{kind.name}, {str(dtype)[6:]}")
    arguments = kind.arguments(source, kind.few)
    function = getattr(impl, kind.op)
    with launching.on(compared):
        gradients(outputs_of(function(*arguments, **kind.keywords)), arguments)
        if kind.must(kind.few, dtype.itemsize).jvp:
            with forward_ad.dual_level():
                function(*(_dual(value) for value in arguments), **kind.keywords)
    tell(
        op=kind.op, label=kind.label, dtype=str(dtype)[6:], launches=compared.launches, without=compared.exact,
        elements=compared.elements, equal=compared.equal, within=compared.within,
    )  # fmt: skip


def _dual(value: object) -> object:
    if not isinstance(value, Tensor) or not value.requires_grad:
        return value
    return forward_ad.make_dual(value.detach(), torch.cos(value.detach().float()).to(value.dtype))


def compare(shard: int, count: int, ops: list[str], clock: Time) -> None:
    """The calls of one worker."""
    calls = [(kind, dtype) for dtype in DTYPES for kind in CLASSES if not ops or kind.op in ops]
    for kind, dtype in calls[shard::count]:
        if clock.left() < 0:
            tell(launch=f"{kind.name}, {dtype}", failed="no time was left")
            continue
        with guarded(f"{kind.name}, {dtype}"):
            call(kind, dtype)


def main() -> None:
    """Workers, each with its share of the calls."""
    require_gpu()
    clock = Time()
    words = sys.argv[1:-1]
    if words[:1] == ["--shard"]:
        shard, count = map(int, words[1].split("/"))
        compare(shard, count, words[2:], clock)
        return
    count = min(WORKERS, len(os.sched_getaffinity(0)))
    workers = [
        subprocess.Popen([sys.executable, __file__, "--shard", f"{number}/{count}", *words, sys.argv[-1]])
        for number in range(count)
    ]
    for worker in workers:
        worker.wait()


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
