"""Builds the library of the rehearsal device with g++, once for each text of it and each version of torch."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("device.cpp")
_TEXTS = (SOURCE, SOURCE.with_name("streams.h"))


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
        RuntimeError: g++ refuses the source; the text has what it said.
        FileNotFoundError: there is no g++.
    """
    cache = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opassay" / "rehearsal"
    torch = torch_folder()
    version = importlib.metadata.version("torch").encode()
    digest = hashlib.sha256(
        b"\0".join(text.read_bytes() for text in _TEXTS) + b"\0" + version + b"\0" + os.fsencode(torch)
    ).hexdigest()[:16]
    library = cache / f"device-{digest}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}")  # another process may build the same
        folders = (torch / "include", torch / "include" / "torch" / "csrc" / "api" / "include")
        command = ["g++", "-O1", "-std=c++20", "-fPIC", "-shared", *(f"-I{folder}" for folder in folders), str(SOURCE)]
        command += ["-o", str(unfinished), f"-L{torch / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]
        done = subprocess.run(
            [*command, f"-Wl,-rpath,{torch / 'lib'}"], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            raise RuntimeError(f"rehearsal: g++ refuses {SOURCE}:\n{done.stderr[-4000:]}")
        unfinished.rename(library)
    return library
