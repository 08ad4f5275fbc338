"""Small cases, each a file with its command and the verdict that is wanted at its top: the table of what comes.

    python benchmarks/wanted.py FOLDER... [--match WORD] [--jobs N] [--total SECONDS]

A case is a Python file whose first lines say, in comments or a docstring, how it is run and what should come:

    # opassay judge FILE.py:wrong --spec FILE.py:reference --compiled
    # wanted: wrong rejected; right accepted

The functions that `wanted` names are judged one by one, with the options of the command. Those that should be accepted
are judged in float32, bfloat16 and float16, but in the dtype of `inputs` alone where a line `# one dtype` stands, or
where the command names a dtype. Where `wanted` names no function, its verdict is that of the command's. A case with
`python FILE.py` is run, and its last lines are shown, to be read: the row says `read`, and so does that of a verdict
which a sentence ("..., or a line that says ...") may take the place of.

The table's last line counts the rows; the exit code is 1 where a verdict is another than the one that is wanted.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VERDICTS = "accepted|rejected|weak|suspect|error"
HALF_TYPES = ("bfloat16", "float16")
#: What a process of a judgement may map; a case that asks for more ends in an error and not in the machine's. An input
#: of 0.8 KB whose rows lie far apart maps 10.7 GB twice, of which nearly nothing is in memory.
MEMORY = 32 << 30


@dataclass(frozen=True)
class Row:
    """One judgement of a case. wanted: a verdict, or "" where only a reader can tell. words: the command."""

    path: Path
    label: str
    wanted: str
    words: tuple[str, ...]
    is_open: bool


def list_rows(path: Path) -> Iterator[Row]:
    """The judgements that the head of a case asks for; none where it has no command."""
    head = [line.strip().strip("#\"' ") for line in path.read_text().split("\n")[:12]]
    wanted = " ".join(line.removeprefix("wanted:").strip() for line in head if line.startswith("wanted:"))
    commands = [match[0] for line in head if (match := re.search(r"\b(opassay judge|python) \S+\.py.*$", line))]
    if not wanted or not commands:
        return
    words = tuple(word for word in shlex.split(re.sub(r"\s\(.*$", "", commands[0])) if word != "--json")
    if words[0] == "python":
        yield Row(path, "", "", words, True)
        return
    flags = [shlex.split(line.removeprefix("flags:")) for line in head if line.startswith("flags:")]
    options = tuple(flags[0]) if flags else words[5:]
    named = re.findall(rf"((?:\w+, )*\w+) ({VERDICTS})\b", wanted)
    of_functions = [(name, verdict) for names, verdict in named for name in names.split(", ")]
    code = "\n".join(line for line in path.read_text().split("\n") if not line.startswith("#"))
    rows = [(name, verdict) for name, verdict in of_functions if re.search(rf"\b{name}\b", code)]
    is_single = not rows or "one dtype" in " ".join(head) or "--dtype" in options
    if not rows:
        match = re.match(VERDICTS, wanted)
        rows = [(words[2].split(":")[1], match[0] if match else "")]
    is_open = bool(re.search(r"\bor\b|debatable", wanted)) or not rows[0][1]
    for name, verdict in rows:
        for dtype in ("",) if verdict != "accepted" or is_single else ("", *HALF_TYPES):
            dtyped = ("--dtype", dtype) if dtype else ()
            command = (*words[:2], f"{path.name}:{name}", *words[3:5], *options, *dtyped, "--json", "--seed", "0")
            yield Row(path, f"{name} {dtype}".strip(), verdict, command, is_open)


def run(row: Row, total: float) -> tuple[str, str]:
    """Whether a row is as wanted ("ok", "NOT", "read"), and its line of the table."""
    start, name = time.monotonic(), f"{row.path.parent.name}/{row.path.stem}"
    words = [sys.executable, "-m", "opassay", *row.words[1:]] if row.words[0] == "opassay" else list(row.words)
    words = [sys.executable if word == "python" else word for word in words]
    if "--total" not in words and row.words[0] == "opassay":
        words += ["--total", str(total)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        ended = subprocess.run(
            words, cwd=row.path.parent, capture_output=True, text=True, env=environment, timeout=4 * total + 60,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)), check=False,
        )  # fmt: skip
        came, detail = _read(ended.stdout) if "--json" in words else ("", " / ".join(ended.stdout.split("\n")[-6:]))
        detail = detail or ended.stderr.strip().split("\n")[-1]
    except subprocess.TimeoutExpired:
        came, detail = "no answer", ""
    state = "ok" if came == row.wanted and came else "read" if row.is_open else "NOT"
    seconds = time.monotonic() - start
    return state, f"{state:4} {name:28} {row.label:24} {row.wanted:9} {came:9} {seconds:6.1f} s  {detail[:150]}"


def _read(text: str) -> tuple[str, str]:
    """The verdict of a judgement's JSON, and why: its causes, its weaknesses or its error."""
    try:
        record = json.loads(text.strip().split("\n")[-1])
    except ValueError:
        return "no JSON", ""
    causes = [str(cause["question"]) for cause in record["causes"]]
    return record["verdict"], ", ".join(causes) or "; ".join(record["weaknesses"]) or record["error"] or ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--match", default="", help="only cases whose path has this word")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--total", type=float, default=60.0, help="seconds that one judgement may take")
    options = parser.parse_args()
    paths = sorted(path for folder in options.folders for path in folder.resolve().glob("**/*.py"))
    rows = [row for path in paths if options.match in str(path) for row in list_rows(path)]
    counts = {"ok": 0, "NOT": 0, "read": 0}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for state, line in pool.map(lambda row: run(row, options.total), rows):
            counts[state] += 1
            print(line, flush=True)
    print(f"{len(rows)} rows: {counts['ok']} as wanted, {counts['NOT']} not, {counts['read']} to be read")
    return 1 if counts["NOT"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
