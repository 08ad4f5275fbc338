"""What a candidate's processes take together, which operations a call runs, and what a kernel without guards means."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from opassay.properties.candidates.host import weighing
from opassay.properties.candidates.host.operations import Operations, record

#: Bytes, and programs that take twice as many.
LIMIT = 2**26
_FILE = f"os.pwrite(os.memfd_create('x'), b'x' * {2 * LIMIT}, 0)"
_CHILD = f"""
reading, writing = os.pipe()
if not os.fork():
    memory = bytearray(b'x' * {2 * LIMIT})
    os.write(writing, memory[:1])
    time.sleep(60)
os.read(reading, 1)
"""


def _excess_of(program: str, limit: int = LIMIT) -> str:
    """What the judge says of a process that runs a program and waits."""
    words = [sys.executable, "-c", f"import os, time\n{program}\nprint(flush=True)\ntime.sleep(60)"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            return weighing._excess(weighing.descendants(process.pid), limit)
        finally:
            for pid in reversed(weighing.descendants(process.pid)):
                os.kill(pid, 9)


@pytest.mark.parametrize("program", [_FILE, _CHILD], ids=["file", "child"])
def test_memory_in_files_and_in_children_counts(program: str) -> None:
    assert " GiB, more than " in _excess_of(program)
    assert _excess_of(program, 8 * LIMIT) == ""
    assert _excess_of("") == ""


def test_a_short_call_is_not_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    look = weighing.watch_load(os.getpid(), 1)
    assert look() == ""
    monkeypatch.setattr(weighing, "_EVERY", 0.0)
    assert "more than" in look()
    assert weighing.watch_load(os.getpid(), 0)() == ""


def test_the_operations_of_a_call_are_told() -> None:
    x = torch.ones(3)
    assert record(lambda: torch.softmax(x * 2, 0)) == Operations(["aten::_softmax", "aten::mul"])
    assert record(lambda: getattr(x, "no such attribute")) == Operations()
    with pytest.raises(ValueError, match="too many or too long"):
        Operations(["a" * 1000]).require()


PROGRAM = """
import sys
from opassay.properties.places import landlock, seccomp
landlock.version = lambda: 4
landlock.restrict = lambda readable, writable, tcp: 4
from opassay.reports.cli.main import main
assert "torch" not in sys.modules
sys.exit(main(["judge", "mine.py:kernel", "--spec", "mine.py:reference", "-k", "FWD:given", "--json", *sys.argv[1:]]))
"""
FILE = """
import torch
def reference(x):
    return torch.relu(x)
def kernel(x):
    return torch.clamp(x, min=0)
def inputs():
    return (torch.ones(3, 4),)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("words", "code"), [((), 0), (("--isolation", "required"), 2)])
def test_a_kernel_that_cannot_isolate_is_told_or_refused(words: tuple[str, ...], code: int, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    command = [sys.executable, "-c", PROGRAM, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    reply = json.loads(done.stdout)
    if code:
        assert reply["error"] == "isolation=required: got landlock-4; the candidate may reach signals"
        return
    assert reply["isolation"] == "landlock-4"
    assert "signals" not in reply["isolated"]
