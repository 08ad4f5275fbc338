"""What the program of a failure does before it compares: its functions stand in the text of each program.

So they use the standard library and torch alone, and nothing else of this module.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch


def load(address: str) -> ModuleType:
    """The module of a name, or of an absolute path; modules beside a file find each other, and it."""
    if not os.path.isabs(address):
        sys.path.insert(0, "")
        return importlib.import_module(address)
    name = os.path.basename(address).removesuffix(".py")
    if getattr(sys.modules.get(name), "__file__", None) != address:
        sys.path.insert(0, os.path.dirname(address))
        spec = importlib.util.spec_from_file_location(name, address)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def instance_of(
    function: Any,
    instances: Sequence[Any],
    seed: int,
    dtype: torch.dtype | None,
    device: str | None,
    state: dict[str, torch.Tensor],
) -> Callable[..., Any]:
    """A function as it is; a class of modules made of some values from a seed, of a dtype, with a state.

    Args:
        function, made, seed: as for `module_files.instance_of`. dtype: of floating parameters; None for their own.
        device: of parameters and buffers; None for their own. state: their values.
    """
    if isinstance(function, type) and issubclass(function, torch.nn.Module):
        torch.manual_seed(seed)
        function = function(*instances)
    if isinstance(function, torch.nn.Module):
        function.to(device, dtype)
        own = {**dict(function.named_parameters()), **dict(function.named_buffers())}
        for name in own.keys() & state.keys():
            if own[name].shape == state[name].shape:
                own[name].detach().copy_(state[name])
    return function  # type: ignore[no-any-return]


def tensors_of(result: Any) -> list[torch.Tensor]:
    """The tensors of a result, in the order in which a judgement has them."""
    if isinstance(result, dict):
        result = [result[key] for key in sorted(result, key=repr)]
    if isinstance(result, (tuple, list)):
        return [tensor for item in result for tensor in tensors_of(item)]
    return [result] if isinstance(result, torch.Tensor) else []


def call(
    function: Callable[..., Any], values: Sequence[Any] | dict[str, Any], like: Sequence[torch.Tensor] = ()
) -> Any:
    """What a function gives; of one that writes, what it wrote into tensors that hold NaN before.

    Args:
        function: what is called. values: its arguments, by name where it has all of these names, else in their order.
        like: the right outputs, whose shapes those tensors have that further parameters are given.
    """
    body = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = [p for p in inspect.signature(body).parameters.values() if p.kind in (1, 3)]  # those with names
    except (TypeError, ValueError):
        parameters = []
    by_name = isinstance(values, dict) and (not parameters or values.keys() <= {p.name for p in parameters})
    in_order: Any = () if by_name else tuple(values.values()) if isinstance(values, dict) else values
    named: Any = values if by_name else {}
    rest = parameters[len(in_order) :]
    lacking = [p.name for p in rest if p.default is p.empty and p.name not in named]
    places = [torch.full_like(y, float("nan") if y.dtype.is_floating_point else 0) for y in like if lacking]
    result = function(*in_order, **named, **dict(zip(lacking, places)))  # noqa: B905 (too few raise at the call)
    return places or result


def gradients_of(
    function: Callable[..., Any], parameters: Sequence[Any] | dict[str, Any], inputs: Sequence[torch.Tensor],
    names: Sequence[str], cotangents: Sequence[torch.Tensor], inner: bool,
) -> list[torch.Tensor]:  # fmt: skip
    """The gradients of some arguments and of parameters by their names; zeros where there is none.

    Args:
        function, parameters: what is called. inputs: among the arguments. cotangents: of its floating outputs.
        inner: whether the tensors among the arguments are no leaves.
    """
    leaves = [*inputs, *(function.get_parameter(name) for name in names)]  # type: ignore[attr-defined]
    for leaf in leaves:
        leaf.requires_grad_()
    if inner:
        parameters = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.view_as(t), parameters)
    outputs = [y for y in tensors_of(call(function, parameters)) if y.is_floating_point()]
    pairs = [(y, g) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
    ys, gs = [y for y, _ in pairs], [g for _, g in pairs]
    gradients = torch.autograd.grad(ys, leaves, gs, allow_unused=True) if pairs else [None] * len(leaves)
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(gradients, leaves, strict=True)]


def read_stored(start: int, count: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """A tensor whose bytes are in the file beside the program."""
    with open(os.path.splitext(os.path.abspath(sys.argv[0]))[0] + ".bin", "rb") as file:
        file.seek(start)
        return torch.frombuffer(bytearray(file.read(count)), dtype=dtype).reshape(shape)
