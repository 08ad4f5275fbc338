"""A small task of each suite, written into a folder as the suite has its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TASK = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "helpers.py", "source": "../helpers.py"}
  - {"name": "reference.py", "source": "reference.py"}
  - {"name": "eval.py", "source": "../eval.py"}  # not there
lang: "py"
tests:
  - {"rows": 5, "columns": 8, "seed": 11}
  - {"rows": 7, "columns":16, "seed": 12}
benchmarks:
  - {"rows": 512, "columns": 512, "seed": 13}
"""
REFERENCE = """
import torch
from helpers import keep
from task import Data

@keep
def ref_kernel(data: Data) -> torch.Tensor:
    x, scale, output = data
    output[...] = torch.relu(x) * scale
    return output

def generate_input(rows: int, columns: int, seed: int) -> Data:
    drawn = torch.Generator(device="cuda")
    drawn.manual_seed(seed)
    x = torch.randn(rows, columns, device="cuda", generator=drawn)
    return x, torch.randn(columns, device='cuda', generator=drawn), torch.empty(rows, columns, device="cuda")
"""
SUBMISSION = """
import torch
from helpers import keep
from task import Data

def custom_kernel(data: Data) -> torch.Tensor:
    x, scale, output = data
    return torch.mul({value}, scale, out=output)
"""


def write_gpu_mode(folder: Path, value: str = "x.clamp(min=0)") -> tuple[str, str]:
    """A submission that computes `value` times a scale, and the folder of its task."""
    task = folder / "scale_py"
    task.mkdir(exist_ok=True)
    (folder / "helpers.py").write_text("def keep(function):\n    return function\n")
    (task / "task.py").write_text("import torch\nData = tuple[torch.Tensor, ...]\n")
    (task / "task.yml").write_text(TASK)
    (task / "reference.py").write_text(REFERENCE)
    (task / "submission.py").write_text(SUBMISSION.format(value=value))
    return str(task / "submission.py"), str(task)


DEFINITION: dict[str, Any] = {
    "name": "row_scale",
    "op_type": "norm",
    "axes": {"rows": {"type": "var"}, "columns": {"type": "const", "value": 12}, "n": {"type": "var"}},
    "inputs": {
        "x": {"shape": ["rows", "columns"], "dtype": "float32"},
        "chosen": {"shape": ["n"], "dtype": "int64"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["n", "columns"], "dtype": "float32"}},
    "reference": "import torch\n\ndef run(x, chosen, eps):\n"
    "    return (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps))[chosen]\n",
}
MAIN = "from inner import root\n\ndef run(x, chosen, eps):\n    return (x / root(x, eps))[chosen]\n"
WRITING = "from inner import root\n\ndef run(x, chosen, eps, y):\n    y.copy_((x / root(x, eps))[chosen])\n"
INNER = "import torch\n\ndef root(x, eps):\n    return torch.sqrt(x.square().mean(-1, keepdim=True) + eps)\n"


def write_definition(folder: Path, **changes: Any) -> Path:
    """The file of a definition, in a data set's folder."""
    path = folder / "definitions" / "row_scale.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(DEFINITION | changes))
    return path


def write_solution(folder: Path, main: str = MAIN, **spec: Any) -> Path:
    """The file of a solution."""
    path = folder / "solution.json"
    built = {"language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::run", **spec}
    sources = [{"path": "main.py", "content": main}, {"path": "inner.py", "content": INNER}]
    fields = {"name": "mine", "definition": "row_scale", "author": "me", "spec": built, "sources": sources}
    path.write_text(json.dumps(fields))
    return path


def write_workloads(folder: Path, **descriptor: Any) -> Path:
    """The file of two workloads."""
    path = folder / "workloads" / "row_scale.jsonl"
    path.parent.mkdir(exist_ok=True)
    lines = []
    for rows, eps in ((3, 1e-5), (9, 1e-6)):
        inputs = {
            "x": {"type": "random"},
            "chosen": {"type": "random"} | descriptor,
            "eps": {"type": "scalar", "value": eps},
        }
        workload = {"uuid": f"with {rows}", "axes": {"rows": rows, "n": 2}, "inputs": inputs}
        lines.append(
            json.dumps({"definition": "row_scale", "solution": None, "workload": workload, "evaluation": None})
        )
    path.write_text("\n".join(lines) + "\n")
    return path


FORWARD = """
import torch

def forward_fn(x, weight, bias, slope=0.125):
    return torch.nn.functional.leaky_relu(x @ weight.T + bias, slope)

class Model(torch.nn.Module):
    def __init__(self, wide, deep):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(deep, wide))
        self.bias = torch.nn.Parameter(torch.randn(deep))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight, bias=self.bias)

def get_inputs(batch_size=4, wide=6):
    return [torch.randn(batch_size, wide)]
"""
BACKWARD = """
import torch

class AutogradFunction(torch.autograd.Function):
    backward_fn = None

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx, grad):
        return AutogradFunction.backward_fn(grad, *ctx.saved_tensors)

def forward_fn(x, weight):
    return x @ weight.T

class Model(torch.nn.Module):
    def __init__(self, wide, deep):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(deep, wide))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight)

def get_inputs(batch_size=4, wide=6):
    return [torch.randn(batch_size, wide, requires_grad=True)]
"""
KERNEL = """
import torch

def forward(x, weight, bias, slope=0.125):
    y = {value}
    return torch.where(y > 0, y, slope * y)
"""


def write_robust_kbench(folder: Path) -> Path:
    """The folder of a task with two settings of the forward and one of the backward."""
    task = folder / "linear"
    task.mkdir(exist_ok=True)
    for way, text in (("forward", FORWARD), ("backward", BACKWARD)):
        (task / f"func_{way}.py").write_text(text)
        single = {"input": [{"batch_size": 3}], "init": [{"deep": 5}], "shared": [{"wide": 4}]}
        multi = {"input": [{"batch_size": 2}, {"batch_size": 3}]} | {each: single[each] for each in ("init", "shared")}
        configs = {f"single_{role}_configs": values for role, values in single.items()}
        configs |= {f"multi_{role}_configs": values if way == "forward" else [{}] for role, values in multi.items()}
        (task / f"config_{way}.json").write_text(json.dumps(configs))
    return task
