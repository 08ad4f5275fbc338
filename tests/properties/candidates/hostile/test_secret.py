"""The secret is drawn when the candidate has been loaded: nothing that it saw until then follows from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opassay.properties.candidates.judge_draws import Draws

from .attack import PRELUDE, SPECS

#: Writes down all that a candidate may look at while it is imported: its process, that of its judge, all frames, all
#: objects of Python.
RECORDING = """
import json
def frames():
    frame = sys._getframe()
    while frame is not None:
        yield from map(repr, frame.f_locals.values())
        frame = frame.f_back
def texts():
    yield from frames()
    yield from map(repr, (sys.argv, sys.orig_argv, sys.path, sorted(sys.modules), dict(os.environ)))
    for name in ("cmdline", "environ", "status", "stat", "maps", "limits"):
        for pid in ("self", os.getppid()):
            yield attempt(lambda: open(f"/proc/{pid}/{name}", "rb").read().decode(errors="replace")) or ""
    for each in gc.get_objects():
        if type(each) in (dict, list, tuple, set) or type(each).__module__.startswith("opassay"):
            yield attempt(lambda: repr(each)) or ""
with open(os.path.join(HERE, "record"), "w", errors="replace") as file:
    file.writelines(texts())
def candidate(x):
    return x * 2
"""
#: The judge, which notes whether the record was whole when 128 bits were drawn.
JUDGING = """
import json, os, sys, types
from opassay.properties.candidates import judge_draws
from opassay.properties.candidates.host.quarters import Confinement
from opassay.properties.candidates.judge_files import judge_file
from opassay.properties.candidates.question_plan import QuestionPlan
sizes = []
def urandom(count):
    if count == 16:
        sizes.append(os.path.exists("record") and os.path.getsize("record"))
    return os.urandom(count)
judge_draws.os = types.SimpleNamespace(urandom=urandom)
of = judge_file(
    os.path.abspath("candidate.py"), os.path.abspath("spec.py"), contract="torch", seed=None,
    confinement=Confinement(alone=True, isolation="none"), plan=QuestionPlan(["FWD:given", "FWD:seeds"]),
)
print(json.dumps({"verdict": of.verdict, "digits": of.assignment.draws.digits, "sizes": sizes}))
"""


@pytest.mark.slow
def test_nothing_at_the_import_follows_from_the_secret(tmp_path: Path) -> None:
    (tmp_path / "spec.py").write_text("import torch\n" + SPECS["double"])
    (tmp_path / "candidate.py").write_text(PRELUDE + RECORDING)
    done = subprocess.run(
        [sys.executable, "-P", "-c", JUDGING], cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    reply = json.loads(done.stdout or f'"{done.stderr[-800:]}"')
    record = (tmp_path / "record").read_text(errors="replace")
    assert reply["verdict"] == "accepted", reply
    assert reply["sizes"] == [(tmp_path / "record").stat().st_size], "drawn once, and when all had been written down"
    draws = Draws.of(reply["digits"])
    assert str(draws.seed) in record, "what it is told is found"
    words = [draws.secret, *(str(draws.inputs(number)) for number in range(4))]
    words += [str(word) for word in draws.generator("GIVEN").bit_generator.state["state"].values()]
    assert [each for each in words if each in record] == []
