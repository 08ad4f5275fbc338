"""Judges the calls of a recording: in this process, and in others that take from the end of the same queue."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from .call import DispatcherCall
from .judging import CallFinding, CallJudge, form_of, is_of_user
from .judging_process import JudgingProcess

#: Seconds that another process takes to begin. It is started when as many have passed: most programs end before.
_START = 3.0


class JudgingQueue:
    """Calls that have to be judged, in groups that share a trace.

    Args:
        calls: in order. judge: of this process. note: told of each call that was judged, by any thread.
    """

    def __init__(
        self, calls: Sequence[DispatcherCall], judge: CallJudge, note: Callable[[int, CallFinding], None]
    ) -> None:
        self._judge, self._note = judge, note
        groups: dict[tuple[object, ...], list[DispatcherCall]] = {}
        for call in calls:
            groups.setdefault(form_of(call), []).append(call)
        # First what this process alone can read: by specs that the program registered, and graphs that it compiled.
        self._groups = deque(sorted(groups.values(), key=lambda group: not is_of_user(group[0])))
        self._starting: set[JudgingProcess] = set()
        self._processes: list[JudgingProcess] = []
        self._lock, self._is_done = threading.Lock(), threading.Event()

    def judge(self, folder: Path | None = None, beside: int = 0) -> None:
        """Judge all of them.

        Args:
            folder: of the recording. beside: how many other processes help, which read it from there.
        """
        threads = [threading.Thread(target=self._feed, args=(folder,), daemon=True) for _ in range(beside)]
        for thread in threads:
            thread.start()
        try:
            self._judge_here()
            self._is_done.set()
            for process in tuple(self._starting):  # It would come too late.
                process.stop()
            for thread in threads:
                thread.join()
            self._judge_here()  # what a process has left that ended
        finally:
            self._is_done.set()
            for process in self._processes:
                process.stop()

    def _judge_here(self) -> None:
        while (group := self._take(first=True)) is not None:
            for call in group:
                self._note(call.number, self._judge.hold(call))

    def _take(self, *, first: bool) -> list[DispatcherCall] | None:
        with self._lock:
            if not self._groups or (not first and is_of_user(self._groups[-1][0])):
                return None
            return self._groups.popleft() if first else self._groups.pop()

    def _feed(self, folder: Path) -> None:
        """Give groups to another process, one after the other, until none is left or the process has ended."""
        if self._is_done.wait(_START):
            return
        process = JudgingProcess(folder, self._judge)
        self._processes.append(process)
        self._starting.add(process)
        is_ready = process.wait_until_ready()
        self._starting.discard(process)
        try:
            while is_ready and (group := self._take(first=False)) is not None:
                rest = {call.number: call for call in group}
                for number, finding in process.judge(list(rest)):
                    self._note(number, finding)
                    del rest[number]
                if rest:
                    self._groups.append(list(rest.values()))
                    return
        finally:
            process.close()
