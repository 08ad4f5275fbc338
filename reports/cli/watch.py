"""`opassay watch`: a program as it stands, of which every call is held by its own bound."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from ...oracles.verdicts.data import decode_watched
from ...oracles.verdicts.verdict import FAILED, HELD, REPORT_FOLDER, Outcome, Verdict
from ...oracles.verdicts.watched import ProgramComparison, Watched
from ...properties.watch import DEMO
from .. import exit_codes
from ..exit_codes import Reason
from ..record import RecordError, Run
from ..store.folder import Folder, FolderError
from ..text import one_line
from .host import Stop, require
from .write import claim_folder, make_record, write_reports

#: The program of the process that runs and judges.
_PROGRAM = (sys.executable, "-m", "opassay.properties.watch.program")
_PLAIN = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@dataclass(frozen=True)
class _End:
    """How the program ended, as its process tells (`properties.watch.program`)."""

    status: int
    error: str
    is_whole: bool
    device: str
    faults: list[str]
    environment: dict[str, str]


@click.command("watch", context_settings=_PLAIN)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[PROGRAM [ARGUMENTS]...]")
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.option("--demo", is_flag=True, help="Watch a program that comes with opassay.")
@click.option("--contract", default="torch", show_default=True, metavar="NAME", help="What an evaluation may do.")
@click.option(
    "--every", type=click.IntRange(min=1), default=1, help="Record one step of so many; optimizers end steps."
)
@click.option("--module", "modules", multiple=True, metavar="PATH", help="Keep calls in this module; repeatable.")
@click.option("--per-site", type=click.IntRange(min=0), default=0, help="Keep so many calls of a call site; 0: all.")
@click.option(
    "--memory", type=click.FloatRange(min=0), default=4.0, show_default=True, help="GiB of copies; 0: no limit."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the choice of --per-site.")
@click.option("--specs", multiple=True, type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help="Python that registers specs of regions by opassay.spec; repeatable.")  # fmt: skip
@click.option(
    "--of",
    default="",
    metavar="NAME",
    help="Follow the error of this number and not of the loss: a variable, "
    "the output of a module, or the last result of FILE:LINE; NAME[i, j] is an element, else it is the largest.",
)
@click.option("--ops", default="", metavar="NAME,NAME", help="Say of these operators whether they can be the cause.")
@click.option("--report-dir", type=click.Path(path_type=Path), default=Path("opassay-report"), show_default=True)
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Processes that judge.")
@click.option("--rows-from", type=click.IntRange(min=2**21), default=2**25, show_default=True, metavar="ELEMENTS",
              help="Hold some rows of a call of more elements, where rows are independent.")  # fmt: skip
@click.option("--keep-calls", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Leave the calls in this folder, for --resume.")  # fmt: skip
@click.option("--resume", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR",
              help="Run no program; judge what --keep-calls left and nobody has judged yet.")  # fmt: skip
@click.option("--against", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR",
              help="Compare with another form of the program, whose calls --keep-calls left here.")  # fmt: skip
@click.option("--call", "case", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
              help="Make and judge again the call of a file of cases/, and run no program.")  # fmt: skip
def watch_command(words: tuple[str, ...], case: Path | None, report_dir: Path, **options: Any) -> int:
    """Run PROGRAM, and hold every call of torch that it makes by the bound of its own operands.

    What the program computes does not change. The report says which calls are outside of their bounds, where the error
    of the loss comes from, which operators cannot be the cause, and where the first NaN began.
    Exit codes: 0 every call that was judged is held, 1 a call is outside or the programs differ, 4 nothing is outside,
    and the program failed, a NaN or an infinity began, or calls were not judged, 2 usage, 130 interrupted.

    \b
    Examples:
      opassay watch train.py --epochs 1
      opassay watch --every 50 --report-dir nightly -m mypackage.train
      opassay watch --ops aten::cos,aten::sin train.py
      opassay watch --of logits train.py
      opassay watch --keep-calls eager train.py && opassay watch --against eager train.py --compile
    \f

    Args:
        words: the program and its arguments. case: a call's file. report_dir: of the report. options: the others.

    Raises:
        Stop: no program, a folder that is not ours, or a process that ended without an answer.
    """
    require("torch", "mpmath", "msgspec")
    if case is not None:
        return _judge_case(case)
    words = (str(DEMO),) if options["demo"] else words
    _refuse_words(words, options)
    began = datetime.now(UTC)
    with claim_folder(report_dir) as folder, TemporaryDirectory() as there:
        REPORT_FOLDER.set(str(folder.path))
        end = _run(words, Path(there), options)
        watched = _read(Path(there))
        run = _record_of(watched, words, options, began, end)
        fault = _write(folder, watched, run, Path(there))
    _tell(watched, end, options["ops"], folder)
    if fault is not None:
        click.echo(f"could not write: {fault[1]}", err=True)
    return fault[0] if fault else run.exit_code


def _refuse_words(words: Sequence[str], options: dict[str, Any]) -> None:
    """Refuse what names no program, or would lose something.

    Raises:
        Stop: with the word and the rule.
    """
    folder = options["keep_calls"]
    if options["resume"] is not None:
        if words or folder is not None:
            raise Stop(exit_codes.USAGE, "--resume: got a program or --keep-calls as well, need neither")
        return
    if not words:
        raise Stop(exit_codes.USAGE, "PROGRAM: got none, need a file of Python, or -m and a module")
    if not options["module"] and not Path(words[0]).is_file():
        raise Stop(exit_codes.USAGE, f"PROGRAM: got {words[0]!r}, which is no file; a module is named after -m")
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise Stop(exit_codes.USAGE, f"--keep-calls: got {str(folder)!r}, which has files, need a folder without")


def _run(words: Sequence[str], there: Path, options: dict[str, Any]) -> _End:
    """Run the program in a process of its own, which leaves what it found in a folder."""
    calls = options["resume"] or options["keep_calls"] or there / "calls"
    calls.mkdir(parents=True, exist_ok=True)
    keep = {name: options[name] for name in ("every", "modules", "per_site", "seed")}
    keep |= {"memory": int(options["memory"] * 2**30)}
    task = {"folder": str(there), "calls": str(calls.resolve()), "contract": options["contract"], "keep": keep}
    task |= {"resumes": options["resume"] is not None, "jobs": options["jobs"], "large": options["rows_from"]}
    task |= {
        "specs": options["specs"],
        "of": options["of"],
        "against": str(options["against"].resolve()) if options["against"] else "",
        "is_module": options["module"],
        "shows_progress": sys.stderr.isatty(),
    }
    # Ctrl-C reaches the program itself, which leaves what is known so far.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.run([*_PROGRAM, json.dumps(task), *words], check=False)
    finally:
        signal.signal(signal.SIGINT, before)
    if (there / "refused.txt").is_file():
        raise Stop(exit_codes.USAGE, one_line((there / "refused.txt").read_text(), 2000))
    try:
        return _End(**json.loads((there / "ended.json").read_text()))
    except (OSError, ValueError) as err:
        text = f"the program's process ended with status {process.returncode} and without an answer"
        raise Stop(exit_codes.INTERNAL, text) from err


def _read(there: Path) -> Watched:
    try:
        return decode_watched((there / "watch.json").read_bytes())
    except (OSError, RecordError) as err:
        raise Stop(exit_codes.INTERNAL, f"watch.json: {one_line(str(err), 300)}") from err


def _record_of(watched: Watched, words: Sequence[str], options: dict[str, Any], began: datetime, end: _End) -> Run:
    """The record of a watched program: a cell for each call site."""
    from ..watch.verdicts import verdicts_of

    verdicts, seconds = verdicts_of(watched, end.device), (datetime.now(UTC) - began).total_seconds()
    reasons = _reasons(verdicts, end) + _reasons_of(watched.against)
    if watched.special is not None:
        place = watched.sites[watched.special.site].place
        text = f"{place.text}: {watched.special.what}: {watched.special.why}"
        reasons.append((exit_codes.INCOMPLETE, text))
    return make_record(
        verdicts, reasons, began, profile="watch", seed=options["seed"], seconds=seconds, notes=tuple(end.faults),
        command=("opassay", "watch", *_words_of(options), *words), settings={"choice": watched.choice},
        environment=end.environment,
    )  # fmt: skip


def _words_of(options: dict[str, Any]) -> list[str]:
    """The options of a command as words, without those that have their defaults."""
    context = click.get_current_context()
    words = []
    for option in context.command.params:
        value = options.get(option.name or "")
        if not isinstance(option, click.Option) or value == option.get_default(context) or not value:
            continue
        values = [""] if option.is_flag else value if option.multiple else [value]
        words += [word for each in values for word in (option.opts[0], str(each)) if word]
    return words


def _reasons(verdicts: Sequence[Verdict], end: _End) -> list[Reason]:
    """Why this is no success; empty where it is."""
    reasons: list[Reason] = []
    outside = sum(verdict.outcome in FAILED for verdict in verdicts)
    if outside:
        reasons.append((exit_codes.FAILED, f"{outside} of {len(verdicts)} call sites are outside of their bounds"))
    if not end.is_whole or end.status == exit_codes.INTERRUPT:
        reasons.append((exit_codes.INTERRUPT, "interrupted: not every call was judged"))
    elif end.status:
        text = f"the program ended with status {end.status}{f': {end.error}' if end.error else ''}"
        reasons.append((exit_codes.INCOMPLETE, text))
    unread = sum(verdict.outcome in (Outcome.UNSUPPORTED, Outcome.WEAK) for verdict in verdicts)
    if unread:
        reasons.append((exit_codes.INCOMPLETE, f"{unread} of {len(verdicts)} call sites were not judged to the end"))
    if not any(verdict.outcome in HELD | FAILED for verdict in verdicts):
        reasons.append((exit_codes.NOTHING, "no call of torch was judged"))
    return reasons


def _reasons_of(against: ProgramComparison | None) -> list[Reason]:
    """Why a program is not the same as another form of it; empty where it is, or none was asked about."""
    if against is None:
        return []
    if against.differences:
        return [(exit_codes.FAILED, f"{len(against.differences)} calls differ from {against.other}")]
    return [] if against.here else [(exit_codes.INCOMPLETE, f"not compared with {against.other}")]


def _write(folder: Folder, watched: Watched, run: Run, there: Path) -> Reason | None:
    """Write the record, its renderings, the page and the cases; what could not be written, if anything."""
    from ..watch.html import render

    lost = write_reports(folder, run)
    try:
        folder.write("watch.json", (there / "watch.json").read_bytes())
        folder.write("watch.html", render(watched, run).encode("utf-8", "replace"))
        for path in sorted(path for path in there.iterdir() if path.suffix in (".bin", ".py", ".raw")):
            folder.write(f"cases/{path.name}", path.read_bytes())
    except (OSError, FolderError) as err:
        return exit_codes.INTERNAL, one_line(str(err), 200)
    return lost


def _tell(watched: Watched, end: _End, ops: str, folder: Folder) -> None:
    """Print what was found."""
    from ..watch.text import lines_of

    wanted = [name.strip() for name in ops.split(",") if name.strip()]
    click.echo("\n".join(lines_of(watched, wanted)))
    if end.error:
        click.echo(f"the program ended with status {end.status}: {end.error}")
    click.echo(f"report  {folder.path / 'watch.html'}")


def _judge_case(path: Path) -> int:
    """Judge again the results that a file has of a call, and those of the call made now."""
    from ...properties.watch.cases import CaseError, judge_again

    try:
        before, now = judge_again(path)
    except CaseError as err:
        raise Stop(exit_codes.USAGE, one_line(str(err), 500)) from err
    for when, finding in (("as recorded", before), ("made now", now)):
        text = str(finding.wrong) if finding.wrong is not None else finding.reason or "held"
        click.echo(f"{when}: {text}{f', error {finding.ratio:.4g} of its bound' if finding.wrong is None else ''}")
    return exit_codes.FAILED if now.wrong is not None else exit_codes.OK
