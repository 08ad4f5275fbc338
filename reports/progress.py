"""What a run shows while it runs: a bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .text import clean, github_command, one_line, wrapped

_EVERY_SECONDS = 10.0
_EVERY_SHARE = 0.05


class _Steady(io.TextIOWrapper):
    """A stream whose reader may go away (`| head`): the run goes on and writes its report."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            return len(text)

    def flush(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            super().flush()


def output() -> IO[str]:
    """A stream to the present standard output that stays when pytest captures file descriptors."""
    try:
        handle = os.dup(sys.stdout.fileno())
    except (OSError, AttributeError, ValueError):
        return sys.stdout
    raw = io.FileIO(handle, "w")
    return _Steady(io.BufferedWriter(raw), encoding="utf-8", errors="replace", line_buffering=True)


def make_console(stream: IO[str]) -> Console:
    """Colour as NO_COLOR and FORCE_COLOR ask; 120 columns where there is no terminal."""
    live = stream.isatty()
    return Console(file=stream, width=None if live else 120, highlight=False, markup=False, emoji=False)


def is_live(console: Console, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a moving bar can be drawn: a terminal, and no CI."""
    return console.is_terminal and console.file.isatty() and not environ.get("CI")


class Teller:
    """A pytest plugin that counts finished cells and tells each failure at once."""

    def __init__(self, console: Console, total: int, *, live: bool, github: bool = False) -> None:
        self.console, self.total = console, total
        self.interrupted = False  # Ctrl-C, not `--maxfail`
        self.outcomes: Counter[str] = Counter()
        self._seen: set[str] = set()
        self._github = github
        self._told, self._told_at = 0, time.monotonic()
        self._bar = _bar(console) if live else None
        self._task = self._bar.add_task("", total=total, said="") if self._bar else None

    def __enter__(self) -> Teller:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "teardown" or (report.when == "setup" and report.passed):
            return
        if report.nodeid in self._seen:
            return
        self._seen.add(report.nodeid)
        outcome = dict(report.user_properties).get("opassay_outcome")
        if outcome is None:
            outcome = "crash" if report.when == "???" else "error"
        self.outcomes[outcome] += 1
        if report.failed:
            self._tell_failure(report, outcome)
        self._tell_progress()

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        self.interrupted = self.interrupted or excinfo.type is KeyboardInterrupt

    def said(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))

    def _tell_failure(self, report: Any, outcome: str) -> None:
        key = report.nodeid.removeprefix("opassay::")
        text = clean(str(report.longrepr)) if outcome != "crash" else f"{key}: crash\n  the process died"
        self.console.print(wrapped(text, self.console.width), style="red", soft_wrap=True)
        if self._github:
            self.console.print(github_command("error", one_line(key), text), soft_wrap=True)

    def _tell_progress(self) -> None:
        done, now = len(self._seen), time.monotonic()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, said=self.said())
            return
        due = done - self._told >= _EVERY_SHARE * self.total or now - self._told_at >= _EVERY_SECONDS
        if due or done in (1, self.total):
            self._told, self._told_at = done, now
            share = 100 * done / max(self.total, 1)
            self.console.print(f"{done}/{self.total} ({share:.0f} %)  {self.said()}", soft_wrap=True)


def _bar(console: Console) -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[said]}"))
    return Progress(*columns, console=console, transient=True)
