"""Ranks in processes of their own: what collectives give, and how every fault of a rank is found, named and ended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from opassay.impl.comm import LockstepWorld

from .rank_pool import PROGRAMS, Pool
from .rank_programs import norm, steps

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "ranks.md"
SIZE = 3
STATISTICS, ROWS = "call 1, all_reduce[statistics](float32[4], sum)", "call 2, all_gather[rows](float32[3, 2])"
GRADIENTS, WEIGHTS = "call 3, all_reduce[gradients](float32[6], sum)", "broadcast[weights](float32[6], root=0)"


@dataclass(frozen=True)
class Fault:
    """A fault of rank 1 of three, and what must come of it.

    Attributes:
        kind, number, seconds: what befalls rank 1 at which call, and how long it takes.
        message: a part of what every other rank is told; a number that is not known before is written #.
        ends: how rank 1 ends.
        bound: seconds from the first call of a rank within which it must have the error.
        others: faults of other ranks. options: for TorchComm.
    """

    name: str
    kind: str
    number: int
    message: str
    ends: str = "CommError"
    bound: float = 1.0
    seconds: float = 0.0
    others: tuple[tuple[int, str, int, float], ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def all(self) -> list[tuple[int, str, int, float]]:
        return [(1, self.kind, self.number, self.seconds), *self.others]


SHORT = {"deadline": 0.7}
FAULTS = [
    Fault("skips a call", "skip", 3, f"rank 1 in call 3, {WEIGHTS}", bound=2.0),
    Fault("skips the last call", "skip", 6, "rank 1 has left after call 5, all_to_all(float32[3])", "returned", 2.0),
    Fault("raises", "raise", 3, f"rank 1 raised ArithmeticError: injected after {ROWS}", "ArithmeticError"),
    Fault("raises at once", "raise", 1, "rank 1 raised ArithmeticError: injected before its first", "ArithmeticError"),
    Fault("returns early", "return", 3, f"rank 1 has left after {ROWS}", "returned"),
    Fault("is killed", "die", 3, f"rank 1 is dead (process #) after {ROWS}", "died"),
    Fault(
        "is killed in a call", "die in the call", 3, f"rank 1 is dead (process #) in {GRADIENTS}", "died",
        seconds=0.1, others=((2, "delay", 3, 0.4),),
    ),
    Fault("is stopped", "stop", 3, f"rank 1 has been silent for # s after {ROWS}", bound=2.0, options=SHORT),
    Fault(
        "is stopped in a call", "stop in the call", 3, f"rank 1 has been silent for # s in {GRADIENTS}", bound=2.0,
        seconds=0.1, others=((2, "delay", 3, 0.3),), options={"deadline": 1.0},
    ),
    Fault("comes too late", "delay", 3, f"rank 1 has been silent for # s after {ROWS}", bound=2.0,
          seconds=1.2, options=SHORT),
    Fault("another op", "op", 3, "rank 1 in call 3, broadcast[gradients](float32[6], root=0)"),
    Fault("another root", "root", 4, "rank 1 in call 4, broadcast[weights](float32[6], root=1)"),
    Fault("another reduction", "reduction", 3, "rank 1 in call 3, all_reduce[gradients](float32[6], max)"),
    Fault("another dtype", "dtype", 3, "rank 1 in call 3, all_reduce[gradients](int32[6], sum)"),
    Fault("another shape", "shape", 3, "rank 1 in call 3, all_reduce[gradients](float32[5], sum)"),
    Fault("two calls swapped", "swap", 3, f"rank 1 in call 3, {WEIGHTS}"),
]  # fmt: skip
#: Without a board nobody knows of the others; a rank knows its own call, and when it has waited for long enough.
OWN = f"rank # of 3, {GRADIENTS}: "
ALONE = [
    Fault("is killed", "die", 3, OWN, "died"),
    Fault("returns early", "return", 3, f"{OWN}not done within 0.7 s; no board", "returned", 2.0, options=SHORT),
    Fault("comes too late", "delay", 3, f"{OWN}not done within 0.7 s; no board", "CommError", 2.0, 1.2, options=SHORT),
    Fault("another reduction", "reduction", 3, "rank 1 in call 3, all_reduce[gradients](float32[6], max)"),
]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """The processes of all tests, which must end by themselves when they are asked to."""
    result = Pool(4)
    try:
        yield result
    finally:
        codes = result.close()
    assert codes == [0] * 4
    assert not result.folder.exists()


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    """Lines on what was made of the faults, printed at the end."""
    lines: list[str] = []
    yield lines
    print("\nrank 1 of 3            board  the others know after  of", *lines, sep="\n")


def _shared_memory(pool: Pool) -> list[str]:
    """What these processes, or torch in them, have left in memory that processes share."""
    ours = {str(process.pid) for process in pool.processes} | {str(os.getpid())}
    return [name for name in os.listdir("/dev/shm") if ours & set(re.split(r"[-_.]", name))]


def _judge(pool: Pool, fault: Fault, board: bool, table: list[str]) -> None:
    stopped = 1 if fault.kind.startswith("stop") else None
    options = {"deadline": 5.0, **fault.options}
    ended = pool.run("faulty", SIZE, board, stopped, options, faults=fault.all())
    others = [ended[rank] for rank in (0, 2)]
    text = re.escape(fault.message).replace(r"\#", "#").replace("#", r"[\d.]+")
    for each in others:
        assert each["how"] == "CommError", ended
        assert re.search(text, each["text"]), each["text"]
        assert each["seconds"] < fault.bound, each
        assert "refused, because this comm has failed before: " in each["again"]
        # Who waits is not who is silent; but in that one case rank 2 does come late, as others may.
        accused = re.findall(r"rank (\d) has been silent", each["text"])
        assert {*accused} <= {"1", "2" if fault.kind == "die in the call" else "1"}, each["text"]
    assert ended[1]["how"] == fault.ends, ended[1]
    assert _shared_memory(pool) == []
    seconds = max(each["seconds"] for each in others)
    table.append(f"{fault.name:22} {'yes' if board else 'no':5} {seconds:20.2f} s  {others[0]['text']}")


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_is_found_and_named_in_time_and_no_wrong_number_comes(
    pool: Pool, table: list[str], fault: Fault
) -> None:
    _judge(pool, fault, True, table)


@pytest.mark.parametrize("fault", ALONE, ids=[fault.name for fault in ALONE])
def test_without_a_board_a_fault_is_an_error_that_names_the_call(pool: Pool, table: list[str], fault: Fault) -> None:
    _judge(pool, fault, False, table)


@pytest.mark.parametrize("board", [True, False])
def test_a_rank_that_is_late_by_less_than_the_deadline_is_no_fault(pool: Pool, board: bool) -> None:
    delays = [(1, "delay", 3, 0.4), (2, "delay", 5, 0.3)]
    ended = pool.run("faulty", SIZE, board, options={"deadline": 5.0}, faults=delays)
    assert [each.get("value") for each in ended] == [len(steps(SIZE))] * SIZE, ended


def test_a_wrong_number_would_be_seen(pool: Pool) -> None:
    """Ranks that compare nothing do get wrong numbers, and the programs of this module say so."""
    for kind in ("reduction", "dtype"):
        options = {"fingerprints": False, "deadline": 5.0}
        ended = pool.run("faulty", SIZE, False, options=options, faults=[(1, kind, 3, 0.0)])
        assert any(each.get("text") == "call 3 gave a wrong number" for each in ended), ended


def test_a_board_tells_different_calls_where_nothing_is_compared_on_the_wire(pool: Pool) -> None:
    for rank, each in enumerate(pool.run("crossed", 2, options={"fingerprints": False, "deadline": 5.0})):
        call, other = (f"call 1, broadcast(float32[3], root={root})" for root in (1 - rank, rank))
        assert each["how"] == "CommError"
        assert each["text"].startswith(f"rank {rank} of 2, {call}: different calls: rank {1 - rank} "), each["text"]
        assert other in each["text"]
        assert each["seconds"] < 1


@pytest.mark.parametrize("size", [2, 3, 4])
def test_collectives_mean_the_same_in_processes(pool: Pool, size: int) -> None:
    ended = pool.run("collectives", size, board=size > 2)
    assert all(each["how"] == "returned" and each["value"]["wrong"] == [] for each in ended), ended
    assert all(each["value"]["count"] > 80 for each in ended)


@pytest.mark.parametrize(
    ("rows", "frozen"),
    [((4, 4), (1,)), ((4, 4), (0, 1)), ((4, 0, 4), ()), ((0, 8, 0), (0,)), ((2, 0, 4, 2), (1, 2))],
)
def test_batch_norm_of_ranks_without_rows_or_without_gradient(pool: Pool, rows: Any, frozen: Any) -> None:
    ended = pool.run("norm", len(rows), options={"deadline": 5.0}, rows=rows, frozen=frozen)
    assert all(each["how"] == "returned" for each in ended), ended
    assert [each["value"] for each in ended] == LockstepWorld(len(rows)).run(lambda comm: norm(comm, rows, frozen))


def test_the_guide_on_faults_says_what_happens(pool: Pool) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    (program,) = re.findall(r"```py\n(.*?)```", text, re.DOTALL)
    (view,) = re.findall(r"```\n(CommError: .*?)\n```", text, re.DOTALL)
    ended = pool.run("example", 2, text=program, options={"deadline": 5.0})
    assert f"{ended[0]['how']}: {ended[0]['text']}" == " ".join(view.split())
    assert ended[1]["how"] == "returned"


def test_a_process_ends_although_a_call_is_in_flight(tmp_path: Path) -> None:
    """A whole interpreter, which destroys what it holds; the processes of the pool end without that."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, str(PROGRAMS.with_name("leaving_rank.py")), str(tmp_path / "store")]
    leaving = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = leaving.communicate(timeout=30)
    finally:
        leaving.kill()
    failed, ended = out.splitlines(), time.monotonic()
    assert leaving.returncode == 0, err
    assert "not done within 0.5 s" in failed[0]
    assert ended - float(failed[1]) < 5


def test_nothing_stays_in_the_processes(pool: Pool) -> None:
    """A call in flight that no rank ever ends is over with the group's time-out."""
    ended = pool.run("faulty", 2, options={"deadline": 0.3}, faults=[(1, "delay", 3, 0.8)])
    assert [each["how"] for each in ended] == ["CommError"] * 2
    end = time.monotonic() + 15
    while (remains := pool.left_over()) != pool.fresh and time.monotonic() < end:
        time.sleep(0.1)
    assert remains == pool.fresh
    assert _shared_memory(pool) == []
