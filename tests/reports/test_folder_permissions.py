"""Folders that a run may not write to: refused with the reason, and nothing is left in them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from opassay.reports.store.folder import Folder, FolderError

#: The number of a user without privileges, on every Linux.
_NOBODY = 65534
_RUN = "20260301-100000-aaaaaa"


def _refusal_of_a_user(path: Path) -> str:
    """What a claim of the folder says to a user without privileges, asked in a child process.

    Nothing is forbidden to the superuser, so a child of one gives its privileges up first.
    """
    from_child, to_parent = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(_NOBODY)
            Folder.claim(path, _RUN)
        except FolderError as err:
            os.write(to_parent, str(err).encode())
        finally:
            os._exit(0)  # the tests are run by the parent
    os.close(to_parent)
    os.waitpid(child, 0)
    with os.fdopen(from_child) as stream:
        return stream.read()


def test_a_folder_without_permission_is_refused() -> None:
    # Not below pytest's own folder, which other users may not enter: this is about the folder itself.
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o555)
        assert "Permission denied" in _refusal_of_a_user(path / "report")
        assert "Permission denied" in _refusal_of_a_user(path)
        path.chmod(0o755)
        assert list(path.iterdir()) == []


def test_a_read_only_place_is_refused() -> None:
    with pytest.raises(FolderError, match="/proc/1/report"):
        Folder.claim(Path("/proc/1/report"), _RUN)
