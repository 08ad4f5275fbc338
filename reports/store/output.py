"""Files that a user names as a target: one that opassay did not write is left alone."""

from __future__ import annotations

import re
from pathlib import Path

from ...oracles.verdicts.data import RecordError
from .files import check_replaceable, write_atomically

RECORD = "run record"
PAGE = "report page"
JUNIT = "JUnit file"
CTRF = "CTRF report"

_HEAD = 2**16  # bytes that are looked at
#: How files that opassay wrote begin; each pattern is tried once, at the start.
#: The possessive quantifiers (`*+`, `++`) never give back what they matched, so that a file made of blanks or digits
#: alone cannot make the search slow.
_BEGINS = {
    RECORD: re.compile(rb'\s*+\{\s*+"schema":\s*+[0-9]++,\s*+"tool":\s*+"opassay"'),
    PAGE: re.compile(
        rb"<!doctype html>(?s:.)*?(<meta name=\"generator\" content=\"opassay\">|\xe2\x80\x93 opassay</title>)"
    ),
    CTRF: re.compile(
        rb'\s*+\{\s*+"reportFormat":\s*+"CTRF",\s*+"specVersion":\s*+"[0-9.]++",\s*+"generatedBy":\s*+"opassay '
    ),
    JUNIT: re.compile(rb"\s*+(<\?xml[^>]*+>)?\s*+<testsuites[^>]*? name=\"opassay\""),
}


def require_replaceable(path: Path, kind: str) -> None:
    """Require that a file of that kind may be written to the path: the name is free, the file empty, or one of ours.

    Raises:
        RecordError: something else is there.
        OSError: it cannot be read.
    """
    check_replaceable(path)
    if not path.exists():
        return
    with path.open("rb") as file:
        head = file.read(_HEAD)
    # An empty file counts as free, because programs such as `mktemp` make one before its name is handed to the command.
    if head and not _BEGINS[kind].match(head):
        raise RecordError(f"{path}: exists and is no {kind} that opassay wrote; need another name, or remove it first")


def write_output(path: Path, kind: str, content: bytes) -> None:
    """Writes a file of that kind in one step; see `require_replaceable`."""
    require_replaceable(path, kind)
    write_atomically(path, content)
