"""Runs programs without the framework: a fresh interpreter imports torch once, and each program has a copy of it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]

#: The interpreter's part: each program in a child process; its status, what it printed, and what it imported of ours.
_HOST = """
import json, os, sys, traceback
import torch

def run(text):
    try:
        exec(compile(text, "program", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        print(traceback.format_exc())
        return 99
    return 0

for line in sys.stdin:
    text = json.loads(line)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(write, 1)
        status = run(text)
        # What ships, and what it shares with the judge.
        own = {"opassay.reference", "opassay.reference.distributions", "opassay.reference.meeting"}
        judges = [name for name in sys.modules if name.startswith("opassay.") and not name.startswith("opassay.impl")]
        judges = [name for name in judges if name not in own]
        print("framework:", judges)
        sys.stdout.flush()
        os._exit(status)
    os.close(write)
    with os.fdopen(read) as file:
        said = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.stdout.write(json.dumps([status, said]) + "\\n")
    sys.stdout.flush()
"""


class Ran(NamedTuple):
    """The exit status of a program, and what it printed."""

    status: int
    printed: str


@functools.cache
def _host() -> subprocess.Popen[str]:
    """The interpreter, started when it is first needed; it ends with this process, which holds its input open."""
    return subprocess.Popen(
        [sys.executable, "-c", _HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def run_program(text: str) -> Ran:
    """What a program does in a process that has torch alone; an error if it imports the framework."""
    host = _host()
    assert host.stdin is not None
    assert host.stdout is not None
    host.stdin.write(json.dumps(text) + "\n")
    host.stdin.flush()
    status, texts = json.loads(host.stdout.readline())
    printed, _, judges = texts.rpartition("framework: ")
    assert judges.strip() == "[]", "the program imports what judges"
    return Ran(status, printed)
