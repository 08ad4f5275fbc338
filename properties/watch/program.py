"""The program of a process that runs somebody's program, records it, and judges it when it has ended.

Its first argument is a line of JSON (`WatchTask`), the others are the program's own words. It leaves `watch.json`,
`ended.json` and the operands of calls outside their bounds in a folder. The program runs as Python would run it: with
its own words, its folder first among those of imports, and its standard streams.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ...oracles.bound.terms import terms
from ...oracles.verdicts.case import CaseError
from ...oracles.verdicts.data import encode_watched
from ...oracles.verdicts.watched import ProgramComparison, Site
from ..engine.environment import environment
from .cases import write_case
from .graph_programs import write_programs
from .judging import LARGE, CallJudge
from .keeping import Keep
from .ledger import CallLedger
from .naming import NameNotFound
from .recorder import Recorder
from .recording import ProgramRun, Recording
from .recording_files import TENSORS, RecordingError, read_recording, write_recording
from .sweep import finish_recording
from .two_programs import compare_ledgers

INTERRUPT = 130


@dataclass(frozen=True)
class WatchTask:
    """What is asked of the process.

    Attributes:
        folder: where it leaves what it found. calls: the folder of the recording. contract: by which calls are judged.
        keep: attributes of `Keep`. resumes: whether the recording is there already, and no program is run.
        jobs: processes that judge. large: from so many elements on rows of a call are held.
        specs: files of Python that register specs of regions (`regions.spec`), run before the program.
        is_module: whether the program is named as a module, as for `python -m`. shows_progress: on standard error.
        of: the name of the number whose error is followed; empty for the loss.
        against: the folder of the recording of another form of the program; empty for none.
    """

    folder: str
    calls: str
    contract: str
    keep: dict[str, Any]
    specs: tuple[str, ...] = ()
    is_module: bool = False
    shows_progress: bool = False
    resumes: bool = False
    jobs: int = 1
    large: int = LARGE
    of: str = ""
    against: str = ""


def run_program(words: Sequence[str], *, is_module: bool) -> tuple[int, str]:
    """The status with which a program ends, as a shell would see it, and what it raised, in a line.

    Args:
        words: the program and its arguments. is_module: as for `WatchTask`.
    """
    target = words[0]
    sys.argv[:] = list(words)
    try:
        if is_module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(target, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return (end.code if isinstance(end.code, int) else int(end.code is not None)), ""
    except KeyboardInterrupt:
        return INTERRUPT, "interrupted"
    except BaseException as err:
        _print_without_ours(err)
        return 1, f"{type(err).__name__}: {str(err).partition(chr(10))[0][:200]}"
    return 0, ""


def _print_without_ours(err: BaseException) -> None:
    """The traceback of a program, as Python would print it: without the frames that ran it."""
    trace = err.__traceback__
    ours = (__file__, runpy.__file__, "<frozen runpy>")
    while trace is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    traceback.print_exception(type(err), err, trace)


def _judge(ledger: CallLedger, task: WatchTask) -> bool:
    """Judge the calls; whether this came to its end. A signal ends it, and leaves what is known so far."""

    def show(number: int, total: int) -> None:
        if number % 20 == 0:
            print(f"\ropassay watch: {number}/{total} calls judged", end="", file=sys.stderr, flush=True)

    try:
        ledger.judge_calls(show if task.shows_progress else None, Path(task.calls), task.jobs)
    except KeyboardInterrupt:
        return False
    finally:
        if task.shows_progress:
            print(f"\r{'':60}\r", end="", file=sys.stderr, flush=True)
    return True


def _compare(ledger: CallLedger, other: Recording, task: WatchTask) -> ProgramComparison | None:
    """Compare with another form of the program, whose calls are judged first; None where that was interrupted."""
    there = CallLedger(other, CallJudge(other.run.contract))
    if not _judge(there, replace(task, calls=task.against)):
        return None
    try:
        return compare_ledgers(ledger, there, other.run.name, ledger.recording.run.contract)
    except Exception as err:  # What is known of the calls must not be lost.
        reason = f"{type(err).__name__}: {str(err).partition(chr(10))[0][:200]}"
        return ProgramComparison(other.run.name, unknown=((reason, 1),))


def _leave(folder: Path, ledger: CallLedger, is_whole: bool, against: ProgramComparison | None) -> None:
    """Write what is known into the folder."""
    recording = ledger.recording
    run, watched = recording.run, ledger.result(recording.run.name)
    unwritten = set()
    for case, call in ledger.cases.items():
        try:
            write_case(folder / f"{case}.bin", call, run.contract)
        except CaseError:  # An operand has no form in a file, so that no command judges the call again.
            unwritten.add(case)
    words = write_programs(folder, ledger.graphs if is_whole else {}, CallJudge(run.contract))
    unwritten |= ledger.graphs.keys() - words.keys()
    sites = (replace(site, case="") if site.case in unwritten else site for site in watched.sites)
    watched = replace(
        watched, sites=tuple(_with_piece(site, words.get(site.case, "")) for site in sites), against=against
    )
    (folder / "watch.json").write_bytes(encode_watched(watched))
    ended = {"status": run.status, "error": run.error, "device": run.device, "faults": recording.faults}
    ended["environment"] = environment()  # here, where torch is: the command does without
    (folder / "ended.json").write_text(json.dumps(ended | {"is_whole": is_whole}))


def _with_piece(site: Site, words: str) -> Site:
    """A site whose card says what its program is."""
    return replace(site, card=f"{site.card}\n  piece      {words}") if words else site


def main(words: Sequence[str]) -> None:
    """Run, record and judge a program."""
    task = WatchTask(**json.loads(words[0]))
    for number in (signal.SIGINT, signal.SIGTERM):  # The process that waits for this one ignores Ctrl-C.
        signal.signal(number, signal.default_int_handler)
    if not task.resumes:
        sys.path.insert(0, "" if task.is_module else str(Path(words[1]).resolve().parent))
    try:
        terms(task.contract)
        for path in task.specs:
            runpy.run_path(path)
    except Exception as err:  # of a file of the user, anything
        (Path(task.folder) / "refused.txt").write_text(str(err) or type(err).__name__)
        return
    try:
        other = read_recording(Path(task.against)) if task.against else None
        recording = read_recording(Path(task.calls)) if task.resumes else _record(task, words[1:])
    except (RecordingError, NameNotFound) as err:
        (Path(task.folder) / "refused.txt").write_text(str(err))
        return
    if recording is not None:
        ledger = CallLedger(recording, CallJudge(recording.run.contract, task.large))
        is_whole = _judge(ledger, task)
        against = _compare(ledger, other, task) if other is not None and is_whole else None
        _leave(Path(task.folder), ledger, is_whole, against)


def _record(task: WatchTask, words: Sequence[str]) -> Recording | None:
    """Run a program, and leave its recording in a folder; None in a copy of this process that the program made.

    Raises:
        NameNotFound: nothing has the name of the number whose error is to be followed.
    """
    folder, owner = Path(task.calls), os.getpid()
    recorder = Recorder(Keep(**task.keep), folder / TENSORS, task.of)
    recorder.start()
    try:
        status, error = run_program(words, is_module=task.is_module)
    finally:
        recorder.stop()
    if os.getpid() != owner:  # A copy that the program made has come to the end of it.
        return None
    try:
        recording = finish_recording(recorder)
    except NameNotFound as err:
        if not status:
            raise
        error, recorder.named = f"{error}; {err}", None  # What is known of a program that failed is told.
        recording = finish_recording(recorder)
    except KeyboardInterrupt:  # The way to the loss can take as long as the program: its calls are judged without it.
        recording, status, error = recorder.recording(), INTERRUPT, "interrupted"
    device = "cuda" if torch.cuda.is_initialized() else "cpu"
    recording.run = ProgramRun(Path(words[0]).name, task.contract, status, error, device)
    write_recording(folder, recording, recorder.copies)
    return recording


if __name__ == "__main__":
    main(sys.argv[1:])
