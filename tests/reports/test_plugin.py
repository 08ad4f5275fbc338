"""The pytest plugin in a user's own session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opassay.properties.engine.plan import Selection as Wanted
from opassay.properties.engine.plan import in_shard, op_names, plan
from opassay.properties.names import SelectionError
from tests.reports.conftest import HERE

OP = op_names()[0]


def _pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path.insert(0, {str(HERE)!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    arguments = [sys.executable, "-c", program, "-p", "stub_suite", "-p", "no:cacheprovider", *words]
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    (tmp_path / "test_theirs.py").write_text("def test_theirs(): pass\n")
    return tmp_path


def _select(*names: str) -> list[str]:
    return ["--opassay", f"--opassay-op={OP}", "--opassay-dtype=float32", *(f"--opassay-property={n}" for n in names)]


def test_silent_unless_asked(folder: Path) -> None:
    done = _pytest(folder, "-v", "--strict-markers", "-W", "error")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert "opassay:" not in done.stdout


def test_cells_stand_beside_the_users_tests(folder: Path) -> None:
    done = _pytest(folder, "-v", "-rs", *_select("FWD", "VJP", "ORD2", "EMPTY"))
    assert done.returncode == 1, done.stdout
    assert "1 failed, 3 passed, 1 skipped" in done.stdout
    assert f"opassay::{OP}::FWD[float32-cpu-opassay] PASSED" in done.stdout
    assert "OA301: no second derivative" in done.stdout
    assert "opassay: profile commit, seed 0" in done.stdout
    report = done.stdout.partition("= FAILURES =")[2].partition("= short test summary")[0]
    assert "replay    opassay replay" in report
    assert "plugin.py" not in report
    case = report.partition("opassay replay ")[2].split()[0]
    assert (folder / f"opassay-report/cases/{case}.json").read_text() == '{"op": 1}'


@pytest.mark.parametrize(
    ("words", "passed"),
    [(("-k", "FWD"), 1), (("-m", "opassay"), 2), (("-m", "not opassay"), 1), (("-n", "2"), 3)],
)
def test_the_usual_options_work(folder: Path, words: tuple[str, ...], passed: int) -> None:
    done = _pytest(folder, *_select("FWD", "EMPTY"), "--strict-markers", *words)
    assert done.returncode == 0, done.stdout
    assert f"{passed} passed" in done.stdout


def test_unknown_names_are_a_usage_error(folder: Path) -> None:
    done = _pytest(folder, "--opassay", "--opassay-op=layer_nrm")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "did you mean" in done.stderr + done.stdout


def test_shards_are_a_partition() -> None:
    cells = plan(Wanted())
    parts = [in_shard(cells, f"{part}/3") for part in (1, 2, 3)]
    assert sorted(cell.key for part in parts for cell in part) == sorted(cell.key for cell in cells)
    assert all(parts)


@pytest.mark.parametrize(
    "shard", ["0/2", "3/2", "1", "1/", "-1/2", "1/2/3", "a/b", "١/٢", "9" * 5000 + "/2", "1/99999"]
)
def test_what_is_no_shard_is_refused(shard: str) -> None:
    with pytest.raises(SelectionError, match="need I/N") as caught:
        in_shard([], shard)
    assert len(str(caught.value)) < 200


def test_the_plugin_loads_without_torch() -> None:
    program = "import sys, opassay.reports.pytest_plugin; sys.exit('torch' in sys.modules or 'mpmath' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
