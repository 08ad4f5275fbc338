"""Times launches of kernels executed as PTX: products, attention, rows, in Triton and in CUDA C++.

    python benchmarks/executor_speed.py [--rounds N] [--architecture sm_90] [CELL]...
    python benchmarks/executor_speed.py --against TREE [CELL]...    # another checkout of opassay; ratios, in turns

Seconds are those of the processor in the process that executes, of the fastest run. A process of each checkout takes
turns with the other's, and of each pair of runs there is a ratio; the table has the median. It ends with 1 where the
two leave other bits.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).resolve().parent / "strangers"
_PARTS = ("impl", "oracles", "properties", "reference", "reports")


class Cell:
    """A call of a kernel.

    Args:
        kernel: its name in `strangers`. module: the file. shapes: of the inputs. dtype: of these.
        wanted: the approximations of the hardware.
    """

    def __init__(self, kernel: str, module: str, *shapes: tuple[int, ...], dtype: str = "float32", wanted: str = ""):
        self.kernel, self.module, self.shapes, self.dtype, self.wanted = kernel, module, shapes, dtype, wanted

    def call(self) -> Callable[[], Any]:
        """A function that calls the kernel; inputs and weights are drawn from seed 0."""
        import torch

        torch.manual_seed(0)
        inputs = [torch.randn(shape).to(getattr(torch, self.dtype)) for shape in self.shapes]
        candidate = getattr(__import__(self.module), self.kernel)
        return lambda: candidate(*inputs)


_SQUARE, _WIDE, _HEAD = (128, 128), (256, 256), (1, 256, 64)
CELLS = {
    "matmul float32, 128": Cell("matmul", "triton_kernels", _SQUARE, _SQUARE),
    "matmul float16, 128": Cell("matmul", "triton_kernels", _SQUARE, _SQUARE, dtype="float16"),
    "matmul bfloat16, 128": Cell("matmul", "triton_kernels", _SQUARE, _SQUARE, dtype="bfloat16"),
    "matmul float16, 256": Cell("matmul", "triton_kernels", _WIDE, _WIDE, dtype="float16"),
    "matmul float16, 256, up": Cell("matmul", "triton_kernels", _WIDE, _WIDE, dtype="float16", wanted="up"),
    "matmul float16, 256, tiles of 64": Cell("matmul_of_64", "triton_kernels", _WIDE, _WIDE, dtype="float16"),
    "matmul float32, 128, CUDA C++": Cell("matmul", "cuda_kernels", _SQUARE),
    "attention float16, 256 keys": Cell("attention", "triton_kernels", _HEAD, _HEAD, _HEAD, dtype="float16"),
    "attention float32, 256 keys": Cell("attention", "triton_kernels", _HEAD, _HEAD, _HEAD),
    "softmax float32, 1024 x 1000": Cell("softmax", "triton_kernels", (1024, 1000)),
    "RMS norm float32, 1024 x 1000": Cell("rms_norm", "triton_kernels", (1024, 1000), (1000,)),
    "RMS norm, CUDA C++": Cell("norm", "cuda_kernels", (64, 1000)),
    "softmax float32, 6 x 75": Cell("softmax", "triton_kernels", (6, 75)),
    "matmul float16, 40 x 72 x 33": Cell("matmul", "triton_kernels", (40, 72), (72, 33), dtype="float16"),
}


class _Checkout:
    """Finds the parts of the package in a checkout."""

    def __init__(self, tree: Path) -> None:
        self._folders = {"opassay": tree / "api"} | {f"opassay.{part}": tree / part for part in _PARTS}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name in self._folders:
            folder = self._folders[name]
            return spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=[str(folder)])
        parent = name.rpartition(".")[0]
        return PathFinder.find_spec(name, [str(self._folders[parent])]) if parent in self._folders else None


def serve(tree: str, architecture: str) -> None:
    """Run cells that are named on the standard input, and print a line of JSON for each: seconds, and a digest."""
    sys.meta_path.insert(0, _Checkout(Path(tree)))  # type: ignore[arg-type]
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ["OPASSAY_PTX_ARCHITECTURE"] = architecture
    import torch

    from opassay.oracles.machine.ptx import hardware
    from opassay.properties.places.executing import execute_launches

    sys.path.insert(0, str(_FOLDER))
    calls: dict[str, Callable[[], Any]] = {}
    with execute_launches(architecture):
        for line in sys.stdin:
            name = line.strip()
            on = hardware.Hardware(CELLS[name].wanted or "nearest")
            with hardware.on(on):
                if name not in calls:
                    calls[name] = CELLS[name].call()
                    calls[name]()
                start = time.process_time()
                result = calls[name]()
                seconds = time.process_time() - start
            digest = hashlib.sha256(result.contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
            print(json.dumps([seconds, digest]), flush=True)


@contextlib.contextmanager
def _server(tree: Path, architecture: str) -> Iterator[Callable[[str], tuple[float, str]]]:
    """A process that runs cells with a checkout: name -> seconds and a digest of what came."""
    command = [sys.executable, __file__, "--serve", str(tree.resolve()), "--architecture", architecture]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def measure(name: str) -> tuple[float, str]:
            print(name, file=process.stdin, flush=True)
            seconds, digest = json.loads(process.stdout.readline())  # type: ignore[union-attr]
            return seconds, digest

        try:
            yield measure
        finally:
            process.stdin.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="by default all; a part of a name will do")
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.architecture)
        return 0
    names = [name for name in CELLS if not options.cells or any(part in name for part in options.cells)]
    trees = [Path(__file__).resolve().parents[1], *([options.against] if options.against else [])]
    differs = False
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(_server(tree, options.architecture)) for tree in trees]
        print(f"| {options.architecture} | s |" + (" s before | times as fast |" if options.against else ""))
        print("|---|---|" + ("---|---|" if options.against else ""))
        for name in names:
            rounds = [[serve(name) for serve in servers] for _ in range(options.rounds)]
            row = f"| {name} | " + " | ".join(f"{min(s for s, _ in runs):.3f}" for runs in zip(*rounds, strict=True))
            if options.against:
                row += f" | {statistics.median(old[0] / new[0] for new, old in rounds):.2f}"
                other = len({digest for each in rounds for _, digest in each}) > 1
                differs, row = differs or other, row + (" (OTHER BITS)" if other else "")
            print(row + " |", flush=True)
    return int(differs)


if __name__ == "__main__":
    raise SystemExit(main())
