"""Judging again whenever a file changes: `opassay judge --watch`.

This process imports torch, and forks once for each judgement, so that a judgement need not import it again. It reads
no file of the user, so each fork reads their present content. It waits until the fork ends, and then for a change.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence

import click

from ... import exit_codes

#: Seconds between two looks at the files.
_POLL = 0.25
#: The time of a file's last change, in nanoseconds, and its size.
_Mark = tuple[int, int]


def judge_at_every_change(judge: Callable[[Sequence[str]], tuple[int, list[str]]], addresses: Sequence[str]) -> int:
    """Judge now and after every change until an interrupt, and return the exit code of the last judgement.

    Args:
        judge: (codes of the questions to ask first) -> the exit code, and the codes of the questions that failed,
            which are asked first the next time. addresses: of the candidate and the spec.
    """
    from ....properties.candidates import judge_files, verdicts  # noqa: F401 (every fork has them then)
    from ....properties.candidates.host import calls, host, module_files  # noqa: F401

    code, sooner = exit_codes.INTERRUPT, list[str]()
    while True:
        began = time.time_ns()
        reading, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            os.close(reading)
            return _judge_in_copy(judge, sooner, addresses, writing)
        os.close(writing)
        try:
            with open(reading, encoding="utf-8") as pipe:
                answer = json.loads(pipe.read() or "{}")
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            sooner, files = answer.get("wrong", sooner), answer.get("files", [])
            click.echo(f"watching {len(files)} files; Ctrl-C ends", err=True)
            _wait_for_change(files, began)
        except KeyboardInterrupt:
            return code


def _judge_in_copy(
    judge: Callable[[Sequence[str]], tuple[int, list[str]]], sooner: list[str], addresses: Sequence[str], writing: int
) -> int:
    """The exit code of a judgement, whose failed questions and files are written to a pipe as JSON."""
    from ....properties.candidates.cases import parts_of
    from ....properties.candidates.host.sources import sources

    wrong = sooner
    try:
        code, wrong = judge(sooner)
        return code
    finally:
        own = [path for path, _, _ in map(parts_of, addresses) if path is not None]
        # The candidate's process does not say which files it imports, so all files beside the candidate are watched.
        beside = [path for file in own if file.is_file() for path in file.parent.glob("*.py")]
        files = sorted({str(path.absolute()) for path in (*own, *beside)} | set(sources().digests))
        with open(writing, "w", encoding="utf-8") as pipe:
            json.dump({"wrong": wrong, "files": files}, pipe)


def _wait_for_change(files: Sequence[str], began: int) -> None:
    """Wait until a file has a time of change after `began`, in nanoseconds, or another time or size than now."""
    marks = {file: mark for file in files if (mark := _mark_of(file)) is not None and mark[0] < began}
    # A missing file is no change, because an editor may remove a file before it writes the new one.
    while all((mark := _mark_of(file)) is None or mark == marks.get(file) for file in files):
        time.sleep(_POLL)


def _mark_of(file: str) -> _Mark | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
