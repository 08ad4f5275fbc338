"""Judges kernels whose indices wrapped beyond 2^31 elements, as they were and as they were corrected.

    python benchmarks/far.py [NAME]...

prints verdict, cause, seconds of CPU and memory of each, and ends with 1 where one that wraps is accepted, or one that
does not is rejected, or where it takes more than a minute of CPU or a gibibyte. No GPU is used.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent / "strangers"
#: Of CPU, and bytes that are resident.
_SECONDS, _BYTES = 60.0, 2**30


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
    """What a process of its own judgement, the seconds of CPU that it took, and its bytes at most."""
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


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        judge_one(sys.argv[2], sys.argv[3] == "1")
    else:
        sys.exit(main(sys.argv[1:]))
