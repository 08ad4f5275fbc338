"""A digest of the installed source, by which two machines can tell whether theirs are the same."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

#: The folder in which the package is installed.
ROOT = Path(__file__).parents[1]


@functools.cache
def source_digest() -> str:
    """SHA-256 of the names and the bytes of every Python file of opassay that is installed."""
    digest = hashlib.sha256()
    for name, path in sorted(_files()):
        digest.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _files() -> Iterator[tuple[str, Path]]:
    # A strict editable installation is a folder of links, which `Path.rglob` does not follow.
    for folder, _, names in os.walk(ROOT, followlinks=True):
        for name in names:
            if name.endswith(".py"):
                path = Path(folder, name)
                yield path.relative_to(ROOT).as_posix(), path
