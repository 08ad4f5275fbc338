"""What a candidate replaced in its process: of torch and Python, and of what carries its answers to the judge."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from ....oracles import process

_ROOT = __name__.removesuffix("properties.candidates.host.changes")
#: How the names of modules begin that make a call, compare what came of it, and tell the judge.
_BETWEEN = (
    *(f"{_ROOT}properties.candidates.{name}" for name in ("host.", "results", "arguments", "layouts")),
    *(f"{_ROOT}properties.places.{name}" for name in ("wire", "serving")),
    *(f"{_ROOT}oracles.{name}" for name in ("op.bits", "op.copies", "process.attributes", "process.watch")),
)


@functools.cache
def _between() -> list[Any]:
    """The modules between a candidate and its judge, and their classes."""
    modules = [module for name, module in sys.modules.items() if name.startswith(_BETWEEN)]
    classes = dict.fromkeys(each for module in modules for each in vars(module).values() if isinstance(each, type))
    return [*modules, *(each for each in classes if each.__module__.startswith(_BETWEEN))]


@functools.cache
def deep() -> process.Tier:
    """The state of the process that is compared, with all between a candidate and its judge."""
    return process.Deep(_between())


@contextlib.contextmanager
def watched_making(changed: list[str]) -> Iterator[None]:
    """Run a candidate's module and its making; what they replace is put back, and told."""
    before, pid = deep().read(), os.getpid()
    ours = [(owner, *attribute) for owner in _between() for attribute in vars(owner).items()]
    functions = [(*each, each[-1].__code__) for each in ours if isinstance(each[-1], FunctionType)]
    try:
        yield
    finally:
        if os.getpid() != pid:
            os._exit(1)  # a copy of this process that the candidate made
        # Compared here as well, because the functions that compare are among what may have been replaced.
        for owner, name, each, code in functions:
            if vars(owner).get(name) is not each or each.__code__ is not code:
                changed.append(f"{owner.__name__}.{name}: replaced")
        changed += [line for line in deep().restored(before, True) if counts_against(line)]


def counts_against(line: str) -> bool:
    """Whether a change of the process counts against a candidate: what it replaced, and what it left running."""
    replaced = line.endswith((": replaced", ": deleted")) and not line.startswith("environment variable")
    return replaced or line.startswith(("left a thread", "left a child process"))
