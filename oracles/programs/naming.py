"""The subject of a program: which lines make it the function `op`."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable

import torch

from ..op.script import NoProgram, Script, plain_source

#: A program may import the implementations of this package, and no module that judges.
_FRAMEWORK = __name__.partition(".")[0]
_IMPLEMENTATIONS = f"{_FRAMEWORK}.impl"


def named(function: Callable[..., object]) -> Script:
    """The lines that define `op`.

    Raises:
        NoProgram: the function has no name by which a fresh process could have it.
    """
    if isinstance(function, torch._ops.OpOverload):
        return Script(lines=(f"op = torch.ops.{function}",))
    module, name = _address(function)
    if module == "torch" or module.startswith("torch."):
        imports = () if module in ("torch", "torch.nn.functional") else (f"import {module}",)
        return Script(lines=(f"op = {module}.{name}",), imports=imports)
    if module == _FRAMEWORK or module.startswith(f"{_FRAMEWORK}."):
        if not f"{module}.".startswith(f"{_IMPLEMENTATIONS}."):
            return _write_out(function)
        return Script(lines=(f"op = {module}.{name}",), imports=(f"import {module}",))
    # A program that is a file has its own folder on the path, and not the one that it is started in.
    here = ('sys.path.insert(0, "")  # a module of yours is looked for in the current folder', f"import {module}")
    return Script(lines=(f"op = {module}.{name}",), imports=here)


def _address(function: Callable[..., object]) -> tuple[str, str]:
    """Module and name by which a function can be imported."""
    name = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", None) or ""
    if module != "__main__" and getattr(sys.modules.get(module), name, None) is function:
        return module, name
    # Functions of torch that are written in C do not say where they are.
    plain = getattr(function, "__name__", "")
    for home in (torch, torch.nn.functional):
        if plain and getattr(home, plain, None) is function:
            return home.__name__, plain
    raise NoProgram("The subject is no function that can be imported by its name.")


def _write_out(function: Callable[..., object]) -> Script:
    """The source of a function of the framework, which is a call of torch in most cases."""
    if not isinstance(function, types.FunctionType):
        raise NoProgram("The subject is an object of the framework.")
    imports = []
    for name, value in inspect.getclosurevars(function).globals.items():
        if not isinstance(value, types.ModuleType) or not f"{value.__name__}.".startswith("torch."):
            raise NoProgram(f"The subject is a function of the framework, and needs its {name}.")
        imports.append("import torch" if name == "torch" else f"import {value.__name__} as {name}")
    return Script(lines=(*plain_source(function), f"op = {function.__name__}"), imports=tuple(imports))
