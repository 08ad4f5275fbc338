"""The causes of red rows: who is at fault, why, and a program that shows it with the library alone and mpmath."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CAUSES = HERE / "causes.toml"
DOSSIERS = HERE.parents[1] / "corpus" / "upstream"
FINDINGS = HERE.parent / "findings"
#: What a cause may be: the library computes something else, or less accurately, than it says; or it says so; or its
#: functions are less accurate than the contract lets them be, and no accuracy is documented; or we are wrong.
FAULT, DOCUMENTED, CONTRACT, OURS = "fault", "documented", "contract", "ours"
KINDS = (FAULT, DOCUMENTED, CONTRACT, OURS)
#: How a replay ends: by the exit code of its program.
OUTCOMES: Mapping[int, str] = {0: "not there", 1: "shown", 2: "not run"}


@dataclass(frozen=True)
class Cause:
    """Why some rows are red.

    Attributes:
        name: of the cause. library, calls: the rows. kind: one of `KINDS`. why: sentences.
        finding: of `benchmarks/findings/`, where the cause is one; its dossier has the program then.
        program: prints what comes and what mpmath has, and ends with 1 while they differ; it imports nothing of ours.
        environment: that it needs.
    """

    name: str
    library: str
    calls: tuple[str, ...]
    kind: str
    why: str
    finding: str = ""
    program: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def read_causes(path: Path = CAUSES) -> list[Cause]:
    """The causes of a file, those that are findings with the program of their dossier."""
    return [_read(entry) for entry in tomllib.loads(path.read_text(encoding="utf-8"))["cause"]]


def _read(entry: dict[str, Any]) -> Cause:
    named: dict[str, Any] = {**entry, "calls": tuple(entry["calls"])}
    if name := entry.get("finding"):
        dossier = tomllib.loads((DOSSIERS / f"{name}.toml").read_text(encoding="utf-8"))
        named |= {"program": dossier["program"], "environment": dossier.get("environment", {})}
    cause = Cause(**named)
    if cause.kind not in KINDS:
        raise ValueError(f"{cause.name}: kind={cause.kind!r}: need one of {', '.join(KINDS)}")
    return cause


def replay(words: Sequence[str]) -> int:
    """Run the programs of the causes that have one of some words in their name; 1 where one does not show its cause."""
    code = 0
    for cause in read_causes():
        if words and not any(word in cause.name for word in words):
            continue
        outcome, text = run_program(cause)
        code |= outcome not in ("shown", "not run")
        print(f"{cause.name:36} {outcome}\n    " + text.strip().replace("\n", "\n    "), flush=True)
    return code


def run_program(cause: Cause, seconds: float = 300.0) -> tuple[str, str]:
    """The outcome of a cause's program in a process of its own, and what it printed."""
    settings = {**os.environ, "PYTHONWARNINGS": "ignore", "JAX_PLATFORMS": "cpu", **cause.environment}
    settings["PYTHONPATH"] = str(FINDINGS)  # for `onnx_model`, which makes a graph of one operator
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(cause.program, encoding="utf-8")
        ended = subprocess.run(
            [sys.executable, str(path)], env=settings, capture_output=True, text=True, timeout=seconds, check=False
        )
    if "ModuleNotFoundError" in ended.stderr or "CUDA" in ended.stderr:
        return "not run", ended.stderr.strip().splitlines()[-1]
    text = OUTCOMES.get(ended.returncode, "broken") if not ended.stderr.startswith("Traceback") else "broken"
    return text, ended.stdout if text != "broken" else ended.stderr
