"""The two commands that hold torch, and implementations that are known to be right or wrong, by bounds."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def _run(script: str, *words: str) -> tuple[int, str]:
    command = [sys.executable, str(BENCHMARKS / script), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


def test_torch_is_held_by_its_own_bounds(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    words = ("sqrt", "matmul", "--group", "examples", "collection", "--dtype", "float32", "--share", "1/2")
    code, text = _run("torch_against_itself.py", *words, "--to", str(rows))
    assert code == 0, text
    judged = [json.loads(line) for line in rows.read_text().splitlines()]
    assert sum(row["judged"] for row in judged) > 10_000
    assert {row["what"] for row in judged} >= {"value 0", "gradient 0", "gradient 1"}
    assert _run("torch_against_itself.py", "--of", str(rows))[0] == 0


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("itself.looking")


def test_what_is_not_what_the_text_says_is_listed_with_its_float64(looking: Any) -> None:
    calls = []

    def drifting(x: Tensor) -> Tensor:
        calls.append(x)
        return x + 1e-3 * len(calls)

    source = looking.Source("drifting", "planted", lambda dtype: (drifting, torch.ones(5, dtype=dtype)), ("normal",))
    (row, *_) = looking.looked_at(source, torch.float32)
    assert (row.judged, row.outside) == (5, 5)
    assert row.worst > 1e3
    assert abs(row.exact - row.computed) > row.width


def test_right_implementations_are_right_in_float64() -> None:
    code, text = _run("judged_implementations.py", "--check")
    assert code == 0, text


def test_implementations_are_judged_on_a_share(tmp_path: Path) -> None:
    words = ("normalize", "--dtype", "float32", "--share", "1/3", "--to", str(tmp_path / "rows"))
    code, text = _run("judged_implementations.py", *words)
    assert code == 0, text
    judged = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert {(row["right"], row["verdict"]) for row in judged} == {(True, "accepted"), (False, "rejected")}
