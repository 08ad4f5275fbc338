"""Files that a candidate must not write, compared before and after: those of the judge, of the spec and its own.

What is hard here: other programs may write the same files at the same time. So nothing is said of a file that the
candidate's process could not write, but of its rights, which an isolated process can change as well. And what is looked
at is what could be taken for a part of a judgement, this one or a later one: the judged files and what they import,
anything beside a spec that Python could import, and bytecode. Bytecode that is what its source compiles to may be
anybody's.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

#: Where the folders of this package are, and which.
_OURS = Path(__file__).resolve().parents[3]
_FOLDERS = ("reference", "impl", "oracles", "properties", "reports")
_IMPORTED = (".py", ".pyc", *EXTENSION_SUFFIXES)
_CACHE = "__pycache__"
#: How the name of a cache ends that this Python would read.
_CACHED = tuple(f".{sys.implementation.cache_tag}{level}.pyc" for level in ("", ".opt-1", ".opt-2"))
#: Says of pairs of a cache and its source, a line each, whether the one is what the other compiles to, or is read by
#: nobody: Python passes over a cache without a source, and over one of another time or size of it.
_COMPARING = """
import marshal, os, sys
for line in sys.stdin:
    cache, source, level = line.rstrip("\\n").split("\\0")
    fine = False
    try:
        with open(cache, "rb") as one:
            content = one.read()
        status = os.stat(source)
        known = (int(status.st_mtime), status.st_size)
        said = [int.from_bytes(content[at : at + 4], "little") for at in (4, 8, 12)]
        fine = said[0] == 0 and said[1:] != [number & 0xFFFFFFFF for number in known]
        if not fine:
            with open(source, "rb") as other:
                fine = marshal.loads(content[16:]) == compile(other.read(), source, "exec", optimize=int(level))
    except FileNotFoundError:
        fine = True
    except Exception:
        pass
    print(int(fine), flush=True)
"""


class _Stamp(NamedTuple):
    """A file as it is: what a write would change, the time of the last change of status and more; and its rights."""

    state: tuple[int, int, int]
    rights: tuple[int, int, int]


class Watch:
    """Files as they are now, to be compared with what they become.

    Args:
        files: that must stay as they are. folders: in which nothing that Python imports may appear, change or go.
    """

    def __init__(self, files: Iterable[Path], folders: Iterable[Path]) -> None:
        walked = ((home, names) for folder in _FOLDERS for home, _, names in os.walk(_OURS / folder))
        ours = (os.path.join(home, name) for home, names in walked for name in names if name.endswith(".py"))
        self._files = [*map(str, files), *ours]
        within = {os.path.dirname(path) for path in self._files if path.startswith(f"{_OURS}{os.sep}")}
        self._folders = list(dict.fromkeys([*map(str, folders), *sorted(within)]))
        self._before = self._now()

    def changes(self, writable: Iterable[str] = ("/",)) -> list[str]:
        """A line for each file that has been written, has appeared or is gone, and for each with other rights.

        Args:
            writable: paths below which files could be written; elsewhere their rights alone could be changed.
        """
        now, places = self._now(), tuple(writable)
        changed = [path for path in {**self._before, **now} if self._is_changed(path, now, places)]
        fine = set(_compiled([path for path in changed if os.path.dirname(path).endswith(_CACHE) and path in now]))
        return [f"{self._what(path, now)}: {path}" for path in changed if path not in fine]

    def _is_changed(self, path: str, now: Mapping[str, _Stamp], writable: Iterable[str]) -> bool:
        was, stamp = self._before.get(path), now.get(path)
        if was == stamp or any(Path(path).resolve().is_relative_to(place) for place in writable):
            return was != stamp
        return was is not None and stamp is not None and was.rights != stamp.rights

    def _what(self, path: str, now: Mapping[str, _Stamp]) -> str:
        was, stamp = self._before.get(path), now.get(path)
        if was is None or stamp is None:
            return "a file appeared" if was is None else "a file is gone"
        return "a file was written" if was.rights == stamp.rights else "the rights of a file were changed"

    def _now(self) -> dict[str, _Stamp]:
        listed = (path for folder in self._folders for path in _importable(folder))
        stamps = {}
        for path in dict.fromkeys([*self._files, *listed]):
            with contextlib.suppress(OSError):
                status = os.stat(path)
                state = (status.st_ctime_ns, status.st_size, status.st_ino)
                if stat.S_ISDIR(status.st_mode):  # of a package that appears or goes; its folder changes with it, too
                    state = (0, 0, status.st_ino)
                stamps[path] = _Stamp(state, (status.st_mode, status.st_uid, status.st_gid))
        return stamps


def _importable(folder: str) -> Iterator[str]:
    """What Python could import from a folder, and the caches of its sources."""
    for each in _entries(folder):
        inner = _entries(each.path) if each.name.isidentifier() and each.is_dir() else [each]
        if each.name != _CACHE and any(one.name.endswith(_IMPORTED) for one in inner):
            yield each.path
    yield from (each.path for each in _entries(os.path.join(folder, _CACHE)) if each.name.endswith(_CACHED))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError):
        return list(os.scandir(folder))
    return []


def _compiled(caches: Sequence[str]) -> list[str]:
    """Those of some caches that say nothing else than their sources."""
    sources = []
    for path in caches:
        with contextlib.suppress(ValueError):
            level = os.path.basename(path).partition(".opt-")[2].partition(".")[0]
            sources.append((path, importlib.util.source_from_cache(path), level or "0"))
    if not sources:
        return []
    # In a process of its own, because what stands in a cache may end the process that reads it.
    lines = "".join(f"{path}\0{source}\0{level}\n" for path, source, level in sources)
    command = [sys.executable, "-I", "-S", "-c", _COMPARING]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        answers = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60, check=False).stdout
        return [path for (path, *_), answer in zip(sources, answers.splitlines(), strict=False) if answer == "1"]
    return []
