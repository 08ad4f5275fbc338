"""Stands in for the suite in a worker: what a cell does to its process is decided by its op.

The environment variable HOSTILE holds a JSON object from names of ops to names of faults below; other ops are good.
torch is not imported, so that a run takes a fraction of a second.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable
from dataclasses import dataclass

from opassay.oracles.verdicts.verdict import Cell, Code, Measure, Outcome, Verdict

FOREVER = 1000


@dataclass(frozen=True)
class Settings:
    profile: str
    seed: int
    max_examples: int | None


def _hang_with_the_interpreters_lock() -> None:
    ctypes.PyDLL(None).sleep(FOREVER)


def _hang_without_a_watchdog() -> None:
    faulthandler.cancel_dump_traceback_later()
    faulthandler.disable()
    faulthandler.unregister(signal.SIGUSR1)
    time.sleep(FOREVER)


def _hang_deaf() -> None:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    time.sleep(FOREVER)


def _spin() -> None:
    while True:
        pass


def _leave_a_daemon() -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(FOREVER)
        os._exit(0)


def _fork_and_go_on() -> None:
    os.fork()


def _fork_a_sleeper() -> None:
    if os.fork() == 0:
        time.sleep(FOREVER)


def _fork_a_family() -> None:
    if os.fork() == 0:
        os.setsid()
        for _ in range(3):
            if os.fork():
                break
        time.sleep(FOREVER)


def _answer_in_its_place() -> None:
    for handle in _pipes():
        os.write(handle, b'{"verdict": {"outcome": "verified"}}\n')


def _say_nonsense() -> None:
    for handle in _pipes():
        os.write(handle, b"\xff\xfenonsense\n")


def _say_without_end() -> None:
    for handle in _pipes():
        while True:
            os.write(handle, b"x" * 2**16)


def _pipes() -> list[int]:
    """Descriptors above the standard ones that are pipes and can be written to."""
    results = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
                os.write(int(name), b"")
                results.append(int(name))
        except OSError:
            continue
    return results


def _print_much() -> None:
    for _ in range(100):
        print("spam \x1b[31m \u202e" * 20_000)
        print("spam" * 20_000, file=sys.stderr)


def _take_memory() -> None:
    memory = []
    for _ in range(40):
        memory.append(bytes(100 * 2**20))  # reserved, not written to, so that the fault takes no time


def _take_shared_memory() -> None:
    """Which no limit of the kernel counts: the owner has to see it."""
    size = 2 * 2**30
    memory = mmap.mmap(-1, size)
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
    time.sleep(FOREVER)


def _start_a_program() -> None:
    subprocess.Popen(["sleep", str(FOREVER)], start_new_session=True)


def _read_input() -> None:
    if sys.stdin.read():
        raise RuntimeError("there is an input")


FAULTS: dict[str, Callable[[], object]] = {
    "ends with 0": lambda: os._exit(0),
    "ends with 1": lambda: os._exit(1),
    "ends with 5": lambda: os._exit(5),
    "segmentation fault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "kills itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "terminates itself": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "kills its group": lambda: os.killpg(0, signal.SIGKILL),
    "stops itself": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "sleeps": lambda: time.sleep(FOREVER),
    "spins": _spin,
    "sleeps with the lock": _hang_with_the_interpreters_lock,
    "sleeps without a watchdog": _hang_without_a_watchdog,
    "sleeps deaf": _hang_deaf,
    "deadlocks": lambda: [lock := threading.Lock(), lock.acquire(), lock.acquire()],
    "closes every file": lambda: os.closerange(3, 4096),
    "closes its output": lambda: os.closerange(0, 3),
    "answers in its place": _answer_in_its_place,
    "says nonsense": _say_nonsense,
    "says without end": _say_without_end,
    "prints much": _print_much,
    "reads input": _read_input,
    "forks and goes on": _fork_and_go_on,
    "forks a sleeper": _fork_a_sleeper,
    "forks a family": _fork_a_family,
    "leaves a daemon": _leave_a_daemon,
    "starts a program": _start_a_program,
    "leaves a thread": lambda: threading.Thread(target=time.sleep, args=(FOREVER,)).start(),
    "takes memory": _take_memory,
    "takes shared memory": _take_shared_memory,
    "interrupts itself": lambda: os.kill(os.getpid(), signal.SIGINT),
    "changes directory": lambda: os.chdir("/"),
    "exits": lambda: sys.exit(0),
    "overflows the stack": lambda: exec("f = lambda: f()\nf()", {}),
}


def run_cell(cell: Cell, settings: Settings) -> Verdict:
    fault = json.loads(os.environ.get("HOSTILE", "{}")).get(cell.op)
    if fault:
        FAULTS[fault]()
    time.sleep(float(os.environ.get("PACE", "0")))
    return Verdict(cell, Outcome.VERIFIED, Code.HELD, "held", Measure(8, 0, 64, 2, 0.5, 0.25, 4.0, 5.0))


def install() -> None:
    """Puts this module where the suite, the environment and torch would be."""
    sys.modules["opassay.properties.verification"] = sys.modules["torch"] = sys.modules[__name__]
    sys.modules["opassay.properties.engine.environment"] = surroundings = types.ModuleType("environment")
    surroundings.environment = lambda: {"torch": "0.0.stub"}  # type: ignore[attr-defined]


def set_num_threads(count: int) -> None:
    """Of the module that stands in for torch."""


if __name__ == "__main__":
    from opassay.properties.programs.worker import main

    install()
    main()
