"""Several judgements in a table, a line each: a folder of problems, or a task with several tests.

Each is made in a copy of one process, one after the other, so an interrupt leaves the lines of those that were made.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from ... import exit_codes
from ...text import one_line
from ..host import Stop

#: Nobody finds modules in the current folder for it: a candidate before may have written there.
_COMMAND = (sys.executable, "-P", "-m", "opassay.properties.candidates.suites.warm_program")


@dataclass(frozen=True)
class ProblemRow:
    """One judgement to be made: `error` says why there is none; `values` are the values of its test."""

    name: str
    candidate: str
    spec: str
    values: dict[str, Any] = field(default_factory=dict)
    error: str = ""


def rows_of(candidate: str, spec: str, parameters: dict[str, Any]) -> list[ProblemRow]:
    """The judgements that two addresses ask for; for two files of Python, one.

    Raises:
        GivenError: a file of a suite lacks something. Stop: the folder has no problem.
    """
    from ....properties.candidates.suites.opening import cases_of, task_of

    folder = Path(spec)
    if not folder.is_dir() or task_of(spec) is not None:
        return list(_tests(folder.stem, candidate, spec, cases_of(spec, parameters)))
    rows = [
        row for problem in sorted(folder.iterdir()) for row in _rows_of_problem(problem, Path(candidate), parameters)
    ]
    if not rows:
        raise Stop(exit_codes.USAGE, f"--spec: {spec}: has no task.yml, no config_forward.json and no problems")
    return rows


def _rows_of_problem(problem: Path, candidates: Path, parameters: dict[str, Any]) -> Iterator[ProblemRow]:
    from ....properties.candidates.host.module_files import GivenError
    from ....properties.candidates.suites.opening import cases_of, task_of

    name, spec = problem.stem, str(problem)
    try:
        if problem.name.startswith((".", "_")) or (problem.suffix != ".py" and task_of(spec) is None):
            return
        names = (problem.name, f"{name}.py", f"{name}.json", f"{name}/submission.py")
        candidate = next((str(path) for each in names if (path := candidates / each).is_file()), "")
        error = "" if candidate else f"no candidate {name}.py in {candidates}"
        yield from (
            [ProblemRow(name, "", spec, error=error)]
            if error
            else _tests(name, candidate, spec, cases_of(spec, parameters))
        )
    except GivenError as err:
        yield ProblemRow(name, "", spec, error=str(err))


def _tests(name: str, candidate: str, spec: str, cases: Any) -> Iterator[ProblemRow]:
    for case in cases:
        values = " ".join(f"{key}={json.dumps(value)}" for key, value in case.items())
        yield ProblemRow(f"{name} [{values}]" if values and len(cases) > 1 else name, candidate, spec, case)


def judge_rows(rows: list[ProblemRow], question: dict[str, Any], *, as_json: bool) -> int:
    """Judge row by row, and print a line for each.

    Args:
        rows: what is judged. question: what else `suites.warm_program` is asked. as_json: whether lines are JSON.

    Returns:
        The most urgent exit code.
    """
    width, codes = max(len(row.name) for row in rows), []
    answers = _answers(rows, question)
    for row in rows:
        start = time.monotonic()
        answer = next(answers)
        seconds = time.monotonic() - start
        record = json.loads(answer.get("record", "{}")) or {"verdict": "error", "causes": [], "error": answer["error"]}
        codes.append(exit_codes.OF_JUDGEMENTS[record["verdict"]] if "record" in answer else exit_codes.USAGE)
        if as_json:
            click.echo(json.dumps({"problem": row.name, "given": row.values, **record}))
            continue
        faster = f"{record['time']['ratio']:.3g} times as fast" if "ratio" in record.get("time", {}) else ""
        causes = [f"{each['question']}: {each['text'].splitlines()[0]}" for each in record["causes"]]
        causes += [record["error"], *record.get("suspect", []), *record.get("weaknesses", []), faster]
        cause = next(filter(None, causes), "")
        line = f"{record['verdict']:9}{row.name:{width}} {seconds:6.1f} s  {one_line(cause, 200)}"
        click.echo(line.rstrip())
    if not as_json:
        click.echo(f"{codes.count(exit_codes.OK)} of {len(rows)} accepted")
    return next((code for code in exit_codes.PRIORITY if code in codes), exit_codes.OK)


def _answers(rows: list[ProblemRow], question: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a process says that judges the rows; it is started when the first answer is asked for, and ended at last."""
    from ....properties.places.process import EndedError, Process

    with contextlib.ExitStack() as stack:
        process: Process | None = None
        for row in rows:
            if row.error:
                yield {"error": row.error}
                continue
            try:
                if process is None:
                    process = Process({}, command=_COMMAND)
                    stack.callback(process.close)
                    process.answer(math.inf)  # that it is there
                process.ask({"candidate": row.candidate, "spec": row.spec, "values": row.values, **question})
                answer = process.answer(math.inf)
                yield answer if "ended" not in answer else {"error": answer["ended"]}
            except EndedError as err:
                process = None
                yield {"error": f"the spec's process {err}"}
