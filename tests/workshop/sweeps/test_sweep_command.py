"""`python -m workshop sweep`: what it measures, how it goes on after an interrupt, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.workshop.calling import workshop

pytestmark = pytest.mark.slow


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_sweep_measures_once_and_prints_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sweep", "exp", "reciprocal", "--dtype", "bfloat16", "--into", str(tmp_path)]
    assert workshop(arguments) == 0
    out = capsys.readouterr()
    assert "1/2  exp bfloat16 shard 0" in out.err
    exp, other = (
        next(line for line in out.out.splitlines() if line.startswith(name)) for name in ("exp ", "reciprocal ")
    )
    assert "all 65,536" in exp
    assert exp.endswith("holds")
    assert "none" in other, "no contract names it"
    before = _lines(tmp_path / "exp-bfloat16-cpu.jsonl")
    assert workshop([*arguments, "--markdown"]) == 0
    assert "| exp | bfloat16 | cpu | all 65,536 |" in capsys.readouterr().out
    assert _lines(tmp_path / "exp-bfloat16-cpu.jsonl") == before


def test_a_contract_that_is_too_tight_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert workshop(["sweep", "exp", "--dtype", "float16", "--into", str(tmp_path)]) == 0
    path = tmp_path / "exp-float16-cpu.jsonl"
    heading, line = _lines(path)
    shard = json.loads(line)
    shard["normal"]["ulps"] = 0.7
    path.write_text(f"{heading}\n{json.dumps(shard)}\n")
    capsys.readouterr()
    assert workshop(["sweep", "exp", "--dtype", "float16", "--into", str(tmp_path), "--table"]) == 2
    out = capsys.readouterr().out
    assert "too tight" in out
    assert "exp in float16 on cpu: the contract allows 0.500122 ulp, and argument 0x" in out


def test_a_sweep_of_another_machine_is_not_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert workshop(["sweep", "exp", "--dtype", "float16", "--into", str(tmp_path)]) == 0
    path = tmp_path / "exp-float16-cpu.jsonl"
    heading = json.loads(_lines(path)[0])
    heading["environment"]["cpu"] = "another"
    path.write_text(json.dumps(heading) + "\n")
    before = path.read_text()
    capsys.readouterr()
    assert workshop(["sweep", "exp", "--dtype", "float16", "--into", str(tmp_path)]) == 2
    assert "was measured elsewhere, cpu: 'another'" in capsys.readouterr().err
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["expo"], 2, "unknown function: got 'expo', need one of sqrt, exp"),
        (["exp", "--shards", "3"], 2, "--shards: got '3', need FIRST:END"),
        (["exp", "--shards", "4:4"], 2, "--shards: got '4:4', need FIRST:END"),
        (["exp", "--table"], 5, "no log of these functions in"),
    ],
)
def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str) -> None:
    assert workshop(["sweep", *words, "--dtype", "float32", "--into", str(tmp_path / "new")]) == code
    assert message in capsys.readouterr().err


def test_a_foreign_file_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "exp-float16-cpu.jsonl"
    path.write_text("mine\n")
    assert workshop(["sweep", "exp", "--dtype", "float16", "--into", str(tmp_path)]) == 2
    assert "is no log of opassay sweep" in capsys.readouterr().err
    assert path.read_text() == "mine\n"


def test_an_interrupted_sweep_keeps_its_shards_and_goes_on(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "workshop", "sweep", "exp", "--dtype", "float64", "--into", str(tmp_path), "-n", "2"]
    path = tmp_path / "exp-float64-cpu.jsonl"
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sweep:
        while not path.exists() or len(_lines(path)) < 3:
            assert sweep.poll() is None
            time.sleep(0.02)
        os.kill(sweep.pid, signal.SIGINT)
        sweep.communicate()
    assert sweep.returncode == 130
    lines = _lines(path)
    assert len(lines) >= 3
    path.write_text(path.read_text() + '{"function": "ex')  # what a kill would leave behind
    done = len(lines) - 1
    assert workshop(["sweep", "exp", "--dtype", "float64", "--into", str(tmp_path), "--shards", f"0:{done + 1}"]) == 0
    after = _lines(path)
    assert after[: len(lines)] == lines
    shards = [json.loads(line)["shard"] for line in after[1:]]
    assert sorted(shards) == sorted(set(shards))
