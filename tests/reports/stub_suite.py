"""Stands in for the suite: whoever imports it has a torch-free module in its place; a pytest plugin, and a worker.

What a cell does is decided by its property, so that the tests need no further agreement.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
import types
from dataclasses import dataclass

from opassay.oracles.verdicts.verdict import Cell, Code, Failure, Measure, Outcome, Verdict, Worst

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\x00\u202e & 'quotes\""


@dataclass(frozen=True)
class Settings:
    profile: str
    seed: int
    max_examples: int | None


def _measure(ulp: float) -> Measure:
    worst = Worst("out[0]", "forward", ulp.hex(), "0.1", ulp, ulp / 4)
    return Measure(8, 1, 64, 2, ulp, ulp / 4, 4.0, math.inf, worst)


def run_cell(cell: Cell, settings: Settings) -> Verdict:
    name = cell.property
    if name == "FWD":
        return Verdict(cell, Outcome.VERIFIED, Code.HELD, "held", _measure(0.75), title="values")
    if name == "VJP":
        failure = Failure(Code.VALUE, HOSTILE, "line 1\nline 2", f"{cell.id}-0001", '{"op": 1}', "exit(1)")
        return Verdict(cell, Outcome.FAIL, Code.VALUE, "outside", _measure(64.0), failure)
    if name == "JVP":
        raise RuntimeError("the harness broke")
    if name == "ORD2":
        return Verdict(cell, Outcome.UNSUPPORTED, Code.NOT_DIFFERENTIABLE, "no second derivative")
    if name == "ORD3":
        os.kill(os.getpid(), signal.SIGKILL)
    if name in ("ADJ", "LAW"):
        time.sleep(0.2 if name == "LAW" else 60)
    return Verdict(cell, Outcome.WEAK, Code.FEW_SAMPLES, "few", Measure(1, 0, 4, 0))


def replay_case(text: str) -> Verdict:
    return run_cell(Cell(**json.loads(text)["cell"]), Settings("dev", 0, None))


def set_num_threads(count: int) -> None:
    """Of the module that stands in for torch."""


def environment() -> dict[str, str]:
    return {"torch": "0.0.stub", "torch threads": "1"}


def install() -> None:
    """Puts this module where the suite would be."""
    sys.modules["opassay.properties.verification"] = sys.modules["stub_suite"] = sys.modules[__name__]
    sys.modules["torch"] = sys.modules[__name__]
    sys.modules["opassay.properties.engine.environment"] = surroundings = types.ModuleType("environment")
    surroundings.environment = environment  # type: ignore[attr-defined]
    surroundings.versions = environment  # type: ignore[attr-defined]


install()

if __name__ == "__main__":  # as the program of a worker
    from opassay.properties.programs.worker import main

    main()
