"""The record of a judgement, as of a run: what `gate`, `compare`, `history` and `report` read."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ....properties.engine.environment import environment, versions
from ... import exit_codes
from ...record import Run, plan_digest
from ...store.folder import Folder
from ..run import claim_folder, read_commit

if TYPE_CHECKING:
    from ....properties.candidates.judgement import Judgement

#: verdict -> exit code. A suspect and a weak verdict are incomplete: nothing is wrong, and too little is known.
CODES = {
    "accepted": exit_codes.OK,
    "rejected": exit_codes.FAILED,
    "suspect": exit_codes.INCOMPLETE,
    "weak": exit_codes.INCOMPLETE,
    "error": exit_codes.INTERNAL,
}


def claim(report_dir: Path | None) -> contextlib.AbstractContextManager[Folder | None]:
    """The report folder, claimed before the candidate runs; None where none is wanted.

    Raises:
        Stop: it cannot be claimed.
    """
    return contextlib.nullcontext() if report_dir is None else claim_folder(report_dir)


def record_of(judgement: Judgement, words: Sequence[str]) -> Run:
    """The record of a judgement: a cell for each question, of the op that has the candidate's address."""
    from ....properties.candidates.verdicts import verdicts_of  # here, because it imports torch

    of, command = judgement.assignment, list(words)
    verdicts = verdicts_of(judgement, command[2], lambda question: shlex.join([*command, "-k", question]))
    commit, dirty = read_commit()
    digests = {f"sha256 of the {name}": digest for name, digest in of.sha256.items() if digest}
    first, *more = judgement.summary.splitlines()
    code = CODES[str(judgement.verdict)]
    return Run(
        version=versions().get("opassay", "unknown"),
        profile="judge",
        seed=of.seed,
        plan_digest=plan_digest(verdict.cell for verdict in verdicts),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        verdicts=verdicts,
        commit=commit,
        dirty=dirty,
        command=tuple(command),
        settings={"spec": of.spec, "contract": of.contract, **digests},
        environment=environment(),
        seconds=judgement.seconds,
        notes=tuple(line.strip() for line in more),
        exit_code=code,
        exit_reasons=(first,) if code else (),
    )
