"""A program: compiles the planted kernels for sm_90 and prints, by name, what the gate says. Also plants bytes."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import torch

from opassay.oracles.machine import compiling
from workshop.kernels import compiler, kernel_limits
from workshop.kernels.recorder import Recorder

ON = compiler.ARCHITECTURES["sm_90"]


def launched(name: str, block: int, warps: int, offset: int = 0) -> list[str]:
    """The faults of one planted kernel.

    Args:
        name: of the kernel. block, warps: its configuration.
        offset: of its operands, in floats, from an aligned address.
    """
    kernels = importlib.import_module("planted_kernels")
    recorder = Recorder()
    x, y = (torch.empty(1 << 20, device="meta")[offset:] for _ in range(2))
    operands = (x, y, 1 << 20, 2.0)
    recorder.launch(getattr(kernels, name), (1,), operands, {"BLOCK": block}, warps)
    launch = recorder.launches[0]
    return kernel_limits.faults(launch, compiler.machine_code(launch, ON), ON, streams=2)


def moved_too_much() -> list[str]:
    """The faults of softmax where it moves twice the bytes, and where its kernels tell each other as many again."""
    tables = importlib.import_module("workshop.kernels.tables")
    classes = importlib.import_module("workshop.kernels.classes")
    recording = importlib.import_module("workshop.kernels.recording")
    kind = classes.first_of_each(classes.select_classes(ops=["softmax"]))[0]
    must = kind.must(kind.few, 4)
    forward, *others = recording.record_launches(kind, torch.float32)
    large = replace(forward, workspace=kind.must(kind.shape, 4).forward)
    right = [(done, getattr(must, done.direction)) for done in others]
    rows = tables.traffic_rows([kind], ["float32"], lambda *_: ((forward, 2 * must.forward), *right))
    talking = tables.traffic_row(kind, "float32", forward, must.forward, large)
    return [*(fault for row in rows for fault in row.faults), *talking.faults]


def main() -> None:
    """Prints one JSON object."""
    compiling.prepare_to_compile()
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[3])]  # its kernels; the workshop
    results = {
        "sound": launched("sound", 1024, 4),
        "double_constant": launched("double_constant", 1024, 4),
        "approximate": launched("approximate", 1024, 4),
        "spilling": launched("spilling", 1 << 16, 16),
        "strided": launched("strided", 1024, 4),
        "unaligned": launched("sound", 1024, 4, offset=1),
        "shared": launched("shared", 256, 32),
        "few_warps": launched("sound", 32, 1),
        "traffic": moved_too_much(),
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
