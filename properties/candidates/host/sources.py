"""Modules of a spec's and of a candidate's folder, compiled from the bytes that were read, and from no bytecode cache.

What this is for: a verdict names what it judged by the SHA-256 of the bytes that were executed. Anybody may write a
file while it is judged, and a cache beside it, which Python would take for the file.

What is hard here: files beside a spec must be found by what the spec and its neighbours import, and by nobody else. A
file `tabulate.py` there is not for torch, which imports a package of that name if there is one. So the folder is on no
path; a finder looks at where an import comes from.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

#: Bytes of a file; a longer one is no source.
_MOST = 2**26


def content_of(path: str | Path) -> bytes:
    """The bytes of a regular file.

    Raises:
        OSError: it is none, cannot be read, or is too long.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path}: no regular file")
        if status.st_size > _MOST:
            raise OSError(f"{path}: {status.st_size} bytes, need at most {_MOST}")
        return file.read(_MOST)


class _FromSource(importlib.machinery.SourceFileLoader):
    """Executes what is compiled from a file's bytes."""

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        content = sources().compiled(path)
        # Whoever asks for the lines of a function is told those that were compiled: a program that compiles them anew,
        # as Triton does, and a traceback. Entries without a time are not compared with the file.
        lines = importlib.util.decode_source(content).splitlines(keepends=True)
        code = self.source_to_code(content, path)
        linecache.cache[path] = (len(content), None, lines, path)
        return code

    def get_data(self, path: str) -> bytes:
        handed = sources().contents.get(path)
        return super().get_data(path) if handed is None else handed


_LOADERS: tuple[tuple[Any, list[str]], ...] = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (_FromSource, SOURCE_SUFFIXES),
)


class Sources(importlib.abc.MetaPathFinder):
    """Finds modules of some folders, for what is imported from those folders.

    Attributes:
        folders: which. contents: bytes of files that were read elsewhere, by path; they are not read again.
        digests: SHA-256 of the files that were executed, by path, in hexadecimal digits.
    """

    def __init__(self) -> None:
        self.folders: list[str] = []
        self.contents: dict[str, bytes] = {}
        self.digests: dict[str, str] = {}
        self._by_name: dict[str, ModuleSpec] = {}

    def compiled(self, path: str) -> bytes:
        """The bytes of a file that is executed."""
        content = self.contents.get(path)
        content = content_of(path) if content is None else content
        self.digests[path] = hashlib.sha256(content).hexdigest()
        return content

    def serve(self, folder: str) -> None:
        """Find modules of a folder and of the packages below it, for each other."""
        if folder not in self.folders:
            self.folders.append(folder)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if fullname in self._by_name:
            return self._by_name[fullname]
        # A part of a package is found in the folder of the package, whoever imports it.
        homes = self._importing() if path is None else [place for place in path if self._within(place)]
        spec = _first_of(homes, fullname)
        if path is not None or not homes or (spec is not None and spec.loader is not None):
            return spec
        # What is installed comes before a folder that is no package, and before the other folders.
        if importlib.machinery.PathFinder.find_spec(fullname) is not None:
            return None
        return spec or _first_of(self.folders, fullname)

    def _importing(self) -> list[str]:
        """The folders in which the code stands that imports something now."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "importlib":
            frame = frame.f_back
        if frame is None:
            return []
        file = str(frame.f_globals.get("__file__") or frame.f_code.co_filename)
        return [folder for folder in self.folders if file.startswith(os.path.join(folder, ""))]

    def _within(self, place: str) -> bool:
        """Whether a place is in one of the folders; packages that were installed into one of them are their own."""
        homes = [*self.folders, *(entry for entry in sys.path if "-packages" in entry)]
        above = [home for home in homes if place == home or place.startswith(os.path.join(home, ""))]
        return bool(above) and max(above, key=len) in self.folders

    def module_of_file(self, path: Path) -> ModuleType:
        """The file as a module; files beside it can import it by its own name.

        Raises:
            ImportError: it is no Python file. OSError: it cannot be read. Anything else: the file raised it.
        """
        own = path.suffix in SOURCE_SUFFIXES
        name = self._free_name(path.stem)
        loader = _FromSource(name, str(path)) if own else None
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path}: no Python file")
        self.serve(str(path.parent))
        if not own:
            self.compiled(str(path))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    def _free_name(self, stem: str) -> str:
        """A name under which a file's module takes the place of no other module of this process."""
        there = sys.modules.get(stem)
        loader = getattr(getattr(there, "__spec__", None), "loader", None)
        return stem if there is None or isinstance(loader, _FromSource) else f"{stem}_"

    def locate(self, name: str) -> ModuleSpec | None:
        """Where a module is, in the current folder or on the path; nothing of it is imported. None if it is nowhere.

        It and the others of its folder, or of its package, are compiled from their source from now on.
        """
        if name in sys.modules:
            return sys.modules[name].__spec__
        first, *rest = name.split(".")
        spec = self._first(first)
        for i, part in enumerate(rest):
            places = list(spec.submodule_search_locations or []) if spec is not None else []
            full = ".".join([first, *rest[:i], part])
            spec = _first_of(places, full)
        return spec

    def _first(self, name: str) -> ModuleSpec | None:
        """Where the first package of a name is."""
        if name in sys.modules:
            return sys.modules[name].__spec__
        here = os.getcwd()
        spec = FileFinder(here, *_LOADERS).find_spec(name)
        if spec is not None and spec.loader is not None:
            self.serve(here)
            self._by_name[name] = spec
            return spec
        spec = importlib.util.find_spec(name) or spec
        if spec is None:
            return None
        places = spec.submodule_search_locations
        for place in places or []:
            self.serve(str(place))
        if isinstance(spec.loader, importlib.machinery.SourceFileLoader) and spec.origin:
            loader = _FromSource(name, spec.origin)
            self._by_name[name] = importlib.util.spec_from_file_location(
                name, spec.origin, loader=loader, submodule_search_locations=places and list(places)
            )  # type: ignore[assignment]  # it is None for a file of an unknown suffix, of which the loader is unknown
        return spec

    def finder_of(self, place: str) -> FileFinder:
        """What finds modules of a folder of ours that stands on the path; a hook as `sys.path_hooks` has them."""
        if not self._within(place):
            raise ImportError(f"{place}: none of our folders")
        return FileFinder(place, *_LOADERS)

    def serve_everybody(self, folder: str) -> None:
        """Find modules of a folder for what is imported from elsewhere, too, after those of all other places."""
        self.serve(folder)
        if folder not in sys.path:
            sys.path.append(folder)
        if self.finder_of not in sys.path_hooks:
            sys.path_hooks.insert(0, self.finder_of)
        sys.path_importer_cache.pop(folder, None)


def _first_of(places: Sequence[str], fullname: str) -> ModuleSpec | None:
    """The first module or package of a name in some folders; else the first folder of that name."""
    specs = [spec for place in places if (spec := FileFinder(place, *_LOADERS).find_spec(fullname)) is not None]
    return next((spec for spec in specs if spec.loader is not None), specs[0] if specs else None)


def sources(contents: Mapping[str, bytes] | None = None) -> Sources:
    """The finder of this process, made with the first use; `contents`: bytes of files that were read elsewhere."""
    finder = next((each for each in sys.meta_path if isinstance(each, Sources)), None)
    if finder is None:
        finder = Sources()
        sys.meta_path.insert(0, finder)
    finder.contents.update(contents or {})
    return finder
