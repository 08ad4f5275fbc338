"""Judges kernels of CuTe DSL as they stand, or copies with a planted fault; prints verdict and seconds of each.

    python benchmarks/cute_kernels.py [WORD ...] [--planted] [--verbose] [--keyword QUESTION ...]

WORD is a part of a name or a dtype. It needs `pip install ".[cute]"`; QuACK's rows `pip install --no-deps
quack-kernels==0.6.5`, those of Liger (`liger`) `pip install --no-deps liger-kernel==0.8.5`, and torch's own (`native`)
`pip install nvidia-cutlass-dsl==4.5.2`, for which torch has them, in an environment of their own.
Every row is judged in a process of its own, with all usual questions unless some are named; a planted fault is a line
of the package's source that is another one in a copy (`cute/planted.py`), asked what the right ones, which stand
before, are accepted at. Ends with 1 where a verdict is not the wanted one.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
#: What planted faults are asked, of values and of gradients; at all of these the right rows are accepted.
_VALUES = ["FWD:given", "FWD:offset", "FWD:signs", "SPECIAL:zeros", "CALLS:again", "SIZE:sizes"]
_GRADIENTS = ["FWD:given", "VJP:grad"]
#: Seconds after which nothing more is asked of a row.
_SECONDS = 300.0


def read_rows() -> dict[str, Any]:
    """All rows by name; they import no library."""
    from cute import liger_rows, native_rows, quack_rows

    return quack_rows.ROWS | liger_rows.ROWS | native_rows.ROWS


def read_faults() -> dict[str, Any]:
    """All planted faults by name."""
    from cute import liger_planted, planted

    return planted.PLANTED | liger_planted.PLANTED


def judge_row(name: str, dtype: str, edit: str, questions: list[str]) -> dict[str, Any]:
    """The verdict of a row, in this process, which rehearses."""
    if edit:
        from cute.planted import plant

        plant(read_faults()[edit])
    import torch

    import opassay
    from opassay.properties.candidates.question_plan import USUAL

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    row = read_rows()[name]
    candidate, spec = row.make()
    architecture = os.environ.get("OPASSAY_PTX_ARCHITECTURE", "sm_90")
    # Rows that are not contiguous, and addresses that are no multiples of 16 bytes, are refused by QuACK's own checks.
    contiguous = [f"{argument}: contiguous" for argument in inspect.signature(spec).parameters]
    domain = {**row.domain, "where": [*row.domain.get("where", ()), *contiguous]}
    began = time.process_time()
    judgement = opassay.judge(
        candidate, spec, row.inputs(getattr(torch, dtype)), contract=row.contract, total=_SECONDS, calls=8,
        questions=questions or USUAL, compiled=architecture, domain=domain,
    )  # fmt: skip
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    codes = sorted({str(cause.wrong.code.value) for cause in judgement.causes if cause.wrong is not None})
    causes = ", ".join(cause.question for cause in judgement.causes)
    return {
        "verdict": str(judgement.verdict), "why": " ".join([*codes, causes]).strip() or "; ".join(judgement.weaknesses),
        "seconds": time.process_time() - began + used.ru_utime + used.ru_stime, "error": judgement.error,
        "report": judgement.report(verbose=True),
    }  # fmt: skip


def ask(name: str, dtype: str, edit: str, questions: list[str]) -> dict[str, Any]:
    """The same, of a process of its own."""
    words = json.dumps([name, dtype, edit, questions])
    command = [sys.executable, "-m", "opassay.properties.rehearsal", __file__, "--row", words]
    plain = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=plain)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        text = (done.stderr.splitlines() or ["nothing was written"])[-1]
        return {"verdict": "none", "why": text, "seconds": 0.0, "error": text, "report": done.stderr}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def rows_of(options: argparse.Namespace) -> list[tuple[str, str, str, str]]:
    """Name, dtype, planted fault and wanted verdict of every row that is asked for."""
    if options.planted:
        faults = [(fault.row, fault.dtype, key, "rejected") for key, fault in read_faults().items()]
        right = dict.fromkeys((name, dtype, "", "accepted") for name, dtype, _, _ in faults)
        rows = [*right, *faults]
    else:
        rows = [
            (name, dtype, "", row.verdict if row.why else "accepted")
            for name, row in read_rows().items() if not name.endswith("in order") for dtype in row.dtypes
        ]  # fmt: skip
    wanted: list[str] = options.words
    return [row for row in rows if not wanted or any(word in " ".join(row) for word in wanted)]


def _questions(edit: str) -> list[str]:
    """What a planted fault is asked, or the right row."""
    return [*_VALUES, "VJP:grad"] if not edit else _GRADIENTS if "gradient" in edit else _VALUES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of names; all by default")
    parser.add_argument("--planted", action="store_true", help="the copies with a fault")
    parser.add_argument("--keyword", action="append", default=[], help="a question, such as FWD:given")
    parser.add_argument("--verbose", action="store_true", help="print the whole report of each")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(judge_row(*json.loads(options.row))))
        return 0
    unwanted, seconds = 0, []
    print("| function | dtype | planted | verdict | why | CPU s |\n|---|---|---|---|---|---|")
    for name, dtype, edit, wanted in rows_of(options):
        answer = ask(name, dtype, edit, options.keyword or _questions(edit) if options.planted else options.keyword)
        right = answer["verdict"] == wanted
        unwanted += not right
        seconds.append(answer["seconds"])
        words = [name, dtype, edit or "-", answer["verdict"], (answer["why"] or answer["error"] or "")[:120]]
        print(f"| {' | '.join(words)} | {answer['seconds']:.1f} |" + "  UNEXPECTED" * (not right), flush=True)
        if options.verbose:
            print(answer["report"], flush=True)
    print(f"{len(seconds)} judged, {unwanted} not as wanted; median {median(seconds or [0]):.1f} CPU s")
    return int(unwanted > 0)


if __name__ == "__main__":
    sys.exit(main())
