"""The command line as a user meets it: files, exit codes, and workers that die."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opassay.oracles.verdicts.verdict import Code, Outcome
from opassay.properties.catalog.loading import op_names
from opassay.reports import record
from opassay.reports.record import Run
from tests.reports.conftest import HERE, command_line, failed, make_run, verdict

OP = op_names()[0]
Call = Callable[..., "subprocess.CompletedProcess[str]"]


def _properties(*names: str) -> list[str]:
    return [OP, "--dtype=float32", *(f"--property={name}" for name in names)]


def _run(folder: Path) -> Run:
    return record.load(folder / "opassay-report" / "run.json")


def _outcomes(run: Run) -> dict[str, str]:
    return {item.cell.property: str(item.outcome) for item in run.verdicts}


def test_a_good_run(opassay: Call, tmp_path: Path) -> None:
    done = opassay("run", *_properties("FWD", "ORD2", "EMPTY"), "-n", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("opassay run: profile commit, seed 0; 3 cells, 1 worker; ")
    assert lines[-1] == "report  opassay-report/report.html"
    run = _run(tmp_path)
    assert _outcomes(run) == {"FWD": "verified", "ORD2": "unsupported", "EMPTY": "weak"}
    assert run.environment == {"torch": "0.0.stub", "torch threads": "1"}
    results = {path.name for path in (tmp_path / "opassay-report").iterdir()}
    assert results == {".opassay", "junit.xml", "plan.json", "report.html", "run.json"}
    assert json.loads((tmp_path / "opassay-report/plan.json").read_text())["plan_digest"] == run.plan_digest


def test_failures_errors_and_crashes_side_by_side(opassay: Call, tmp_path: Path) -> None:
    done = opassay("run", *_properties("VJP", "JVP", "ORD3", "FWD"), "-n", "2")
    assert done.returncode == 3, done.stdout + done.stderr
    run = _run(tmp_path)
    assert _outcomes(run) == {"FWD": "verified", "VJP": "fail", "JVP": "error", "ORD3": "crash"}
    assert [reason.split(":")[0] for reason in run.exit_reasons] == ["1 failed", "1 error", "1 incomplete"]
    case = next(item.failure.case_id for item in run.verdicts if item.failure and item.failure.case_id)
    assert (tmp_path / f"opassay-report/cases/{case}.json").read_text() == '{"op": 1}'
    assert "\x1b" not in done.stdout
    assert f"opassay replay {case}" in done.stdout


@pytest.mark.fast_cases("options0")
@pytest.mark.parametrize(("options", "code"), [((), 4), (("--allow-incomplete",), 0)])
def test_a_killed_worker_costs_one_cell(opassay: Call, tmp_path: Path, options: tuple[str, ...], code: int) -> None:
    done = opassay("run", *_properties("ORD3", "FWD", "NEST", "VMAP"), "-n", "2", *options)
    assert done.returncode == code, done.stdout + done.stderr
    result = _outcomes(_run(tmp_path))
    assert result == {"ORD3": "crash", "FWD": "verified", "NEST": "weak", "VMAP": "weak"}
    assert (tmp_path / "opassay-report/report.html").stat().st_size > 10_000


def test_a_cell_out_of_time(opassay: Call, tmp_path: Path) -> None:
    done = opassay("run", *_properties("ADJ", "FWD"), "-n", "1", "--timeout", "0.5")
    assert done.returncode == 4, done.stdout + done.stderr
    run = _run(tmp_path)
    assert _outcomes(run) == {"ADJ": "timeout", "FWD": "verified"}
    assert any(item.failure and "stub_suite" in item.failure.message for item in run.verdicts)


def test_a_reader_that_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    words = command_line("run", *_properties("FWD", "VJP", "NEST"), "-n", "0")
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    output = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=30) == 1, output
    assert output == ""
    assert _outcomes(_run(tmp_path)) == {"FWD": "verified", "VJP": "fail", "NEST": "weak"}


@pytest.mark.fast_cases("2")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_leaves_a_report(tmp_path: Path, number: signal.Signals) -> None:
    words = command_line("run", *_properties("FWD", "ADJ", "NEST"), "-n", "0")
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    _wait_for_log(tmp_path, '"cell_started","cell":"' + OP + "::ADJ[")
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    run = _run(tmp_path)
    assert _outcomes(run) == {"FWD": "verified", "ADJ": "not run", "NEST": "not run"}
    assert {item.code for item in run.verdicts} == {Code.HELD, Code.INTERRUPTED}
    assert run.exit_reasons[0] == f"interrupted ({number.name}); the report is partial"
    assert "report  opassay-report/report.html" in output


def _wait_for_log(folder: Path, text: str) -> None:
    """Until the log of the run in a folder holds a text."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        logs = list((folder / "opassay-report/.opassay").glob("*.ndjson"))
        if logs and text in logs[0].read_text():
            return
        time.sleep(0.05)
    raise AssertionError(f"no {text!r} in the log after 30 s")


def test_maxfail_ends_early_with_exit_1(opassay_here: Call, tmp_path: Path) -> None:
    done = opassay_here("run", *_properties("FWD", "VJP", "VMAP", "NEST"), "-n", "0", "-x")
    assert done.returncode == 1, done.stdout + done.stderr
    assert _outcomes(_run(tmp_path))["NEST"] == "not run"


def test_keywords_and_shards_deselect(opassay_here: Call, tmp_path: Path) -> None:
    assert opassay_here("run", *_properties("FWD", "NEST"), "-n", "2", "-k", "FWD").returncode == 0
    assert {item.code for item in _run(tmp_path).verdicts} == {Code.HELD, Code.DESELECTED}
    names = ("FWD", "NEST", "VMAP", "DUAL", "PURE", "DET")
    for part in (1, 2):
        folder = f"--report-dir=part{part}"
        assert opassay_here("run", *_properties(*names), "-n", "1", f"--shard={part}/2", folder).returncode == 0
    done = opassay_here("report", "merge", "part1/run.json", "part2/run.json", "-o", "all.json")
    assert done.returncode == 0, done.stdout + done.stderr
    merged = record.load(tmp_path / "all.json").verdicts
    assert [item.cell.property for item in merged if item.outcome in (Outcome.VERIFIED, Outcome.WEAK)] == [
        item.cell.property for item in merged
    ]
    assert opassay_here("report", "merge", "part1/run.json", "-o", "half.json").returncode == 4


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("run", "layer_nrm"), 2, "did you mean"),
        (("run", "--property", "FWDD"), 2, "unknown property"),
        (("list", "--dtype", "float31"), 2, "did you mean 'float32'"),
        (("run", "--workers", "many"), 2, "workers"),
        (("run", OP, "--shard", "3/2"), 2, "shard"),
        (("run", "--profile", "comit"), 2, "commit"),
        (("bogus",), 2, "No such command"),
        (("explain", "OA999"), 2, "OA100"),
        (("gate", "missing.json"), 2, "no such file"),
        (("replay", "nothing"), 2, "no such id"),
        (("replay", "../x"), 2, "no such file"),
        (("run", OP, "--property=FWD", "-k", "nothing", "-n", "0"), 5, "no cell was checked"),
    ],
)
def test_what_cannot_be_done_is_said(opassay_here: Call, words: tuple[str, ...], code: int, message: str) -> None:
    done = opassay_here(*words)
    assert done.returncode == code, done.stdout + done.stderr
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_report_folder_that_is_a_link_is_refused(opassay_here: Call, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "opassay-report").symlink_to("elsewhere")
    assert opassay_here("run", *_properties("FWD"), "-n", "0").returncode == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_replay_finds_cases_and_says_what_it_saw(opassay_here: Call, tmp_path: Path) -> None:
    cases = tmp_path / "opassay-report" / "cases"
    cases.mkdir(parents=True)
    for name, text in (("aa-1", _case("FWD")), ("aa-2", _case("VJP")), ("bb", "no case"), ("cc", _case("ORD3"))):
        (cases / f"{name}.json").write_text(text)
    by_path = "opassay-report/cases/aa-2.json"
    for case, code in (("aa-1", 0), ("aa-2", 1), (by_path, 1), ("bb", 2), ("aa", 2), ("cc", 4)):
        done = opassay_here("replay", case)
        assert done.returncode == code, (case, done.stdout + done.stderr)


def test_replay_prints_a_program_or_says_why_there_is_none(opassay_here: Call, tmp_path: Path) -> None:
    cases = tmp_path / "opassay-report" / "cases"
    cases.mkdir(parents=True)
    for name, text in (("aa-1", _case("FWD")), ("aa-2", _case("VJP")), ("aa-3", "never read")):
        (cases / f"{name}.json").write_text(text)
    (cases / "aa-3.py").write_text("print('\x1b[31m3')\n")
    for case, code, printed in (("aa-2", 0, "exit(1)"), ("aa-3", 0, "print('3')\n"), ("aa-1", 2, "")):
        done = opassay_here("replay", case, "--program")
        assert (done.returncode, done.stdout) == (code, printed), done.stderr
    assert "aa-1.json: no failure to show" in done.stderr


def _case(name: str, op: str = OP) -> str:
    cell = {"op": op, "property": name, "dtype": "float32", "device": "cpu", "subject": "opassay"}
    return json.dumps({"cell": cell})


def test_a_case_cannot_name_code_to_run(opassay: Call, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import pathlib; pathlib.Path('ran').touch()\n")
    for name in ("helper:OP", "helper:C(helper:f)"):
        (tmp_path / "case.json").write_text(_case("FWD", name))
        done = opassay("replay", "case.json")
        assert done.returncode == 2, done.stdout + done.stderr
        assert f"add --op '{name}'" in done.stderr
        assert opassay("replay", "case.json", "--op", "other:OP").returncode == 2
        assert not (tmp_path / "ran").exists()
    (tmp_path / "case.json").write_text(_case("FWD", "no_such_op"))
    assert opassay("replay", "case.json").returncode == 2


def test_gate_and_baseline_on_files(opassay_here: Call, tmp_path: Path) -> None:
    record.save(tmp_path / "run.json", make_run(verdict(), verdict("JVP")))
    assert opassay_here("gate", "run.json").returncode == 0
    record.save(tmp_path / "failed.json", make_run(failed()))
    assert "budget.json is not written" in opassay_here("gate", "update", "failed.json").stdout
    assert not (tmp_path / "budget.json").exists(), "without an entry it blocks every later run"
    assert opassay_here("gate", "update", "run.json").returncode == 0
    assert opassay_here("gate", "run.json").returncode == 0
    record.save(tmp_path / "run.json", make_run(verdict(ratio=0.75), failed()))
    done = opassay_here("gate", "run.json")
    assert done.returncode == 1
    assert [line.split()[1] for line in done.stdout.splitlines()[:-1]] == ["budget", "coverage", "new"]
    assert opassay_here("gate", "run.json", "--report").returncode == 1
    page = (tmp_path / "report.html").read_text()
    assert 'class="k verified budget"' in page
    assert 'class="k fail new"' in page
    assert opassay_here("gate", "show").stdout.count("budget") == 2
    assert opassay_here("gate", "prune", "run.json").returncode == 0
    assert opassay_here("gate", "show").stdout.count("budget") == 1
    assert opassay_here("report", "run.json", "-o", "out/x.html", "--junit", "x.xml").returncode == 0
    assert (tmp_path / "out/x.html").exists()


HEAVY = ("torch", "mpmath", "hypothesis", "pytest")


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("run", "--help"),
        ("list",),
        ("list", "--json"),
        ("report", "run.json", "-o", "x.html"),
        ("gate", "run.json"),
        ("report", "merge", "run.json"),
        ("gate", "update", "run.json"),
        ("explain", "OA101"),
        (
            "list",
            "--plugins",
        ),
        (
            "report",
            "schema",
        ),
    ],
)
def test_nothing_heavy_is_imported_to_read_files(words: tuple[str, ...], tmp_path: Path) -> None:
    record.save(tmp_path / "run.json", make_run(verdict()))
    allowed = ("pytest",) if words[0] == "run" else ()
    program = (
        "import sys; from opassay.reports.cli.main import main; code = main(sys.argv[1:])\n"
        f"found = sorted(set({HEAVY!r}) & set(sys.modules) - set({allowed!r}))\n"
        "sys.exit(f'imported {found}' if found else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_judgement_says_how_numpy_starts_before_it_is_imported() -> None:
    """A process in which NumPy's library has started threads cannot be copied for the candidate: that takes seconds."""
    program = "import sys; from opassay.reports.cli.judge import judge; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode == 0


@pytest.mark.slow
def test_the_controller_leaves_torch_to_its_workers(tmp_path: Path) -> None:
    program = (
        "import sys; from opassay.reports.cli.main import main; main(sys.argv[1:])\n"
        "sys.exit(str([name for name in ('torch', 'mpmath', 'hypothesis') if name in sys.modules]))"
    )
    words = ("run", *_properties("ERROR"), "-n", "1", "--max-examples", "1")
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stderr.strip() == "[]"
    assert _run(tmp_path).environment["torch threads"] == "1"


def test_the_module_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "opassay", "--version"], cwd=HERE, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("opassay, version ")
