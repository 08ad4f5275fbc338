"""Ranks in processes: started here, started by torchrun, or not there at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opassay import Cell, Outcome, Settings, Verdict, run_cell
from opassay.properties import worlds
from opassay.properties.catalog.over_places import run_on_ranks
from opassay.properties.places import gathering
from opassay.properties.worlds import World

pytestmark = pytest.mark.slow

OPS = ("sync_batch_norm", "broadcast", "reduce_add_coalesced", "gather", "scatter")
SHORT = Settings("brief", max_examples=2)
#: A module that every rank finds: broadcasts in which a rank does something else.
FAULTY = """
import dataclasses, os, signal, sys, time
import torch
from opassay.properties.catalog.loading import load_op

WHOLE = load_op("broadcast")
PEER = sys.argv[0].endswith("rank_program.py")

def op(**changes):
    return WHOLE.changed(ranks=dataclasses.replace(WHOLE.production.ranks, **changes), devices=None)

def on_rank_1(fault, late=False):
    def call(comm, *args):
        if comm.rank == 1 and not late:
            fault()
        found = WHOLE.production.ranks.call(comm, *args)
        if comm.rank == 1 and late:
            fault()
        return found
    return op(call=call)

def absent(here):
    def homes(args):
        if here:
            raise LookupError("planted")
        return WHOLE.production.ranks.homes(args)
    return op(homes=homes)

def refuse():
    raise ArithmeticError("planted")

def hang():
    print("hangs", flush=True)
    time.sleep(600)

def once_on_the_default_group(comm, *args, times=[]):
    times.append(0)
    if comm.rank == 1 and len(times) == 1:
        refuse()
    torch.distributed.all_reduce(torch.ones(1))
    return WHOLE.production.ranks.call(comm, *args)

ONCE = op(call=once_on_the_default_group)
RAISES, KILLED = on_rank_1(refuse), on_rank_1(lambda: os.kill(os.getpid(), signal.SIGKILL))
HANGS, HANGS_LATE = on_rank_1(hang), on_rank_1(hang, late=True)
PEERS_LEAVE, RANK_0_LEAVES = absent(PEER), absent(not PEER)
"""


@pytest.fixture(scope="module")
def gloo() -> Iterator[World]:
    world = World("gloo", "host", 2)
    worlds.enter(world)
    try:
        yield world
    finally:
        worlds.leave()
        worlds.enter(World())


@pytest.mark.parametrize("op", OPS)
def test_ranks_in_processes_come_to_the_verdict(gloo: World, op: str) -> None:
    verdict = run_cell(Cell(op, "COMM", "float32", "cpu", "opassay"), SHORT)
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason
    assert "on 2 ranks of gloo" in verdict.reason


@pytest.mark.parametrize("subject", ["torch", "functional"])
def test_torch_s_own_collectives_are_judged_on_process_groups(gloo: World, subject: str) -> None:
    cell = Cell("gather", "COMM", "float64", "cpu", subject)
    verdict = run_cell(cell, SHORT)
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason
    worlds.enter(World())
    in_lockstep = run_cell(cell, SHORT)
    worlds.enter(gloo)
    assert in_lockstep.outcome == Outcome.NOT_RUN
    assert "--comm gloo" in in_lockstep.reason


def test_other_cells_do_not_see_the_group(gloo: World) -> None:
    run_cell(Cell("broadcast", "COMM", "float32", "cpu", "opassay"), SHORT)
    verdict = run_cell(Cell("sync_batch_norm", "FWD", "float32", "cpu", "opassay"), SHORT)
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason


def test_a_team_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    program = (
        "from opassay import Cell, Settings, run_cell\n"
        "from opassay.properties import worlds\n"
        "from opassay.properties.places import gathering\n"
        "worlds.enter(worlds.World('gloo', 'host', 2))\n"
        "cell = Cell('scatter', 'COMM', 'float32', 'cpu', 'opassay')\n"
        "print(run_cell(cell, Settings('brief', max_examples=1)).outcome)\n"
        "print(*(p.pid for p in worlds.helper('ranks')._processes))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    outcome, pid = done.stdout.split()
    assert outcome == "verified"
    assert not Path(f"/proc/{pid}").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The environment's path, with the module on it."""
    folder = tmp_path_factory.mktemp("faulty")
    (folder / "faulty.py").write_text(FAULTY)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield os.environ["PYTHONPATH"]


@pytest.fixture(scope="module")
def three(faulty: str) -> Iterator[World]:
    world = World("gloo", "host", 3)
    worlds.leave()
    gathering.gather(world, deadline=5.0)  # a rank imports what a first program needs faster than that
    try:
        yield world
    finally:
        worlds.leave()


def _judge(op: str) -> Verdict:
    return run_cell(Cell(op, "COMM", "float32", "cpu", "opassay"), SHORT)


def _says(verdict: Verdict) -> str:
    return f"{verdict.reason} {verdict.failure and verdict.failure.message}"


def test_a_team_disbands_and_comes_together_again(gloo: World, request: pytest.FixtureRequest) -> None:
    _judge("broadcast")
    worlds.enter(World())
    assert run_on_ranks(2, lambda comm: comm.rank) == [0, 1]  # in lockstep again
    worlds.leave()
    three = request.getfixturevalue("three")  # stays for the tests below
    assert worlds.helper("ranks") is not None
    worlds.enter(three)  # without peers, which a cell finds again
    verdict = _judge("gather")
    assert verdict.outcome == Outcome.VERIFIED, _says(verdict)
    assert "on 3 ranks of gloo" in verdict.reason


def test_a_rank_that_raises_is_named_and_harms_no_other_cell(three: World) -> None:
    gathering.gather(three)
    start = time.monotonic()
    verdict = _judge("faulty:RAISES")
    assert time.monotonic() - start < 2.0
    assert verdict.outcome == Outcome.FAIL, verdict.reason
    assert "rank 1 raised ArithmeticError: planted" in _says(verdict)
    again = _judge("broadcast")
    assert again.outcome == Outcome.VERIFIED, _says(again)


def test_a_group_that_ranks_have_lost_is_the_default_one_no_more(three: World) -> None:
    verdict = _judge("faulty:ONCE")  # torch's own collectives hear of nothing before the deadline
    assert verdict.outcome == Outcome.UNSTABLE, verdict.reason
    assert "repeated 0 of 3 times" in verdict.reason
    again = _judge("broadcast")
    assert again.outcome == Outcome.VERIFIED, _says(again)


@pytest.mark.parametrize(
    ("op", "says"),
    [("PEERS_LEAVE", "rank 1 has left the case LookupError: planted; rank 2 has left"), ("RANK_0_LEAVES", "planted")],
)
def test_a_rank_that_leaves_a_case_is_waited_for_by_none(three: World, op: str, says: str) -> None:
    gathering.gather(three)
    start = time.monotonic()
    verdict = _judge(f"faulty:{op}")
    assert time.monotonic() - start < 2.0
    assert verdict.outcome != Outcome.VERIFIED
    assert says in _says(verdict)
    again = _judge("broadcast")
    assert again.outcome == Outcome.VERIFIED, _says(again)


def test_ranks_come_together_again_after_one_was_killed(three: World) -> None:
    gathering.gather(three)
    local = worlds.helper("ranks")
    assert local is not None
    processes, folder = list(local._processes), Path(local._folder.name)
    verdict = _judge("faulty:KILLED")
    assert verdict.outcome == Outcome.ERROR, verdict.reason
    again = _judge("broadcast")
    assert again.outcome == Outcome.VERIFIED, _says(again)
    assert worlds.helper("ranks") is not local
    assert [not process.ended for process in processes] == [False, False]
    assert not folder.exists()


def test_an_interrupt_ends_the_ranks(three: World) -> None:
    gathering.gather(three)
    local = worlds.helper("ranks")
    assert local is not None
    processes, folder = list(local._processes), Path(local._folder.name)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        _judge("faulty:HANGS_LATE")  # rank 0 waits to be told what this gave
    start = time.monotonic()
    worlds.leave()
    assert time.monotonic() - start < 2.0
    assert [not process.ended for process in processes] == [False, False]
    assert not folder.exists()


def test_ranks_that_cannot_start_leave_nothing(faulty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worlds.leave()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="ended before it came"):
        gathering.gather(World("gloo", "host", 2))
    assert worlds.helper("ranks") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("op", "number"), [("HANGS", signal.SIGINT), ("", signal.SIGKILL)])
def test_ranks_end_with_the_process_that_began_them(
    faulty: str, tmp_path: Path, op: str, number: signal.Signals
) -> None:
    program = (
        "import time\n"
        "from opassay import Cell, Settings, run_cell\n"
        "from opassay.properties import worlds\n"
        "from opassay.properties.places import gathering\n"
        "worlds.enter(worlds.World('gloo', 'host', 2))\n"
        "gathering.gather(worlds.here())\n"
        "print(worlds.helper('ranks')._processes[0].pid, flush=True)\n"
        f"run_cell(Cell('faulty:{op}', 'COMM', 'float32', 'cpu', 'opassay'), Settings('brief', max_examples=1))\n"
    )
    if not op:
        program = program.replace("run_cell(Cell", "print('hangs', flush=True) or time.sleep(600), (Cell")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        pid = process.stdout.readline().strip()
        assert process.stdout.readline() == "hangs\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=5)  # until the last process lets go of the pipes
    if number == signal.SIGINT:
        assert not Path(f"/proc/{pid}").exists()
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert list(tmp_path.iterdir()) == []
    else:
        assert errors == ""  # the other rank ends without a word


def _record(folder: Path) -> Any:
    return json.loads((folder / "run.json").read_text())


def test_torchrun_writes_one_report(tmp_path: Path) -> None:
    words = ["--nproc-per-node", "2", "-m", "opassay", "run", "--op", "gather", "--property", "COMM", "--comm", "gloo"]
    words += [
        "--property",
        "FWD",
        "--dtype",
        "float32",
        "--max-examples",
        "2",
        "--report-dir",
        str(tmp_path / "report"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = _record(tmp_path / "report")
    assert [verdict["outcome"] for verdict in record["verdicts"]] == ["verified", "verified"]
    assert "on 2 ranks of gloo" in record["verdicts"][1]["reason"]
    assert done.stdout.count("2 verified") == 3, done.stdout  # a line of progress, and the end


def _opassay(*words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "opassay", "run", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--fabric", "cuda"], "0 CUDA devices, needs 2"),
        (["--fabric", "folded"], "0 CUDA devices, needs 1"),
        (["--comm", "nccl", "--ranks", "4"], "nccl moves tensors of CUDA devices"),
    ],
)
def test_what_is_not_there_is_not_run(tmp_path: Path, words: list[str], says: str) -> None:
    folder = tmp_path / "report"
    done = _opassay(
        *words, "--op", "gather", "--property", "COMM", "--dtype", "float32", "--report-dir", str(folder), "-n0"
    )
    assert done.returncode == 4, done.stdout + done.stderr
    (verdict,) = _record(folder)["verdicts"]
    assert (verdict["outcome"], says in verdict["reason"]) == ("not run", True), verdict["reason"]


def test_lockstep_under_torchrun_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    done = _opassay("--op", "gather", "--report-dir", str(tmp_path / "report"))
    assert done.returncode == 2
    assert "--comm" in done.stderr
    assert not (tmp_path / "report").exists()
