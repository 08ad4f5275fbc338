"""Tasks of gpu-mode's reference-kernels: `task.yml`, whose tests are arguments of `generate_input` of the reference.

The suite copies the files that `task.yml` lists into one folder; so does this, but a candidate gets no reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..arguments import Inputs
from ..host.module_files import GivenError, problem_of
from .task import Case, Pair, located, write_files

#: Files of the list that are not copied: what is judged, by what, and the suite's own check.
_APART = ("submission.py", "reference.py", "eval.py")


class _Zeroed(TorchFunctionMode):
    """Destinations that `generate_input` leaves unwritten are zero: what memory had before must be no input."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        value = function(*args, **(kwargs or {}))
        return value.zero_() if function in (torch.empty, torch.empty_like, torch.Tensor.new_empty) else value


@dataclass(frozen=True)
class YamlTask:
    """The task of one `task.yml`."""

    path: Path

    def cases(self) -> Sequence[Case]:
        return self._mappings("tests")

    def pair(self, candidate: str, folder: Path, seed: int, case: Case) -> Pair:
        file, name = located(candidate, "custom_kernel")
        content, listed = file.read_bytes(), self._mappings("files")
        shared = {
            str(each.get("name")): self._content(str(each.get("source")))
            for each in listed
            if each.get("name") not in _APART
        }
        write_files(folder / "spec", {**shared, "reference.py": self._content("reference.py")})
        write_files(folder / "candidate", {**shared, "submission.py": content})
        # The test's own seed gives the given inputs; questions that draw others draw by seeds beside it.
        first, values = int(case.get("seed", 0)), {key: value for key, value in case.items() if key != "seed"}
        problem = problem_of(str(folder / "spec" / "reference.py"), seed, values)

        def draw(number: int) -> Inputs:
            with _Zeroed():
                return problem.draw(first + number)

        whole = replace(problem, draw=draw, path=self.path.resolve().with_name("reference.py"))
        return Pair(whole, f"{folder / 'candidate' / 'submission.py'}:{name}", {str(file): content})

    def _mappings(self, field: str) -> list[dict[str, Any]]:
        import yaml  # here, because other specs do not need it

        try:
            values = yaml.safe_load(self.path.read_text()).get(field)
        except (OSError, ValueError, AttributeError, yaml.YAMLError) as err:
            raise GivenError(f"{self.path}: no YAML of a task: {err}") from err
        if not isinstance(values, list) or not values or not all(isinstance(each, dict) for each in values):
            raise GivenError(f"{self.path}: {field}: got {str(values)[:80]}, need a list of mappings")
        return values

    def _content(self, source: str) -> bytes:
        """The bytes of a file beside the task; where there is no CUDA they name the CPU for it."""
        try:
            content = (self.path.parent / source).read_bytes()
        except OSError as err:
            raise GivenError(f"{self.path}: {source}: {err.strerror}") from err
        return (
            content if torch.cuda.is_available() else content.replace(b'"cuda"', b'"cpu"').replace(b"'cuda'", b"'cpu'")
        )


def task_at(path: Path) -> YamlTask | None:
    """The task of a folder, or of its `task.yml`; None for others."""
    path = path / "task.yml" if path.is_dir() else path
    return YamlTask(path) if path.suffix in (".yml", ".yaml") and path.is_file() else None
