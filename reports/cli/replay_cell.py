"""The replay of a cell: a worker judges the case again."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ...oracles.verdicts.verdict import HELD, Cell, Code, Outcome, Verdict
from ...properties.places.pool import ALONE
from ...properties.places.process import AnswerError, EndedError, Process
from ...properties.programs import WORKER
from .. import exit_codes
from ..collect import make_death_verdict
from ..store import log
from ..text import clean, failure_text, one_line, verdict_line
from .host import Host, Stop
from .session import Ending, read_verdict


def replay_cell(path: Path, cell: Cell, host: Host, timeout: float, programs: bool) -> int:
    """The exit code of a case that is judged again; prints the verdict, or the program of the failure.

    Args:
        path, cell: the case file, and the cell that it names. host: whose program a worker runs. timeout: seconds.
        programs: whether the program is printed in place of the verdict.

    Raises:
        Stop: the user has asked for the end, the worker refuses the file, or there is no program.
    """
    with Ending() as ending:
        verdict = _judge_case(path, cell, host, timeout, ending)
    if programs:
        return _print_program(path, verdict)
    bad = verdict.outcome not in HELD
    click.echo(failure_text(verdict) if bad else verdict_line(verdict))
    # The same table as for a run, so that a script need not know which of the two commands it called.
    return exit_codes.most_urgent(exit_codes.run_reasons([verdict]))


def _print_program(path: Path, verdict: Verdict) -> int:
    """Print the program of the failure that a case shows.

    Raises:
        Stop: it has none; the text says why.
    """
    failure = verdict.failure
    if failure is None:
        raise Stop(exit_codes.USAGE, f"{path.name}: no failure to show: {one_line(verdict_line(verdict), 300)}")
    if not failure.program:
        why = failure.snippet.partition("\n")[0].removeprefix("# ") or "No program: the failure did not repeat."
        raise Stop(exit_codes.USAGE, f"{path.name}: {one_line(why, 500)}")
    click.echo(clean(failure.program), nl=False)
    return exit_codes.OK


def _judge_case(path: Path, cell: Cell, host: Host, timeout: float, ending: Ending) -> Verdict:
    """The verdict of a worker, or how the worker ended.

    Args:
        path: the case file, which the worker reads itself. cell: the cell that the file names.
        host: whose program a worker runs. timeout: seconds. ending: whether the user has asked for the end.

    Raises:
        Stop: the user has asked for the end, or the worker refuses the file.
    """
    process = Process(ALONE, command=host.worker or WORKER)
    try:
        until = time.monotonic() + timeout
        process.ask({"replay": str(path.absolute())})
        process.answer(until, ending)  # that it is ready
        answer = process.answer(until, ending)
        if "refused" in answer:
            raise Stop(exit_codes.USAGE, f"{path.name}: {one_line(str(answer['refused']), 500)}")
        return read_verdict(cell, answer.get("verdict"))
    except KeyboardInterrupt:
        raise Stop(exit_codes.INTERRUPT, "interrupted") from None
    except EndedError:
        return _make_death_verdict(process, cell, process.ended)
    except (AnswerError, ValueError) as err:
        return Verdict(cell, Outcome.CRASH, Code.CRASHED, f"the process said {err}")
    finally:
        process.close()


def _make_death_verdict(process: Process, cell: Cell, ended: bool) -> Verdict:
    """The verdict on a process without an answer: that it died (`ended`), or that its time is over; kills it."""
    how = f"the process died while this cell ran ({process.how()})" if ended else "stopped after its time limit"
    # Only a process that still runs can write down where it waits.
    if not ended:
        process.tell_stacks()
    process.kill()
    details = "\n".join(filter(None, (process.stacks().strip(), process.last_output().strip())))
    return make_death_verdict(cell, log.CellDied(cell.key, not ended, how, details))
