"""Judges every kernel of tests/properties/candidates/over_ranks on its ranks; prints verdict, seconds, what was wrong.

    python benchmarks/kernels_of_ranks.py [WORD ...] [--seed N] [--world N] [--dtype NAME] [--wire NAME] [--first]

WORD is a part of a file's or a kernel's name. A kernel whose name begins with "right" has to be accepted, and one with
"wrong" rejected; each is asked all questions, or with --first until one is wrong. Ends with 1 where a verdict is not
the wanted one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_KERNELS = Path(__file__).resolve().parents[1] / "tests" / "properties" / "candidates" / "over_ranks"
#: How many ranks a kernel takes that does not take four.
_RANKS = {"pipeline": "2"}


def find_kernels(words: list[str]) -> Iterator[tuple[Path, str]]:
    """The files and the names of the kernels in them that have one of these words, or of all."""
    for path in sorted(_KERNELS.glob("*.py")):
        for name in re.findall(r"^def ((?:right|wrong)\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            if not words or any(word in f"{path.stem}:{name}" for word in words):
                yield path, name


def main() -> int:
    """Judge them; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--world", default="4")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--wire", default="judge")
    parser.add_argument("--first", action="store_true")
    options = parser.parse_args()
    began, odd, count = time.monotonic(), 0, {"right": 0, "wrong": 0}
    for path, name in find_kernels(options.words):
        start = time.monotonic()
        command = [sys.executable, "-m", "opassay", "judge", f"{path}:{name}", "--spec", f"{path}:reference"]
        command += [
            "--wire",
            options.wire,
            "--world",
            _RANKS.get(path.stem, options.world),
            "--seed",
            options.seed,
            "--dtype",
            options.dtype,
        ]
        out = subprocess.run([*command, *["-x"] * options.first], capture_output=True, text=True, check=False)
        lines = re.findall(r"^(?:accepted|rejected|weak|suspect|error).*", out.stdout, re.MULTILINE)
        verdict = lines[0] if lines else f"no verdict: {out.stderr.strip()}"
        kind = name.partition("_")[0]
        wanted = verdict.startswith("accepted" if kind == "right" else "rejected")
        count[kind] += wanted
        odd += not wanted
        mark = "" if wanted else "NOT AS WANTED  "
        print(f"{path.stem:12}{name:22}{time.monotonic() - start:6.1f} s  {mark}{verdict[:120]}", flush=True)
    seconds = time.monotonic() - began
    print(f"{count['right']} right accepted, {count['wrong']} wrong rejected, {odd} not as wanted; {seconds:.0f} s")
    return int(bool(odd))


if __name__ == "__main__":
    sys.exit(main())
