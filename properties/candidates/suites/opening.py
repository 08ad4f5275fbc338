"""Which task the address of a spec is, which of its tests are asked, and the pair of spec and candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..cases import CANDIDATES
from ..host.module_files import GivenError, SpecFile, cast_problem, problem_of, spec_in_evaluation
from . import flashinfer_bench, gpu_mode, robust_kbench
from .task import Case, Pair, Task

_NONE: Mapping[str, Any] = {}
#: What finds the task of a suite at a path, None for other files.
_SUITES = (gpu_mode.task_at, robust_kbench.task_at, flashinfer_bench.task_at)


def task_of(spec: str) -> Task | None:
    """The task at a path, GivenError for a broken one; None for Python files, pairs, and folders of problems."""
    path = Path(spec)
    try:
        return next((task for suite in _SUITES if path.exists() and (task := suite(path)) is not None), None)
    except OSError as err:
        raise GivenError(f"{path}: {err.strerror}") from err


def cases_of(spec: str, values: Mapping[str, Any]) -> Sequence[Case]:
    """The tests that are asked: all of them; or, where values are given, one.

    That is the first test with these values, or else the first of all with these in place of its own.
    """
    task = task_of(spec)
    cases = [{}] if task is None else list(task.cases())
    alike = [case for case in cases if values.items() <= case.items()]
    return [{**[*alike, *cases][0], **values}] if values else cases


def open_pair(
    spec: str, candidate: str, folder: Path, seed: int, values: Mapping[str, Any], changes: Mapping[str, Any] = _NONE
) -> Pair:
    """A spec and its candidate at the first test of `cases_of`; other arguments and errors as of `Task.pair`.

    Args:
        spec: see `task_of`; "" for none, where the candidate's file gives the inputs.
        changes: of what is read, those arguments of `_changed`, by name.
    """
    task = task_of(spec) if spec else None
    if not spec:
        pair = Pair(problem_of(candidate, seed, values, CANDIDATES), candidate)
    elif task is None:
        pair = Pair(problem_of(spec, seed, values), candidate)
    else:
        pair = task.pair(candidate, folder, seed, dict(cases_of(spec, values)[0]))
    return replace(pair, problem=_changed(pair.problem, **changes))


def _changed(
    problem: SpecFile, dtype: str = "", device: str = "", evaluation: bool = False, where: Sequence[str] = ()
) -> SpecFile:
    """A problem as the one who judges wants it.

    With a dtype of torch, by name, floating inputs, parameters and buffers are cast to it; with a device all are there.
    For evaluation, see `spec_in_evaluation`; `where`: further sentences of its domain.
    """
    problem = cast_problem(problem, dtype, device) if dtype or device else problem
    if where:
        problem = replace(problem, domain={**problem.domain, "where": [*problem.domain.get("where", ()), *where]})
    return spec_in_evaluation(problem) if evaluation else problem
