"""Where decompositions for torch's forward AD are registered, and how they take the place of torch's own.

The decompositions themselves, and what this is for, are in `decompositions`, which offers these names too.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from types import GenericAlias
from typing import Any

import torch
from torch import Tensor

from ..operator import torch_private as private

aten = torch.ops.aten
_TORCHS_OWN = "torch._decomp.decompositions_for_jvp"

#: Overload -> a function of the overload's arguments, differentiable to any order, with the overload's own values.
decomposition_table_for_jvp: dict[Any, Callable[..., Any]] = {}

#: Ops of which torch has forward-AD formulas, which come before any decomposition.
_WITH_FORMULAS = frozenset((aten.trace.default, aten.log_sigmoid_forward.default))

_installed = False
_enabled = False


class TooLateError(RuntimeError):
    """The decompositions can no longer be installed in this process."""


def register_decomposition_for_jvp(op: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that enters a decomposition in `decomposition_table_for_jvp`.

    Args:
        op: an overload, `torch.ops.aten.trace.default`, or a packet, `torch.ops.aten.trace`, which stands for its
            overload `default`.

    Raises:
        ValueError: the table already has one for this op.
    """
    overload = getattr(op, "default", op)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if overload in decomposition_table_for_jvp:
            raise ValueError(f"register_decomposition_for_jvp: got op={overload}, need one that is not registered yet.")
        decomposition_table_for_jvp[overload] = function
        return function

    return register


def maybe_register_decomposition(op: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`register_decomposition_for_jvp`, which leaves the table as it is where it already has one for this op."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if getattr(op, "default", op) in decomposition_table_for_jvp:
            return function
        return register_decomposition_for_jvp(op)(function)

    return register


def overload_of(name: str) -> Any:
    """The overload in the table for the public name of an op, "softmax_backward_data" say; None if it has none."""
    for spelled in (name, f"_{name}"):
        overload = getattr(getattr(aten, spelled, None), "default", None)
        if overload in decomposition_table_for_jvp:
            return overload
    return None


def installable(overload: Any) -> bool:
    """Whether torch runs a decomposition of this op under forward AD, rather than a formula of its own."""
    return overload in decomposition_table_for_jvp and overload not in _WITH_FORMULAS


def installed() -> bool:
    """Whether `install_jvp_decompositions` has been called in this process."""
    return _installed


def install_jvp_decompositions() -> None:
    """From now on torch's forward AD of the `installable` ops runs the decompositions of this module.

    For the whole process and for good; calling it again changes nothing.

    Raises:
        TooLateError: torch has registered its own decompositions, which it does when the first dual tensor is made
            (`torch.autograd.forward_ad.make_dual`, `torch.func.jvp`, `jacfwd`, `hessian`, `linearize`).
        RuntimeError: TorchScript is off (PYTORCH_JIT=0), so that torch registers nothing.
    """
    global _installed, _enabled
    if not _installed:
        # Torch imports that module with the first dual tensor, and the import registers torch's
        # decompositions. That it is loaded is the sign that ours would come second and be dropped.
        if _TORCHS_OWN in sys.modules:
            raise TooLateError(
                f"install_jvp_decompositions: got {_TORCHS_OWN} already loaded, need a process in which no forward AD"
                " has run: torch keeps the first registration of each op."
            )
        if os.environ.get("PYTORCH_JIT", "1") != "1":
            raise RuntimeError("install_jvp_decompositions: got PYTORCH_JIT=0, need TorchScript.")
        for overload, function in decomposition_table_for_jvp.items():
            private.register_jit_decomposition(overload, _graph(overload, function))
        _installed = True
    _enabled = True


@contextlib.contextmanager
def jvp_decompositions(enabled: bool = True) -> Iterator[None]:
    """Within the block, torch's forward AD runs the decompositions of this module, or torch's own (`enabled=False`).

    Installs them if need be; before and after the block torch's own run, unless `install_jvp_decompositions` was
    called. The switch is one for all threads.

    Raises:
        As `install_jvp_decompositions`.
    """
    global _enabled
    # The state that the block found comes back at its end, so blocks may be nested.
    before = _enabled
    install_jvp_decompositions()
    _enabled = enabled
    try:
        yield
    finally:
        _enabled = before


def _graph(overload: Any, function: Callable[..., Any]) -> Any:
    """A TorchScript graph that calls the Python function."""

    def decomposition(*args: Any) -> Any:
        return function(*args) if _enabled else _torchs_own(overload)(*args)

    signature = sign(decomposition, overload)
    decomposition = torch.jit.ignore(decomposition)
    # A script is compiled from source text with typed parameters. The function takes *args and has none, so the text
    # of a wrapper is written with the parameters of the op's schema.
    parameters = ", ".join(map(str, signature.parameters.values()))
    text = f"def wrapped({parameters}):\n  return decomposition({', '.join(signature.parameters)})\n"
    return torch.jit.CompilationUnit(text).wrapped.graph


#: The types of a schema, by the names that TorchScript has for them. There a symbolic int and a dtype are ints.
_TYPES: dict[str, Any] = {
    "Tensor": Tensor,
    "Optional[Tensor]": Tensor | None,
    "int": int,
    "float": float,
    "bool": bool,
    "List[int]": list[int],
    "List[bool]": list[bool],
}


def sign(function: Callable[..., Any], overload: Any) -> inspect.Signature:
    """Give a function of *args the parameters of an op's schema, for whoever asks for them; TorchScript does.

    Returns:
        The signature: the schema's names and types, and one Tensor, or a tuple of them, returned.
    """
    types = {argument.name: _TYPES[str(argument.type)] for argument in overload._schema.arguments}
    outputs = tuple(Tensor for _ in overload._schema.returns)
    # What an op does not return is None, but a schema has no type for an output that may be missing.
    returned = Tensor if len(outputs) == 1 else GenericAlias(tuple, outputs)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind, annotation=annotation) for name, annotation in types.items()]
    signature = inspect.Signature(parameters, return_annotation=returned)
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__annotations__ = {**types, "return": returned}
    return signature


@functools.cache
def _torchs_own(overload: Any) -> Callable[..., Any]:
    module = importlib.import_module(_TORCHS_OWN)
    own = module.decomposition_table_for_jvp.get(overload) or module.decomposition_table[overload]
    # As torch does. Only a script takes the number that a dtype has arrived as.
    return torch.jit.script(module._maybe_remove_out_wrapper(own))  # type: ignore[no-any-return]
