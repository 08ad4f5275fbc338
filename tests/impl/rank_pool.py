"""`Pool`: processes that wait to be the ranks of one group after another. Only one that was killed is started anew."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import tempfile
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from opassay.impl.comm import Board

PROGRAMS = Path(__file__).with_name("rank_programs.py")
LIMIT = 15.0  # seconds after which a rank that has not answered counts as hung


class Pool:
    """Up to `size` processes, forked from one that has imported torch and run nothing of it."""

    def __init__(self, size: int) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["torch", "torch.distributed", "opassay.impl.comm"])
        self._folder = tempfile.TemporaryDirectory(prefix="opassay-ranks-")
        self.folder = Path(self._folder.name)
        self.started = 0
        self.processes: list[Any] = []
        self.connections: list[Connection] = []
        for _ in range(size):
            process, connection = self._start()
            self.processes.append(process)
            self.connections.append(connection)
        self.fresh = self.left_over()

    def _start(self) -> tuple[Any, Connection]:
        ours, theirs = self._context.Pipe()
        known = {"init_globals": {"connection": theirs, "folder": str(self.folder)}, "run_name": "served"}
        process = self._context.Process(target=runpy.run_path, args=(str(PROGRAMS),), kwargs=known, daemon=True)
        process.start()
        theirs.close()
        self.started += 1
        return process, ours

    def run(
        self,
        program: str,
        size: int,
        board: bool = True,
        stopped: int | None = None,
        options: Any = None,
        **arguments: Any,
    ) -> list[dict[str, Any]]:
        """How a program of `rank_programs` ended on every rank of a group of `size`.

        Args:
            board: whether the group has one. stopped: a rank that stops itself; woken when the rest has answered.
            options: for TorchComm; the rest is for the program.
        """
        shared = Board.create(size) if board else None
        store = self.folder / f"store-{time.monotonic_ns()}"
        request = {
            "program": program,
            "arguments": arguments,
            "options": options or {},
            "size": size,
            "board": shared.path if shared else None,
            "store": str(store),
        }
        for rank in range(size):
            self.connections[rank].send(request | {"rank": rank})
        answers: list[dict[str, Any]] = [{"how": "hung"}] * size
        self._hear(answers, [rank for rank in range(size) if rank != stopped])
        if stopped is not None:
            os.kill(self.processes[stopped].pid, signal.SIGCONT)
            self._hear(answers, [stopped])
        self._end(answers)
        store.unlink(missing_ok=True)
        if shared:
            shared.close()
        return answers

    def _hear(self, answers: list[dict[str, Any]], ranks: list[int]) -> None:
        end, waiting = time.monotonic() + LIMIT, {self.connections[rank]: rank for rank in ranks}
        while waiting and time.monotonic() < end:
            for connection in wait(list(waiting), timeout=max(0.0, end - time.monotonic())):
                assert isinstance(connection, Connection)
                rank = waiting.pop(connection)
                try:
                    answers[rank] = connection.recv()
                except EOFError:
                    self.processes[rank].join()
                    answers[rank] = {"how": "died", "code": self.processes[rank].exitcode}

    def _end(self, answers: list[dict[str, Any]]) -> None:
        """End the group on every rank at once, and replace the processes that are gone."""
        alive = [rank for rank, ended in enumerate(answers) if ended["how"] not in ("died", "hung")]
        for rank in alive:
            self.connections[rank].send("end")
        for rank in alive:
            if self.connections[rank].poll(LIMIT):
                self.connections[rank].recv()
            else:
                answers[rank] = {"how": "hung at its end"}
        for rank, ended in enumerate(answers):
            if ended["how"] in ("died", "hung", "hung at its end"):
                self._stop(rank)
                self.processes[rank], self.connections[rank] = self._start()

    def _stop(self, rank: int) -> None:
        self.processes[rank].kill()
        self.processes[rank].join()
        self.connections[rank].close()

    def left_over(self) -> list[dict[str, Any]]:
        """Of every process, as `rank_programs.left_over` says."""
        for connection in self.connections:
            connection.send("left over")
        return [connection.recv() for connection in self.connections]

    def close(self) -> list[int | None]:
        """The exit codes; None of a process that did not end by itself."""
        for connection in self.connections:
            connection.send(None)
        end = time.monotonic() + 3
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
        codes = [process.exitcode for process in self.processes]
        for rank in range(len(self.processes)):
            self._stop(rank)
        self._folder.cleanup()
        return codes
