"""`opassay run --resume`, and `--scheduler`: a run that was ended goes on, and real workers of Dask, some killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opassay.oracles.verdicts.data import as_data
from opassay.properties.places import cluster
from opassay.reports import record
from opassay.reports.cli.main import main
from opassay.reports.store import log
from opassay.reports.store.folder import Folder
from tests.reports.conftest import HERE, command_line

pytestmark = pytest.mark.slow

STUB = [sys.executable, str(HERE / "stub_suite.py")]
PLAN = ["layer_norm", "softmax", "--dtype=float32", "--dtype=float64", "--dtype=bfloat16"]
PLAN += [f"--property={name}" for name in ("FWD", "VJP", "LAW")]
CELLS = 18


def _judgement(folder: Path) -> list[Any]:
    """What a record says, without what differs from one time to the next."""
    run = record.load(folder / "run.json")
    results = [as_data(replace(item, seconds=0.0, timing=())) for item in run.verdicts]  # in data NaN equals NaN
    return [*results, run.exit_code, run.exit_reasons, run.notes, run.environment, run.plan_digest]


def _log(folder: Path) -> Path:
    """The log of the last run of a report folder."""
    return folder / f"opassay-report/.opassay/{Folder.last_run(folder / 'opassay-report')}.ndjson"


def _begun(folder: Path) -> Counter[str]:
    with _log(folder).open("rb") as file:
        return Counter(event.cell for event in log.read_events(file) if isinstance(event, log.CellStarted))


def _wait_for_verdicts(folder: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while (
        not (logs := [*folder.glob("opassay-report/.opassay/*.ndjson")])
        or logs[0].read_text().count('"cell_finished"') < count
    ):
        assert process.poll() is None, "the run ended before it was killed"
        assert time.monotonic() < until, "nothing is done"
        time.sleep(0.01)


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    subprocess.run(command_line("run", *PLAN, "--report-dir=alone"), cwd=tmp_path, capture_output=True, check=False)
    words = ["run", *PLAN, "-n", "2", "--resume"]
    process = subprocess.Popen(command_line(*words), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for_verdicts(tmp_path, 5, process)
    finally:
        process.kill()
        process.wait()
    finished = _log(tmp_path).read_text().count('"cell_finished"')
    assert finished < CELLS, "nothing is left for the second session"
    with _log(tmp_path).open("a") as file:
        file.write('{"event":"cell_fin')
    done = subprocess.run(command_line(*words), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{finished} of {CELLS} cells have their verdicts already" in done.stdout
    assert sum(_begun(tmp_path).values()) <= CELLS + 2, "only the cells of the two workers were asked twice"
    judgement, alone = (_judgement(tmp_path / name) for name in ("opassay-report", "alone"))
    assert judgement.pop(-3) == (*alone.pop(-3), "log: 1 unreadable lines")
    assert judgement == alone
    assert len(list((tmp_path / "opassay-report/cases").glob("*.json"))) == 6


def test_a_run_that_stopped_goes_on_with_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", "softmax", "--property=VJP", "--property=FWD", "--profile=dev", "-n1", "--resume"]
    assert main([*words, "-x"], worker=STUB) == 1
    before = record.load(tmp_path / "opassay-report/run.json")
    assert main(words, worker=STUB) == 1
    after = record.load(tmp_path / "opassay-report/run.json")
    assert after.seed == before.seed
    assert {str(one.outcome) for one in before.verdicts} == {"verified", "fail", "not run"}
    assert {str(one.outcome) for one in after.verdicts} == {"fail", "verified"}
    assert after.seconds > before.seconds
    assert set(_begun(tmp_path).values()) == {1}
    assert main(words, worker=STUB) == 1
    assert set(_begun(tmp_path).values()) == {1}, "nothing was left to ask"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["softmax", "--property=ORD2"], "was begun with other plan_digest"),
        (["softmax", "--property=FWD", "--profile=brief"], "was begun with other profile, commit"),
        (["softmax", "--property=FWD", "--seed=7"], "was begun with other seed, 0"),
        (["softmax", "--property=FWD", "-k", "bfloat16"], "was begun with other keyword, none"),
        (["softmax", "--property=FWD", "-n", "many"], "workers: got 'many'"),
    ],
)
def test_what_a_run_does_not_go_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "softmax", "--property=FWD", "-n1"], worker=STUB) == 0
    assert main(["run", *words, "--resume"], worker=STUB) == 2
    assert message in capsys.readouterr().err


def test_a_run_does_not_go_on_with_another_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", "softmax", "--property=VJP", "--property=FWD", "-n1", "--resume"]
    assert main([*words, "-x"], worker=STUB) == 1
    path = _log(tmp_path)
    path.write_text(path.read_text().replace('"torch":"0.0.stub"', '"torch":"0.1"'))
    assert main(words, worker=STUB) == 2
    text = "a worker has torch 0.0.stub, and the run began with 0.1: need workers that are alike"
    assert text in " ".join(capsys.readouterr().out.split())


def test_a_log_without_its_plan_had_asked_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", "softmax", "--property=FWD", "-n1", "--resume"]
    assert main(words, worker=STUB) == 0
    first = _log(tmp_path)
    first.write_text(first.read_text()[:40])
    (tmp_path / "opassay-report/run.json").unlink()
    assert main(words, worker=STUB) == 0
    assert _log(tmp_path) != first


# ------------------------------------------------------------------------------------------------------ a cluster


def _local_cluster(workers: int) -> Any:
    distributed = pytest.importorskip("distributed", reason="a cluster needs opassay[cluster]")
    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None,
        silence_logs=50,
    )  # fmt: skip


def _processes() -> dict[int, tuple[int, str]]:
    """The parent and the words of every process."""
    processes = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            processes[int(stat.parent.name)] = (parent, stat.with_name("cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return processes


def _kill_a_worker_that_judges(program: str) -> None:
    """Kill a process of Dask as soon as it has one that judges."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for parent, words in _processes().values():
            if program in words and "spawn_main" in _processes().get(parent, (0, ""))[1]:
                os.kill(parent, signal.SIGKILL)
                return
        time.sleep(0.01)


def test_a_killed_worker_of_a_cluster_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _local_cluster(2) as local:
        monkeypatch.chdir(tmp_path)
        assert main(["run", *PLAN, "--report-dir=alone"], worker=STUB) == 1
        killer = threading.Thread(target=_kill_a_worker_that_judges, args=("stub_suite.py",))
        killer.start()
        assert main(["run", *PLAN, "--scheduler", local.scheduler_address], worker=STUB) == 1
        killer.join()
    assert _judgement(tmp_path / "opassay-report") == _judgement(tmp_path / "alone")
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

open(f"{STARTS}.process", "a").write("x")
serve(lambda hello: {"torch": "none"}, answer)
"""


def _killer(folder: Path) -> list[str]:
    program = folder / "killer.py"
    program.write_text(f"STARTS = {str(folder / 'starts')!r}\n{KILLER}")
    return [sys.executable, str(program)]


def test_one_process_judges_what_a_worker_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _local_cluster(1) as local:
        monkeypatch.chdir(tmp_path)
        words = ["run", "trace", "softmax", "--property=NEST", "--property=LAW"]
        assert main([*words, "--scheduler", local.scheduler_address], worker=_killer(tmp_path)) == 5, "none is checked"
        assert [pid for pid, (_, line) in _processes().items() if "killer.py" in line] == []
    assert (tmp_path / "starts.process").read_text() == "x"
    assert len(record.load(tmp_path / "opassay-report/run.json").verdicts) == 16


def test_cells_that_kill_are_crashes_and_no_others_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dask = pytest.importorskip("dask", reason="a cluster needs opassay[cluster]")
    monkeypatch.chdir(tmp_path)
    words = ["run", "trace", "softmax", "--dtype=float32", "--property=ORD3", "--property=NEST", "--property=LAW"]
    # One death is enough here, because it takes seconds to start another worker.
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), _local_cluster(1) as local:
        where = ["--scheduler", local.scheduler_address]
        assert main([*words, *where], worker=_killer(tmp_path)) == 4
    verdicts = record.load(tmp_path / "opassay-report/run.json").verdicts
    outcomes = {(one.cell.op, one.cell.property): (str(one.outcome), one.reason) for one in verdicts}
    assert outcomes.pop(("trace", "ORD3")) == ("crash", cluster.WORKERS_ENDED)
    assert outcomes.pop(("softmax", "ORD3")) == ("crash", "the process died while this cell ran (killed by SIGKILL)")
    assert set(outcomes.values()) == {("unsupported", "none")}
    # At least once beside other cells, and once more when nothing else ran; the other once, and once for its sample.
    assert len((tmp_path / "starts.trace").read_text()) >= 2
    assert [pid for pid, (_, line) in _processes().items() if "killer.py" in line] == []


def test_cells_like_those_that_ended_processes_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _local_cluster(1) as local:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(cluster, "_SHARE", 1)
        dtypes = [f"--dtype={name}" for name in ("float32", "float64", "bfloat16", "float16")]
        where = ["--scheduler", local.scheduler_address]
        assert main(["run", "softmax", *dtypes, "--property=ORD3", *where], worker=STUB) == 4
    verdicts = record.load(tmp_path / "opassay-report/run.json").verdicts
    assert Counter(str(one.outcome) for one in verdicts)["crash"] in (2, 3), "one was handed out before the second died"
    assert {one.reason for one in verdicts if str(one.outcome) == "not run"} == {
        "softmax of subject opassay ended 2 processes; its other cells of ORD3 were not asked"
    }


def test_a_cluster_that_cannot_be_had_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed", reason="a cluster needs opassay[cluster]")
    where = [f"--report-dir={tmp_path}/report", "--scheduler=nonsense://here"]
    assert main(["run", "softmax", "--property=FWD", *where]) == 3
    assert "scheduler nonsense://here cannot be had" in " ".join(capsys.readouterr().out.split())


def test_dask_is_needed_and_imported_by_a_cluster_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import sys; from opassay.reports.cli import run; print({'dask', 'distributed'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["run", "--scheduler=tcp://127.0.0.1:9"]) == 2
    assert capsys.readouterr().err == 'opassay: distributed is not installed; pip install "opassay[verify,cluster]"\n'
