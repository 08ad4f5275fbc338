"""Temporary folders of a judgement, of which nothing stays, however it ends: the next one removes what is left.

A process that is killed removes nothing. So each folder is locked as long as it is in use, a lock ends with its
process, and who makes a folder first removes those of its kind that nobody has locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

#: How all of their names begin; those of versions that do not lock begin otherwise.
_PREFIX = "opassay-judgement-"
#: Seconds after which a folder without a lock is nobody's: it is made before it is locked.
_YOUNG = 60.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TemporaryFolder:
    """A folder for this process alone; use it as a context.

    Attributes:
        path: of it. handle: by which it is the same folder, whatever gets its name.
    """

    def __init__(self) -> None:
        _remove_abandoned(Path(tempfile.gettempdir()))
        self.path = tempfile.mkdtemp(prefix=_PREFIX)
        self.handle = os.open(self.path, _FOLDER)
        fcntl.flock(self.handle, fcntl.LOCK_EX)

    def __enter__(self) -> TemporaryFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove it with all that it has; later calls do nothing."""
        if self.handle >= 0:
            _remove(self.path)
            os.close(self.handle)
        self.handle = -1


def _remove_abandoned(place: Path) -> None:
    """Remove folders of this user that no process has locked."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(place):
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if entry.name.startswith(_PREFIX) and status.st_uid == os.getuid() and _is_abandoned(entry.path):
                    _remove(entry.path)


def _is_abandoned(path: str) -> bool:
    """Whether a folder is not young, and not locked. Raises OSError for what is no folder."""
    handle = os.open(path, _FOLDER)
    try:
        if time.time() - os.fstat(handle).st_ctime < _YOUNG:
            return False
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    finally:
        os.close(handle)


def _remove(path: str) -> None:
    # A stranger may have nested folders deeper than they can be walked, and have taken rights from them.
    with contextlib.suppress(Exception):
        for folder, names, _ in os.walk(path):
            for inner in (os.path.join(folder, name) for name in names):
                if not os.path.islink(inner):
                    os.chmod(inner, 0o700)
        shutil.rmtree(path, ignore_errors=True)
