"""A process that judges calls of a recording in a folder, beside the one that has the program.

    python -m opassay.properties.watch.judging_process FOLDER CONTRACT LARGE

A line of its input has numbers of calls; after each line it writes what it found of these calls, in their order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO

import torch

from .judging import CallFinding, CallJudge
from .recording_files import findings_as_bytes, findings_of, read_recording


class JudgingProcess:
    """Such a process, as the other side has it."""

    def __init__(self, folder: Path, judge: CallJudge) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder), judge.contract, str(judge.large)],
            env=os.environ | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    @property
    def _output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def wait_until_ready(self) -> bool:
        """Wait until it has read the recording; False where it ended."""
        return self._output.read(1) == b"\n"

    def judge(self, numbers: Sequence[int]) -> Iterator[tuple[int, CallFinding]]:
        """What it finds of these calls; fewer where it ends."""
        line = f"{' '.join(map(str, numbers))}\n".encode()
        try:
            os.write(self._process.stdin.fileno(), line) if self._process.stdin else None
        except OSError:
            return
        yield from islice(findings_of(self._output), len(numbers))

    def stop(self) -> None:
        """End it, whatever it does; who waits for what it finds is told that there is no more."""
        self._process.kill()

    def close(self) -> None:
        """End it, when nobody waits for it any more."""
        self.stop()
        self._process.communicate()


def main(words: Sequence[str]) -> None:
    """Judge what is asked, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the process that has the program, which ends this.
    torch.set_num_threads(1)
    folder, contract, large = words
    calls = {call.number: call for call in read_recording(Path(folder)).calls}
    judge = CallJudge(contract, int(large))
    sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    for line in sys.stdin:
        for number in map(int, line.split()):
            sys.stdout.buffer.write(findings_as_bytes([(number, judge.hold(calls[number]))]))
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
