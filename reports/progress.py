"""What a run shows while it runs: a bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeElapsedColumn
from rich.text import Text

from ..oracles.verdicts.verdict import Verdict
from .text import BAD, duration, failure_text, github_command, one_line, wrap_lines

_EVERY_SECONDS = 10.0
_EVERY_SHARE = 0.05
#: A rate is shown from this many finished cells and this many seconds on: earlier it would be that of starting up.
_LEAST_COUNT, _LEAST_SECONDS = 3, 2.0
#: A cell is named once it has run for this many seconds. Most cells take less, and their names would only flicker.
_LONG = 2.0


def make_console(stream: IO[str]) -> Console:
    """Colour as NO_COLOR and FORCE_COLOR ask; 120 columns where there is no terminal."""
    # Names of ops and messages may hold brackets, which rich would take for mark-up and leave out.
    live = stream.isatty()
    return Console(file=stream, width=None if live else 120, highlight=False, markup=False, emoji=False)


def print_wrapped(console: Console, text: str, style: str = "") -> None:
    """Print a text broken to the width of the console, with its indentation; rich must not break it again."""
    console.print(wrap_lines(text, console.width), style=style, soft_wrap=True)


def is_live(console: Console, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a moving bar can be drawn: a terminal, and no CI."""
    # Some CI services offer a terminal but keep what is written; each redrawing of a bar would be a line of their log.
    return console.is_terminal and console.file.isatty() and not environ.get("CI")


class Teller:
    """Counts finished cells, and prints each failure as soon as it is known.

    Args:
        console: where it prints. total: how many cells there are. live: whether a moving bar can be drawn.
        github: whether GitHub reads what is printed. quiet: whether failures are counted alone.
        clock: the present time in seconds.
    """

    def __init__(
        self, console: Console, total: int, *, live: bool, github: bool = False, quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.console, self.total, self._clock = console, total, clock
        self.outcomes: Counter[str] = Counter()
        self._count = 0
        self._github, self._quiet = github, quiet
        self._last_line = 0, clock()  # how many cells it told, and when
        self._began = clock()
        self._running: dict[str, float] = {}
        self._bar = _make_bar(console, self.describe) if live else None
        self._task = self._bar.add_task("", total=total) if self._bar else None

    def __enter__(self) -> Teller:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def note_start(self, key: str) -> None:
        """Note that the cell of this key is being judged, until `count_verdict` gets its verdict."""
        self._running[key] = self._clock()

    def count_verdict(self, verdict: Verdict) -> None:
        """Count a cell that has its verdict, and print its failure if it has one."""
        self._running.pop(verdict.cell.key, None)
        if verdict.outcome in BAD and not self._quiet:
            self._tell_failure(verdict)
        self.outcomes[str(verdict.outcome)] += 1
        self._count += 1
        self._tell_progress()

    def skip(self, count: int, why: str) -> None:
        """Count cells that will not be asked after all, and say why."""
        # Cells that were given up count as done, or the bar would never reach its end.
        self._count += count
        self.outcomes["not run"] += count
        self.say(f"{count} cells not run: {why}")
        self._tell_progress()

    def say(self, text: str) -> None:
        """Print a sentence above the bar."""
        print_wrapped(self.console, one_line(text, 500), "yellow")

    def describe(self) -> str:
        """The text beside the bar: the counts, the pace, and the cell that has run longest."""
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        return "; ".join(filter(None, (counts, self.pace(), self.longest())))

    def pace(self) -> str:
        """`4.1 per s, about 20 s left`; empty until enough cells have finished."""
        seconds = self._clock() - self._began
        if self._count < _LEAST_COUNT or seconds < _LEAST_SECONDS or self._count >= self.total:
            return ""
        rate = self._count / seconds
        text = f"{rate:.1f} per s" if rate >= 1 else f"{60 * rate:.1f} per min"
        # Cells differ in cost, and those that remain may cost more than the finished ones.
        return f"{text}, about {_rough((self.total - self._count) / rate)} left"

    def longest(self) -> str:
        """`softmax::COMP[float32-cpu-opassay] for 12 s`: of the cells that run, the one that has run longest."""
        running = list(self._running.items())  # a copy: the thread that draws the bar reads while this one writes
        if not running:
            return ""
        key, since = min(running, key=lambda item: item[1])
        seconds = self._clock() - since
        return f"{one_line(key)} for {_rough(seconds)}" if seconds >= _LONG else ""

    def _tell_failure(self, verdict: Verdict) -> None:
        text = failure_text(verdict)
        print_wrapped(self.console, text, "red")
        # GitHub shows such a line beside the commit; without it the failure would be found only by reading the log.
        if self._github:
            self.console.print(github_command("error", one_line(verdict.cell.key), text), soft_wrap=True)

    def _tell_progress(self) -> None:
        count, now = self._count, self._clock()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=count, total=self.total)
            return
        # Without a terminal there is no bar. A line now and then shows that the run goes on, and does not fill a log.
        counted, then = self._last_line
        due = count - counted >= _EVERY_SHARE * self.total or now - then >= _EVERY_SECONDS
        if due or count in (1, self.total):
            self._last_line = count, now
            share = 100 * count / max(self.total, 1)
            self.console.print(f"{count}/{self.total} ({share:.0f} %)  {self.describe()}", soft_wrap=True)


class _StatusColumn(ProgressColumn):
    """The text beside the bar, made anew at each drawing, so that times run on while no cell finishes."""

    def __init__(self, describe: Callable[[], str]) -> None:
        super().__init__()
        self._describe = describe

    def render(self, task: Task) -> Text:
        # A line that is too long is cut: broken, it would make the bar jump between one row and two.
        return Text(self._describe(), no_wrap=True, overflow="ellipsis")


def _make_bar(console: Console, describe: Callable[[], str]) -> Progress:
    # The bar vanishes at the end, because the summary that follows says the same with all outcomes.
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), _StatusColumn(describe))
    return Progress(*columns, console=console, transient=True)


def _rough(seconds: float) -> str:
    """A time that is not known exactly: whole seconds below a minute."""
    return f"{seconds:.0f} s" if seconds < 59.5 else duration(seconds)
