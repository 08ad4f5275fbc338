"""Builds the library of the rehearsal device with g++, once for each text of it and each version of torch."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

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
    """The library, which is built unless the cache has it; some ten seconds.

    Args:
        cache: a folder, by default `opassay/rehearsal` in the user's cache folder.

    Raises:
        BuildError: torch has CUDA itself, there is no g++, or it refuses the source; the text has what it said.
    """
    cache = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opassay" / "rehearsal"
    torch = torch_folder()
    version = importlib.metadata.version("torch")
    if (torch / "lib" / "libtorch_cuda.so").exists():
        raise BuildError(
            f"rehearsal: torch {version} is built for CUDA, which leaves no place for another device; need that for "
            "the CPU: pip install torch --index-url https://download.pytorch.org/whl/cpu"
        )
    texts = sorted([SOURCE, *SOURCE.parent.glob("*.h")])
    parts = [*(text.read_bytes() for text in texts), version.encode(), os.fsencode(torch)]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    library = cache / f"device-{digest}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}")  # another process may build the same
        _compile(torch, unfinished)
        unfinished.rename(library)
    return library


def _compile(torch: Path, library: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        raise BuildError("rehearsal: there is no g++, which builds the device once; as in apt-get install g++")
    folders = (torch / "include", torch / "include" / "torch" / "csrc" / "api" / "include")
    command = [compiler, "-O1", "-std=c++20", "-fPIC", "-shared", *(f"-I{folder}" for folder in folders), str(SOURCE)]
    command += ["-o", str(library), f"-L{torch / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]
    done = subprocess.run(
        [*command, f"-Wl,-rpath,{torch / 'lib'}"], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        raise BuildError(f"rehearsal: g++ refuses {SOURCE}:\n{done.stderr[-4000:]}")
