"""Every way in which a run can be ended, by its user, by the system, and by other runs: nothing known is lost."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from opassay.oracles.verdicts.verdict import Code, Outcome
from tests.faults.runs import BAD, GOOD, cells, command, environment, load, log_of, outcomes, run, wait_for, workers_of

MANY = cells(BAD, GOOD, "layer_norm", properties=("FWD", "VJP", "JVP", "ORD2", "ADJ", "VMAP"))
SEED = 20260301


def start(folder: Path, *words: str, pace: float = 0.05, **more: object) -> subprocess.Popen[str]:
    process: subprocess.Popen[str] = subprocess.Popen(
        command("run", *MANY, "-n", "2", *words), cwd=folder, env=environment(pace=pace), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **more,
    )  # type: ignore[call-overload]  # fmt: skip
    return process


def one_is_finished(folder: Path) -> Callable[[], bool]:
    return lambda: '"cell_finished"' in log_of(folder)


def require_partial(folder: Path, message: str) -> None:
    """The record stands, holds what was finished, and has no verdict that an interrupt made."""
    result = load(folder)
    assert {v.outcome for v in result.verdicts} <= {Outcome.VERIFIED, Outcome.NOT_RUN}, message
    assert {v.code for v in result.verdicts} <= {Code.HELD, Code.INTERRUPTED}
    assert len(result.verdicts) == 18
    logged = log_of(folder).count('"cell_finished"')
    assert sum(v.outcome is Outcome.VERIFIED for v in result.verdicts) == logged
    assert "report  opassay-report/report.html" in message


@pytest.mark.fast_cases("False-2", "True-15", "False-1")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("group", [False, True])
def test_a_signal_ends_the_run_with_a_report(tmp_path: Path, number: signal.Signals, group: bool) -> None:
    process = start(tmp_path)
    wait_for(one_is_finished(tmp_path))
    (os.killpg if group else os.kill)(process.pid, number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    require_partial(tmp_path, output)
    assert workers_of(process.pid) == []


@pytest.mark.fast_cases("4")
@pytest.mark.parametrize("times", [2, 4, 20])
def test_impatience_loses_nothing(tmp_path: Path, times: int) -> None:
    process = start(tmp_path)
    wait_for(one_is_finished(tmp_path))
    for _ in range(times):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.4 / times)
    output, _ = process.communicate(timeout=30)
    # A signal that comes when all is written may end Python itself, which a shell shows as 130, too.
    assert process.returncode in (130, -signal.SIGINT), output
    require_partial(tmp_path, output)


@pytest.mark.slow
def test_interrupts_at_random_moments(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    print(f"seed {SEED}")
    for i in range(6):
        folder = tmp_path / str(i)
        folder.mkdir()
        process = start(folder)
        time.sleep(draw.uniform(0.2, 1.2))
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=30)
        if (folder / "opassay-report/run.json").exists():
            assert process.returncode in (0, 130, -signal.SIGINT), output
            require_partial(folder, output)
        else:  # before the first cell, when Python itself may still be starting
            assert process.returncode in (130, -signal.SIGINT, 1), output
            assert '"cell_finished"' not in log_of(folder)
        assert workers_of(process.pid) == []


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("group", [False, True])
def test_a_killed_run_is_recovered(tmp_path: Path, group: bool) -> None:
    process = start(tmp_path)
    wait_for(one_is_finished(tmp_path))
    (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    wait_for(lambda: workers_of(process.pid) == [], 5.0)
    assert not (tmp_path / "opassay-report/run.json").exists()
    logged = log_of(tmp_path).count('"cell_finished"')
    assert logged
    # Another run into the folder does not lose it either, and names it.
    again = run(tmp_path, *cells(GOOD, properties=("FWD",)), "-n", "1")
    assert again.returncode == 0, again.stdout
    assert "opassay report recover opassay-report" in " ".join(again.stdout.split())
    done = subprocess.run(
        command("report", "recover", "opassay-report"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 4, done.stdout + done.stderr
    result = load(tmp_path)
    assert sum(v.outcome is Outcome.VERIFIED for v in result.verdicts) == logged
    assert {v.reason for v in result.verdicts if v.outcome is Outcome.NOT_RUN} == {"the run ended without its record"}


def test_a_run_with_its_record_needs_no_recovery(tmp_path: Path) -> None:
    assert run(tmp_path, *cells(GOOD), "-n", "1").returncode == 0
    before = (tmp_path / "opassay-report/run.json").read_bytes()
    for words in (["opassay-report"], ["no-such-folder"], ["."], ["opassay-report", "--run", "../x"]):
        done = subprocess.run(
            command("report", "recover", *words), cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 2, done.stdout + done.stderr
    assert (tmp_path / "opassay-report/run.json").read_bytes() == before


def test_a_second_run_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    process = start(tmp_path, pace=0.2)
    wait_for(one_is_finished(tmp_path))
    name = next((tmp_path / "opassay-report/.opassay").glob("*.ndjson")).stem
    second = run(tmp_path, *cells(GOOD), "-n", "1")
    assert second.returncode == 2, second.stdout
    assert name in second.stderr
    assert str(process.pid) in second.stderr
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output
    assert {v.outcome for v in load(tmp_path).verdicts} == {Outcome.VERIFIED}


def _room(size: int) -> Callable[[], None]:
    """In the process to be started: no file may grow beyond a size, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("room", "lost"),
    [(0, ("log", "run.json", "report.html")), (9_000, ("log", "run.json", "report.html")), (30_000, ("report.html",))],
)
def test_a_full_disk_is_told_and_so_is_the_summary(tmp_path: Path, room: int, lost: Sequence[str]) -> None:
    (tmp_path / "opassay-report").mkdir()
    assert run(tmp_path, *cells(GOOD, properties=("FWD",)), "-n", "1").returncode == 0  # so that the marker stands
    process = start(tmp_path, pace=0.0, preexec_fn=_room(room))
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 3, output
    if room:
        assert "18 verified" in output
        for name in lost:
            assert f"{name} " in output, output
    assert workers_of(process.pid) == []


def test_no_process_can_be_had(tmp_path: Path) -> None:
    words = [*command("run", *cells(GOOD), "-n", "1")]
    program = words[2].replace("hostile_suite.py", "no_such_file.py")
    done = subprocess.run(
        [words[0], "-c", program, *words[3:]], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert "No such file" in " ".join(done.stdout.split())  # however the lines were broken
    assert outcomes(load(tmp_path), GOOD) == ["not run"] * 3


def test_without_a_temporary_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        command("run", *cells(GOOD), "-n", "1"), cwd=tmp_path, env=environment(TMPDIR="/nowhere"),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
