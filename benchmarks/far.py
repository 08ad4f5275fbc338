"""Judges kernels whose indices wrapped beyond 2^31 elements, as they were and as they were corrected.

    python benchmarks/far.py [NAME]...

prints verdict, cause, seconds of CPU and memory of each, and ends with 1 where one that wraps is accepted, or one that
does not is rejected, or where it takes more than a minute of CPU or a gibibyte. No GPU is used.

    python benchmarks/far.py --league [LIBRARY ...]

asks the same of the kernels of the league in some minutes, and writes those that wrap to `findings/far.json`, of which
docs/findings.md has a table.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).resolve().parent / "strangers"
#: Of CPU, and bytes that are resident.
_SECONDS, _BYTES = 60.0, 2**30
#: Libraries whose kernels are swept, and where the result is written. What a line of a process begins with.
_SWEPT = (
    "liger-kernel", "fla-core", "flag_gems", "conch-triton-kernels", "mamba_ssm", "unsloth", "sglang", "torchao",
)  # fmt: skip
_RESULT, _ROW = Path(__file__).resolve().parent / "findings" / "far.json", "row "


def judge_one(name: str, wide: bool) -> None:
    """Judge one form of a kernel in this process, and print a line of JSON."""
    os.environ.pop("TRITON_INTERPRET", None)
    sys.path.insert(0, str(_FOLDER))
    from far_kernels import CASES

    import opassay

    kernel, spec, arguments = CASES[name]

    def candidate(*tensors: object) -> object:
        return kernel(*tensors, wide)

    judgement = opassay.judge(
        candidate, spec, arguments, compiled="sm_90", questions=["FWD:given", "FAR"], contract="torch", seed=0
    )
    causes = [f"{cause.question}: {cause.wrong.title}" for cause in judgement.causes if cause.wrong is not None]
    lines = [line for cause in judgement.causes if cause.wrong is not None for line in cause.wrong.lines]
    texts = {finding.question: finding.text for finding in judgement.findings}
    wraps = [line.strip() for line in lines if "does not fit" in line]
    print(
        json.dumps(
            {"verdict": judgement.verdict, "causes": causes, "texts": texts, "wraps": wraps, "error": judgement.error}
        )
    )


def measure_one(name: str, wide: bool) -> tuple[dict[str, object], float, int]:
    """What a process of its own judges, the seconds of CPU that it took, and its bytes at most."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(write, 1)
        os.execv(sys.executable, [sys.executable, __file__, "--one", name, str(int(wide))])
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    _, _, usage = os.wait4(pid, 0)
    lines = text.splitlines()
    return json.loads(lines[-1]) if lines else {}, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main(names: list[str]) -> int:
    """Print the table; whether something is amiss."""
    sys.path.insert(0, str(_FOLDER))
    from far_kernels import CASES

    amiss, start = 0, time.monotonic()
    print(f"{'kernel':26}{'form':8}{'verdict':10}{'CPU s':>6}{'MiB':>6}  cause, or what was compared")
    for name in names or list(CASES):
        for wide in (False, True):
            result, seconds, size = measure_one(name, wide)
            verdict, causes = str(result.get("verdict", "none")), result.get("causes") or []
            texts = result.get("texts") or {}
            right = verdict == "accepted" if wide else verdict == "rejected" and bool(result["wraps"])
            right = right and "FAR" in texts and seconds <= _SECONDS and size <= _BYTES
            amiss += not right
            words = " | ".join([*causes, *(result.get("wraps") or [])]) if causes else str(texts.get("FAR", result))
            form = "fixed" if wide else "broken"
            print(
                f"{name:26}{form:8}{verdict:10}{seconds:6.1f}{size / 2**20:6.0f}  {words}{'' if right else '  AMISS'}"
            )
    print(f"{amiss} amiss, {time.monotonic() - start:.0f} s")
    return int(amiss > 0)


def sweep(libraries: list[str]) -> int:
    """Print what is wrong beyond 2^31 elements among the kernels of the league, each library in its own processes."""
    _import_contenders()
    from benchmarks.contenders import LIBRARIES, installed_version

    counts, wraps = Counter[str](), list[dict[str, str]]()
    for library in libraries or _SWEPT:
        rows: list[dict[str, Any]] = []
        settings = {**os.environ, **LIBRARIES[library].environment}
        ways = ["-m", "opassay.properties.rehearsal"] if LIBRARIES[library].rehearsed else []
        code: int | None = None
        while code != 0 and [row["outcome"] for row in rows[-3:]] != ["ended"] * 3:
            words = [sys.executable, *ways, __file__, "--rows", library, str(len(rows))]
            with subprocess.Popen(words, env=settings, stdout=subprocess.PIPE, text=True) as process:
                for line in process.stdout or ():
                    if line.startswith(_ROW):
                        rows.append(json.loads(line.removeprefix(_ROW)))
                        print("{outcome:12}{seconds:6.1f} s  {call}: {text}".format(**rows[-1]), flush=True)
            code = process.returncode
            if code:
                rows.append({"outcome": "ended", "call": f"row {len(rows)}", "wraps": [], "text": f"ended with {code}"})
        counts.update(row["outcome"] for row in rows)
        name = f"{library} {installed_version(library)}"
        print(f"{name}: {', '.join(f'{n} {outcome}' for outcome, n in Counter(r['outcome'] for r in rows).items())}")
        wraps += [
            {"library": name, "call": row["call"], "access": row["text"], "product": product}
            for row in rows
            for product in row["wraps"]
        ]
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    data = {"day": datetime.now(UTC).date().isoformat(), "outcomes": counts, "wraps": wraps}
    if not libraries:
        _RESULT.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def judge_rows(library: str, first: int) -> None:
    """Judge the kernels of a library from one on, in this process, and print a line of JSON for each."""
    _import_contenders()
    import opassay
    from benchmarks.contenders import HALVES, LIBRARIES, contenders

    for row in contenders(library, HALVES[0] if LIBRARIES[library].rehearsed else "float32")[first:]:
        start = time.process_time()
        judgement = opassay.judge(
            row.function, row.spec, row.arguments, contract=row.contract, compiled="sm_90", questions=["FAR"],
            domain={"where": row.where},
        )  # fmt: skip
        (finding,) = judgement.findings or [None]
        lines = finding.wrong.lines if finding is not None and finding.wrong is not None else ()
        record = {
            "outcome": "error" if finding is None else str(finding.outcome),
            "text": judgement.error if finding is None else finding.text,
            "call": row.call,
            "wraps": [each.removeprefix("address").strip() for each in lines if "does not fit" in each],
            "seconds": time.process_time() - start,
        }
        print(f"\n{_ROW}{json.dumps(record)}", flush=True)


def _import_contenders() -> None:
    """Have the folder above in the path, from which the league's kernels are imported."""
    sys.path.insert(0, str(_FOLDER.parents[1]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--league"]:
        sys.exit(sweep(sys.argv[2:]))
    if sys.argv[1:2] == ["--rows"]:
        judge_rows(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["--one"]:
        judge_one(sys.argv[2], sys.argv[3] == "1")
    else:
        sys.exit(main(sys.argv[1:]))
