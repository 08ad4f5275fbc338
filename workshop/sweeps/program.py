"""`python -m workshop.sweeps.program`: a process that measures shards, one question per line.

The first line of its output has the `environment` of the process and the `contract` (function -> ulps). Then it reads
questions, lines of JSON {"function", "dtype", "shard", "device"}, and answers each with a line: the result of
`measure.measure`, or {"error": text}. It ends at the end of its input.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from opassay.oracles.bound.contract import CPU_FUNCTIONS, CUDA_FUNCTIONS
from opassay.properties.engine.environment import environment

from .measure import measure


def greeting(device: str) -> dict[str, Any]:
    """The first line of the process, as data: its environment, and the contract of the device."""
    functions = CUDA_FUNCTIONS if device == "cuda" else CPU_FUNCTIONS
    return {"environment": environment(), "contract": dict(functions)}


def serve(device: str) -> None:
    """Answer questions until the end of the input."""
    import torch

    # A shard is measured by one thread, so that shards side by side do not wait for each other's threads.
    torch.set_num_threads(1)
    print(json.dumps(greeting(device)), flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    try:
        return measure(question["function"], question["dtype"], question["shard"], question["device"])
    except (ArithmeticError, RuntimeError) as err:  # the wider format is too narrow; torch has no such kernel
        return {"error": f"{type(err).__name__}: {err}"}


if __name__ == "__main__":
    serve(sys.argv[1])
