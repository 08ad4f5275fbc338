"""Tasks of robust-kbench: a folder with `config_forward.json` and `func_forward.py`, or the same of the backward.

The module has `forward_fn`, a `Model` that calls what it is handed as `fn`, and `get_inputs`; the configuration has
arguments of both. The candidate is a function `forward` of what `Model` hands to `fn`; of a backward it is a function
`backward`, which the module's `AutogradFunction` calls.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..host.module_files import GivenError, SpecFile, blamed, module_of
from .task import Case, Pair, located, read_fields, write_files

#: A candidate's module that calls a backward as the suite does.
_BACKWARD = """
from func_backward import AutogradFunction
from submission import {name}

AutogradFunction.backward_fn = staticmethod({name})
candidate = AutogradFunction.apply
"""


@dataclass(frozen=True)
class ConfiguredTask:
    """The task of one configuration file; `way` is what it judges, "forward" or "backward"."""

    path: Path
    way: str

    def cases(self) -> Sequence[Case]:
        fields = read_fields(self.path, self.path.read_bytes())
        cases: list[Case] = []
        for number in ("single", "multi"):
            configs = [fields.get(f"{number}_{role}_configs", [{}]) for role in ("init", "input", "shared")]
            # What is shared comes last, because it takes the place of the others' values.
            cases += [{**init, **inputs, **shared} for init, inputs, shared in itertools.product(*configs)]
        # A task without several configurations has an empty one.
        return [case for i, case in enumerate(cases) if case not in cases[:i] and (case or not any(cases))]

    def pair(self, candidate: str, folder: Path, seed: int, case: Case) -> Pair:
        """See `Task`; a backward is called through a module in `folder` that hands it to `AutogradFunction`."""
        file, name = located(candidate, self.way)
        if file.suffix != ".py":
            raise GivenError(f"{file}: need a Python file with a function {name}, which may compile it")
        functions = self.path.resolve().with_name(f"func_{self.way}.py")
        module, _ = module_of(str(functions))
        with blamed(str(functions)):
            problem = SpecFile(module.forward_fn, lambda number: self._arguments(module, number, case), path=functions)
        if self.way == "forward":
            return Pair(problem, f"{file}:{name}")
        content = file.read_bytes()
        sources = {"func_backward.py": functions.read_bytes(), "submission.py": content}
        write_files(folder, {**sources, "candidate.py": _BACKWARD.format(name=name).encode()})
        return Pair(problem, f"{folder / 'candidate.py'}:candidate", {str(file): content})

    def _arguments(self, module: Any, seed: int, case: Case) -> Sequence[Any]:
        """What a model hands to its function; tensors require gradients where the task asks for these."""
        calls: list[Sequence[Any]] = []

        def record(*args: Any, **options: Any) -> Any:
            calls.append(inspect.signature(module.forward_fn).bind(*args, **options).args)
            return module.forward_fn(*args, **options)

        def call_with_case(function: Callable[..., Any]) -> Any:  # a case has values for both a model and its inputs
            names = inspect.signature(function).parameters
            return function(**{name: value for name, value in case.items() if name in names})

        torch.manual_seed(seed)
        with blamed(str(self.path)), torch.no_grad():
            call_with_case(module.Model)(*call_with_case(module.get_inputs), fn=record)
            (leaves,) = calls
        tracked = self.way == "backward"
        return [
            t.detach().requires_grad_(tracked and t.requires_grad) if isinstance(t, torch.Tensor) else t for t in leaves
        ]


def task_at(path: Path) -> ConfiguredTask | None:
    """The task of a folder, whose forward it is, or of a configuration; None for others."""
    path = path / "config_forward.json" if path.is_dir() else path
    known = path.name in ("config_forward.json", "config_backward.json") and path.is_file()
    return ConfiguredTask(path, path.stem.removeprefix("config_")) if known else None
