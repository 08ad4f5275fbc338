"""`opassay campaign`: a real scheduler and workers, of which some are killed, and the log from which it goes on."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opassay.oracles.verdicts.data import as_data
from opassay.oracles.verdicts.verdict import Cell, Failure, Measure, Outcome, Verdict
from opassay.properties.campaign.bench import ItemLost
from opassay.properties.campaign.performing import perform, release
from opassay.properties.engine.plan import Selection
from opassay.properties.places.pool import PoolTerms
from opassay.reports import record
from opassay.reports.cli.campaign.cells import CellWork, join_verdicts, seeds_of
from opassay.reports.cli.campaign.work import WorkError
from opassay.reports.cli.main import main
from opassay.reports.cli.session import Request
from opassay.reports.collect import Account
from opassay.reports.progress import Teller, make_console
from opassay.reports.store import journal, log
from tests.reports.conftest import HERE, command_line, failed, verdict

pytestmark = pytest.mark.slow

STUB = [sys.executable, str(HERE / "stub_suite.py")]
PLAN = ["layer_norm", "softmax", "--dtype=float32", "--dtype=float64", "--dtype=bfloat16"]
PLAN += [f"--property={name}" for name in ("FWD", "VJP", "LAW")]
CELLS = 18


def _judge(folder: Path) -> list[Any]:
    """What a record says, without what differs from one time to the next."""
    run = record.load(folder / "run.json")
    results = [as_data(replace(item, seconds=0.0, timing=())) for item in run.verdicts]  # in data NaN equals NaN
    return [*results, run.exit_code, run.exit_reasons, run.notes, run.environment, run.plan_digest]


def _done(log: Path) -> int:
    return log.read_text().count('{"event":"done"') if log.exists() else 0


def _wait(log: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while _done(log) < count:
        assert process.poll() is None, "the campaign ended before anything was killed"
        assert time.monotonic() < until, "nothing is done"
        time.sleep(0.01)


def _workers(owner: int) -> list[int]:
    """Processes of Dask below a process that have a process of their own, which judges."""
    parents = _parents()
    return [parent for parent in _parents_of_judges(parents) if parents.get(parent) == owner]


def _parents_of_judges(parents: dict[int, int]) -> list[int]:
    return [parent for pid, parent in parents.items() if "stub_suite.py" in _command(pid)]


def _parents() -> dict[int, int]:
    """The parent of every process."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return parents


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def test_killed_workers_and_a_killed_owner_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed", reason="a campaign needs opassay[cluster]")
    log, words = tmp_path / "campaign.jsonl", ["campaign", *PLAN, "-n", "2"]
    subprocess.run(command_line("run", *PLAN, "--report-dir=alone"), cwd=tmp_path, capture_output=True, check=False)
    process = subprocess.Popen(command_line(*words), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(log, 3, process)
        workers = _workers(process.pid)
        assert workers
        os.kill(workers[0], signal.SIGKILL)
        assert main(["campaign", "softmax", f"--log={log}"]) == 2
        assert "is in use by another campaign" in capsys.readouterr().err
        _wait(log, 8, process)
    finally:
        process.kill()
        process.wait()
    before = _done(log)
    assert before < CELLS, "nothing is left for the second session"
    with log.open("a") as file:
        file.write('{"event":"do')
    done = subprocess.run(command_line(*words), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{before} of {CELLS} items are in campaign.jsonl already" in done.stdout
    assert _done(log) == CELLS, "no item was asked twice"
    assert _judge(tmp_path / "opassay-report") == _judge(tmp_path / "alone")
    assert len(list((tmp_path / "opassay-report/cases").glob("*.json"))) == 6


#: A worker's program: ORD3 of softmax kills its process, that of trace the worker of Dask above it.
KILLER = """
import os, signal
from opassay.oracles.verdicts.data import as_data
from opassay.oracles.verdicts.verdict import Cell, Code, Outcome, Verdict
from opassay.properties.places.serving import serve

def answer(question):
    cell = Cell(*question["cell"])
    if cell.property == "ORD3":
        open(f"{STARTS}.{cell.op}", "a").write("x")
        os.kill(os.getpid() if cell.op == "softmax" else os.getppid(), signal.SIGKILL)
        signal.pause()
    return {"verdict": as_data(Verdict(cell, Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, "none"))}

serve(lambda hello: {"torch": "none"}, answer)
"""


def _killer(folder: Path) -> list[str]:
    killer = folder / "killer.py"
    killer.write_text(f"STARTS = {str(folder / 'starts')!r}\n{KILLER}")
    return [sys.executable, str(killer)]


def _find(folder: Path) -> dict[str, tuple[str, str]]:
    verdicts = record.load(folder / "opassay-report/run.json").verdicts
    return {item.cell.property: (str(item.outcome), item.reason) for item in verdicts}


def test_an_item_that_kills_its_workers_is_a_crash_and_no_other_is(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="a campaign needs opassay[cluster]")
    # One death is enough here, because it takes seconds to start another worker.
    program = (
        "import sys\nfrom opassay.reports.cli.campaign import cluster\nfrom opassay.reports.cli.main import main\n"
        f"cluster.DEATHS = 1\nsys.exit(main(sys.argv[1:], worker={_killer(tmp_path)!r}))"
    )
    words = ["campaign", "trace", "--dtype=float32", "--property=ORD3", "--property=NEST", "-n", "1"]
    done = subprocess.run([sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 4, done.stderr
    crash = ("crash", "the workers of the cluster that ran this item ended, each time")
    assert _find(tmp_path) == {"ORD3": crash, "NEST": ("unsupported", "none")}
    # Once with the other item behind it in the same worker, and once more when nothing else runs.
    assert Path(f"{tmp_path}/starts.trace").read_text() == "xx"


def test_a_scheduler_that_is_there_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="a campaign needs opassay[cluster]")
    monkeypatch.chdir(tmp_path)
    words = ["campaign", "softmax", "--dtype=float32", "--property=ORD3", "--property=ORD2"]
    where = {"processes": False, "protocol": "tcp://", "host": "127.0.0.1", "dashboard_address": None}
    with distributed.LocalCluster(n_workers=1, **where) as cluster:
        assert main([*words, "--scheduler", cluster.scheduler_address], worker=_killer(tmp_path)) == 4
    crash = ("crash", "the process died while this cell ran (killed by SIGKILL)")
    assert _find(tmp_path) == {"ORD3": crash, "ORD2": ("unsupported", "none")}
    assert Path(f"{tmp_path}/starts.softmax").read_text() == "xxxx", "three times, and once for its sample"
    assert [pid for pid, parent in _parents().items() if parent == os.getpid() and "killer.py" in _command(pid)] == []
    assert main([*words, "--scheduler=tcp://127.0.0.1:9"]) == 4, "all of it is in the log"


def test_a_cluster_that_cannot_be_had_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed", reason="a campaign needs opassay[cluster]")
    where = [f"--log={tmp_path}/log", f"--report-dir={tmp_path}/report", "--scheduler=nonsense://here"]
    assert main(["campaign", "softmax", "--property=FWD", *where]) == 3
    assert "scheduler nonsense://here cannot be had" in " ".join(capsys.readouterr().out.split())


def test_a_process_that_ends_raises_and_one_that_is_out_of_time_tells(tmp_path: Path) -> None:
    manner = json.dumps({"timeout": 0.5, "memory": 2**40, "beside": 1, "command": STUB})

    def ask_runner(question: dict[str, Any]) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(perform(json.dumps({"owner": "", "question": question}), manner))
        return document

    def ask(name: str) -> dict[str, Any]:
        return ask_runner({"cell": ["softmax", name, "float32", "cpu", "opassay"], "settings": _SETTINGS})

    try:
        first, again = ask("FWD"), ask("ORD2")
        assert first["worker"] == again["worker"], "one process runs what comes after each other"
        answer = ask_runner({"runner": "opassay.gone:f", "item": {}})
        assert answer["answer"]["error"].startswith("ModuleNotFoundError: ")
        assert ask("ADJ")["lost"][0] == "stopped after its time limit"
        with pytest.raises(ItemLost, match="killed by SIGKILL"):
            ask("ORD3")
    finally:
        release()


_SETTINGS = {"profile": "brief", "seed": 0, "max_examples": None}


def test_a_log_is_read_up_to_where_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"event":"campaign","schema":1,"beg')
    with journal.Journal(path) as book:
        assert (book.lines, book.unreadable) == ([], 1)
        with pytest.raises(journal.JournalError, match="in use by another campaign"):
            journal.Journal(path)
    path.write_text("a note of somebody\n")
    with pytest.raises(journal.JournalError, match="is no log of a campaign"):
        journal.Journal(path)
    assert path.read_text() == "a note of somebody\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["softmax", "--property=ORD2"], "was begun with other items"),
        (["softmax", "--property=FWD", "--seeds=3"], "was begun with other items"),
        (["softmax", "--property=FWD", "--profile=brief"], "was begun with other profile, commit"),
        (["softmax", "--property=FWD", "-n", "many"], "workers: got 'many'"),
    ],
)
def test_what_a_campaign_does_not_go_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    pytest.importorskip("distributed", reason="a campaign needs opassay[cluster]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("opassay.reports.cli.campaign.campaign.Cluster", _NoCluster)
    assert main(["campaign", "softmax", "--property=FWD", "-n", "1"]) == 3
    assert "no cluster is wanted here" in capsys.readouterr().out
    assert main(["campaign", *words]) == 2
    assert message in capsys.readouterr().err


class _NoCluster:
    def __init__(self, workers: int, address: str) -> None:
        from opassay.reports.cli.campaign.cluster import ClusterError

        raise ClusterError("no cluster is wanted here")


def test_what_is_not_installed_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["campaign"]) == 2
    assert capsys.readouterr().err == 'opassay: distributed is not installed; pip install "opassay[verify,cluster]"\n'


def test_dask_is_imported_by_a_cluster_alone() -> None:
    code = (
        "import sys; from opassay.reports.cli.campaign import campaign; print({'dask', 'distributed'} & {*sys.modules})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


# ------------------------------------------------------------------------------------------------- several draws


def test_draws_have_seeds_of_their_own() -> None:
    assert seeds_of(5, 3) == [5, 7, 9]


def test_a_cell_has_its_verdict_when_every_draw_has_one() -> None:
    passing, bad = verdict("VJP"), failed()
    account, teller = Account(), Teller(make_console(sys.stdout), 3, live=False)
    account.take(log.Planned([(*_axes_of(passing.cell), "")]))
    terms = PoolTerms({"profile": "brief", "seed": 0, "max_examples": None}, ("lockstep", "host", None), ())
    work = CellWork([passing.cell], Request(Selection(), terms), 3, account, teller)
    first, second, third = work.items()
    assert [item.question["settings"]["seed"] for item in work.items()] == [0, 2, 4]
    assert work.take(first, {"verdict": as_data(passing)}, []) is False
    assert work.take(second, {"verdict": as_data(bad)}, ["a note"]) is True
    assert account.finished == {}
    work.finish("interrupted")
    assert account.finished[passing.cell.key].outcome is Outcome.FAIL, "a failure is told also if a draw is missing"
    with pytest.raises(WorkError, match="no verdict on its cell"):
        work.take(third, {"verdict": as_data(verdict("FWD"))}, [])
    lost = journal.Lost("cell", third.name, "the process died", "", False, 0.0)
    work.lose(third, lost)
    assert account.finished[passing.cell.key].measure.judged == 200
    assert account.notes == ["a note"]
    assert "1 failing cell, last softmax::VJP" in work.worst()
    assert "largest error/bound 0.5, softmax::VJP" in work.worst()


def _axes_of(cell: Cell) -> tuple[str, str, str, str, str]:
    return cell.op, cell.property, cell.dtype, cell.device, cell.subject


def test_the_worst_of_several_draws_counts_and_their_measures_together() -> None:
    passing, bad = verdict(ratio=0.5), failed("FWD")
    one = replace(passing, measure=replace(passing.measure, regimes=(("a", 1, 0),), sizes=("x dim 0: 1 to 3, 9",)))
    two = replace(bad, measure=replace(bad.measure, regimes=(("a", 2, 1), ("b", 1, 1)), sizes=("x dim 0: 3 to 5",)))
    result = join_verdicts([one, two, passing])
    assert (result.outcome, result.failure) == (Outcome.FAIL, bad.failure)
    assert (result.measure.judged, result.measure.samples, result.measure.max_ratio) == (300, 24, 3.9)
    assert result.measure.regimes == (("a", 3, 1), ("b", 1, 1))
    assert result.measure.sizes == ("x dim 0: 1 to 5, 9",)
    assert join_verdicts([passing]) is passing


def test_widths_that_no_draw_knows_stay_unknown() -> None:
    empty = Verdict(verdict().cell, Outcome.WEAK, verdict().code, "few", Measure())
    assert math.isnan(join_verdicts([empty, empty]).measure.detect_median)
    assert join_verdicts([empty, verdict()]).measure.detect_median == 4.0


def test_failures_of_other_draws_stay_with_the_worst() -> None:
    bad = failed()
    assert isinstance(bad.failure, Failure)
    other = replace(bad, failure=replace(bad.failure, case_id="2", signs=replace(bad.failure.signs, path="jvp")))
    assert [failure.case_id for failure in join_verdicts([bad, other, bad]).others] == ["2"]
