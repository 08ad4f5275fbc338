"""However a judgement ends, it says a line, leaves no folder, and takes no longer than it may."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .attack import PRELUDE, SPECS

pytestmark = pytest.mark.slow

SLEEPS = "\ndef candidate(x):\n    open(os.path.expanduser('~/called'), 'w').close()\n    time.sleep(1000)\n"


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    """The command on a candidate that never answers, after its first call has begun."""
    (folder / "spec.py").write_text("import torch\n" + SPECS["double"])
    (folder / "candidate.py").write_text(PRELUDE + SLEEPS)
    (folder / "temporary").mkdir()
    words = [sys.executable, "-m", "opassay", "judge", "candidate.py", "--spec", "spec.py", "--json", *options]
    environment = {**os.environ, "TMPDIR": str(folder / "temporary")}
    process = subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while not list(folder.glob("temporary/*/own/home/called")) and time.monotonic() < until:
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_judge_that_is_ended_says_a_line_and_leaves_no_folder(number: signal.Signals, tmp_path: Path) -> None:
    process = started(tmp_path)
    process.send_signal(number)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    (line,) = out.splitlines()
    assert json.loads(line)["error"] == "interrupted"
    assert list(tmp_path.glob("temporary/opassay-*")) == []


def test_a_judge_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    process = started(tmp_path)
    (own,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.communicate(timeout=120)
    until = time.monotonic() + 60
    while Path(f"/proc/{own}/cmdline").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{own}").exists()


def test_the_whole_takes_no_longer_than_it_may(tmp_path: Path) -> None:
    process = started(tmp_path, "--total", "3", "--seconds", "500")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 4
    reply = json.loads(out)
    assert reply["verdict"] == "weak"
    assert any("out of time: FWD:given" in text for text in reply["weaknesses"])
    assert reply["seconds"] < 60
