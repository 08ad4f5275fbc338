"""What words of `opassay judge` mean: codes, axes, dtypes and meshes, each refused where there is none of the name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ....properties.candidates.question_plan import ALL_CODES, axes_of_words, mesh_of, nearest_code
from ....properties.names import nearest_of
from ....properties.table import FORMER_NAMES, TABLE
from ....reference.dtypes import FORMATS, dtype_name
from ... import exit_codes
from ..host import Stop


def require_axes(words: Sequence[str]) -> None:
    """Stop for a word that names no axis of equal bits."""
    try:
        axes_of_words(words)
    except ValueError as err:
        raise Stop(exit_codes.USAGE, f"--{err}") from err


def require_questions(names: Sequence[str]) -> None:
    """Stop for a code that no question has."""
    for code in names:
        if FORMER_NAMES.get(code, code) not in (codes := [*TABLE, ALL_CODES]):
            hint = nearest_code(code)
            raise Stop(exit_codes.USAGE, f"--question: got {code[:100]!r}{hint or ', need one of ' + ', '.join(codes)}")


def dtype_of(name: str | None) -> str:
    """torch's name of a dtype that a user names; empty for none.

    Raises:
        Stop: there is no such dtype, or it is not judged.
    """
    if not name or dtype_name(name) in FORMATS:
        return dtype_name(name or "")
    names = [*FORMATS, *(fmt.short for fmt in FORMATS.values())]
    hint = nearest_of(name, names)
    raise Stop(exit_codes.USAGE, f"--dtype: got {name[:100]!r}{hint}, need one of {', '.join(names)}")


def read_mesh(_context: Any, _option: Any, text: str | None) -> tuple[int, ...]:
    """The mesh of `--world`; none where it is not given."""
    try:
        return mesh_of(text) if text is not None else ()
    except ValueError as err:
        raise click.BadParameter(str(err).removeprefix("world: ")) from err
