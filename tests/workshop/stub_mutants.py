"""In the place of the program that tries mutants: every cell but one holds, and the first mutant of all is refused.

A cell whose property the variable `OPASSAY_STUB_ENDS` names ends the process, in float64.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from opassay.properties.places.serving import serve

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a file: the workshop is not installed

from workshop.mutation.mutants import Mutant

_STARTS: list[str] = []
_ENDED: list[str] = []


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """What `workshop.mutation.program` would answer."""
    if "reach" in question:
        if question["reach"][1:] == [os.environ.get("OPASSAY_STUB_ENDS"), "float64"]:
            os.kill(os.getpid(), signal.SIGSEGV)
        passes = question["reach"][1:] != ["DATA", "float32"]
        return {"outcome": "verified" if passes else "fail", "reason": "planted"}
    if "graph" in question:
        place = {"function": "_sums", "statement": "torch.trace(x)", "nth": 0, "line": 40, "last": 40}
        mutant = {**place, "kind": "graph: dropped term", "old": "aten.trace.default"}
        files = ("linalg/trace.py", "linalg/kernels_cuda.py", "softmax/rules.py")
        return {"mutants": [{**mutant, "file": file, "new": new} for file in files for new in ("zeros", "self")]}
    if "count" in question:
        return {"cells": [1 for _ in question["count"]]}
    if "begin" in question:
        _STARTS.append(Mutant.of(question["begin"]).key)
        return {"begun": _STARTS[-1]}
    message: dict[str, Any] = {"key": _STARTS.pop(0), "asked": 2, "of": 1, "seconds": 0.1}
    if _ENDED:
        return {**message, "outcome": "survived"}
    _ENDED.append(message["key"])
    return {**message, "outcome": "killed", "by": "FWD", "cell": "trace::FWD[float32-cpu-opassay]", "how": "fail"}


if __name__ == "__main__":
    serve(lambda hello: {}, answer)
