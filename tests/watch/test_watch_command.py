"""`opassay watch`, as a user calls it: a program as it stands, its report, its exit code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opassay.oracles.verdicts.data import decode_watched
from opassay.oracles.verdicts.verdict import Outcome
from opassay.reports.record import load

_RIGHT = """
import sys
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
loss = model(torch.randn(5, 4)).square().mean()
loss.backward()
print("words", sys.argv[1:], __name__)
"""
_WRONG = """
import torch
library = torch.library.Library("watched_program", "DEF")
library.define("double(Tensor x) -> Tensor")
library.impl("double", lambda x: x * 2.001, "CPU")
torch.ops.watched_program.double(torch.ones(3))
"""
_SPECS = """
import opassay
opassay.spec("watched_program::double", lambda x: x + x)
"""


def _watch(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "opassay", "watch", "--report-dir", str(folder / "report"), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def test_a_right_program_runs_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_RIGHT + "torch.set_num_threads(3)\n")
    ended = _watch(tmp_path, "--ops", "aten::tanh", "train.py", "--epochs", "3")
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert lines[0] == "words ['--epochs', '3'] __main__"
    assert lines[1] == "train.py: all 16 computing calls held"
    assert any("aten::tanh" in line for line in lines[2:])
    watched = decode_watched((tmp_path / "report/watch.json").read_bytes())
    assert {site.place.line for site in watched.sites if site.place.op == "aten::addmm"} == {"train.py:6"}
    run = load(tmp_path / "report/run.json")
    assert run.exit_code == 0
    assert run.environment["torch threads"] == "3"  # of the program's process
    assert (run.profile, run.command[:2], run.command[-2:]) == ("watch", ("opassay", "watch"), ("--epochs", "3"))
    assert run.command[-5:-2] == ("--ops", "aten::tanh", "train.py")
    assert "train.py" in (tmp_path / "report/watch.html").read_text()


@pytest.mark.slow
def test_a_wrong_operator_is_named_by_the_specs_of_a_library_and_its_call_is_kept(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_WRONG)
    (tmp_path / "specs.py").write_text(_SPECS)
    ended = _watch(tmp_path, "--specs", "specs.py", "program.py")
    assert ended.returncode == 1
    assert "1 outside" in ended.stdout
    assert "watched_program::double (program.py:6)" in ended.stdout
    (case,) = (tmp_path / "report/cases").glob("*.bin")
    assert case.name in ended.stdout or case.stem in ended.stdout
    (failure,) = [verdict for verdict in load(tmp_path / "report/run.json").verdicts if not verdict.holds]
    assert (failure.outcome, failure.cell.property) == (Outcome.FAIL, "watched_program::double")


@pytest.mark.slow
def test_another_number_than_the_loss_is_followed_or_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_RIGHT)
    ended = _watch(tmp_path, "--of", "model.0.weight.grad[0, -1]", "train.py")
    assert ended.returncode == 0
    assert "model.0.weight.grad[0, 3], one of its 8 × 4 elements, of aten::" in ended.stdout
    assert "model.0.weight.grad[0, 3]" in (tmp_path / "report/watch.html").read_text()
    ended = _watch(tmp_path, "--of", "los", "train.py")
    assert ended.returncode == 2
    assert "of: 'los' is no floating tensor" in ended.stderr
    assert "loss, model; modules: Sequential.0" in ended.stderr
    (tmp_path / "train.py").write_text(_RIGHT + "raise ValueError('no data')\n")
    ended = _watch(tmp_path, "--of", "los", "train.py")
    assert ended.returncode == 4
    assert "ValueError: no data; of: 'los' is no floating tensor" in ended.stdout


@pytest.mark.slow
def test_without_its_spec_an_operator_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_WRONG)
    ended = _watch(tmp_path, "program.py")
    assert ended.returncode == 4
    assert "watched_program::double" in ended.stdout


@pytest.mark.slow
def test_a_program_that_fails_is_reported_and_its_traceback_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_RIGHT + "raise ValueError('no data')\n")
    ended = _watch(tmp_path, "train.py")
    assert ended.returncode == 4
    assert ended.stderr.splitlines()[-1] == "ValueError: no data"
    assert "opassay" not in ended.stderr
    assert "the program ended with status 1: ValueError: no data" in ended.stdout
    assert "computing calls held" in ended.stdout


@pytest.mark.slow
def test_a_module_and_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("")
    (tmp_path / "package/train.py").write_text(_RIGHT + "sys.exit(3)\n")
    ended = _watch(tmp_path, "-m", "package.train")
    assert ended.returncode == 4
    assert "the program ended with status 3" in ended.stdout + (tmp_path / "report/run.json").read_text()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "PROGRAM: got none"),
        (["nothing.py"], "PROGRAM: got 'nothing.py', which is no file"),
        pytest.param(["--contract", "tf33", "train.py"], "contract: got 'tf33'", marks=pytest.mark.slow),
        (["--specs", "train.py", "--every", "0", "train.py"], "--every"),
    ],
)
def test_what_a_user_gets_wrong(words: list[str], text: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_RIGHT)
    ended = _watch(tmp_path, *words)
    assert ended.returncode == 2
    assert text in ended.stderr
    assert not (tmp_path / "report/run.json").exists()


@pytest.mark.slow
def test_an_interrupted_program_leaves_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_RIGHT + "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ended = _watch(tmp_path, "train.py")
    assert ended.returncode == 130
    assert decode_watched((tmp_path / "report/watch.json").read_bytes()).sites


@pytest.mark.slow
def test_an_interrupt_after_the_program_leaves_its_calls(tmp_path: Path) -> None:
    stop = """
import os, signal
from opassay.properties.watch import sweep
sweep.follow_error = lambda *_: os.kill(os.getpid(), signal.SIGINT)
"""
    (tmp_path / "train.py").write_text(_RIGHT + stop)
    ended = _watch(tmp_path, "train.py")
    assert ended.returncode == 130
    assert "all 16 computing calls held" in ended.stdout


@pytest.mark.slow
def test_calls_that_were_kept_are_judged_later(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_RIGHT + "raise SystemExit(3)\n")
    first = _watch(tmp_path, "--keep-calls", "kept", "train.py")
    assert first.returncode == 4
    sites = str(decode_watched((tmp_path / "report/watch.json").read_bytes()).sites)  # as text: NaN is not itself
    content = (tmp_path / "kept/findings.bin").read_bytes()
    (tmp_path / "kept/findings.bin").write_bytes(content[: len(content) // 2])
    again = _watch(tmp_path, "--resume", "kept")
    assert (again.returncode, again.stdout.splitlines()[:2]) == (4, first.stdout.splitlines()[1:3])
    assert str(decode_watched((tmp_path / "report/watch.json").read_bytes()).sites) == sites
    assert (tmp_path / "kept/findings.bin").stat().st_size == len(content)
    second = _watch(tmp_path, "--keep-calls", "kept", "train.py")
    assert (second.returncode, "which has files" in second.stderr) == (2, True)


@pytest.mark.slow
def test_a_copy_of_the_process_judges_nothing(tmp_path: Path) -> None:
    fork = "import os\npid = os.fork()\nx = torch.ones(2) + 1\nif pid: os.waitpid(pid, 0)\n"
    (tmp_path / "train.py").write_text(_RIGHT + fork)
    ended = _watch(tmp_path, "train.py")
    assert ended.returncode == 0
    assert ended.stdout.count("computing calls held") == 1


@pytest.mark.slow
def test_the_example_prints_what_the_pages_show(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    shutil.copytree(root / "docs/examples/watched", tmp_path, dirs_exist_ok=True)
    ended = _watch(tmp_path, "--specs", "specs.py", "train.py")
    assert ended.returncode == 1
    for page in ("README.md", "docs/watch.md"):
        (text,) = re.findall(r"```\n\$ opassay watch --specs.*?\n(.*?)```", (root / page).read_text(), re.DOTALL)
        wanted = [_without_numbers(line) for line in text.splitlines()]
        printed = [_without_numbers(line) for line in ended.stdout.splitlines()]
        assert [line for line in wanted if line not in printed and not line.startswith(("...", "report"))] == []


def _without_numbers(line: str) -> str:
    return re.sub(r"[-+]?\d[\d.e+-]*", "0", line)


def test_two_forms_of_a_program_are_compared(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(_RIGHT.replace("torch.nn.Tanh()", "torch.nn.LeakyReLU(0.1)"))
    (tmp_path / "wrong.py").write_text(_RIGHT.replace("torch.nn.Tanh()", "torch.nn.LeakyReLU(0.2)"))
    assert _watch(tmp_path, "--keep-calls", "calls", "other.py").returncode == 0
    ended = _watch(tmp_path, "--against", "calls", "other.py")
    assert ended.returncode == 0
    assert "against other.py: 25 of 25 calls give values of its 25 calls; 0 differences" in ended.stdout
    ended = _watch(tmp_path, "--against", "calls", "wrong.py")
    assert ended.returncode == 1
    assert "differs: aten::leaky_relu" in ended.stdout
    assert "takes negative_slope=0.2 here and negative_slope=0.1 there" in ended.stdout
    watched = decode_watched((tmp_path / "report/watch.json").read_bytes())
    assert watched.against is not None
    assert watched.against.other == "other.py"
    assert "negative_slope=0.2 here" in (tmp_path / "report/watch.html").read_text()
    assert "differ from other.py" in " ".join(load(tmp_path / "report/run.json").exit_reasons)


@pytest.mark.slow
def test_a_folder_without_calls_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_RIGHT)
    (tmp_path / "empty").mkdir()
    assert _watch(tmp_path, "--against", "empty", "train.py").returncode == 2
