"""Sweeps as items of a campaign: what becomes of their results are the logs of `python -m workshop sweep`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from opassay.reports.cli.campaign.work import WorkError
from opassay.reports.progress import Teller, make_console
from tests.workshop.calling import workshop
from workshop.commands.sweep_work import SweepWork
from workshop.sweeps.program import run_item
from workshop.sweeps.reading import read_log, swept

pytestmark = pytest.mark.slow


def test_shards_become_the_logs_of_a_sweep(tmp_path: Path) -> None:
    teller = Teller(make_console(sys.stdout), 1, live=False)
    work = SweepWork(["reciprocal"], ["bfloat16"], "", tmp_path, teller)
    (item,) = work.items()
    answer = {"result": run_item(item.question["item"])}
    assert work.take(item, json.loads(json.dumps(answer)), []) is False
    assert work.finish("") == []
    (row,) = swept([read_log(tmp_path / "reciprocal-bfloat16-cpu.jsonl")], {})
    assert (row.complete, row.inputs) == (True, 65536)
    again = SweepWork(["reciprocal"], ["bfloat16"], "", tmp_path, teller)
    with pytest.raises(WorkError, match="overflow"):
        again.take(item, {"error": "RuntimeError: overflow"}, [])
    with pytest.raises(WorkError, match="no shard"):
        again.take(item, {"result": {"shard": {"shard": 0}}}, [])
    assert again.finish("") == [(4, "1 shards of sweeps were not measured")]


def test_a_campaign_with_workers_writes_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed", reason="a campaign needs opassay[cluster]")
    words = ["campaign", "--no-cells", "--sweep=exp", "--sweep-dtype=float16", "-n", "1"]
    words += ["--sweep-into", str(tmp_path / "sweeps"), "--log", str(tmp_path / "campaign.jsonl")]
    assert workshop(words) == 0
    assert "exp" in capsys.readouterr().out
    (row,) = swept([read_log(tmp_path / "sweeps" / "exp-float16-cpu.jsonl")], {})
    assert (row.complete, row.inputs) == (True, 65536)
    assert not (tmp_path / "opassay-report").exists()


def test_what_cannot_be_swept_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed", reason="a campaign needs opassay[cluster]")
    book = ["--log", str(tmp_path / "campaign.jsonl")]
    assert workshop(["campaign", "--no-cells", "--sweep=expo", *book]) == 2
    assert "unknown function: got 'expo', need one of all, sqrt" in capsys.readouterr().err
    assert workshop(["campaign", "--no-cells", *book]) == 5
    assert "nothing selected: no cell and no other work" in capsys.readouterr().err
