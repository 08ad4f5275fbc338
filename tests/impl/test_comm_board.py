"""The board: what its rows tell, what it refuses, and that nothing of it stays."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from opassay.impl.comm import Board, TorchComm
from opassay.impl.comm.ranks import board as rows
from opassay.impl.comm.ranks.board import RankRow

SAME, OTHER = 32 * b"a", 32 * b"b"
CALL = "all_reduce[gradients](float32[6], sum)"


@pytest.fixture
def board() -> Iterator[Board]:
    """A board of three ranks, seen by rank 0."""
    with Board.create(3) as result:
        result.enter(0)
        yield result


def _write(board: Board, rank: int, peer: Board) -> None:
    """Give a board the row that a rank has on another."""
    at = rows._ROW * (rank + 1)
    with open(board.path, "r+b") as file:
        file.seek(at)
        file.write(peer._memory[at : at + rows._ROW])


def test_a_row_says_what_was_posted(board: Board) -> None:
    assert board.row(1) == RankRow()
    board.post(3, CALL, SAME)
    row = board.row(0)
    assert row is not None
    assert (row.phase, row.number, row.count, row.process) == (rows.POSTED, 3, 0, os.getpid())
    assert (row.digest, row.call, row.note) == (SAME, CALL, "")
    board.done()
    row = board.row(0)
    assert row is not None
    assert (row.phase, row.number, row.count) == (rows.DONE, 3, 3)


def test_texts_that_are_too_long_are_cut_and_still_read(board: Board) -> None:
    board.post(1, 1000 * "é", SAME)
    board.fail(2000 * "σ" + "\ud800")
    row = board.row(0)
    assert row is not None
    assert row.call == (row.call[0] * (len(row.call) - 1)) + "…"
    assert 100 < len(row.call.encode()) <= rows._CALL
    assert 100 < len(row.note.encode()) <= rows._NOTE
    board.post(2, CALL, SAME)
    assert board.row(0) is not None


def test_a_garbled_row_is_told_and_accuses_nobody_before_the_deadline(board: Board) -> None:
    board.post(1, CALL, SAME)
    with Board.create(3) as peer:
        peer.enter(1)
        peer.post(1, CALL, SAME)
        whole = bytearray(peer._memory[2 * rows._ROW : 3 * rows._ROW])
    whole[60] ^= 1  # one bit of the digest, which would make it another call
    for garbage in (whole, b"\xff" * rows._ROW, b"\x01", bytes(range(200))):
        with open(board.path, "r+b") as file:
            file.seek(rows._ROW * 2)
            file.write(garbage)
        assert board.row(1) is None
        impossible, text, _ = board.obstacle(1, SAME)
        assert not impossible
        assert "rank 1 has a row that cannot be read" in text
        assert board.obstacle(1, SAME, late=True)[0]


def test_a_rank_that_never_came_counts_when_the_deadline_is_over(board: Board) -> None:
    board.post(1, CALL, SAME)
    assert not board.obstacle(1, SAME)[0]
    impossible, text, cause = board.obstacle(1, SAME, late=True)
    assert impossible
    assert text == cause == "rank 1 has not come to the board; rank 2 has not come to the board"


def test_the_worst_comes_first(board: Board) -> None:
    """Rows of ranks that no process holds are those of the dead, unless they have said that they would go."""
    board.post(4, CALL, SAME)
    with Board.create(3) as peer:
        peer.enter(2)
        peer.post(3, "barrier(float32[])", OTHER)
        peer.done()
        _write(board, 2, peer)
        assert board.obstacle(3, SAME)[0] is False, "it has made call 3, whatever came of it later"
        impossible, text, cause = board.obstacle(4, SAME)
        assert impossible
        dead = f"rank 2 is dead (process {os.getpid()}) after call 3, barrier(float32[])"
        assert (text, cause) == (f"{dead}; rank 1 has not come to the board", dead)
        peer.fail("rank 1 is dead")
        _write(board, 2, peer)
        assert board.obstacle(4, SAME)[2] == "rank 1 is dead", "the cause, and not who gave up because of it"
    with Board.create(3) as peer:
        peer.enter(1)
        peer.post(4, "barrier(float32[])", OTHER)
        peer.fail("different calls")
        _write(board, 1, peer)
    impossible, text, _ = board.obstacle(4, SAME)
    assert impossible
    assert text.startswith("different calls: rank 1 gave up in call 4, barrier(float32[])")


def test_its_file_goes_when_all_have_come_or_its_creator_closes_it() -> None:
    with Board.create(1) as board:
        assert os.path.exists(board.path)
        board.enter(0)
        assert not os.path.exists(board.path)
    with Board.create(2) as board:
        board.enter(0)
        assert os.path.exists(board.path)
    assert not os.path.exists(board.path)
    board.close()


@pytest.mark.slow
def test_its_file_goes_with_the_process_that_created_it() -> None:
    code = "from opassay.impl.comm import Board; board = Board.create(2); print(board.path); raise ValueError"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "opassay-board-" in done.stdout
    assert not os.path.exists(done.stdout.strip())


@pytest.mark.slow
def test_a_row_belongs_to_one_process(board: Board) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    taking = Path(__file__).with_name("row_taker.py")
    known = {"init_globals": {"connection": theirs, "path": board.path}, "run_name": "taking"}
    process = context.Process(target=runpy.run_path, args=(str(taking),), kwargs=known)
    process.start()
    theirs.close()
    assert ours.recv() == "Board: got rank=0, whose row another process holds."
    assert ours.recv() == "entered"
    board.post(1, CALL, SAME)
    impossible, text, _ = board.obstacle(1, SAME, late=True)
    assert text.startswith("rank 1 has been silent for ")
    assert "before its first call" in text
    process.kill()
    process.join()
    impossible, text, _ = board.obstacle(1, SAME)
    assert impossible
    assert text.startswith(f"rank 1 is dead (process {process.pid}) before its first call")


def test_what_is_no_board_is_refused(board: Board, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got size=0, need at least 1 rank"):
        Board.create(0)
    with pytest.raises(FileNotFoundError):
        Board.join(str(tmp_path / "none"))
    for number, text in enumerate((b"", b"opassay\x01", b"opassay\x01" + 8 * b"\x01", 4096 * b"x")):
        path = tmp_path / str(number)
        path.write_bytes(text)
        with pytest.raises(ValueError, match="need the path of a board"):
            Board.join(str(path))
    with pytest.raises(RuntimeError, match="which this process has open, need it once per process"):
        Board.join(board.path)
    with pytest.raises(RuntimeError, match="got rank=1 where rank 0 has entered, need a board per comm"):
        board.enter(1)
    board.close()
    with pytest.raises(RuntimeError, match="got a board that is closed"):
        board.post(1, CALL, SAME)


def test_arguments_that_do_not_fit_are_refused(tmp_path: Path, board: Board) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with pytest.raises(TypeError, match="got board of type str, need a Board or None"):
            TorchComm(board="board")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="got a board of size=3, need one row per rank, size=1"):
            TorchComm(board=board)
        for deadline in (0.0, -1.0, float("nan")):
            with pytest.raises(ValueError, match=r"got deadline=.*, need a positive number of seconds"):
                TorchComm(deadline=deadline)
        with Board.create(1) as own:
            comm = TorchComm(board=own)
            comm.barrier()
            with pytest.raises(RuntimeError, match="need a board per comm"):
                TorchComm(board=own)
        with pytest.raises(RuntimeError, match="got a board that is closed"):
            comm.barrier()
    finally:
        dist.destroy_process_group()
