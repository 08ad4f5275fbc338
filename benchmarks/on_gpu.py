"""All that a GPU can tell: `python benchmarks/on_gpu.py [--minutes 9] [--results FOLDER] [--only PART]...`.

It installs nothing. The most telling parts come first, each in a process of its own with a budget of time: one that
fails or takes too long is written down as such, with what it had found, and the next goes on. What comes out is a JSON
file and a page in Markdown, dated, in benchmarks/results. Without a GPU every part that needs one is "not run".
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu import page

HERE = Path(__file__).resolve().parent
#: Seconds between asking a part to end and ending it.
GRACE = 5.0
#: Seconds that a part has at least, as long as there are so many: it imports torch before anything else.
LEAST = 30.0


@dataclass(frozen=True)
class Part:
    """A program of benchmarks/gpu that prints a line of JSON for everything it finds.

    Attributes:
        name: in the results. script, words: what is run; the seconds it has follow as the last word.
        share: of the whole time. needs_gpu: whether it finds nothing without one.
    """

    name: str
    script: str
    words: tuple[str, ...]
    share: float
    needs_gpu: bool = True


#: The most telling first; of the time that is left a part has its share of the shares that are left.
PARTS = (
    Part("machine", "machine.py", (), 0.04, needs_gpu=False),
    Part("values and derivatives", "cells.py", ("softmax", "log_softmax", "layer_norm", "group_norm", "batch_norm",
         "nll_loss", "cross_entropy", "log_sigmoid", "trace", "cross_map_lrn2d"), 0.24),
    Part("timings against torch", "timings.py", ("torch",), 0.22),
    Part("graphs, streams, whole graphs", "runtime.py", (), 0.09),
    Part("timings against compiled and other kernels", "timings.py", ("compiled", "liger", "quack"), 0.17),
    Part("launches and their PTX", "launches.py", (), 0.2),
    Part("instructions and approximations", "instructions.py", (), 0.06),
    Part("elementary functions", "functions.py", (), 0.06),
    Part("sums of tensor cores", "tensor_sums.py", (), 0.03),
    Part("folded fabric", "cells.py", ("--folded", "broadcast", "reduce_add_coalesced", "gather", "scatter"), 0.07),
    Part("sanitizer", "sanitized.py", (), 0.09),
)  # fmt: skip


@dataclass
class GpuOutcome:
    """What a part came to.

    Attributes:
        status: "done", "failed", "cut off" or "not run". reason: of all but the first.
        seconds: that it took. rows: what it printed.
    """

    name: str
    status: str = "done"
    reason: str = ""
    seconds: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)


def run(part: Part, seconds: float) -> GpuOutcome:
    """Runs a part for so many seconds at most; never raises for what the part does."""
    result = GpuOutcome(part.name)
    start = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        command = [sys.executable, str(HERE / "gpu" / part.script), *part.words, f"{seconds:.0f}"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=output, text=True, start_new_session=True, errors="replace"
        )
        # Lines are taken as they come, so that a part that is cut off leaves what it had found.
        reader = threading.Thread(target=_take, args=(process, result.rows), daemon=True)
        reader.start()
        code = _ended(process, seconds + GRACE)
        reader.join(GRACE)
        output.seek(max(0, output.tell() - 4000))
        last = [line for line in output.read().splitlines() if line.strip()][-3:]
    result.seconds = round(time.monotonic() - start, 1)
    refusals = [row["not run"] for row in result.rows if "not run" in row]
    result.rows = [row for row in result.rows if "not run" not in row]
    if code is None:
        result.status, result.reason = "cut off", f"longer than {seconds:.0f} seconds"
    elif code:
        result.status, result.reason = "failed", f"exit code {code}: {' | '.join(last)}"
    elif refusals and not result.rows:
        result.status, result.reason = "not run", str(refusals[0])
    return result


def _take(process: subprocess.Popen[str], rows: list[dict[str, Any]]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        try:
            row = json.loads(line)
        except ValueError:
            continue  # what a library prints
        if isinstance(row, dict):
            rows.append(row)


def _ended(process: subprocess.Popen[str], seconds: float) -> int | None:
    """The exit code; None where the process and all that it started had to be ended."""
    for signal_number in (None, signal.SIGINT, signal.SIGKILL):
        if signal_number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal_number)
        try:
            code = process.wait(seconds if signal_number is None else GRACE)
        except subprocess.TimeoutExpired:
            continue
        return code if signal_number is None else None
    return None


def measure(minutes: float, parts: tuple[Part, ...] = PARTS) -> dict[str, Any]:
    """All parts; the time that one leaves is the next ones'."""
    start = time.monotonic()
    end = start + 60 * minutes
    results: list[GpuOutcome] = []
    without_gpu = False
    for number, part in enumerate(parts):
        time_until_end = end - time.monotonic()
        rest = sum(other.share for other in parts[number:])
        seconds = max(time_until_end * part.share / rest, min(LEAST, time_until_end)) - GRACE
        if seconds < GRACE:
            result = GpuOutcome(part.name, "not run", "no time is left")
        elif without_gpu and part.needs_gpu:
            result = GpuOutcome(part.name, "not run", "no CUDA device")
        else:
            result = run(part, seconds)
        # Said once by the part that looks; the others would import torch to find the same.
        without_gpu |= any(row.get("fact") == "cuda" and row["value"] == "not available" for row in result.rows)
        print(
            f"{result.name}: {result.status} {result.reason}, {result.seconds} s, {len(result.rows)} rows", flush=True
        )
        results.append(result)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "minutes": minutes,
        "seconds": round(time.monotonic() - start, 1),
        "parts": [asdict(result) for result in results],
    }


def main() -> None:
    """Runs the parts and writes both files."""
    parser = argparse.ArgumentParser(description="Measure on a GPU; write one JSON file and one page.")
    parser.add_argument("--minutes", type=float, default=9.0, help="for all parts together (default: 9)")
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="FOLDER", help="for both files")
    names = [part.name for part in PARTS]
    parser.add_argument("--only", action="append", choices=names, metavar="PART", help=f"one of {', '.join(names)}")
    arguments = parser.parse_args()
    parts = tuple(part for part in PARTS if not arguments.only or part.name in arguments.only)
    result = measure(arguments.minutes, parts)
    arguments.results.mkdir(parents=True, exist_ok=True)
    stem = "on_gpu_" + result["date"][:16].replace(":", "").replace("T", "_")
    file = arguments.results / f"{stem}.json"
    file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    file.with_suffix(".md").write_text(page.text(result), encoding="utf-8")
    print(file)


if __name__ == "__main__":
    main()
