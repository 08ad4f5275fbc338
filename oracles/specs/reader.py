"""Evaluates a graph of aten operations on arrays of any reading, by the rules."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from ...reference.array import Array, constant, store
from .rules import RULES

#: Arguments of aten operations that say nothing of values.
_OF_MEMORY = ("dtype", "device", "layout", "pin_memory", "memory_format", "non_blocking", "implicit")


class UntraceableError(Exception):
    """A spec with an operation that has no rule, or that cannot be traced; the text says which, and where."""


class Reader(torch.fx.Interpreter):
    """Evaluates a graph by the rules.

    Floating tensors are arrays of the reading of the inputs. Integers and truth values are NumPy arrays, and what is
    computed of them alone is left to torch; they are no outputs that are judged.
    """

    def run(self, *arrays: Any, **kwargs: Any) -> Any:
        # Constants of the graph are lifted into the reading of the inputs, because they are rounded by an evaluation.
        self.reading = next((constant(a) for a in arrays if isinstance(a, Array)), None)
        return super().run(*arrays, enable_io_processing=False, **kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self._lifted(super().get_attr(target, args, kwargs))

    def run_node(self, node: torch.fx.Node) -> Any:
        if node.op != "call_function" or node.target is operator.getitem:
            return super().run_node(node)
        with self._set_current_node(node):
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            rule = RULES.get(node.target)
            if rule is None:
                return self._by_torch(node, args, kwargs)
            read = rule(*args, **{name: value for name, value in kwargs.items() if name not in _OF_MEMORY})
            return _rounded(read, node)

    def output(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        floating = [isinstance(v, Array) or (isinstance(v, np.ndarray) and v.dtype.kind == "f") for v in args[0]]
        return tuple(value if ok else None for value, ok in zip(args[0], floating, strict=True))

    def _lifted(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if not value.dtype.is_floating_point:
            return value.numpy(force=True)
        array = value.detach().to("cpu", torch.float64).numpy()
        return array if self.reading is None else self.reading.lift(array)

    def _by_torch(self, node: torch.fx.Node, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """An operation without a rule, of constants alone: torch computes it."""
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        if any(isinstance(leaf, Array) or (isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f") for leaf in leaves):
            raise UntraceableError(f"it uses {node.target}{_line(node)}, which has no rule; give a formula in NumPy")
        given, named = torch.utils._pytree.tree_map(_tensor, (args, dict(kwargs)))
        target: Callable[..., Any] = node.target  # type: ignore[assignment]
        return torch.utils._pytree.tree_map(self._lifted, target(*given, **named))


def _tensor(value: Any) -> Any:
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value


def _rounded(read: Any, node: torch.fx.Node) -> Any:
    """The result of an operation, marked as one that an evaluation may store in the dtype that the spec has there."""
    value = node.meta.get("val")
    asked = node.target is torch.ops.aten._to_copy.default
    if isinstance(read, Array) and isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
        return store(read, str(value.dtype).removeprefix("torch."), asked)
    return read


def _line(node: torch.fx.Node) -> str:
    """Where in the spec the operation stands, as far as torch kept it."""
    trace = node.meta.get("stack_trace") or node.stack_trace
    lines = [line.strip() for line in (trace or "").splitlines() if line.strip()]
    return f" in {lines[-1]!r}" if lines else ""
