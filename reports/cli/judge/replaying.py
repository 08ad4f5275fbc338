"""The case of a judged candidate, asked again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ....oracles.verdicts.verdict import AXES
from ... import exit_codes
from ...record import RecordError
from ...store.files import read_capped
from ...text import one_line
from ..host import Stop, require
from .judge import judge_command

if TYPE_CHECKING:
    from ....properties.candidates.cases import JudgedCase


def read_judged_case(path: Path) -> JudgedCase | None:
    """The case of a file; None for a case of another schema.

    Raises:
        Stop: it has the schema and a broken field.
    """
    try:
        content = read_capped(path)
    except (RecordError, OSError) as err:
        raise Stop(exit_codes.USAGE, f"{path.name}: {err}") from err
    if b'"opassay-judged-case/' not in content:
        return None
    require("msgspec")
    import msgspec

    from ....properties.candidates.cases import JudgedCase

    try:
        case = msgspec.json.decode(content, type=JudgedCase)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise Stop(exit_codes.USAGE, f"{path.name}: case file: {one_line(str(err), 200)}") from err
    if set(case.cell) != set(AXES):
        raise Stop(
            exit_codes.USAGE, f"{path.name}: case file: got a cell of {sorted(case.cell)}, need {', '.join(AXES)}"
        )
    return case


def replay_judged_case(case: JudgedCase) -> int:
    """Ask the question of a case again, and say which files have changed; the exit code is that of `judge`."""
    same = ("candidate", "spec", "seed", "contract", "given", "dtype", "calls", "seconds", "interpret", "sha256")
    options = {name: getattr(case, name) for name in same}
    code: int = click.get_current_context().invoke(judge_command, **options, questions=(case.question,))
    return code
