"""Builds the library of the rehearsal device with g++, once for each text of it and each version of torch."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ...reference.distributions import AbsentError, require_part

SOURCE = Path(__file__).with_name("device.cpp")


class BuildError(RuntimeError):
    """The device cannot be built on this machine; the text says what it lacks."""


def torch_folder() -> Path:
    """Where torch is installed; torch is not imported."""
    package = importlib.util.find_spec("torch")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("rehearsal: torch is not installed", name="torch")
    return Path(package.origin).parent


def build(cache: Path | None = None) -> Path:
    """The library of the device, which is built unless the cache has it; some ten seconds.

    Args:
        cache: a folder, by default `opassay/rehearsal` in the user's cache folder.

    Raises:
        BuildError: torch has CUDA itself, there is no g++, or it refuses the source; the text has what it said.
    """
    try:
        require_part("machine")
    except AbsentError as err:
        raise BuildError(f"rehearsal: {err}") from err
    torch = torch_folder()
    if (torch / "lib" / "libtorch_cuda.so").exists():
        version = importlib.metadata.version("torch")
        raise BuildError(
            f"rehearsal: torch {version} is built for CUDA, which leaves no place for another device; need that for "
            "the CPU: pip install torch --index-url https://download.pytorch.org/whl/cpu"
        )
    return build_library("device", ["-Wl,-soname,libcuda.so.1"], SOURCE.read_text(), cache)


def build_library(name: str, options: Sequence[str], text: str, cache: Path | None = None) -> Path:
    """A library of C++ on torch, which is built unless the cache has it.

    Args:
        name: for its file. options: further ones of g++. text: of its source, beside this file's headers.
        cache: as for `build`.

    Raises:
        BuildError: there is no g++, or it refuses the source; the text has what it said.
    """
    cache = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opassay" / "rehearsal"
    torch, version = torch_folder(), importlib.metadata.version("torch")
    headers = [header.read_bytes() for header in sorted(SOURCE.parent.glob("*.h"))]
    parts = [*headers, text.encode(), version.encode(), os.fsencode(torch), *(each.encode() for each in options)]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    library = cache / f"{name}-{digest}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}")  # another process may build the same
        _compile(torch, options, text, unfinished)
        unfinished.rename(library)
    return library


def _compile(torch: Path, options: Sequence[str], text: str, library: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        raise BuildError("rehearsal: there is no g++, which builds the device once; as in apt-get install g++")
    folders = (SOURCE.parent, torch / "include", torch / "include" / "torch" / "csrc" / "api" / "include")
    command = [compiler, "-std=c++20", "-fPIC", "-shared", *(f"-I{folder}" for folder in folders), "-O1"]
    command += ["-x", "c++", "-", "-o", str(library), f"-L{torch / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]
    command += [f"-Wl,-rpath,{torch / 'lib'}", *options]  # libraries stand behind what needs them
    plain = os.environ | {"LC_ALL": "C"}
    done = subprocess.run(command, input=text, capture_output=True, text=True, errors="replace", env=plain, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error:" in line][:20] or [done.stderr[-4000:]]
        raise BuildError("\n".join([f"rehearsal: g++ refuses {library.stem}:", *errors]))
