"""How commands read and replace files of the user, and how they end where that is refused."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ...oracles.verdicts.verdict import REPORT_FOLDER
from .. import exit_codes
from ..record import RecordError, Run, load
from ..store.files import PAGE, write_output
from .host import Stop

#: The types of arguments that name a file or a folder.
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


class _RecordPath(click.Path):
    """The path of a record; of the folder of a report, that of the record in it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(value)
        return super().convert(path / "run.json" if path.is_dir() else path, param, ctx)


RECORD_PATH = _RecordPath(path_type=Path, dir_okay=False)
# What the user can put right ends with 2; a full or broken disk is another matter and ends with 3.
_UNREADABLE = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP}
    | {errno.ENAMETOOLONG}
)


def adding(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What adds options to a command, in this order: decorators are applied from the last to the first."""
    return lambda command: functools.reduce(lambda inner, option: option(inner), reversed(options), command)


forgiving_options = adding(
    click.option("--exit-zero", is_flag=True, help="Exit 0 also if cells failed or are incomplete."),
    click.option("--allow-incomplete", is_flag=True, help="Exit 0 also if cells are incomplete."),
)


def load_run(path: Path) -> Run:
    """The record of a file, whose cases stand beside it; ends the command with 2 for one that cannot be read."""
    REPORT_FOLDER.set(str(path.parent) if (path.parent / "cases").is_dir() else "")
    with as_usage():
        return load(path)


def write_page(path: Path, page: str) -> None:
    """Write a page where no other file stands; ends the command with 2 where that is refused."""
    with as_usage():
        write_output(path, PAGE, page.encode("utf-8", "replace"))


@contextmanager
def as_usage(*wrong: type[Exception]) -> Iterator[None]:
    """Ends the command with 2 and a sentence where a file cannot be read or replaced, or for a `wrong` exception."""
    errors: tuple[type[Exception], ...] = (RecordError, *wrong)
    try:
        yield
    except errors as err:
        raise Stop(exit_codes.USAGE, str(err)) from err
    except OSError as err:
        if err.errno not in _UNREADABLE:
            raise  # a full or broken disk is no fault of the user
        raise Stop(exit_codes.USAGE, str(err)) from err
