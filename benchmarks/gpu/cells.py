"""Values and derivatives on the GPU, judged by the framework: `cells.py [--folded] OP... SECONDS`.

The cells are those of `opassay run --device cuda`: the production op and torch's own, few examples, the properties that
tell most. With --folded they are those of ops over devices, from the host to streams of the GPU and back. A run that
takes too long is interrupted; what it had judged until then is told.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from telling import DEVICE, Time, require_gpu, tell

from opassay.reports import record

PROPERTIES = ("FWD", "VJP", "JVP")
EXAMPLES = 6
#: Seconds that an interrupted run has to write its record.
GRACE = 15.0


def run(words: list[str], seconds: float) -> None:
    """One run, and a row for each cell that did not pass, and for each number of those that did."""
    with tempfile.TemporaryDirectory() as folder:
        workers = str(min(8, len(os.sched_getaffinity(0))))
        command = [sys.executable, "-m", "opassay", "run", *words, "-n", workers]
        process = subprocess.Popen(
            [*command, "--profile", "brief", "--max-examples", str(EXAMPLES), "--report-dir", folder], stdout=sys.stderr
        )
        cut = False
        try:
            process.wait(max(1.0, seconds - GRACE))
        except subprocess.TimeoutExpired:
            cut = True
            process.send_signal(signal.SIGINT)
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                recover = [sys.executable, "-m", "opassay", "report", "recover", folder]
                subprocess.run(recover, stdout=sys.stderr, check=False)
        verdicts = record.load(Path(folder) / "run.json").verdicts
    passed: Counter[tuple[str, str, str]] = Counter()
    for verdict in verdicts:
        cell, outcome = verdict.cell, str(verdict.outcome)
        passed[cell.subject, cell.property, outcome] += 1
        if outcome in ("fail", "unstable", "error", "crash"):
            tell(cell=cell.key, outcome=outcome, reason=str(verdict.reason)[:300])
    for (subject, question, outcome), count in sorted(passed.items()):
        tell(subject=subject, property=question, outcome=outcome, cells=count)
    if cut:
        tell(what="the run of cells", failed=f"interrupted after {seconds - GRACE:.0f} seconds")


def main() -> None:
    """Runs the cells that the command line names."""
    require_gpu()
    clock = Time()
    words = sys.argv[1:-1]
    if "--folded" in words:
        ops = [word for word in words if word != "--folded"]
        run([*ops, "--property", "COMM", "--dtype", "float32", "--fabric", "folded", "--device", "cpu"], clock.left())
        return
    selection = [word for name in PROPERTIES for word in ("--property", name)]
    dtypes = [word for name in ("float32", "bfloat16") for word in ("--dtype", name)]
    run([*words, *selection, *dtypes, "--device", DEVICE, "--subject", "opassay", "--subject", "torch"], clock.left())


if __name__ == "__main__":
    main()
