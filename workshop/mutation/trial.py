"""One mutant asked in a copy of this process: the copy has everything imported and drawn, and only the mutant changed.

What is hard here: a mutant may do anything. It may end its process, never come back, or take all memory; so each has a
copy of the process to itself, made by fork, with limits, and says before each question which one it begins. Whoever
began the trial reads what it said, and knows of a copy that has ended at which question it did.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from opassay.oracles import process
from opassay.oracles.verdicts.verdict import Cell, Outcome, Verdict
from opassay.properties.engine.samples import Settings
from opassay.properties.verification import run_cell

from .planting import SameProgramError

#: Examples per cell of the first round; in the second each cell has those of the brief profile.
FEW = 8
#: CPU seconds that one question may take of a mutant: the slowest takes a tenth of it. Seconds that it may sleep.
LIMIT, SILENCE = 40, 150.0
#: Characters that are kept of a reason.
_LONGEST_REASON = 200
#: Bytes of memory that a mutant may take besides those in use when it began.
MEMORY = 3 << 30
#: A verdict of these outcomes refuses the mutant: a run with it does not end as one without it.
KILLING = (Outcome.FAIL, Outcome.UNSTABLE, Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT)

Answer = dict[str, Any]


def judge_brief(cell: Cell, examples: int | None) -> Verdict:
    """The verdict of a cell in the brief profile, on so many examples; None for all of the profile's."""
    return run_cell(cell, Settings("brief", max_examples=examples, simpler=False))


@dataclass(frozen=True)
class Asking:
    """How one mutant is asked.

    Attributes:
        key: its name. cells: its questions, in their order.
        plant: the context within which the process has the mutant.
        seconds: of CPU after which no further question is begun. limit: of CPU that one question may take.
        judge: (cell, how many examples; None for all) -> the verdict.
        rounds: examples per cell of each round. All questions get a few before any gets more, because most mistakes
            show in a few.
        conclude: what else is reported of a mutant that survived.
    """

    key: str
    cells: Sequence[Cell]
    plant: Callable[[], AbstractContextManager[None]]
    seconds: float
    limit: int = LIMIT
    judge: Callable[[Cell, int | None], Verdict] = judge_brief
    rounds: Sequence[int | None] = (FEW, None)
    conclude: Callable[[], Answer] = dict


@dataclass
class Trial:
    """A mutant that is being asked.

    Attributes:
        asking: what is asked. pid, handle: its process, and the pipe by which that reports.
        last_sign: when it last reported something, of `time.monotonic`. output: what it has reported so far.
    """

    asking: Asking
    pid: int
    handle: int
    last_sign: float = field(default_factory=time.monotonic)
    output: bytes = b""


def begin(asking: Asking) -> Trial:
    """Start to ask a mutant, in a copy of this process."""
    theirs, ours = os.pipe()
    pid = process.fork()
    if pid:
        os.close(ours)
        os.set_blocking(theirs, False)
        return Trial(asking, pid, theirs)
    status = 1
    try:
        os.close(theirs)
        _be_quiet()
        _ask(asking, ours)
        status = 0
    except Exception as err:
        _tell(ours, reason=f"{type(err).__name__}: {err}"[:_LONGEST_REASON])
    finally:
        os._exit(status)


def in_copy(function: Callable[[], Answer]) -> Answer:
    """What a function gives in a copy of this process; {"outcome": "crash", ...} where the copy ended before."""
    theirs, ours = os.pipe()
    pid = process.fork()
    if not pid:
        try:
            _be_quiet()
            _tell(ours, **function())
        finally:
            os._exit(0)
    os.close(ours)
    with os.fdopen(theirs, "rb") as pipe:
        content = pipe.read()
    os.waitpid(pid, 0)
    return (
        json.loads(content) if content else {"outcome": str(Outcome.CRASH), "reason": "its process ended", "lines": []}
    )


def wait_for_trial(trials: list[Trial]) -> tuple[Trial, Answer]:
    """The next of these trials that comes to its end, waited for, and what came of it; it is taken off the list."""
    while True:
        ready, _, _ = select.select([trial.handle for trial in trials], [], [], 1.0)
        for trial in trials:
            if trial.handle in ready and not _listen(trial):
                return _end_trial(trials, trial)
            if time.monotonic() - trial.last_sign > SILENCE:
                os.kill(trial.pid, signal.SIGKILL)
                trial.last_sign = time.monotonic()


def _listen(trial: Trial) -> bool:
    """Take in what a trial said; whether it may say more."""
    more = os.read(trial.handle, 1 << 16)
    trial.output += more
    trial.last_sign = time.monotonic()
    return bool(more)


def _end_trial(trials: list[Trial], trial: Trial) -> tuple[Trial, Answer]:
    trials.remove(trial)
    os.close(trial.handle)
    _, status, used = os.wait4(trial.pid, 0)
    messages: list[Answer] = [json.loads(line) for line in trial.output.splitlines()]
    last = messages[-1] if messages else {}
    if "outcome" not in last:
        code = os.waitstatus_to_exitcode(status)
        last = {"reason": f"its process ended with {code}", **{key: m[key] for m in messages for key in m}}
        if "cell" in last:
            how = str(Outcome.TIMEOUT if -code in (signal.SIGXCPU, signal.SIGKILL) else Outcome.CRASH)
            last |= {"outcome": "killed", "how": how, "code": ""}
        else:  # a mutant that could not be planted was not asked, and so it was not refused either
            last |= {"outcome": "not planted", "asked": 0}
    return trial, {**last, "of": len(trial.asking.cells), "seconds": round(used.ru_utime + used.ru_stime, 2)}


# --------------------------------------------------------------------------------------------------- in the copy


def _be_quiet() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(nowhere, handle)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/status", encoding="ascii") as file:
        used = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, resource.RLIM_INFINITY))


def _ask(asking: Asking, handle: int) -> None:
    count = 0
    try:
        with asking.plant():
            for examples in asking.rounds:
                for cell in asking.cells:
                    if time.process_time() > asking.seconds:
                        break
                    _tell(handle, asked=count, cell=cell.key, by=cell.property)
                    _limit_question(asking.limit)
                    verdict = asking.judge(cell, examples)
                    count += 1
                    if verdict.outcome in KILLING:
                        reason = verdict.reason[:_LONGEST_REASON]
                        how = {"how": str(verdict.outcome), "code": str(verdict.code), "reason": reason}
                        _tell(handle, outcome="killed", cell=cell.key, by=cell.property, asked=count, **how)
                        return
            _tell(handle, outcome="survived", asked=count, **asking.conclude())
    except SameProgramError:
        _tell(handle, outcome="same", asked=0)


def _limit_question(seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds, resource.RLIM_INFINITY))


def _tell(handle: int, **message: Any) -> None:
    content = memoryview(json.dumps(message).encode() + b"\n")
    while content:
        content = content[os.write(handle, content) :]
