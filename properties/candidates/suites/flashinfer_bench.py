"""Tasks of FlashInfer-Bench: a definition or a file of its workloads as the spec, a solution as the candidate.

A definition is JSON: axes with or without a value, inputs and outputs by the names of their axes, and a reference in
Python with a function `run`. A solution is JSON with sources and an entry point `main.py::run`, or a Python file. It
may take the outputs as its last arguments and write them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..host.module_files import GivenError, SpecFile, module_of
from .task import Case, Pair, located, read_fields, write_files

#: The size of the first axis without a value, and what each further one has more: equal sizes may mean the same axis.
_FIRST, _MORE = 4, 3


@dataclass(frozen=True)
class Definition:
    """A definition's file, its fields, and the sizes and scalars of its workloads."""

    path: Path
    fields: Mapping[str, Any]
    workloads: Sequence[Case] = ({},)

    def cases(self) -> Sequence[Case]:
        variable = [name for name, axis in self.fields["axes"].items() if axis.get("type") == "var"]
        usual: Case = {name: _FIRST + _MORE * i for i, name in enumerate(variable)}
        scalars = [name for name, each in self.fields["inputs"].items() if each.get("shape") is None]
        usual |= {name: 1.0 if self._dtype(name).is_floating_point else 1 for name in scalars}
        return [usual | workload for workload in self.workloads]

    def pair(self, candidate: str, folder: Path, seed: int, case: Case) -> Pair:
        for name in case.keys() - self.cases()[0].keys():
            raise GivenError(f"{self.path}: got {name}={case[name]!r}, need axes and scalars of {[*self.cases()[0]]}")
        address, contents = self._solution(candidate, folder / "candidate")
        write_files(folder / "spec", {"reference.py": self.fields["reference"].encode()})
        run = getattr(module_of(str(folder / "spec" / "reference.py"))[0], "run", None)
        if not callable(run):
            raise GivenError(f"{self.path}: reference: has no function run")

        def draw(number: int) -> Sequence[Any]:
            torch.manual_seed(number)
            return [self._input(name, case) for name in self.fields["inputs"]]

        return Pair(SpecFile(run, draw, path=self.path), address, contents)

    def _solution(self, candidate: str, folder: Path) -> tuple[str, dict[str, bytes]]:
        """The address of a solution, and the user's file of it."""
        file, name = located(candidate, "run")
        content = file.read_bytes()
        address = f"{file}:{name}"
        if file.suffix == ".json":
            solution = read_fields(file, content, definition=str, spec=dict, sources=list)
            if solution["definition"] != self.fields["name"]:
                raise GivenError(f"{file}: definition: got {solution['definition']!r}, need {self.fields['name']!r}")
            sources = {str(each.get("path")): str(each.get("content")).encode() for each in solution["sources"]}
            point = str(solution["spec"].get("entry_point"))
            entry, _, name = point.partition("::")
            if not (entry.endswith(".py") and name and entry in sources):
                raise GivenError(f"{file}: spec.entry_point: got {point!r}, need FILE.py::FUNCTION of {[*sources]}")
            write_files(folder, sources)
            address = f"{folder / entry}:{name}"
        return address, {str(file): content}

    def _dtype(self, name: str) -> torch.dtype:
        text = str((self.fields["inputs"] | self.fields["outputs"])[name].get("dtype"))
        dtype = getattr(torch, text, None)
        if not isinstance(dtype, torch.dtype):
            raise GivenError(f"{self.path}: {name}: dtype: got {text!r}, need one of torch")
        return dtype

    def _sizes(self, case: Case) -> dict[str, int]:
        return {name: int(case.get(name, axis.get("value", 0))) for name, axis in self.fields["axes"].items()}

    def _shape(self, name: str, case: Case) -> list[int]:
        axes, sizes = (self.fields["inputs"] | self.fields["outputs"])[name].get("shape") or [], self._sizes(case)
        if not sizes.keys() >= set(axes):
            raise GivenError(f"{self.path}: {name}: shape: got {axes}, need axes of {[*sizes]}")
        return [sizes[axis] for axis in axes]

    def _input(self, name: str, case: Case) -> Any:
        if name in case:
            return case[name]
        shape, dtype = self._shape(name, case), self._dtype(name)
        if dtype.is_floating_point:
            return torch.randn(shape).to(dtype)
        # Whole numbers are likely to be indices, into an axis that nothing names: these fit all.
        return torch.randint(0, 2 if dtype is torch.bool else max(min(self._sizes(case).values()), 1), shape).to(dtype)


def task_at(path: Path) -> Definition | None:
    """The task of a definition, or of a file of workloads, whose definition is found by its name; None for others."""
    if path.suffix == ".json":
        kinds = {"name": str, "axes": dict, "inputs": dict, "outputs": dict, "reference": str}
        return Definition(path.resolve(), read_fields(path, path.read_bytes(), **kinds))
    if path.suffix != ".jsonl":
        return None
    lines = [read_fields(path, line, definition=str, workload=dict) for line in path.read_text().splitlines() if line]
    above = str(path.resolve().parent)
    homes = [
        Path(each) / f"{line['definition']}.json"
        for line in lines[:1]
        for each in (above, above.replace("workloads", "definitions"))
    ]
    task = next((task_at(home) for home in homes if home.is_file()), None)
    if task is None:
        raise GivenError(f"{path}: its definition is at none of {', '.join(map(str, homes))}")
    return Definition(task.path, task.fields, [_workload(path, line["workload"]) for line in lines])


def _workload(path: Path, fields: Mapping[str, Any]) -> Case:
    """The sizes and scalars of a workload; other inputs are drawn."""
    for name, each in fields.get("inputs", {}).items():
        if each.get("type") not in ("scalar", "random"):
            got = f"{fields.get('uuid')}: {name}: type: got {each.get('type')!r}"
            raise GivenError(f"{path}: {got}, need 'random' or 'scalar'")
    scalars = {name: each.get("value") for name, each in fields.get("inputs", {}).items() if each["type"] == "scalar"}
    return {**fields.get("axes", {}), **scalars}
