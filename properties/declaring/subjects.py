"""The subjects of the ops of the catalog: implementations, by name; and modules, built of the arguments of a call.

For some calls no constructor fits: that of a module has no parameter for a bias without a weight. So parameters are set
or removed after the construction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._decomp import decompositions

from ... import impl
from ...oracles.op.declaration import Subject
from ..checks.ways.module_calls import ModuleCall, ModuleSubject


@dataclass(frozen=True)
class Module:
    """How a module is built: `torch.nn` or `impl`, the source of its class -> (arguments of a call) -> the module."""

    name: str
    build: Callable[[Any], Callable[..., ModuleCall]]

    def subjects(self) -> dict[str, Subject]:
        """The modules by the name of their subject: "module", that of `torch.nn`, and the production one if any."""
        subjects: dict[str, Subject] = {"module": ModuleSubject(self.build(torch.nn))}
        if hasattr(impl, self.name):
            subjects["own_module"] = ModuleSubject(self.build(impl))
        return subjects


def without_missing(module: torch.nn.Module, parameters: dict[str, torch.Tensor | None]) -> torch.nn.Module:
    """The module without the parameters that are None."""
    for name, value in parameters.items():
        if value is None:
            module.register_parameter(name, None)
    return module


def with_parameters(name: str, *parameters: str, channels: bool = False) -> Module:
    """A module of a norm, whose op is called with (input, shape or number of groups, *parameters, eps).

    Args:
        name: of the class. parameters: of the op and of the module. channels: whether the class takes their number.
    """

    def of(source: Any) -> Callable[..., ModuleCall]:
        def build(x: torch.Tensor, shape: Any, *others: Any) -> ModuleCall:
            state = dict.fromkeys(parameters) | dict(zip(parameters, others, strict=False))
            sizes = (shape, x.shape[1]) if channels else (shape,)
            module = getattr(source, name)(*sizes, *others[len(parameters) :])
            return ModuleCall(without_missing(module, state), state, (x,))

        return build

    return Module(name, of)


def with_dim(name: str) -> Module:
    """A module of the class of that name, which is built of an op's `dim`."""

    def of(source: Any) -> Callable[..., ModuleCall]:
        def build(x: torch.Tensor, dim: int, dtype: Any = None) -> ModuleCall:
            # The module has no dtype: its user converts the input to a wider one, and the output to a narrower one.
            wider = dtype is not None and dtype.itemsize > x.element_size()
            return ModuleCall(getattr(source, name)(dim), {}, (x.to(dtype) if wider else x,), dtype)

        return build

    return Module(name, of)


def ours(
    formula: Callable[..., Any], module: Module | None = None, **others: Callable[..., Any]
) -> dict[str, Callable[..., Any]]:
    """The production op, which has the name of its formula; other subjects by name; and the modules of the op."""
    production = {"opassay": getattr(impl, formula.__name__)}
    return {**production, **others, **({} if module is None else module.subjects())}


def with_aten(formula: Callable[..., Any], name: str = "") -> dict[str, Callable[..., Any]]:
    """The production op, aten's op of that name (by default the formula's), and torch's decomposition of the latter."""
    name = name or formula.__name__
    return ours(formula, torch=getattr(torch.ops.aten, name).default, decomposition=getattr(decompositions, name))
