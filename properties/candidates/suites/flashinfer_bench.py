"""Tasks of FlashInfer-Bench: a definition or a file of its workloads as the spec, a solution as the candidate.

A definition is JSON: axes with or without a value, inputs and outputs by the names of their axes, and a reference in
Python with a function `run`. A solution is JSON with sources and an entry point `main.py::run`, or a Python file. By
its destination passing style it takes the outputs as its last arguments and writes them; the spec does the same then.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
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
    """A definition, with the workloads that somebody wants of it.

    Attributes:
        path: of its file. fields: of it. workloads: sizes and scalars of each; one empty one where there are none.
    """

    path: Path
    fields: Mapping[str, Any]
    workloads: Sequence[Case] = ({},)

    def cases(self) -> Sequence[Case]:
        axes, inputs = self.fields["axes"], self.fields["inputs"]
        variable = [name for name, axis in axes.items() if axis.get("type") == "var"]
        usual: Case = {name: _FIRST + _MORE * i for i, name in enumerate(variable)}
        usual |= {
            name: self._dtype(name).is_floating_point * 1.0 or 1
            for name, each in inputs.items()
            if each["shape"] is None
        }
        return [usual | workload for workload in self.workloads]

    def pair(self, candidate: str, folder: Path, seed: int, case: Case) -> Pair:
        unknown = sorted(case.keys() - self.cases()[0].keys())
        if unknown:
            names = ", ".join(self.cases()[0]) or "none"
            raise GivenError(f"{self.path}: {unknown[0]}={case[unknown[0]]!r}: need axes and scalars of {names}")
        address, writes, contents = self._solution(candidate, folder / "candidate")
        write_files(folder / "spec", {"reference.py": self.fields["reference"].encode()})
        module, _ = module_of(str(folder / "spec" / "reference.py"))
        run = getattr(module, "run", None)
        if not callable(run):
            raise GivenError(f"{self.path}: reference: has no function run")
        spec = _writing(run, len(self.fields["outputs"])) if writes else run
        roles = ("inputs", "outputs") if writes else ("inputs",)

        def draw(number: int) -> Sequence[Any]:
            torch.manual_seed(number)
            return [self._value(role, name, case) for role in roles for name in self.fields[role]]

        return Pair(SpecFile(spec, draw, path=self.path), address, contents)

    def _solution(self, candidate: str, folder: Path) -> tuple[str, bool, dict[str, bytes]]:
        """The address of a solution, whether it writes its outputs, and the user's file of it."""
        file, name = located(candidate, "run")
        content = file.read_bytes()
        address, text, style = f"{file}:{name}", content, None
        if file.suffix == ".json":
            solution = read_fields(file, content, definition=str, spec=dict, sources=list)
            if solution["definition"] != self.fields["name"]:
                raise GivenError(f"{file}: definition: got {solution['definition']!r}, need {self.fields['name']!r}")
            sources = {str(each.get("path")): str(each.get("content", "")).encode() for each in solution["sources"]}
            entry, _, name = str(solution["spec"].get("entry_point")).partition("::")
            if not (entry.endswith(".py") and name and entry in sources):
                got = f"got {solution['spec'].get('entry_point')!r}, need FILE.py::FUNCTION"
                raise GivenError(f"{file}: spec.entry_point: {got} with a FILE of sources, {', '.join(sources)}")
            write_files(folder, sources)
            address, text, style = (
                f"{folder / entry}:{name}",
                sources[entry],
                solution["spec"].get("destination_passing_style"),
            )
        return address, self._takes_outputs(text, name) if style is None else bool(style), {str(file): content}

    def _takes_outputs(self, text: bytes, name: str) -> bool:
        """Whether a function has parameters for the outputs, too, as its text has them."""
        try:
            nodes = ast.parse(text).body
        except (SyntaxError, ValueError):
            return False  # the candidate's process says so
        functions = [node.args for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name]
        count = sum(len(self.fields[role]) for role in ("inputs", "outputs"))
        return any(len(each.posonlyargs + each.args) >= count for each in functions)

    def _dtype(self, name: str) -> torch.dtype:
        text = str((self.fields["inputs"] | self.fields["outputs"])[name].get("dtype"))
        dtype = getattr(torch, {"float8_e4m3": "float8_e4m3fn"}.get(text, text), None)
        if not isinstance(dtype, torch.dtype):
            raise GivenError(f"{self.path}: {name}: dtype: got {text!r}, need one of torch")
        return dtype

    def _value(self, role: str, name: str, case: Case) -> Any:
        """An input, drawn; an output, zeros for the spec to write."""
        axes, names, dtype = self.fields["axes"], self.fields[role][name]["shape"], self._dtype(name)
        if names is None:
            return case[name] if role == "inputs" else torch.zeros((), dtype=dtype)
        sizes = {axis: case.get(axis, fields.get("value")) for axis, fields in axes.items()}
        if not all(isinstance(sizes.get(axis), int) for axis in names):
            raise GivenError(
                f"{self.path}: {role}: {name}: shape {names}: need names of axes with whole sizes, got {sizes}"
            )
        shape = [sizes[axis] for axis in names]
        if role == "outputs":
            return torch.zeros(shape, dtype=dtype)
        if dtype.is_floating_point:
            return torch.randn(shape).to(dtype)
        # Whole numbers are likely to be indices, into an axis that nothing names: these fit all.
        return torch.randint(0, 2 if dtype is torch.bool else max(min(sizes.values()), 1), shape).to(dtype)


def _writing(run: Callable[..., Any], outputs: int) -> Callable[..., None]:
    """A reference that writes its results into its last arguments."""

    def spec(*args: Any) -> None:
        results = run(*args[:-outputs])
        results = list(results.values()) if isinstance(results, dict) else results
        for place, value in zip(
            args[-outputs:], results if isinstance(results, (tuple, list)) else [results], strict=True
        ):
            place.copy_(value)

    return spec


def task_at(path: Path) -> Definition | None:
    """The task of a definition, or of a file of workloads, whose definition is found by its name; None for others."""
    if path.suffix == ".json" and not path.name.startswith("config_"):
        kinds = {"name": str, "axes": dict, "inputs": dict, "outputs": dict, "reference": str}
        return Definition(path.resolve(), read_fields(path, path.read_bytes(), **kinds))
    if path.suffix != ".jsonl":
        return None
    lines = [read_fields(path, line, definition=str, workload=dict) for line in path.read_text().splitlines() if line]
    names = {line["definition"] for line in lines}
    if len(names) != 1:
        raise GivenError(f"{path}: got workloads of {len(names)} definitions, need those of one")
    above = str(path.resolve().parent)
    homes = [
        Path(home) / f"{name}.json" for name in names for home in (above, above.replace("workloads", "definitions"))
    ]
    task = next((task_at(home) for home in homes if home.is_file()), None)
    if task is None:
        raise GivenError(f"{path}: its definition is at none of {', '.join(map(str, homes))}")
    return Definition(task.path, task.fields, [_workload(path, line["workload"]) for line in lines])


def _workload(path: Path, fields: Mapping[str, Any]) -> Case:
    """The sizes and scalars of a workload."""
    case = dict(fields.get("axes", {}))
    for name, descriptor in fields.get("inputs", {}).items():
        if descriptor.get("type") == "scalar":
            case[name] = descriptor.get("value")
        elif descriptor.get("type") != "random":
            kind = descriptor.get("type")
            raise GivenError(f"{path}: {fields.get('uuid')}: {name}: type: got {kind!r}, need 'random' or 'scalar'")
    return case
