"""Ranks in processes: started here, started by torchrun, or not there at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opassay import Cell, Outcome, Settings, run_cell
from opassay.properties import team, worlds
from opassay.properties.worlds import World

OPS = ("sync_batch_norm", "broadcast", "reduce_add_coalesced", "gather", "scatter")
SHORT = Settings("brief", max_examples=2)


@pytest.fixture(scope="module")
def gloo() -> Iterator[World]:
    world = World("gloo", "host", 2)
    worlds.enter(world)
    try:
        yield world
    finally:
        team.disband()
        worlds.enter(World())


@pytest.mark.parametrize("op", OPS)
def test_ranks_in_processes_come_to_the_verdict(gloo: World, op: str) -> None:
    verdict = run_cell(Cell(op, "COMM", "float32", "cpu", "opassay"), SHORT)
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason
    assert "on 2 ranks of gloo" in verdict.reason


def test_other_cells_do_not_see_the_group(gloo: World) -> None:
    run_cell(Cell("broadcast", "COMM", "float32", "cpu", "opassay"), SHORT)
    verdict = run_cell(Cell("sync_batch_norm", "FWD", "float32", "cpu", "opassay"), SHORT)
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason


def test_a_team_disbands_and_comes_together_again(gloo: World) -> None:
    run_cell(Cell("broadcast", "COMM", "float32", "cpu", "opassay"), SHORT)
    worlds.enter(World())
    assert worlds.run(2, lambda comm: comm.rank) == [0, 1]  # in lockstep again
    team.disband()
    worlds.enter(gloo)
    verdict = run_cell(Cell("gather", "COMM", "float32", "cpu", "opassay"), SHORT)
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason


def test_a_team_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    program = (
        "from opassay import Cell, Settings, run_cell\n"
        "from opassay.properties import worlds, team\n"
        "worlds.enter(worlds.World('gloo', 'host', 2))\n"
        "cell = Cell('scatter', 'COMM', 'float32', 'cpu', 'opassay')\n"
        "print(run_cell(cell, Settings('brief', max_examples=1)).outcome)\n"
        "print(*(p.pid for p in team._LOCAL._processes))\n"
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
