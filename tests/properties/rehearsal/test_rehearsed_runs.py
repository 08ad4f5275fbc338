"""Commands and functions of opassay with tensors on the rehearsal device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import opassay
from tests.rehearsal.record import NAME

pytestmark = [
    pytest.mark.rehearsal,
    pytest.mark.skipif("OPASSAY_REHEARSAL" not in os.environ, reason="tests of python -m tests.rehearsal -m pytest"),
]
OVER_DEVICES = ("broadcast", "gather", "scatter", "reduce_add_coalesced", "sync_batch_norm")


def _run(folder: Path, *words: str) -> dict[str, str]:
    command = [sys.executable, "-m", "opassay", "run", *words, "--profile", "brief", "--dtype", "float32", "-n", "1"]
    done = subprocess.run(
        [*command, "--exit-zero", "--report-dir", str(folder)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((folder / "run.json").read_text())
    assert record["environment"]["gpu"] == NAME
    return {f"{v['cell']['op']} {v['cell']['property']}": v["outcome"] for v in record["verdicts"]}


@pytest.mark.parametrize("fabric", ["cuda", "folded"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_ops_over_devices(device: str, fabric: str, tmp_path: Path) -> None:
    outcomes = _run(tmp_path, *OVER_DEVICES, "--property", "COMM", "--device", device, "--fabric", fabric)
    assert outcomes == {f"{op} COMM": "verified" for op in OVER_DEVICES}


def test_cells_of_an_op(tmp_path: Path) -> None:
    codes = ("FWD", "VJP", "LAW", "SAVE", "COMP", "PURE")
    words = [word for code in codes for word in ("--property", code)]
    outcomes = _run(tmp_path, "trace", "--device", "cuda", "--subject", "opassay", "--max-examples", "3", *words)
    assert outcomes == {f"trace {code}": "verified" for code in codes}


#: Says how large the samples of a cell may be on the device, on the CPU, and of executed kernels, and the longest axis.
SAMPLES = """
from opassay import Cell
from opassay.properties.declaring import strategies
from opassay.properties.engine import cells
for device, subject in (("cuda", "opassay"), ("cpu", "opassay"), ("cpu", "ptx")):
    print(cells.open_cell(Cell("softmax", "DET", "float32", device, subject), True).question.sampling.most)
print(max(map(max, strategies.SIZE_BANDS)))
"""


def test_samples_are_as_small_as_those_of_executed_kernels() -> None:
    # In another process, because pytest loads the modules of the package itself, as those of a plugin of its own.
    done = subprocess.run([sys.executable, "-c", SAMPLES], capture_output=True, text=True, timeout=300, check=True)
    here, there, executed, longest = map(int, done.stdout.split())
    assert longest <= executed == here < there


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def _on_host(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1).cpu()


def test_a_candidate_gets_its_inputs_on_the_gpu() -> None:
    x = torch.randn(4, 9).cuda()
    judgement = opassay.judge(_softmax, _softmax, (x,))
    assert judgement.verdict == "accepted", judgement
    assert opassay.judge(_on_host, _softmax, (x,), questions=["FWD:given"]).verdict == "rejected"


def test_a_file_gets_its_inputs_on_the_gpu(tmp_path: Path) -> None:
    spec = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x.softmax(-1)\n"
    (tmp_path / "spec.py").write_text(spec + "def get_inputs():\n    return [torch.randn(3, 5).cuda()]\n")
    candidate = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    (tmp_path / "candidate.py").write_text(candidate + "        assert x.is_cuda\n        return x.softmax(-1)\n")
    command = [
        sys.executable,
        "-m",
        "opassay",
        "judge",
        "candidate.py",
        "--spec",
        "spec.py",
        "-k",
        "FWD:given",
        "--json",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert json.loads(done.stdout)["verdict"] in ("accepted", "weak"), done.stdout + done.stderr


def test_inputs_and_parameters_of_both_sides_go_to_the_gpu(tmp_path: Path) -> None:
    model = "import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    model += "        self.linear = torch.nn.Linear(5, 2)\n    def forward(self, x):\n"
    inputs = "def get_inputs():\n    return [torch.randn(3, 5)]\n"
    (tmp_path / "spec.py").write_text(f"{model}        return self.linear(x)\n{inputs}")
    new = model.replace("Model(", "ModelNew(")
    (tmp_path / "candidate.py").write_text(f"{new}        assert x.is_cuda\n        return self.linear(x)\n")
    words = [sys.executable, "-m", "opassay", "judge", "candidate.py", "--spec", "spec.py", "--device", "cuda"]
    options = ["-k", "FWD:given", "-k", "FWD:params", "-k", "VJP:grad", "-k", "JVP", "--time", "--json"]
    done = subprocess.run([*words, *options], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    judgement = json.loads(done.stdout)
    assert judgement["verdict"] in ("accepted", "weak"), done.stdout + done.stderr
    assert judgement["time"]["runs"] > 0


def test_a_program_of_a_failure_on_the_gpu_shows_it_there(tmp_path: Path) -> None:
    model = "import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    model += "        self.linear = torch.nn.Linear(5, 2)\n    def forward(self, x):\n        return "
    (tmp_path / "spec.py").write_text(f"{model}self.linear(x)\ndef get_inputs():\n    return [torch.randn(3, 5)]\n")
    (tmp_path / "candidate.py").write_text(model.replace("Model(", "ModelNew(") + "self.linear(x) * 1.01\n")
    words = [sys.executable, "-m", "opassay", "judge", "candidate.py", "--spec", "spec.py", "--device", "cuda"]
    words += ["-k", "FWD:given", "--report-dir", "report"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    (program,) = (tmp_path / "report" / "cases").glob("*.py")
    ran = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "computed" in ran.stdout
    assert ".to('cuda:0')" in program.read_text()
