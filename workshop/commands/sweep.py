"""`python -m workshop sweep`: how far a device's elementary functions are off, against what the contract promises."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from opassay.reports import exit_codes
from opassay.reports.cli.host import Stop
from opassay.reports.cli.reading import as_usage
from opassay.reports.record import RecordError
from opassay.reports.store.files import write_atomically
from opassay.reports.text import TextTable, one_line

from ..sweeps.functions import FUNCTIONS
from ..sweeps.inputs import DTYPES
from ..sweeps.logs import DECISIVE, difference, file_of, is_broken, join, write_log
from ..sweeps.reading import Key, Log, SweepError, Swept, read_log, shards_of, swept

_PROGRAM = "workshop.sweeps.program"
Question = Mapping[str, Any]


class Measurer:
    """A process that measures one shard after another; its owner waits for each in a thread."""

    def __init__(self, device: str) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", _PROGRAM, device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            # A group of its own, because Ctrl-C in a terminal reaches every process of the owner's group.
            start_new_session=True,
        )  # fmt: skip
        greeting = self._line()
        self.environment: dict[str, str] = greeting["environment"]
        self.contract: dict[str, float] = greeting["contract"]

    def measure(self, question: Question) -> dict[str, Any]:
        """The answer to one question; RuntimeError if the process cannot give one."""
        assert self._popen.stdin is not None, "the process was started with a pipe"
        self._popen.stdin.write(json.dumps(question) + "\n")
        self._popen.stdin.flush()
        answer = self._line()
        if "error" in answer:
            raise RuntimeError(f"{question['function']} in {question['dtype']}: {answer['error']}")
        return answer

    def end(self) -> None:
        """Ends the process, whatever it is at."""
        self._popen.kill()
        self._popen.communicate()

    def _line(self) -> dict[str, Any]:
        assert self._popen.stdout is not None, "the process was started with a pipe"
        line = self._popen.stdout.readline()
        if not line:
            raise RuntimeError(f"a process that measures ended with {self._popen.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@click.command("sweep")
@click.argument("functions", nargs=-1)
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(DTYPES), help="May be repeated; all.")
@click.option("--device", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True)
@click.option("--into", type=click.Path(path_type=Path), default=Path("sweeps"), show_default=True, help="The folder.")
@click.option("--with", "others", multiple=True, type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="A folder of another machine of this kind, read beside it; may be repeated.")  # fmt: skip
@click.option("--shards", metavar="FIRST:END", default="", help="Only these of the 256 shards of float32, say 0:64.")
@click.option("-n", "workers", type=click.IntRange(1), default=1, show_default=True, help="Processes that measure.")
@click.option("--table", is_flag=True, help="Measure nothing: the table of what is in the folder.")
@click.option("--markdown", is_flag=True, help="Print the table in Markdown.")
@click.option("--json", "rows", type=click.Path(path_type=Path, dir_okay=False), help="Write it as JSON.")
def sweep_command(functions: tuple[str, ...], **options: Any) -> int:
    """Measure elementary FUNCTIONS on every argument of a dtype, against MPFR.

    float16 and bfloat16: 2^16 arguments, seconds; float32: 2^32 in 256 shards, minutes per function; float64: arguments
    drawn in every binade, and a search around the worst. The same command goes on where the last one ended. Without
    FUNCTIONS: those that the contract names. Exit code 2 where the device is further off than the contract promises.
    """
    device, folder = options["device"], options["into"]
    unknown = [name for name in functions if name not in FUNCTIONS]
    if unknown:
        raise Stop(exit_codes.USAGE, f"unknown function: got {unknown[0]!r}, need one of {', '.join(FUNCTIONS)}")
    with ExitStack() as stack:
        first = Measurer(device)
        stack.callback(first.end)
        names = functions or tuple(name for name in FUNCTIONS if FUNCTIONS[name].contract in first.contract)
        keys = [Key(name, dtype, device) for name in names for dtype in options["dtypes"] or DTYPES]
        if not options["table"]:
            if device == "cuda" and first.environment.get("cuda") == "not available":
                raise Stop(exit_codes.INCOMPLETE, "not run: no CUDA device")
            measurers = [first, *(Measurer(device) for _ in range(options["workers"] - 1))]
            for measurer in measurers[1:]:
                stack.callback(measurer.end)
            _sweep(measurers, keys, folder, options["shards"])
    logs = [log for log in _logs([folder, *options["others"]]) if log.key in keys]
    table = sweep_table(swept(logs, first.contract))
    click.echo("\n".join(table.markdown() if options["markdown"] else table.lines()))
    if options["rows"]:
        write_atomically(options["rows"], json.dumps({"sweeps": list_rows(logs)}).encode())
    if not logs:
        raise Stop(exit_codes.NOTHING, f"no log of these functions in {folder}")
    return exit_codes.USAGE if table.remarks else exit_codes.OK


def list_rows(logs: Sequence[Log]) -> list[dict[str, Any]]:
    """The table as data."""
    return [
        {"function": row.key.function, "dtype": row.key.dtype, "device": row.key.device, "inputs": row.inputs,
         "complete": row.complete, "ulp": row.normal, "at": row.where}
        for row in swept(logs, {})
    ]  # fmt: skip


def _sweep(measurers: Sequence[Measurer], keys: Sequence[Key], folder: Path, shards: str) -> None:
    """Measures what is missing, and appends each shard to its log as soon as it is there."""
    questions = [
        (key, shard)
        for key in keys
        for shard in log_to_continue(folder, key, measurers[0].environment).missing
        if shard in chosen_shards(shards, shards_of(key.dtype))
    ]
    free: queue.SimpleQueue[Measurer] = queue.SimpleQueue()
    for measurer in measurers:
        free.put(measurer)

    def ask(key: Key, shard: int) -> dict[str, Any]:
        measurer = free.get()
        try:
            return measurer.measure({**vars(key), "shard": shard})
        finally:
            free.put(measurer)

    with ThreadPoolExecutor(len(measurers)) as pool:
        keys_by_future = {pool.submit(ask, key, shard): key for key, shard in questions}
        try:
            for number, future in enumerate(as_completed(keys_by_future), 1):
                key, answer = keys_by_future[future], future.result()
                with (folder / file_of(key)).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(answer) + "\n")
                click.echo(f"{number}/{len(questions)}  {key.function} {key.dtype} shard {answer['shard']}", err=True)
        except BaseException:
            # A thread that waits for a process would keep this program; without the process it ends.
            pool.shutdown(wait=False, cancel_futures=True)
            for measurer in measurers:
                measurer.end()
            raise


def log_to_continue(folder: Path, key: Key, environment: Mapping[str, str]) -> Log:
    """The log of a sweep, whole and ready to be appended to."""
    path = folder / file_of(key)
    if not path.exists():
        log = Log(key, {name: environment[name] for name in DECISIVE if name in environment})
    else:
        log = _log(path)
        other = difference(log.environment, environment)
        if other:
            raise Stop(exit_codes.USAGE, f"{path}: was measured elsewhere, {other}; need another folder (--into)")
    try:
        # Written anew, because a sweep that was killed may have left half a line at its end.
        write_log(folder, log)
    except RecordError as err:
        raise Stop(exit_codes.USAGE, str(err)) from None
    return log


def _logs(folders: Sequence[Path]) -> list[Log]:
    with as_usage(SweepError):
        return join(_log(path) for folder in folders for path in sorted(folder.glob("*.jsonl")))


def _log(path: Path) -> Log:
    try:
        return read_log(path)
    except (SweepError, OSError) as err:
        raise Stop(exit_codes.USAGE, one_line(str(err), 500)) from None


def chosen_shards(text: str, shards: int) -> range:
    """The shards that FIRST:END names; a dtype of one shard has it in every range, for 16 bits take no time."""
    first, _, end = text.partition(":")
    if not text or shards == 1:
        return range(shards)
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise Stop(exit_codes.USAGE, f"--shards: got {text!r}, need FIRST:END with FIRST below END, as 0:64")
    return range(int(first), min(int(end), shards))


def sweep_table(rows: Sequence[Swept]) -> TextTable:
    """Of every function and dtype the largest error that was seen, and what the contract allows.

    Its remarks are about the contracts that are tighter than what was measured.
    """
    remarks = [
        f"{row.key.function} in {row.key.dtype} on {row.key.device}: the contract allows {row.promised:.6g} ulp, and "
        f"argument {row.where} is {row.normal:.6g} ulp off; the contract is too tight for this device"
        for row in rows
        if is_broken(row)
    ]
    measured = ("function", "dtype", "device", "arguments", "not correctly rounded", "worst (ulp)", "at")
    headings = (*measured, "worst below the normal range", "contract (ulp)", "verdict")
    return TextTable(headings, [_cells(row) for row in rows], remarks)


def _cells(row: Swept) -> tuple[str, ...]:
    verdict = "too tight" if is_broken(row) else "" if row.promised is None else "holds"
    return (
        row.key.function, row.key.dtype, row.key.device,
        f"{'all ' if row.complete else ''}{row.inputs:,}", f"{row.misrounded:.3%}", _ulps(row.normal), row.where,
        _ulps(row.subnormal), "none" if row.promised is None else f"{row.promised:.6g}", verdict,
    )  # fmt: skip


def _ulps(error: float) -> str:
    return "none" if error < 0 else f"{error:.6g}"
