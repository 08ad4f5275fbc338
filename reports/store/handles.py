"""Names relative to the handle of a folder, never through a symbolic link.

A path is looked up anew by every system call. If somebody exchanges a folder for a link between two calls, the second
one goes elsewhere. A handle stays with the folder that it was opened for, and every name here is relative to one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import NoReturn

# To open with these flags is the check itself: it fails on a link and on whatever is no folder. A check before the
# opening would leave a moment in which somebody can exchange the name.
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW

KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a regular file",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def names_in(handle: int) -> list[str]:
    # The system lists names in any order. What messages show, and in which order files are
    # moved, should not depend on it.
    return sorted(os.listdir(handle))


def make_folder(where: int, name: str, refuse: Callable[[str, str], NoReturn]) -> int:
    """A handle of the folder of that name, created if absent; `refuse` is told what stands there instead."""
    # Made first and looked at afterwards: what was looked at first could be exchanged before it is used.
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=where)
    try:
        return os.open(name, DIRECTORY, dir_fd=where)
    # Linux reports a symbolic link as "not a directory" too, other systems as a loop of links; both end here, and any
    # other error, such as a missing permission, is for the caller.
    except NotADirectoryError:
        refuse(f"{name} in it is not a folder itself", "need a folder or nothing there")
    except OSError as err:
        if err.errno != errno.ELOOP:
            raise
        refuse(f"{name} in it is a symbolic link", "need a folder or nothing there")
