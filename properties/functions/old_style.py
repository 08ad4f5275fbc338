"""Custom functions without `setup_context` (the old style): their forward without a context, and missing offers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import FunctionCtx

BASE = torch.autograd.Function


def is_old_style(function: Any) -> bool:
    """Whether forward takes the context. Autograd accepts such a function, torch.func refuses it."""
    return function.setup_context is BASE.setup_context


def forward_of(function: Any) -> Callable[..., Any]:
    """The forward of a custom function, as a function of the arguments of `apply`."""
    forward: Callable[..., Any] = function.forward
    if not is_old_style(function):
        return forward
    signature = inspect.signature(forward)

    def plain(*args: Any) -> Any:
        context: Any = FunctionCtx()
        context.needs_input_grad = (False,) * len(args)
        return forward(context, *args)

    shown: Any = plain
    shown.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    return plain


def not_offered(function: Any) -> frozenset[str]:
    """The names in `oracles.op.transforms.OFFERS` that the class does not offer, by its own members."""
    missing = {
        "jvp": function.jvp is BASE.jvp,
        "vmap": function.vmap is BASE.vmap and not function.generate_vmap_rule,
        "func": is_old_style(function),
        "double": _once_differentiable(function.backward),
    }
    return frozenset(name for name, absent in missing.items() if absent)


def _once_differentiable(backward: Any) -> bool:
    """Whether `once_differentiable` of torch wraps a backward; the wrapper's code has this word in its name."""
    code = getattr(backward, "__code__", None)
    return code is not None and "once_differentiable" in code.co_qualname
