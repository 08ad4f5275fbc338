"""Interrupt real runs at random moments: no verdict may come from it, and nothing that was finished may be lost.

    python benchmarks/interrupts.py --times 50

A run of the same cells that nobody interrupts comes first. After each interrupted one, every verdict in its record must
be that run's, bit for bit, or "not run"; so must it be after `opassay report recover`, where the run was killed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from opassay.oracles.verdicts.data import as_data
from opassay.oracles.verdicts.verdict import Outcome
from opassay.reports.record import load

OPASSAY = [sys.executable, "-m", "opassay"]
CELLS = ["trace", "softmax", "layer_norm", "--profile=brief", "--max-examples=4", "-n", "2"]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)


def verdicts(folder: Path) -> dict[str, Any]:
    """The verdicts of a report folder by cell, without what a clock says."""
    results = {}
    for verdict in load(folder / "run.json").verdicts:
        data = as_data(verdict)
        data["seconds"], data["timing"] = "", []
        results[verdict.cell.key] = data
    return results


def interrupted(folder: Path, number: signal.Signals, group: bool, after: float) -> str:
    """Start a run, send it a signal after some seconds, and say what it left: "report", "log" or "nothing"."""
    process = subprocess.Popen(
        [*OPASSAY, "run", *CELLS, f"--report-dir={folder}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    time.sleep(after)
    if process.poll() is None:
        (os.killpg if group else os.kill)(process.pid, number)
    code = process.wait(60)
    if (folder / "run.json").exists():
        assert code in (0, 130, -number), f"exit code {code} after {number.name}"
        return "report"
    if not list(folder.glob(".opassay/*.ndjson")):
        return "nothing"
    subprocess.run([*OPASSAY, "report", "recover", str(folder)], check=False, capture_output=True, timeout=60)
    return "log" if (folder / "run.json").exists() else "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"{options.times} interrupts, seed {options.seed}", flush=True)
    draw, result, compared = random.Random(options.seed), Counter[str](), 0
    with tempfile.TemporaryDirectory() as scratch:
        start = time.perf_counter()
        subprocess.run([*OPASSAY, "run", *CELLS, f"--report-dir={scratch}/whole"], check=True, capture_output=True)
        seconds = time.perf_counter() - start
        whole = verdicts(Path(scratch, "whole"))
        print(f"uninterrupted: {len(whole)} cells in {seconds:.1f} s", flush=True)
        for i in range(options.times):
            number, group = draw.choice(SIGNALS), draw.random() < 0.5
            after, folder = draw.uniform(0, 1.1 * seconds), Path(scratch, str(i))
            remains = interrupted(folder, number, group, after)
            result[f"{number.name}: {remains}"] += 1
            if remains == "nothing":
                continue
            for key, data in verdicts(folder).items():
                if data["outcome"] != Outcome.NOT_RUN:
                    assert data == whole[key], f"{number.name} after {after:.2f} s: {key} is {data}, not {whole[key]}"
                    compared += 1
    print(f"{compared} verdicts compared, none differs; what was left: {dict(sorted(result.items()))}")


if __name__ == "__main__":
    main()
