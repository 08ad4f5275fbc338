"""`opassay replay`: a case file is judged again, in a process apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...oracles.verdicts.verdict import AXES, REPORT_FOLDER, Cell
from ...properties.candidates.question_plan import mesh_of
from ...properties.catalog.loading import op_names
from ...properties.names import WIRES
from .. import exit_codes
from ..record import RecordError
from ..store.files import read_capped
from ..text import clean, one_line
from .host import Host, Stop, require
from .judge.judge import judge_command

if TYPE_CHECKING:
    from ...properties.candidates.cases import JudgedCase

_MAX_CASE = 16 * 2**20  # bytes


@click.command("replay")
@click.argument("case")
@click.option("--report-dir", type=click.Path(path_type=Path), default=Path("opassay-report"), show_default=True)
@click.option("--op", "trusted", metavar="MODULE:NAME", help="The op of the case, if a module of yours declares it.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=1200.0, show_default=True, help="Seconds.")
@click.option("--program", "programs", is_flag=True, help="Print a program of torch and the op alone, and run nothing.")
@click.pass_obj
def replay_command(host: Host, case: str, report_dir: Path, trusted: str | None, timeout: float, programs: bool) -> int:
    """Run a case again; CASE is a file, or an id (or its beginning) of the report folder's cases.

    With --program it prints a Python program that shows the failure without opassay: it computes the value, prints it
    beside the exact one and what is allowed, and exits with 1 while the fault is there. A run leaves the same program
    beside the case, as cases/ID.py. Where a failure has none the command says why, and exits with 2.

    A case file is data. Where its op is named as MODULE:NAME, judging it imports that module, so the op has to be named
    on the command line too. The case of a judged candidate asks its question again, as `opassay judge` does; a file
    outside of the report folder needs --op CANDIDATE.
    \f

    Args:
        host: what surrounds the command. case: a path, or an id or its beginning. report_dir: whose cases have ids.
        trusted: the op that the user allows to be imported, or None. timeout: seconds.
        programs: whether the program is printed in place of the verdict.

    Raises:
        Stop: no such case, a file that is none, an op that is not trusted, or an interrupt.
    """
    path = _case_file(case, report_dir)
    if path.parent.name == "cases":
        REPORT_FOLDER.set(str(path.parent.parent))
    program = path.with_suffix(".py")
    if programs and program.is_file():
        click.echo(clean(read_capped(program, _MAX_CASE).decode("utf-8", "replace")), nl=False)
        return exit_codes.OK
    judged = _judged_case(path)
    if judged is not None:
        if programs:
            raise Stop(exit_codes.USAGE, f"{path.name}: one call does not show it, so no program was written beside it")
        if Path(case).is_file() or trusted is not None:  # a file may come from anybody; a report folder is the user's
            _require_trusted(path, judged.cell, trusted, runs_code=True)
        return _replay_judged_case(judged)
    require("torch", "mpmath", "hypothesis")  # of the process that judges
    cell = _cell(path)
    _require_trusted(path, cell, trusted, runs_code=":" in cell.op)
    from .replay_cell import replay_cell  # here, because who judges candidates alone has no workers

    return replay_cell(path, cell, host, timeout, programs)


def _judged_case(path: Path) -> JudgedCase | None:
    """The case of a judged candidate; None for a case of another schema.

    Raises:
        Stop: it has the schema and a broken field.
    """
    require("msgspec")
    import msgspec

    from ...properties.candidates.cases import JudgedCase

    try:
        content = read_capped(path, _MAX_CASE)
        return msgspec.json.decode(content, type=JudgedCase) if b'"opassay-judged-case/' in content else None
    except (RecordError, OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise Stop(exit_codes.USAGE, f"{path.name}: case file: {one_line(str(err), 200)}") from err


def _replay_judged_case(case: JudgedCase) -> int:
    """Ask the question of a case again, and say which files have changed; the exit code is that of `judge`."""
    names = ("candidate", "spec", "seed", "contract", "given", "dtype", "calls", "seconds", "sha256")
    options = {name: getattr(case, name) for name in names}
    options |= {name: name in case.flags for name in ("interpret", "compiled")} | {"evaluation": "eval" in case.flags}
    words = [flag.partition("=")[::2] for flag in case.flags]
    options["where"] = tuple(value for name, value in words if name == "where")
    options["beside"] = next((value for name, value in words if name == "beside"), None)
    options["mesh"] = next((mesh_of(value) for name, value in words if name == "world"), ())
    options["wire"] = next((value for name, value in words if name == "wire"), None) or WIRES[0]
    axes = [value for name, value in words if name == "invariant"]
    options["invariant"] = (*axes, *[case.question[4:]] * (not case.spec))
    options["device"] = "rehearsal" if "device=rehearsal" in case.flags else case.cell.device.replace("cpu", "") or None
    code: int = click.get_current_context().invoke(judge_command, **options, questions=(case.question,))
    return code


def _case_file(case: str, report_dir: Path) -> Path:
    """The file of a path, or else of an id, or of the beginning of one id, among the cases of a report folder.

    Raises:
        Stop: there is none, or there are several.
    """
    path = Path(case)
    if path.is_file():
        return path
    folder = report_dir / "cases"
    # The id becomes part of a pattern for file names, so signs with a meaning there, and slashes, are not looked for.
    safe = all(sign.isalnum() or sign in "-_" for sign in case)
    matches = sorted(folder.glob(f"{case}*.json")) if safe and case else []
    exact = [entry for entry in matches if entry.stem == case]
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    if matches:
        raise Stop(
            exit_codes.USAGE, f"case {case!r}: {len(matches)} cases begin so: {', '.join(p.stem for p in matches[:5])}"
        )
    raise Stop(exit_codes.USAGE, f"case {case!r}: no such file, and no such id in {folder} (see --report-dir)")


def _cell(path: Path) -> Cell:
    """The cell that a case file names; nothing else of the file is looked at here."""
    try:
        data = json.loads(read_capped(path, _MAX_CASE).decode("utf-8"))["cell"]
        return Cell(*(str(data[name]) for name in AXES))
    except (RecordError, OSError) as err:
        raise Stop(exit_codes.USAGE, f"{path.name}: {err}") from err
    except (ValueError, RecursionError, KeyError, TypeError) as err:
        fault = one_line(f"{type(err).__name__}: {err}", 200)
        raise Stop(exit_codes.USAGE, f"{path.name}: case file: not JSON with a cell ({fault})") from err


def _require_trusted(path: Path, cell: Cell, trusted: str | None, *, runs_code: bool) -> None:
    """End the command if judging the case would run code that the user did not name (`runs_code`: it runs some)."""
    if trusted is not None and trusted != cell.op:
        raise Stop(exit_codes.USAGE, f"--op: got {trusted!r}, but the op of {path.name} is {cell.op!r}")
    if runs_code and trusted is None:
        text = f"the op of this case is {cell.op!r}, and to judge it runs the code of that module"
        raise Stop(
            exit_codes.USAGE, f"{path.name}: {one_line(text, 500)}; if you trust it, add --op {clean(cell.op)!r}"
        )
    if not runs_code and cell.op not in op_names():
        raise Stop(exit_codes.USAGE, f"{path.name}: unknown op {one_line(cell.op, 100)!r}")
