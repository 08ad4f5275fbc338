"""`opassay judge --watch` judges again when a file changes, and ends with the last exit code."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

FILE = """
import torch

def reference(x):
    return torch.softmax(x, -1)

def kernel(x):
    powers = torch.exp(x)
    return powers / powers.sum(-1, keepdim=True)

def inputs():
    return (torch.randn(8, 32),)
"""
RIGHT = FILE.replace("torch.exp(x)", "torch.exp(x - x.amax(-1, keepdim=True))")
JUDGE = (
    "judge",
    "mine.py:kernel",
    "--spec",
    "mine.py:reference",
    "-q",
    "-k",
    "FWD:given",
    "-k",
    "FWD:offset",
    "--watch",
)


def _lines_of(process: subprocess.Popen[str]) -> queue.Queue[str]:
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _until_it_waits(lines: queue.Queue[str]) -> str:
    text = ""
    while not text.endswith("Ctrl-C ends\n"):
        text += lines.get(timeout=120)
    return text


@pytest.mark.slow
def test_every_change_is_judged_until_an_interrupt(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    words = (sys.executable, "-m", "opassay", *JUDGE)
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            lines = _lines_of(process)
            assert _until_it_waits(lines).startswith("rejected: FWD:offset\n")
            file.write_text(RIGHT)
            assert _until_it_waits(lines).startswith("accepted\n")
            file.write_text(RIGHT + "def (\n")
            assert "SyntaxError" in _until_it_waits(lines)
            # What another editor does: the file is gone, and then another one has its name.
            file.unlink()
            (tmp_path / "new").write_text(FILE)
            os.replace(tmp_path / "new", file)
            assert _until_it_waits(lines).startswith("rejected: FWD:offset\n")
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(60) == 1
        finally:
            process.kill()
