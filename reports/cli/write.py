"""What a run writes into its report folder, and whether it stands there."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ...oracles.verdicts.verdict import REPORT_FOLDER, Outcome, Verdict
from ...properties.engine.environment import versions
from .. import exit_codes
from ..collect import Account
from ..exit_codes import Reason
from ..record import RecordError, Run, encode, load, plan_digest
from ..store.folder import Folder, FolderError
from ..store.marker import new_run_id
from ..text import one_line
from .host import Stop


def claim_folder(path: Path) -> Folder:
    """Claim the report folder of a new run; ends the command where that is not possible."""
    try:
        return Folder.claim(path, new_run_id())
    except FolderError as err:
        raise Stop(exit_codes.USAGE, f"--report-dir: {err}") from err
    except OSError as err:
        raise Stop(exit_codes.INTERNAL, f"--report-dir: {type(err).__name__}: {err}") from err


def keep_case(folder: Folder) -> Callable[[str, str, str], None]:
    """A function of a case's id, text and program that writes both into the folder at once; "" is no program.

    A case that cannot be written is passed over, because the record holds it too. Replay commands name this folder.
    """
    REPORT_FOLDER.set(str(folder.path))

    def keep(name: str, text: str, program: str) -> None:
        # The name comes out of a worker's answer and becomes that of a file, so every sign
        # that could lead elsewhere goes.
        stem = "".join(sign for sign in name if sign.isalnum() or sign in "-_")[:80]
        with contextlib.suppress(OSError, ValueError):
            folder.write(f"cases/{stem}.json", text.encode("utf-8", "replace"))
            if program:
                folder.write(f"cases/{stem}.py", program.encode("utf-8", "replace"))

    return keep


def write_plan(folder: Folder, account: Account) -> None:
    """plan.json: the cells, before the first of them is asked. It is a courtesy; the log holds the same."""
    began = account.began
    if began is None:
        return
    head = {"plan_digest": began.plan_digest, "seed": began.seed, "profile": began.profile}
    lines = ",\n".join(f"  {json.dumps(cell.key)}" for cell in account.cells)
    content = f'{json.dumps(head)[:-1]}, "cells": [\n{lines}\n]}}\n'
    with contextlib.suppress(OSError, FolderError):
        folder.write("plan.json", content.encode("utf-8", "replace"))


def write_reports(folder: Folder, run: Run, *, ctrf: bool = False) -> Reason | None:
    """The record first, read back and compared; then its renderings.

    With `ctrf` there is a rendering in the Common Test Report Format, too.

    Returns:
        What could not be written, as a reason to exit with 3; None if all stands.
    """
    from ..exporting import to_ctrf, to_xml
    from ..page.html import render

    # Each is rendered when its turn comes, after the record stands: a fault in a rendering cannot cost the record.
    files: tuple[tuple[str, Callable[[], bytes]], ...] = (
        ("run.json", lambda: encode(run)),
        ("junit.xml", lambda: to_xml(run)),
        ("report.html", lambda: render(run).encode("utf-8", "replace")),
        *((("ctrf.json", lambda: to_ctrf(run)),) if ctrf else ()),
    )
    lost = []
    for name, content in files:
        try:
            folder.write(name, content())
            if name == "run.json":
                # Only a record that was read back counts: after `finish`, a later run may delete the log
                # from which it could be made.
                require_stands(folder, run)
                folder.finish()
        except (OSError, ValueError) as err:
            lost.append(f"{name} ({one_line(str(err), 200)})")
    if not lost:
        return None
    log = f"; opassay report recover {folder.path} makes it from the log" if lost[0].startswith("run.json") else ""
    return exit_codes.INTERNAL, f"could not be written: {', '.join(lost)}{log}"


def require_stands(folder: Folder, run: Run) -> None:
    """Require that the record on disk is the one in memory: its plan, every outcome, its exit code.

    Raises:
        RecordError: it is not.
    """
    record = load(folder.path / "run.json")
    if plan_digest(verdict.cell for verdict in record.verdicts) != run.plan_digest:
        raise RecordError("what was read back has another plan")
    if _outcomes_of(record) != _outcomes_of(run):
        raise RecordError("what was read back has other verdicts")
    # A gate believes the file, a shell the exit code of this command, so the two must not disagree.
    if record.exit_code != run.exit_code:
        raise RecordError(f"what was read back has exit code {record.exit_code}, need {run.exit_code}")


def _outcomes_of(run: Run) -> list[tuple[Outcome, str]]:
    return [(verdict.outcome, verdict.cell.key) for verdict in run.verdicts]


def make_record(verdicts: Sequence[Verdict], reasons: Sequence[Reason], started: datetime, **rest: Any) -> Run:
    """The record of verdicts that no plan came before; `rest` has the fields that are not made of them."""
    commit, dirty = read_commit()
    return Run(
        version=versions().get("opassay", "unknown"), plan_digest=plan_digest(verdict.cell for verdict in verdicts),
        started=started.isoformat(timespec="seconds"), verdicts=tuple(verdicts), commit=commit, dirty=dirty,
        exit_code=exit_codes.most_urgent(reasons), exit_reasons=tuple(text for _, text in reasons), **rest,
    )  # fmt: skip


def read_commit() -> tuple[str, bool]:
    """Commit of the working directory and whether it differs; empty outside a repository."""
    # Files that git does not track are left out: a report folder or a scratch file would call nearly every run dirty.
    head = _git_output("rev-parse", "HEAD")
    return head, bool(head) and bool(_git_output("status", "--porcelain", "--untracked-files=no"))


def _git_output(*words: str) -> str:
    try:
        process = subprocess.run(["git", *words], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return one_line(process.stdout, 100) if process.returncode == 0 else ""
