"""A copy of the template of `tests.warm_processes` is to a candidate what a new process is."""

from __future__ import annotations

from pathlib import Path

import pytest

from opassay.properties.candidates.host import quarters
from opassay.properties.candidates.judge_files import judge_file
from opassay.properties.candidates.question_plan import QuestionPlan
from opassay.properties.places.process import Process

PAIR = """
import os, signal, sys
import torch

FOLDER = os.path.dirname(os.path.abspath(__file__))

def spec(x):
    return x.exp()

def candidate(x):
    links = []
    for handle in range(64):
        try:
            links.append(os.readlink(f"/proc/self/fd/{handle}"))
        except OSError:
            pass
    facts = [
        os.getcwd() == FOLDER, sys.argv[1:], os.getsid(0) == os.getpgid(0), links[:1], torch.get_num_threads(),
        [link for link in links if link.startswith("socket:")],
        [name for name in sys.modules if name.split(".")[0] in ("pytest", "_pytest", "tests")],
        str(signal.getsignal(signal.SIGINT)), str(signal.getsignal(signal.SIGPIPE)),
        len(os.environ), sum(map(len, os.environ)),
    ]
    raise RuntimeError(str(facts))

def get_inputs():
    return [torch.randn(4)]
"""


def test_a_copy_is_as_a_new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pair.py"
    path.write_text(PAIR)
    monkeypatch.chdir(tmp_path)

    def answer() -> str:
        plan = QuestionPlan(("FWD:given",))
        judgement = judge_file(f"{path}:candidate", f"{path}:spec", contract="torch", plan=plan)
        return judgement.causes[0].text

    copied = answer()
    assert "[True, " in copied
    monkeypatch.setattr(quarters, "Process", Process)
    assert copied == answer()
