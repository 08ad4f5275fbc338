"""Files that hold a spec or a candidate: which names they have to have, and what is made of them.

Two conventions are known, and pairs `module:name` or `file.py:name`, in which a name `space::op` is an operator that
the module registers with `torch.library`:

- `Model` and `get_inputs` in the spec, `ModelNew` (or `Model`) in the candidate; both are made of what the spec's
  `get_init_inputs` gives, from equal random states.
- `ref_kernel` and `generate_input` in the spec, `custom_kernel` in the candidate; what `generate_input` gives is one
  argument.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ....oracles.violation import error_name, said

#: The names of a spec, of a candidate, and of what gives inputs, in the order in which they are looked for.
_SPECS = ("Model", "ref_kernel", "reference", "spec")
_CANDIDATES = ("ModelNew", "custom_kernel", "candidate", "Model")
_INPUTS = ("get_inputs", "generate_input", "inputs")


class GivenError(ValueError):
    """Something that a user names and that cannot be used: the text says what it is, and what it lacks."""


class RaisedError(GivenError):
    """A file that raised when it was imported, or when it was asked for a module or for inputs."""


@dataclass(frozen=True)
class Problem:
    """A spec's file.

    Attributes:
        spec: a module or a function. made: what a candidate that is a class is made of.
        draw: (seed) -> the arguments of one call.
        path: of the file; that of the module for a pair.
    """

    spec: Callable[..., Any]
    draw: Callable[[int], Sequence[Any]]
    made: Sequence[Any] = ()
    path: Path = field(default_factory=Path)


def module_of(address: str) -> tuple[ModuleType, str]:
    """The module of a file or of a pair `module:name`, and the name; empty for a file.

    Raises:
        GivenError: there is no such file or module. RaisedError: it raised.
    """
    with _blamed(address):
        return _imported(address)


@contextlib.contextmanager
def _blamed(address: str) -> Iterator[None]:
    """Says of an exception whose it is."""
    try:
        yield
    except GivenError:
        raise
    except Exception as err:
        text = " ".join(said(err))[:500]
        raise RaisedError(f"{address} raised {error_name(err)}: {text}") from err


def _imported(address: str) -> tuple[ModuleType, str]:
    file, within, of_file = address.partition(".py:")
    path = Path(f"{file}.py" if within else address)
    if path.suffix == ".py" or path.is_file():
        if not path.is_file():
            raise GivenError(f"{path}: no such file")
        return _of_file(path.resolve()), of_file
    name, colon, attribute = address.partition(":")
    if not colon:
        raise GivenError(f"{address}: no such file, and no pair module:name")
    if "" not in sys.path:
        sys.path.insert(0, "")
    if importlib.util.find_spec(name) is None:
        raise GivenError(f"{address}: no module {name!r}")
    return importlib.import_module(name), attribute


def _of_file(path: Path) -> ModuleType:
    """The file as a module. Files beside it can be imported, and so can the file itself by its own name."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise GivenError(f"{path}: no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def problem_of(address: str, seed: int, given: Mapping[str, Any] | None = None) -> Problem:
    """The problem of a spec's file.

    Args:
        address: a file, or a pair `module:name`. seed: of a module's parameters.
        given: arguments of what gives the inputs, by name.

    Raises:
        GivenError: it lacks a name.
    """
    module, name = module_of(address)
    found = _first_of(module, address, (name,) if name else _SPECS)
    draw = _first_of(module, address, _INPUTS)
    make = getattr(module, "get_init_inputs", None)
    path = Path(getattr(module, "__file__", None) or ".")
    whole = draw.__name__ == "generate_input" if callable(draw) else False
    with _blamed(address):
        made = list(make()) if callable(make) else []
        spec = instance_of(found, made, seed)
    return Problem(spec, _drawing(draw, address, dict(given or {}), whole), made, path)


def instance_of(found: Any, made: Sequence[Any], seed: int) -> Callable[..., Any]:
    """A function as it is; a class of modules made of those values, from the random state of a seed."""
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        torch.manual_seed(seed)
        return found(*made)
    if not callable(found):
        raise GivenError(f"got a {type(found).__name__}, need a function or a class of modules")
    function: Callable[..., Any] = found
    return function


def candidate_of(address: str, made: Sequence[Any], seed: int) -> tuple[str, Callable[..., Any]]:
    """The candidate of a file or of a pair, and its name.

    Raises:
        GivenError: it lacks a name.
    """
    module, name = module_of(address)
    found = _first_of(module, address, (name,) if name else _CANDIDATES)
    with _blamed(address):
        return str(getattr(found, "__name__", name)), instance_of(found, made, seed)


def _first_of(module: ModuleType, address: str, names: Sequence[str]) -> Any:
    for name in names:
        space, registered, op = name.partition("::")
        home = getattr(torch.ops, space) if registered else module
        if hasattr(home, op or name):
            return getattr(home, op or name)
    raise GivenError(f"{address}: has none of {', '.join(names)}")


def _drawing(draw: Any, address: str, given: dict[str, Any], whole: bool) -> Callable[[int], Sequence[Any]]:
    """(seed) -> arguments, from a function or from a sequence that is always the same."""
    if not callable(draw):
        return lambda seed: draw
    parameters = inspect.signature(draw).parameters
    required = [n for n, p in parameters.items() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    lacking = [n for n in required if n not in given and n != "seed"]
    if lacking:
        raise GivenError(f"{address}: {draw.__name__} needs {', '.join(lacking)}; give --input {lacking[0]}=VALUE")

    def drawn(seed: int) -> Sequence[Any]:
        torch.manual_seed(seed)
        with _blamed(address):
            found = draw(**({"seed": seed} if "seed" in parameters else {}) | given)
        return (found,) if whole or not isinstance(found, (tuple, list)) else found

    return drawn
