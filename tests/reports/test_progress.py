"""What a run shows while it runs: how fast it goes, how long it will take, and which cell holds it up."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from opassay.reports.progress import Teller
from tests.reports.conftest import failed, verdict

KEYS = [verdict(f"P{number}").cell.key for number in range(10)]


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(name="clock")
def _clock() -> Clock:
    return Clock()


def _teller(clock: Clock, *, live: bool = False, total: int = 10) -> tuple[Teller, io.StringIO]:
    stream = io.StringIO()
    console = Console(file=stream, width=200, force_terminal=live, highlight=False, markup=False)
    return Teller(console, total, live=live, clock=clock), stream


def _judge(teller: Teller, clock: Clock, cells: range, seconds: float) -> None:
    for number in cells:
        teller.note_start(KEYS[number])
        clock.now += seconds
        teller.count_verdict(verdict(f"P{number}"))


def test_a_rate_and_the_time_that_is_left_are_told(clock: Clock) -> None:
    teller, stream = _teller(clock)
    _judge(teller, clock, range(0, 2), 1.0)
    assert teller.pace() == ""
    _judge(teller, clock, range(2, 4), 1.0)
    assert teller.pace() == "1.0 per s, about 6 s left"
    assert stream.getvalue().splitlines()[-1] == "4/10 (40 %)  4 verified; 1.0 per s, about 6 s left"
    _judge(teller, clock, range(4, 5), 96.0)
    assert teller.pace() == "3.0 per min, about 1 m 40 s left"
    _judge(teller, clock, range(5, 10), 1.0)
    assert teller.pace() == ""
    assert stream.getvalue().splitlines()[-1] == "10/10 (100 %)  10 verified"


def test_the_cell_that_has_run_longest_is_named(clock: Clock) -> None:
    teller, _ = _teller(clock)
    for key in KEYS[:3]:
        teller.note_start(key)
        clock.now += 1.0
    assert teller.longest() == f"{KEYS[0]} for 3 s"
    teller.count_verdict(verdict("P0"))
    assert teller.longest() == f"{KEYS[1]} for 2 s"
    teller.count_verdict(failed("P1"))
    assert teller.longest() == ""
    clock.now += 100.0
    assert teller.describe().endswith(f"{KEYS[2]} for 1 m 41 s")


def test_the_bar_shows_them_and_goes_on_while_nothing_happens(clock: Clock) -> None:
    teller, stream = _teller(clock, live=True)
    with teller:
        _judge(teller, clock, range(4), 1.0)
        teller.note_start(KEYS[4])
        for seconds in (5.0, 7.0):
            clock.now += seconds
            assert teller._bar is not None
            teller._bar.refresh()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "4/10" in text
    for part in ("26.7 per min, about 14 s left", f"{KEYS[4]} for 5 s", f"{KEYS[4]} for 12 s"):
        assert part in text, part


def test_a_narrow_terminal_cuts_the_line_and_does_not_break_it(clock: Clock) -> None:
    stream = io.StringIO()
    narrow = Teller(Console(file=stream, width=70, force_terminal=True), 10, live=True, clock=clock)
    with narrow:
        _judge(narrow, clock, range(4), 1.0)
        narrow.note_start(KEYS[4])
        clock.now += 5.0
        assert narrow._bar is not None
        (line, *more) = Console(file=stream, width=70).render_lines(narrow._bar.get_renderable())
    assert more == []
    assert "".join(segment.text for segment in line).rstrip().endswith("…")
