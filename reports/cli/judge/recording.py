"""The record of a judgement, as of a run: what `gate`, `compare`, `history` and `report` read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ....properties.engine.environment import environment
from ... import exit_codes
from ...record import RecordError, Run, load
from ...store.folder import Folder
from ...text import github_command
from ..addresses import line_of

if TYPE_CHECKING:
    from ....properties.candidates.cases import JudgedCase
    from ....properties.candidates.judgement import Judgement


def claim(report_dir: Path | None) -> contextlib.AbstractContextManager[Folder | None]:
    """The report folder, claimed before the candidate runs; None where none is wanted.

    Raises:
        Stop: it cannot be claimed.
    """
    if report_dir is None:
        return contextlib.nullcontext()
    from ..write import claim_folder  # here, because most judgements are not recorded

    return claim_folder(report_dir)


def read_failures(report_dir: Path | None, candidate: str, spec: str) -> list[str]:
    """Codes of the questions that were wrong in the folder's record, if that is of this candidate and this spec."""
    with contextlib.suppress(RecordError, OSError):
        run = None if report_dir is None else load(report_dir / "run.json")
        if run is not None and tuple(run.command[1:5]) == ("judge", candidate, "--spec", spec):
            return [verdict.cell.property for verdict in run.verdicts if verdict.failure is not None]
    return []


def write_judgement(folder: Folder, judgement: Judgement, case: JudgedCase) -> exit_codes.Reason | None:
    """Write the record, its renderings, and a case for every wrong question; what could not be written, if anything."""
    from ..write import keep_case, write_reports

    def store(name: str, content: bytes) -> None:
        folder.write(f"cases/{name}.bin", content)

    run, keep = record_of(judgement, case, store), keep_case(folder)
    for failure in [verdict.failure for verdict in run.verdicts if verdict.failure is not None]:
        keep(failure.case_id, failure.case, failure.program)
    return write_reports(folder, run)


def tell_github(judgement: Judgement, case: JudgedCase) -> None:
    """On GitHub annotate the line of the candidate, and add the record to the summary of the step."""
    if not os.environ.get("GITHUB_ACTIONS"):
        return
    from ..summary import write_step_summary

    for each in judgement.causes[:10]:  # GitHub shows no more of a step
        click.echo(github_command("error", f"opassay {each.question}", each.text, line_of(case.candidate)))
    write_step_summary(record_of(judgement, case, lambda *_: None))


def record_of(judgement: Judgement, case: JudgedCase, store: Callable[[str, bytes], None]) -> Run:
    """The record of a judgement: a cell for each question, of the op that has the candidate's address.

    Args:
        judgement: of the candidate. case: the command and its options. store: as for `verdicts_of`.
    """
    from ....properties.candidates.verdicts import verdicts_of  # here, because it imports torch
    from ..write import make_record

    of = judgement.assignment
    case = msgspec.structs.replace(case, seed=of.draws.origin)
    command, verdicts = case.words, verdicts_of(judgement, case, store)
    digests = {f"sha256 of the {name}": digest for name, digest in of.sha256.items() if digest}
    draws = {"draws": of.draws.digits} if of.draws.secret else {}
    first, *more = judgement.summary.splitlines()
    code = exit_codes.OF_JUDGEMENTS[str(judgement.verdict)]
    return make_record(
        verdicts, [(code, first)] if code else [], datetime.now(UTC), profile="judge", seed=of.draws.seed,
        command=tuple(command), settings={"spec": of.spec, "contract": of.contract, **digests, **draws},
        environment=environment(), seconds=judgement.seconds, notes=tuple(line.strip() for line in more),
    )  # fmt: skip
