"""Processes that judge on a GPU: how they are started and copied, and what becomes of one that has lost its GPU."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest
import torch

from opassay.oracles import process
from opassay.oracles.verdicts.data import as_data
from opassay.oracles.verdicts.verdict import Cell, Code, Outcome, Verdict
from opassay.properties.candidates.host import copying
from opassay.properties.engine.environment import environment
from opassay.properties.places.pool import Answered, Pool, PoolTerms, Started
from opassay.properties.places.process import Process
from opassay.properties.programs import worker

#: A worker whose first cell costs it its GPU.
LOSING = """
from opassay.properties.places.serving import serve
serve(lambda hello: {}, lambda question: {"verdict": question["cell"], "ends": True})
"""


def test_a_worker_that_has_lost_its_gpu_judges_no_other_cell() -> None:
    cells = [Cell("trace", code, "float32", "cuda", "opassay") for code in ("FWD", "VJP", "JVP")]
    terms = PoolTerms({}, ("lockstep", "host", None), (sys.executable, "-c", LOSING))
    pool = Pool(cells, terms, lambda cell, data: Verdict(cell, Outcome.VERIFIED, Code.HELD, "held"))
    events = [event for event in pool.events() if isinstance(event, Started | Answered)]
    assert [type(event) for event in events] == [Started, Answered] * 3
    assert [event.worker for event in events if isinstance(event, Started)] == [0, 1, 2]


def test_a_worker_says_that_it_has_lost_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = Verdict(Cell("trace", "FWD", "float32", "cpu", "opassay"), Outcome.VERIFIED, Code.HELD, "held")
    monkeypatch.setattr(worker, "_time_verdict", lambda cell, run: verdict)
    question = {"cell": list(as_data(verdict)["cell"].values()), "settings": {}}

    def refuse() -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    assert not worker._answer(question)["ends"]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert not worker._answer(question)["ends"]
    monkeypatch.setattr(torch.cuda, "synchronize", refuse)
    assert worker._answer(question)["ends"]


def test_a_process_in_which_cuda_has_started_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it was copied"))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(copying, "_has_one_thread", lambda: True)
    with pytest.raises(RuntimeError, match="need one before: a copy could use no GPU"):
        process.fork()
    assert copying.process_copied({}) is None


def test_cuda_is_looked_for_without_a_start_and_multiplies_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("PYTORCH_NVML_BASED_CUDA_CHECK", "CUBLAS_WORKSPACE_CONFIG")
    program = f"""
import os
from opassay.properties.places.serving import serve
serve(lambda hello: {{name: os.environ[name] for name in {names}}}, lambda question: {{}})
"""
    one = Process({}, command=(sys.executable, "-c", program))
    try:
        assert one.answer(until=float("inf"))["ready"] == {names[0]: "1", names[1]: ":4096:8"}
    finally:
        one.close()
    gpu = SimpleNamespace(name="a GPU", major=9, minor=0, total_memory=2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    monkeypatch.setenv(names[1], ":16:8")
    assert environment()["cublas workspace"] == ":16:8"
