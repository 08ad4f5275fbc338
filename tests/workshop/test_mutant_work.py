"""Mutants as items of a campaign: what becomes of their results is the log of `python -m workshop mutate`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from opassay.reports.cli.campaign.work import WorkError
from opassay.reports.progress import Teller, make_console
from tests.workshop.calling import workshop
from workshop.commands.mutant_work import MutantWork
from workshop.mutation import campaign as mutation
from workshop.mutation.campaign import some_of_a_group

pytestmark = pytest.mark.slow


def _with_stub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Teller]:
    """Where the log of mutants goes, and who tells of them; they are tried by a stub in place of the program."""
    stub = Path(__file__).with_name("stub_mutants.py")
    monkeypatch.setattr(mutation, "PROGRAM", (sys.executable, str(stub)))
    return folder / "mutants.jsonl", Teller(make_console(sys.stdout), 1, live=False)


def test_mutants_become_the_log_of_opassay_mutate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, teller = _with_stub(tmp_path, monkeypatch)
    work = MutantWork(["trace"], 2, False, path, teller)
    (item,) = work.items()
    assert item.question["runner"] == f"{some_of_a_group.__module__}:some_of_a_group"
    try:
        answer = {"result": some_of_a_group(item.question["item"])}
    finally:
        mutation.release()
    assert work.take(item, json.loads(json.dumps(answer)), []) is False
    assert work.worst().startswith("mutants, each by one module: 1 killed, ")
    ((code, low),) = work.finish("")
    assert (code, low[:14]) == (1, "mutation score")
    capsys.readouterr()
    assert workshop(["mutate", "--op", "trace", "--most", "2", "--log", str(path), "--table"]) == 1
    assert capsys.readouterr().out.split() == " ".join(work.lines).split()
    again = MutantWork(["trace"], 2, False, path, teller)
    with pytest.raises(WorkError, match="overflow"):
        again.take(item, {"error": "RuntimeError: overflow"}, [])
    with pytest.raises(WorkError, match="no result of mutants"):
        again.take(item, {"result": {"records": [{}]}}, [])
    assert again.finish("") == [(4, "1 items of mutants were not asked")]


def test_mutants_of_the_graph_are_found_where_the_ops_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, teller = _with_stub(tmp_path, monkeypatch)
    work = MutantWork(["trace"], 11, True, path, teller)
    assert [item.name for item in work.items()] == ["graph 1/2 of linalg", "graph 2/2 of linalg"]
    try:
        for item in work.items():
            work.take(item, json.loads(json.dumps({"result": some_of_a_group(item.question["item"])})), [])
    finally:
        mutation.release()
    ((code, low),) = work.finish("")
    assert (code, low[:14]) == (1, "mutation score")
    assert "linalg" in " ".join(work.lines)
    capsys.readouterr()
    assert workshop(["mutate", "--op", "trace", "--most", "11", "--graph", "--log", str(path), "--table"]) == 1
    assert capsys.readouterr().out.split() == " ".join(work.lines).split()
