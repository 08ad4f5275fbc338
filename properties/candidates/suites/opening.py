"""Which task the address of a spec is, which of its tests is asked, and the pair of spec and candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..host.module_files import GivenError, problem_of
from . import flashinfer_bench, gpu_mode, robust_kbench
from .task import Case, Pair, Task

#: What finds the task of a suite at a path, None for other files.
_SUITES = (gpu_mode.task_at, robust_kbench.task_at, flashinfer_bench.task_at)


def task_of(spec: str) -> Task | None:
    """The task at a path; None for a Python file, a pair `module:name`, or a folder of several problems.

    Raises:
        GivenError: it has the form of a suite's file, and lacks something.
    """
    path = Path(spec)
    try:
        return next((task for suite in _SUITES if path.exists() and (task := suite(path)) is not None), None)
    except OSError as err:
        raise GivenError(f"{path}: {err.strerror}") from err


def cases_of(spec: str, given: Mapping[str, Any]) -> Sequence[Case]:
    """The tests of a spec that are asked: all of them; or one, where values are given.

    That is the first that has these values, or else the first with these in place of its own.
    """
    task = task_of(spec)
    cases = [{}] if task is None else list(task.cases())
    if not given:
        return cases
    return [{**next((case for case in cases if given.items() <= case.items()), cases[0]), **given}]


def open_pair(spec: str, candidate: str, folder: Path, seed: int, given: Mapping[str, Any] | None = None) -> Pair:
    """A spec and its candidate, at the first test that `cases_of` gives; arguments as for `Task.pair`.

    Raises:
        GivenError: a file is not there, or lacks something.
    """
    task, values = task_of(spec), dict(given or {})
    if task is None:
        return Pair(problem_of(spec, seed, values), candidate)
    return task.pair(candidate, folder, seed, dict(cases_of(spec, values)[0]))
