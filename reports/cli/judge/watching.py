"""Judging again whenever a file changes: `opassay judge --watch`.

Each judgement is made in a copy of this process, which has imported torch and has read no file of the user. The copy
goes on as a command of its own would; this process waits for it, and then for a file.
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
#: When a file was changed, in nanoseconds, and its size.
_Mark = tuple[int, int]


def judge_at_every_change(judge: Callable[[Sequence[str]], tuple[int, list[str]]], addresses: Sequence[str]) -> int:
    """Judge, and again after every change, until an interrupt; the exit code of the last judgement.

    Args:
        judge: (codes of questions that are asked sooner) -> the exit code, and the codes of those that are wrong.
        addresses: of the candidate and the spec.
    """
    from ....properties.candidates import judge_files, verdicts  # noqa: F401 (every copy has them then)
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
    """The exit code of a judgement; which questions were wrong, and which files it read, are written to a pipe."""
    from ....properties.candidates.cases import parts_of
    from ....properties.candidates.host.sources import sources

    wrong = sooner
    try:
        code, wrong = judge(sooner)
        return code
    finally:
        own = [path for path, _, _ in map(parts_of, addresses) if path is not None]
        # What the candidate imports is read in its own process; it lies beside it, or is installed.
        beside = [path for file in own if file.is_file() for path in file.parent.glob("*.py")]
        files = sorted({str(path.absolute()) for path in (*own, *beside)} | set(sources().digests))
        with open(writing, "w", encoding="utf-8") as pipe:
            json.dump({"wrong": wrong, "files": files}, pipe)


def _wait_for_change(files: Sequence[str], began: int) -> None:
    """Wait until a file is changed that was not changed before a time, in nanoseconds; or is another than now."""
    marks = {file: mark for file in files if (mark := _mark_of(file)) is not None and mark[0] < began}
    # An editor may take a file away before it puts the new one there.
    while all((mark := _mark_of(file)) is None or mark == marks.get(file) for file in files):
        time.sleep(_POLL)


def _mark_of(file: str) -> _Mark | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
