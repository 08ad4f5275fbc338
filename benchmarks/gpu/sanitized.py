"""The kernels under NVIDIA's compute-sanitizer, where that is: `sanitized.py SECONDS`.

`sanitized.py --kernels` runs them, and nothing else.

The tools are memcheck (addresses), racecheck (shared memory) and initcheck (memory that nothing wrote).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the workshop is not installed

import torch
from telling import DEVICE, Time, require_gpu, tell

from opassay import impl
from workshop.kernels.classes import CLASSES, first_of_each
from workshop.kernels.source import Source, gradients, outputs_of

TOOLS = ("memcheck", "racecheck", "initcheck")


def kernels() -> None:
    """Every op once, forward and backward, at few rows."""
    source = Source(torch.float32, torch.device(DEVICE), torch.Generator(DEVICE).manual_seed(0))
    for kind in first_of_each(CLASSES):
        arguments = kind.arguments(source, kind.few)
        gradients(outputs_of(getattr(impl, kind.op)(*arguments, **kind.keywords)), arguments)
    torch.cuda.synchronize()


def main() -> None:
    """A row for each tool."""
    if "--kernels" in sys.argv:
        kernels()
        return
    require_gpu()
    clock = Time()
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if sanitizer is None:
        tell(**{"not run": "compute-sanitizer is not installed"})
        return
    # Each tensor gets memory of its own: in a segment that torch divides, an address beyond a tensor is no wrong one.
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    for number, tool in enumerate(TOOLS):
        seconds = clock.left() / (len(TOOLS) - number)
        if seconds < 1:
            tell(tool=tool, found="no time was left")
            continue
        command = [sanitizer, "--tool", tool, "--error-exitcode", "9", sys.executable, __file__, "--kernels"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=seconds, check=False, env=environment)
        except subprocess.TimeoutExpired:
            tell(tool=tool, found=f"longer than {seconds:.0f} seconds")
            continue
        lines = [line for line in (done.stdout + done.stderr).decode(errors="replace").splitlines() if line.strip()]
        tell(tool=tool, found=" | ".join(lines[-2:])[-400:] or f"exit code {done.returncode}")


if __name__ == "__main__":
    main()
