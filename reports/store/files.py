"""Files read and written whole: what is too long is refused, and what is half written replaces nothing."""

from __future__ import annotations

import os
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
