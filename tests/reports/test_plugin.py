"""The pytest plugin in a user's own session."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from opassay.oracles.verdicts.verdict import Cell
from opassay.properties.catalog.loading import op_names
from opassay.properties.engine.plan import Selection as Wanted
from opassay.properties.engine.plan import in_shard, plan
from opassay.properties.names import SelectionError
from opassay.reports.pytest_cells import item_name
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
    assert f"opassay::{OP}::FWD::float32-cpu-opassay PASSED" in done.stdout
    assert "collected 5 items" in done.stdout
    assert "OA301: no second derivative" in done.stdout
    assert "opassay: profile commit, seed 0" in done.stdout
    report = done.stdout.partition("= FAILURES =")[2].partition("= short test summary")[0]
    assert "replay     opassay replay" in report
    assert "plugin.py" not in report
    case = report.partition("opassay replay ")[2].split()[0]
    assert (folder / f"opassay-report/cases/{case}.json").read_text() == '{"op": 1}'


@pytest.mark.slow
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
    with pytest.raises(SelectionError, match="need I/N") as error:
        in_shard([], shard)
    assert len(str(error.value)) < 200


def test_the_plugin_loads_without_torch() -> None:
    program = "import sys, opassay.reports.pytest_plugin; sys.exit('torch' in sys.modules or 'mpmath' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_an_id_that_is_told_selects_the_same_cell_in_a_shell(folder: Path) -> None:
    (text,) = re.findall(r"opassay::\S+VJP\S+", _pytest(folder, "--co", "-q", *_select("VJP", "FWD")).stdout)
    done = _pytest(folder, "-q", "-rA", *shlex.split(text))
    assert done.returncode == 1, done.stdout
    assert f"FAILED {text}" in done.stdout
    assert "1 failed" in done.stdout.splitlines()[-1]
    assert "passed" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "collected"),
    [
        ((f"opassay::{OP}::FWD::float32-cpu-torch", "-n", "2"), "1 passed"),
        ((f"opassay::{OP}::EMPTY", "test_theirs.py"), "5 passed"),
        ((f"opassay::{OP}", "--opassay-property=FWD", "--opassay-dtype=float32"), "1 passed"),
    ],
)
def test_the_beginning_of_an_id_stands_for_all_that_begin_so(
    folder: Path, words: tuple[str, ...], collected: str
) -> None:
    done = _pytest(folder, "-q", *words)
    assert done.returncode == 0, done.stdout
    assert collected in done.stdout


def test_an_id_of_no_cell_is_a_usage_error(folder: Path) -> None:
    done = _pytest(folder, f"opassay::{OP}::FWD::float31-cpu-opassay")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"no cell has an id that begins with opassay::{OP}::FWD::float31" in done.stderr + done.stdout


def test_a_name_that_a_shell_would_take_for_its_own_is_written_otherwise() -> None:
    cell = Cell("mine:Clip(mine:samples,mine:formula)", "FWD", "float32", "cpu", "opassay")
    assert item_name(cell) == "mine:Clip{mine:samples+mine:formula}::FWD::float32-cpu-opassay"
    output = subprocess.run(
        ["bash", "-c", f"echo {item_name(cell)}"], capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == item_name(cell)


def test_without_the_extra_there_is_one_line(folder: Path) -> None:
    (folder / "conftest.py").write_text(
        "from importlib import util\nfound = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'mpmath' else found(name, *more)\n"
    )
    done = _pytest(folder, "--opassay", "-s")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    (line,) = (done.stderr + done.stdout).strip().splitlines()
    assert line == 'ERROR: --opassay: mpmath is not installed; pip install "opassay[verify]"'


@pytest.mark.slow
def test_a_function_is_asked_in_the_dtypes_that_its_command_asks(folder: Path) -> None:
    (folder / "mine.py").write_text(_FUNCTION)
    program = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    words = ["--co", "-q", "--opassay", "--opassay-op=mine:Double(mine:samples)", "--opassay-property=FWD"]
    done = subprocess.run(
        [sys.executable, "-c", program, "-p", "no:cacheprovider", *words],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    result = re.findall(r"FWD::(\w+)", done.stdout)
    assert result == ["float64", "float32"], done.stdout + done.stderr


_FUNCTION = """
import torch


class Double(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return 2 * g


def samples(rng):
    return (torch.from_numpy(rng.standard_normal(3)),)
"""
