"""One public kernel: the call that its package documents, and what it means in plain PyTorch."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

#: A folder with checkouts of what no registry has: `applied-ai`, `triton-shared`.
SOURCES = "OPASSAY_PUBLIC_SOURCES"
#: Parts of packages whose own beginning asks for more than the kernels need.
_WITHOUT_BEGINNING = ("mamba_ssm", "unsloth")


class Call(NamedTuple):
    """What is judged.

    Attributes:
        candidate: calls the kernel. spec: what it means. inputs: of one call, on the host.
        contract: what is allowed. questions: that are asked besides the ones of every row. fault: why it is not
            accepted, where that was read by hand; "" where it has to be.
    """

    candidate: Callable[..., Any]
    spec: Callable[..., Any]
    inputs: tuple[Any, ...]
    contract: str = "torch"
    questions: tuple[str, ...] = ()
    fault: str = ""


class Row(NamedTuple):
    """A kernel of a package, and what makes its call; this imports the package."""

    package: str
    name: str
    make: Callable[[], Call]


ROWS: list[Row] = []
GRADIENT = ("VJP:grad",)


def row(package: str, name: str) -> Callable[[Callable[[], Call]], Callable[[], Call]]:
    """A decorator that puts a function into the table."""

    def add(make: Callable[[], Call]) -> Callable[[], Call]:
        ROWS.append(Row(package, name, make))
        return make

    return add


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


def load(name: str) -> Any:
    """A module of a package, which is found without its beginning where that asks for more than the kernels need."""
    top = name.partition(".")[0]
    if top in _WITHOUT_BEGINNING and top not in sys.modules:
        where = _places(top)
        sys.modules[top] = package = types.ModuleType(top)
        package.__path__, package.__spec__ = where, importlib.machinery.ModuleSpec(top, None, is_package=True)
    return importlib.import_module(name)


def _places(top: str) -> list[str]:
    spec = importlib.util.find_spec(top)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"No module named {top!r}", name=top)
    return list(spec.submodule_search_locations)


def folder(name: str) -> Path:
    """A checkout among the sources.

    Raises:
        ModuleNotFoundError: there is none.
    """
    path = Path(os.environ.get(SOURCES, "/nowhere"), name)
    if not path.is_dir():
        raise ModuleNotFoundError(f"{SOURCES}={path.parent}: need a folder with {name}", name=name)
    return path


def load_file(path: Path) -> Any:
    """A file as a module, with its folder on the path."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    if (path.parent / "benchmark.py").is_file():  # beside the tutorials: it asks for a compiler for the CPU
        sys.modules["benchmark"] = clock = types.ModuleType("benchmark")
        clock.measure = lambda: lambda function: function  # type: ignore[attr-defined]
    return importlib.import_module(path.stem)
