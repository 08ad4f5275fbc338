"""The command for a machine with a GPU runs to its end without one, and whatever its parts do."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.programs import loaded

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[1]


def _script(name: str) -> Any:
    path = REPOSITORY / "benchmarks" / f"{name}.py"
    return loaded(path)


SCRIPT = _script("on_gpu")


def _part(folder: Path, text: str, **more: Any) -> Any:
    (folder / "part.py").write_text(text)
    return SCRIPT.Part("planted", str(folder / "part.py"), (), 1.0, **more)


def _part_of_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks" / "gpu")  # where a part finds `telling`
    return _script(f"gpu/{name}")


def test_without_a_gpu_every_part_that_needs_one_is_not_run(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: the parts would run, for nine minutes")
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "on_gpu.py"), "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("on_gpu_*.json")
    document = json.loads(path.read_text())
    assert {part["name"]: part["status"] for part in document["parts"]} == {
        part.name: "not run" if part.needs_gpu else "done" for part in SCRIPT.PARTS
    }
    page = path.with_suffix(".md").read_text()
    assert "| timings against torch | not run: no CUDA device | 0.0 | 0 |" in page
    assert f"| torch | {torch.__version__} |" in page


@pytest.mark.parametrize("script", sorted({part.script for part in SCRIPT.PARTS if part.needs_gpu}))
def test_a_part_alone_says_that_there_is_no_gpu(script: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    part = SCRIPT.Part("alone", script, (), 1.0)
    result = SCRIPT.run(part, 120.0)
    assert (result.status, result.reason, result.rows) == ("not run", "no CUDA device", [])


def test_a_part_that_fails_leaves_what_it_found(tmp_path: Path) -> None:
    result = SCRIPT.run(_part(tmp_path, "print('{\"found\": 1}', flush=True)\nprint('noise')\n1 / 0"), 60.0)
    assert (result.status, result.rows) == ("failed", [{"found": 1}])
    assert "exit code 1" in result.reason
    assert "ZeroDivisionError: division by zero" in result.reason


def test_a_part_that_takes_too_long_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCRIPT, "GRACE", 1.0)
    text = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('{\"found\": 1}', flush=True)\n"
    result = SCRIPT.run(_part(tmp_path, text + "time.sleep(600)"), 3.0)
    assert (result.status, result.reason, result.rows) == ("cut off", "longer than 3 seconds", [{"found": 1}])
    assert result.seconds < 60


def test_one_part_that_fails_does_not_keep_the_next_from_running(tmp_path: Path) -> None:
    failing = _part(tmp_path, "raise SystemExit(7)")
    (tmp_path / "next.py").write_text("print('{\"found\": 2}')")
    following = SCRIPT.Part("next", str(tmp_path / "next.py"), (), 1.0)
    result = SCRIPT.measure(2.0, (failing, following))
    assert [(part["status"], part["rows"]) for part in result["parts"]] == [("failed", []), ("done", [{"found": 2}])]


def test_without_time_nothing_runs(tmp_path: Path) -> None:
    result = SCRIPT.measure(0.05, (_part(tmp_path, "print('{}')"),))
    assert [part["reason"] for part in result["parts"]] == ["no time is left"]


def test_the_page_has_a_table_for_each_set_of_columns() -> None:
    rows = [{"a": 1.23456, "b": "x|y"}, {"a": 2.0, "b": "z"}, {"c": 3}]
    part = {"name": "planted", "status": "done", "reason": "", "seconds": 1.0, "rows": rows}
    text = SCRIPT.page.text({"date": "2026-01-02T03:04:05", "minutes": 9.0, "seconds": 1.0, "parts": [part]})
    assert "## Planted\n\n| a | b |\n| --- | --- |\n| 1.235 | x\\|y |\n| 2 | z |\n\n| c |\n| --- |\n| 3 |\n" in text


def test_the_cost_of_a_launch_is_measured_without_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed, so no kernel's launch can be reached")
    script = REPOSITORY / "benchmarks" / "launch_cost.py"
    done = subprocess.run(
        [sys.executable, script, "softmax"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "softmax, 1 launch " in done.stdout


class _Stubborn:
    """A run that goes on after its interrupt, until it is killed."""

    def __init__(self, command: list[str], **more: Any) -> None:
        self.questions: list[str] = []
        RUNS.append(self)

    def wait(self, seconds: float | None = None) -> None:
        if seconds is not None:
            raise subprocess.TimeoutExpired("opassay", seconds)

    def send_signal(self, number: int) -> None:
        self.questions.append(f"signal {number:d}")

    def kill(self) -> None:
        self.questions.append("kill")


RUNS: list[_Stubborn] = []


def test_a_run_of_cells_that_does_not_end_is_recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = _part_of_gpu("cells", monkeypatch)
    monkeypatch.setattr(cells.subprocess, "Popen", _Stubborn)
    monkeypatch.setattr(
        cells.subprocess, "run", lambda command, **more: RUNS[-1].questions.append(" ".join(command[3:5]))
    )
    monkeypatch.setattr(cells.record, "load", lambda path: SimpleNamespace(verdicts=()))
    cells.run(["trace"], 1.0)
    assert RUNS[-1].questions == ["signal 2", "kill", "report recover"]


def test_cells_over_devices_of_one_gpu_begin_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, commands = _part_of_gpu("cells", monkeypatch), []
    monkeypatch.setattr(cells, "require_gpu", lambda: None)
    monkeypatch.setattr(cells, "run", lambda words, seconds: commands.append(words[words.index("--device") + 1]))
    for words in (["--folded", "gather"], ["softmax"]):
        monkeypatch.setattr(sys, "argv", ["cells.py", *words, "9"])
        cells.main()
    assert commands == ["cpu", "cuda"]


def test_the_sanitizer_sees_each_tensor_in_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sanitized, commands = _part_of_gpu("sanitized", monkeypatch), []

    def run(command: list[str], *, env: dict[str, str], **more: Any) -> Any:
        commands.append(env["PYTORCH_NO_CUDA_MEMORY_CACHING"])
        return SimpleNamespace(stdout=b"", stderr=b"", returncode=0)

    monkeypatch.setattr(sanitized, "require_gpu", lambda: None)
    monkeypatch.setattr(sanitized.shutil, "which", lambda name: name)
    monkeypatch.setattr(sanitized.subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["sanitized.py", "9"])
    sanitized.main()
    assert commands == ["1"] * len(sanitized.TOOLS)


def test_streams_do_not_share_what_a_call_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = _part_of_gpu("runtime", monkeypatch)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: SimpleNamespace(wait_stream=lambda other: None))
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    for name in ("current_stream", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    kind = next(kind for kind in runtime.CLASSES if kind.op == "batch_norm")
    arguments = kind.arguments(runtime.Source(torch.float32, torch.device("cpu"), torch.Generator()), kind.few)
    wanted = runtime.with_gradients(kind, arguments)()
    running = [value.clone() for value in arguments[1:3]]
    assert runtime.streamed(kind, arguments, wanted) == "same bits"
    assert all(torch.equal(before, now) for before, now in zip(running, arguments[1:3], strict=True))
