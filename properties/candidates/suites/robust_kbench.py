"""Tasks of robust-kbench: a folder with `config_forward.json` and `func_forward.py`, or the same of the backward.

The module has `forward_fn`, a `Model` that calls what it is handed as `fn`, and `get_inputs`; the configuration has
arguments of both. The candidate is a function `forward` of the arguments that `Model` hands to `fn`; of a backward it
is a function `backward`, which the module's `AutogradFunction` calls.
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


def candidate(*args):
    return AutogradFunction.apply(*args)
"""


@dataclass(frozen=True)
class ConfiguredTask:
    """The task of one configuration; `way` is "forward" or "backward"."""

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
        file, name = located(candidate, self.way)
        if file.suffix != ".py":
            raise GivenError(f"{file}: need a Python file with a function {name}, which may compile it")
        functions = self.path.parent / f"func_{self.way}.py"
        module, _ = module_of(str(functions))
        lacking = [each for each in ("forward_fn", "Model", "get_inputs") if not callable(getattr(module, each, None))]
        if lacking:
            raise GivenError(f"{functions}: has no {', '.join(lacking)}")
        problem = SpecFile(
            module.forward_fn, lambda number: self._arguments(module, number, case), path=functions.resolve()
        )
        if self.way == "forward":
            return Pair(problem, f"{file}:{name}")
        content = file.read_bytes()
        sources = {"func_backward.py": functions.read_bytes(), "submission.py": content}
        write_files(folder, {**sources, "candidate.py": _BACKWARD.format(name=name).encode()})
        return Pair(problem, f"{folder / 'candidate.py'}:candidate", {str(file): content})

    def _arguments(self, module: Any, seed: int, case: Case) -> Sequence[Any]:
        """What a model hands to its function."""
        calls: list[Sequence[Any]] = []

        def record(*args: Any, **options: Any) -> Any:
            calls.append(inspect.signature(module.forward_fn).bind(*args, **options).args)
            return module.forward_fn(*args, **options)

        torch.manual_seed(seed)
        with blamed(str(self.path)), torch.no_grad():
            model = module.Model(**_taken_by(module.Model, case))
            model(*module.get_inputs(**_taken_by(module.get_inputs, case)), fn=record)
        if len(calls) != 1:
            raise GivenError(f"{self.path}: Model calls fn {len(calls)} times, need once")
        return [self._detached(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in calls[0]]

    def _detached(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that requires a gradient where the task asks for one."""
        return tensor.detach().requires_grad_(tensor.requires_grad and self.way == "backward")


def _taken_by(function: Callable[..., Any], case: Case) -> Case:
    """The values that a function takes: a case has those of a model and of its inputs."""
    return {name: value for name, value in case.items() if name in inspect.signature(function).parameters}


def task_at(path: Path) -> ConfiguredTask | None:
    """The task of a folder, whose forward it is, or of a configuration; None for others."""
    path = path / "config_forward.json" if path.is_dir() else path
    way = path.stem.removeprefix("config_")
    return (
        ConfiguredTask(path, way)
        if way in ("forward", "backward") and path.suffix == ".json" and path.is_file()
        else None
    )
