"""Specs that take derivatives by `torch.autograd.grad`, as losses of physics-informed networks do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from .lines import is_saved

T = TypeVar("T")

#: What torch says of `requires_grad_` within a transform, and of a derivative of what was computed under `no_grad`.
_SENTENCES = ("You are attempting to call Tensor.requires_grad_()", "does not require grad and does not have a grad_fn")


def needs_autograd(err: Exception) -> bool:
    """Whether an exception says that a spec takes derivatives by autograd, which was off, or which is not seen."""
    return any(sentence in str(err) for sentence in _SENTENCES)


def run_with_own_derivatives(run: Callable[[], T]) -> T:
    """What a call gives, without derivatives where those are turned off, unless it takes some itself."""
    try:
        return run()
    except RuntimeError as err:
        if torch.is_grad_enabled() or not needs_autograd(err):
            raise
    with torch.enable_grad():
        return run()


def trace_with_own_derivatives(
    trace: Callable[[Callable[..., Any]], T], function: Callable[..., Any], tensors: Sequence[torch.Tensor]
) -> T:
    """What `trace` makes of a function; if that takes derivatives by autograd, of a graph of it that has them.

    Args:
        trace: of a function, under a transform. function: of `tensors`.
    """
    try:
        return trace(function)
    except RuntimeError as err:
        if not needs_autograd(err):
            raise
    return trace(torch.fx.Interpreter(_with_derivatives(function, tensors)).run)


def _with_derivatives(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    """The graph of a function and of the derivatives that it takes; what it writes is written in the graph.

    No transform sees what autograd records, so this graph is made before a spec is made functional.
    """
    tracer = make_fx(function, _allow_non_fake_inputs=True)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        graph = tracer(*(mode.from_tensor(t.detach(), static_shapes=True) for t in tensors))
    for node in filter(is_saved, graph.graph.nodes):
        node.replace_all_uses_with(node.args[0])
    graph.recompile()
    return graph
