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
import inspect
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ....oracles.machine.limits import beyond_machine
from ....oracles.specs.evaluation import without_dropout
from ....oracles.verdicts.violation import error_lines, error_name
from ....reference.missing import nearest_of
from .. import failing_call
from ..arguments import CallArguments, Inputs, parameters_of
from ..cases import CANDIDATES, SPECS, parts_of
from ..layouts import place
from ..numpy_specs import calls_numpy
from .sources import sources

#: The names of what gives inputs, in the order in which they are looked for.
_INPUTS = ("get_inputs", "generate_input", "inputs")
#: Folders whose frames say nothing of an exception's cause, and how many of the other frames a message shows.
_NOT_THEIRS, _FRAMES = (*(f"{Path(__file__).parents[3] / part}/" for part in ("properties", "oracles")), "<frozen "), 4


class GivenError(ValueError):
    """Something that a user names and that cannot be used: the text says what it is, and what it lacks."""


class RaisedError(GivenError):
    """A file that raised when it was imported, or when it was asked for a module or for inputs."""


@dataclass(frozen=True)
class SpecFile:
    """A spec's file.

    Attributes:
        spec: a module or a function. init_args: what a candidate that is a class is made of.
        draw: (seed) -> the arguments of one call.
        path: of the file; that of the module for a pair. domain: which calls the spec takes, as the file declares it.
        placements: how tensors lie over ranks, as the file declares it.
    """

    spec: Callable[..., Any]
    draw: Callable[[int], Inputs]
    init_args: Sequence[Any] = ()
    path: Path = field(default_factory=Path)
    domain: Mapping[str, Any] = field(default_factory=dict)
    placements: Mapping[str, Any] = field(default_factory=dict)


def file_of(address: str) -> Path | None:
    """The path of the file that an address names, without reading the file; None for a module that has no file.

    Args:
        address: a path, or a pair `module:name`.

    Raises:
        GivenError: there is no such file or module.
    """
    path, module, _ = parts_of(address)
    if path is None and ":" not in address:
        raise GivenError(f"{address}: no such file, and no pair module:name")
    if path is None:
        spec = sources().locate(module)
        if spec is None:
            raise GivenError(
                f"{address}: no module {module!r}{nearest_of(f'{module}.py', map(str, Path().glob('*.py')))}"
            )
        return Path(spec.origin) if spec.has_location and spec.origin else None
    if not path.is_file():
        raise GivenError(f"{path}: {'no regular' if path.exists() else 'no such'} file")
    return path.resolve()


def module_of(address: str) -> tuple[ModuleType, str]:
    """The module of a file or of a pair `module:name`, and the name; empty for a file.

    Raises:
        GivenError: there is no such file or module. RaisedError: it raised.
    """
    path, module, name = parts_of(address)
    file = file_of(address)
    with blamed(address):
        if path is None or file is None:
            return importlib.import_module(module), name
        return sources().module_of_file(file), name


@contextlib.contextmanager
def blamed(address: str) -> Iterator[None]:
    """Turn an exception of the block into a RaisedError that names the address, the error and where it was raised."""
    try:
        yield
    except Exception as err:
        if beyond := beyond_machine(err):
            raise RaisedError(f"{address} {beyond}") from err
        first, *more = [*error_lines(err), ""]
        lines = [f"{address} raised {error_name(err)}: {first}", *filter(None, more), *frames_of(err)]
        raise RaisedError("\n".join(lines)) from err


def frames_of(err: BaseException) -> list[str]:
    """Where an exception was raised, outside of this package and of Python's importing, a line each."""
    with contextlib.suppress(Exception):  # the exception may be of any kind
        frames = [each for each in traceback.extract_tb(err.__traceback__) if not each.filename.startswith(_NOT_THEIRS)]
        return [f"at {each.filename}:{each.lineno} in {each.name}: {each.line}"[:300] for each in frames[-_FRAMES:]]
    return []


def problem_of(
    address: str, seed: int, values: Mapping[str, Any] | None = None, usual: Sequence[str] = SPECS
) -> SpecFile:
    """The problem of a spec's file.

    Args:
        address: a file, or a pair `module:name`. seed: of a module's parameters.
        values: arguments of the function that draws the inputs, by name. usual: names that it is looked for by.

    Raises:
        GivenError: the file defines no spec, or nothing that draws inputs.
    """
    module, _, target = _target_of(address, usual)
    draw = _first_of(module, address, _INPUTS)
    make = getattr(module, "get_init_inputs", None)
    path = Path(getattr(module, "__file__", None) or ".")
    whole = getattr(draw, "__name__", "") == "generate_input"
    with blamed(address):
        arguments = list(make()) if callable(make) else []
        spec = instance_of(target, arguments, seed)
    names = () if whole else parameters_of(spec)
    declarations = (getattr(module, name, None) for name in ("domain", "placements"))
    declared = [each if isinstance(each, Mapping) else {} for each in declarations]
    return SpecFile(spec, _seed_draw(draw, address, dict(values or {}), names), arguments, path, *declared)


def cast_problem(problem: SpecFile, dtype: str, device: str = "") -> SpecFile:
    """The problem with floating inputs, parameters and buffers cast to a dtype and moved to a device, both by name.

    An empty name changes nothing.

    Raises:
        GivenError: there is no such device here.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise GivenError("device: got cuda, and there is no GPU here")
    instance_of(problem.spec, (), 0, dtype, device)
    return replace(problem, draw=_cast_draw(problem.draw, dtype, device))


def spec_in_evaluation(problem: SpecFile) -> SpecFile:
    """The problem with its module in evaluation mode, or its function called with torch's dropout turned off."""
    spec: Any = getattr(problem.spec, "_orig_mod", problem.spec)  # the module that torch.compile wrapped
    if isinstance(spec, torch.nn.Module):
        spec.eval().forward = without_dropout(spec.forward)
        return replace(problem, spec=spec)
    return problem if calls_numpy(spec) else replace(problem, spec=without_dropout(spec))


def instance_of(
    target: Any, instances: Sequence[Any], seed: int, dtype: str = "", device: str = "", evaluation: bool = False
) -> Callable[..., Any]:
    """The callable of a target: a function as it is, or an instance of a class of modules.

    Args:
        target: a function, a module or a class of modules. instances: the arguments of the class.
        seed: torch's generator starts from it before the class is called.
        dtype, device: names of those to which a module is cast and moved; empty to change nothing.
        evaluation: whether a module is put in evaluation mode.
    """
    kind = getattr(torch, dtype) if dtype else None
    function = failing_call.instance_of(target, instances, seed, kind, device or None, {})
    if evaluation and isinstance(function, torch.nn.Module):
        function.eval()
    return function


def _cast_draw(draw: Callable[[int], Inputs], dtype: str, device: str) -> Callable[[int], Inputs]:
    """(seed) -> the arguments with floating tensors cast to `dtype` and all tensors on `device`; strides are kept."""

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        to = getattr(torch, dtype) if dtype and tensor.is_floating_point() else tensor.dtype
        values = tensor.detach().to(device or tensor.device, to)
        if values.dtype == tensor.dtype and values.device == tensor.device:
            return tensor
        return place(values, tensor.stride()).requires_grad_(tensor.requires_grad)

    return lambda seed: CallArguments.of(draw(seed)).changed(cast).args


def _target_of(address: str, usual: Sequence[str]) -> tuple[ModuleType, str, Any]:
    """The module of an address, the name in the address, and the callable of that name, or of the first usual name.

    Raises:
        GivenError: the module has no such name, or its value cannot be called.
    """
    module, name = module_of(address)
    target = _first_of(module, address, (name,) if name else usual)
    if not callable(target):
        raise GivenError(f"got a {type(target).__name__}, need a function or a class of modules")
    return module, name, target


def candidate_of(
    address: str, instances: Sequence[Any], seed: int, dtype: str = "", device: str = "", evaluation: bool = False
) -> tuple[str, Callable[..., Any]]:
    """The name of the candidate of a file or of a pair, and the candidate; the arguments are those of `instance_of`.

    Raises:
        GivenError: the file defines no candidate.
    """
    _, name, target = _target_of(address, CANDIDATES)
    with blamed(address):
        named = str(getattr(target, "__name__", name) or type(target).__name__)
        return named, instance_of(target, instances, seed, dtype, device, evaluation)


def _first_of(module: ModuleType, address: str, names: Sequence[str]) -> Any:
    for name in names:
        space, registered, op = name.partition("::")
        with blamed(address):
            home = getattr(torch.ops, space) if registered else module
            value = getattr(home, op or name, None)
        if value is not None:
            return value
    if len(names) == 1:
        raise GivenError(f"{address}: has no {names[0]}{nearest_of(names[0], [*vars(module)])}")
    need = ", which give the arguments of a call" if names is _INPUTS else f": need {address}:NAME of another"
    raise GivenError(f"{address}: has none of {', '.join(names)}{need}")


def _seed_draw(draw: Any, address: str, values: dict[str, Any], names: Collection[str]) -> Callable[[int], Inputs]:
    """(seed) -> arguments, from a function that draws them or from a constant sequence.

    A dictionary holds arguments by name if all of its keys are among `names`, the parameters of the spec; otherwise it
    is one argument. A sequence is one argument if `names` is empty.
    """
    if not callable(draw):
        return lambda seed: draw
    with blamed(address):
        parameters = inspect.signature(draw).parameters
    required = [n for n, p in parameters.items() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    lacking = [n for n in required if n not in values and n != "seed"]
    if lacking:
        name = getattr(draw, "__name__", "what gives inputs")
        raise GivenError(f"{address}: {name} needs {', '.join(lacking)}; give --input {lacking[0]}=VALUE")

    def draw_inputs(seed: int) -> Inputs:
        torch.manual_seed(seed)
        with blamed(address):
            arguments = draw(**({"seed": seed} if "seed" in parameters else {}) | values)
        by_name = isinstance(arguments, dict) and bool(arguments) and set(names).issuperset(arguments)
        return arguments if by_name or (names and isinstance(arguments, (tuple, list))) else (arguments,)

    return draw_inputs
