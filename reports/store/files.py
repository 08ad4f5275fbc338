"""Files read and written whole: what is too long is refused, and what is half written replaces nothing.

Of the files that a user names as a target, one that opassay did not write is left alone.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from ...oracles.verdicts.data import RecordError

MAX_FILE = 64 * 2**20  # bytes


def read_capped(path: Path, limit: int = MAX_FILE) -> bytes:
    """The file's bytes.

    Raises:
        RecordError: no such file, not a regular file, or more than `limit` bytes.
    """
    if not path.is_file():
        raise RecordError(f"{path}: no such file")
    with path.open("rb") as file:
        # One byte more than is allowed shows that a file is too large, without reading all of it.
        content = file.read(limit + 1)
    if len(content) > limit:
        raise RecordError(f"{path.name}: more than {limit} bytes")
    return content


def write_atomically(path: Path, content: bytes) -> None:
    """Writes to a temporary name beside `path`, then renames; never leaves half a file.

    Raises:
        RecordError: `path` is a symbolic link, a folder, or a device: renaming onto it would replace it.
        OSError: it cannot be written.
    """
    check_replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        # `mkstemp` lets nobody but the owner read its file, and a CI service often reads reports as another user.
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def check_replaceable(path: Path) -> None:
    """RecordError for a path that is neither free nor a regular file itself."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        kind = "a symbolic link" if path.is_symlink() else "a folder" if path.is_dir() else "a special file"
        raise RecordError(f"{path}: is {kind}; need a regular file, or a name that is free")


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
