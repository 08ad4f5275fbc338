"""A league of public kernels: each judged by its plain PyTorch, with every question of `opassay.judge`.

    python benchmarks/league.py [LIBRARY ...] [--log FILE] [-n N]     # judge what the log does not have yet
    python benchmarks/league.py --dtype bfloat16 --dtype float16 [...]  # those that are compiled, in half types
    python benchmarks/league.py --write [--log FILE]                  # docs/league.json, docs/league.md, README's line
    python benchmarks/league.py --replay [WORD ...]                   # every red row again, without opassay

The kernels are in `contenders/`. Each library is judged in processes of its own, and one that is not installed is shown
as not run. The log has a line of JSON for each kernel, so a run that was stopped goes on with it. Exit codes: 0, or 1
where a replay does not show what its row says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # the collection of specs stands beside the tests
from benchmarks.contenders import (  # noqa: E402
    COMPILED,
    HALVES,
    LIBRARIES,
    Absent,
    contenders,
    describe_contender,
    installed_version,
    judge_contender,
)
from benchmarks.contenders.page import key_of, write_page  # noqa: E402
from benchmarks.contenders.replays import replay  # noqa: E402

#: Seconds in which the part of a library must have ended.
_SECONDS = 3600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="libraries; all by default")
    parser.add_argument("--log", type=Path, default=Path("league.jsonl"), help="lines of JSON, which are added to")
    parser.add_argument("--dtype", action="append", choices=("float32", *HALVES), help="float32 by default; repeatable")
    parser.add_argument("-n", type=int, default=2, help="processes at a time")
    parser.add_argument("--here", action="store_true", help="judge in this process what no other one has begun")
    parser.add_argument("--call", help="judge the kernels with this text in their call, print all of the report")
    parser.add_argument("--write", action="store_true", help="write the page and the data of a log")
    parser.add_argument("--mutants", type=Path, help="with --write: what league_mutants.py wrote")
    parser.add_argument("--replay", action="store_true", help="run the program of every red row")
    options = parser.parse_args()
    dtypes = options.dtype or ["float32"]
    if options.replay:
        return replay(options.words)
    if unknown := set(options.words) - set(LIBRARIES):
        parser.error(f"no library is named {', '.join(sorted(unknown))}: need some of {', '.join(LIBRARIES)}")
    if options.write:
        write_page(read_log(options.log), options.mutants)
    elif options.call is not None:
        show(options.words, options.call, dtypes)
    elif options.here:
        judge_here(options.words, options.log, dtypes)
    else:
        every = COMPILED if "float32" not in dtypes else list(LIBRARIES)
        judge_all(options.words or every, options.log, options.n, dtypes)
    return 0


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a log; none where there is no file. A line that a killed process left half is no record."""
    records = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def judge_all(libraries: Sequence[str], log: Path, processes: int, dtypes: Sequence[str]) -> None:
    """Judge every library's kernels, in some processes at a time; of a library each takes what no other has begun."""
    waiting = [name for name in libraries for _ in range(processes)]
    running: list[subprocess.Popen[bytes]] = []
    begun = time.monotonic()
    while waiting or running:
        while waiting and len(running) < processes:
            running.append(_start(waiting.pop(0), log, dtypes))
        time.sleep(1)
        running = [each for each in running if each.poll() is None]
        if int(time.monotonic() - begun) % 30 == 0:
            kernels = len({key_of(row) for row in read_log(log)})
            print(f"{time.monotonic() - begun:.0f} s, {kernels} kernels, {len(waiting)} parts wait", flush=True)


def _start(library: str, log: Path, dtypes: Sequence[str]) -> subprocess.Popen[bytes]:
    rehearsed = ["-m", "opassay.properties.rehearsal"] if LIBRARIES[library].rehearsed else []
    words = [sys.executable, *rehearsed, __file__, library, "--here", "--log", str(log)]
    words += [word for dtype in dtypes for word in ("--dtype", dtype)]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", **LIBRARIES[library].environment}
    with open(f"{log}.{library}.err", "ab") as errors:
        return subprocess.Popen(["timeout", str(_SECONDS), *words], env=settings, stderr=errors)


def judge_here(libraries: Sequence[str], log: Path, dtypes: Sequence[str]) -> None:
    """Judge in this process the kernels of some libraries that the log does not have, one after another."""
    for library in libraries:
        version = installed_version(library)
        try:
            every = [each for dtype in dtypes for each in contenders(library, dtype)]
        except Absent as err:
            _append(log, {"library": library, "version": version, "not_run": str(err)})
            continue
        for each in every:
            # What another process has begun meanwhile is in the log, too.
            if (library, each.call, each.dtype) not in set(map(key_of, read_log(log))):
                # First a line that says it was begun: of a kernel that ends the process nothing else remains.
                _append(log, {**describe_contender(each, version), "verdict": "ended"})
                _append(log, judge_contender(each, version))


def _append(log: Path, record: dict[str, Any]) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def show(libraries: Sequence[str], text: str, dtypes: Sequence[str]) -> None:
    """Print the whole report of some kernels."""
    import opassay

    every = (each for library in libraries for dtype in dtypes for each in contenders(library, dtype))
    for each in (each for each in every if text in each.call):
        judgement = opassay.judge(
            each.function, each.spec, each.arguments, contract=each.contract, compiled=each.compiled,
            calls=8 if each.compiled else None, domain={"where": each.where},
        )  # fmt: skip
        print(judgement.report(verbose=True), flush=True)


if __name__ == "__main__":
    sys.exit(main())
