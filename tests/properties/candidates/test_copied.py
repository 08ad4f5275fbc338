"""The command `opassay judge`, whose candidate runs in a copy of its own process: what that finds, and leaves."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from opassay.properties.candidates.host import copying
from opassay.reports.cli.main import main

pytestmark = pytest.mark.slow

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


def judge(folder: Path, body: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the line of JSON for a candidate whose forward does something first."""
    (folder / "the_spec.py").write_text(SPEC)
    (folder / "candidate.py").write_text(CANDIDATE.format(body=body))
    result = run(folder, "candidate.py")
    assert result.stdout, result.stderr
    (line,) = result.stdout.splitlines()
    return result.returncode, json.loads(line)


def run(folder: Path, candidate: str) -> subprocess.CompletedProcess[str]:
    """The command on a candidate beside the spec."""
    command = [sys.executable, "-m", "opassay", "judge", "--spec", "the_spec.py", candidate, "--json"]
    command += ["--isolation", "none"]  # what is looked at here holds without it, too
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_candidate_finds_nothing_of_the_judge_in_its_process(tmp_path: Path) -> None:
    code, output = judge(tmp_path, LOOKS)
    assert (code, output["verdict"]) == (0, "accepted"), output
    assert (tmp_path / "candidate.py.log").read_text() == "looked"


def test_a_process_that_a_candidate_hid_is_found_and_ended(tmp_path: Path) -> None:
    code, output = judge(tmp_path, LEAVES)
    assert (code, output["verdict"]) == (1, "rejected"), output
    assert "a process was left running: sleep" in str(output["causes"])
    lines = [Path(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdecimal()]
    assert not any(path.exists() and b"1234.5" in path.read_bytes() for path in lines)


def test_a_candidate_that_ends_its_process_is_rejected(tmp_path: Path) -> None:
    code, output = judge(tmp_path, "        os._exit(0)")
    assert (code, output["verdict"]) == (1, "rejected"), output
    assert "died (exit status 0)" in str(output)


#: Writes what a later import may take for the spec, for a module that torch looks for when it ends, and for itself.
PLANTS = """
        folder = os.path.dirname(os.path.abspath(__file__))
        if not os.path.exists(os.path.join(folder, "tabulate.py")):
            import importlib.util, marshal, struct
            open(os.path.join(folder, "tabulate.py"), "w").write("import os\\nos.write(1, b'accepted'); os._exit(0)")
            open(os.path.abspath(__file__), "a").write("\\n# another kernel\\n")
            path = os.path.join(folder, "the_spec.py")
            text = open(path).read().replace("torch.relu(x)", "torch.relu(x) * 3")
            found, status = importlib.util.cache_from_source(path), os.stat(path)
            os.makedirs(os.path.dirname(found), exist_ok=True)
            head = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, int(status.st_mtime), status.st_size)
            open(found, "wb").write(head + marshal.dumps(compile(text, path, "exec")))
"""


def test_what_a_candidate_plants_beside_the_spec_is_told_and_changes_no_later_verdict(tmp_path: Path) -> None:
    code, output = judge(tmp_path, PLANTS)
    assert (code, output["verdict"]) == (1, "rejected"), output
    (cause,) = output["causes"]
    assert cause["question"] == "PURE:left"
    assert {"tabulate.py", "candidate.py", "the_spec.cpython"} == {
        name for name in ("tabulate.py", "candidate.py", "the_spec.cpython", "other.py") if name in cause["text"]
    }
    (tmp_path / "wrong.py").write_text("import torch\ndef candidate(x): return torch.relu(x) * 3\n")
    result = run(tmp_path, "wrong.py")
    assert result.returncode == 1, result.stdout
    (line,) = result.stdout.splitlines()
    output = json.loads(line)
    assert output["causes"][0]["question"] == "FWD:given"
    files = {"candidate": tmp_path / "wrong.py", "spec": tmp_path / "the_spec.py"}
    assert output["sha256"] == {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def test_a_wrong_command_line_prints_a_line_of_json_too(tmp_path: Path) -> None:
    for words in ([], ["--spec", "nowhere.py"], ["--spec"], ["--spec", "nowhere.py", "--seconds", "0"]):
        with pytest.MonkeyPatch.context() as patched:
            patched.chdir(tmp_path)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                assert main(["judge", "candidate.py", "--json", *words]) == 2
        (line,) = out.getvalue().splitlines()
        assert json.loads(line)["verdict"] == "error"


def test_a_process_with_further_threads_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        assert copying.process_copied({}) is None
    finally:
        ended.set()
        thread.join()
