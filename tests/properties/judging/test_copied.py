"""The command `opassay judge`, whose candidate runs in a copy of its own process: what that finds, and leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from opassay.properties.judging.candidates import copying

SPEC = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(4, 6)]

def get_init_inputs():
    return []
"""
CANDIDATE = """
import os, signal, subprocess, sys, threading, time
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
{body}
        return torch.clamp(x, min=0)
"""
#: Raises where the process of a candidate has what a new one would not have.
LOOKS = """
        assert sys.argv[1:] == [], sys.argv
        assert not [name for name in sys.modules if "the_spec" in name]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert os.getsid(0) == os.getpid() and threading.active_count() == 1
        assert os.environ["OMP_NUM_THREADS"] == "1" and torch.get_num_threads() == 1
        paths = [f"/proc/self/fd/{handle}" for handle in os.listdir("/proc/self/fd") if int(handle) > 2]
        kinds = [os.readlink(path) for path in paths if os.path.islink(path)]
        assert all(kind.startswith(("pipe:", "/memfd:")) for kind in kinds), kinds
        if x.shape == (4, 6) and not os.path.exists(__file__ + ".log"):
            open(__file__ + ".log", "w").write("looked")
"""
#: Leaves a process that has left its session, its parent and its environment.
LEAVES = """
        if not os.path.exists(__file__ + ".log"):
            open(__file__ + ".log", "w").write("left")
            subprocess.run(["setsid", "-f", "env", "-i", "sleep", "1234.5"])
"""


def judged(folder: Path, body: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the line of JSON for a candidate whose forward does something first."""
    (folder / "the_spec.py").write_text(SPEC)
    (folder / "candidate.py").write_text(CANDIDATE.format(body=body))
    command = [sys.executable, "-m", "opassay", "judge", "--spec", "the_spec.py", "candidate.py", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert found.stdout, found.stderr
    return found.returncode, json.loads(found.stdout.splitlines()[-1])


def test_a_candidate_finds_nothing_of_the_judge_in_its_process(tmp_path: Path) -> None:
    code, said = judged(tmp_path, LOOKS)
    assert (code, said["verdict"]) == (0, "accepted"), said
    assert (tmp_path / "candidate.py.log").read_text() == "looked"


def test_a_process_that_a_candidate_hid_is_found_and_ended(tmp_path: Path) -> None:
    code, said = judged(tmp_path, LEAVES)
    assert (code, said["verdict"]) == (1, "rejected"), said
    assert "a process was left running: sleep" in str(said["causes"])
    lines = [Path(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdecimal()]
    assert not any(path.exists() and b"1234.5" in path.read_bytes() for path in lines)


def test_a_candidate_that_ends_its_process_is_rejected(tmp_path: Path) -> None:
    code, said = judged(tmp_path, "        os._exit(0)")
    assert (code, said["verdict"]) == (1, "rejected"), said
    assert "died (exit status 0)" in str(said)


def test_a_process_with_further_threads_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        assert copying.process_copied(0) is None
    finally:
        ended.set()
        thread.join()
