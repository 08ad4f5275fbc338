"""Evaluates a graph of aten operations on arrays of any reading, by the rules."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ...reference.algorithms import Inapplicable
from ...reference.array import Array, attach, constant, store
from ...reference.choice import Choice
from ...reference.condition import Condition
from ...reference.missing import NoReadingError
from .lines import is_constant, is_written, line_of
from .rules import MOVES, RULES

#: Arguments of aten operations that say nothing of values.
_OF_MEMORY = ("dtype", "device", "layout", "pin_memory", "memory_format", "non_blocking", "implicit")


class UntraceableError(Exception):
    """A spec with an operation that has no rule, or that cannot be traced; the text says which, and where."""


class Reader(torch.fx.Interpreter):
    """Evaluates a graph by the rules.

    Floating tensors are arrays of the reading of the inputs. Integers and truth values are NumPy arrays, and what is
    computed of them alone is left to torch, whose integer arithmetic is exact.
    """

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__(graph)
        self.extra_traceback = False  # An error is to be told in one sentence, which names the line of the spec.
        self.reading: Any = None
        #: Nodes whose values hang on floating inputs.
        self.moving = _moving(graph)

    def run(self, *arrays: Any, **kwargs: Any) -> Any:
        # Constants of the graph are lifted into the reading of the inputs, because they are rounded by an evaluation.
        self.reading = next((constant(a) for a in arrays if isinstance(a, Array)), None)
        arrays = tuple(self._lifted(a) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in arrays)
        return super().run(*arrays, enable_io_processing=False, **kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self._of_tensor(super().get_attr(target, args, kwargs))

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n.target is operator.getitem:
            # One of several results. Those of an operation that only moves elements are stored already.
            picked = super().run_node(n)
            source = n.args[0]
            assert isinstance(source, torch.fx.Node)
            return picked if source.target in MOVES else self._stored(picked, n)
        try:
            read = self._by_rule(n, args, kwargs)
        except NoReadingError as err:
            raise UntraceableError(f"it uses {_named(n)}, which cannot be read there: {err}") from err
        except (UntraceableError, Inapplicable, MemoryError):
            raise
        except Exception as err:  # of a rule that does not know such arguments
            why = f"{type(err).__name__}: {err}"
            raise UntraceableError(f"it uses {_named(n)}, which cannot be read there ({why})") from err
        if n.target is torch.ops.aten.where.self:
            self._leave_out(n, read, args)
        if is_constant(n):
            read = _without_derivatives(n, read, args)
        return read if n.target in MOVES or isinstance(read, Sequence) else self._stored(read, n)

    def _by_rule(self, node: torch.fx.Node, args: Any, kwargs: Mapping[str, Any]) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        rule = RULES.get(node.target)
        if not any(_is_floating(leaf) for leaf in leaves):
            # Indices that were chosen are moved as they are; what is computed of them needs them to be the only ones.
            chosen = any(isinstance(leaf, Choice) for leaf in leaves)
            if rule is None or not (chosen or _gives_floating(node)):
                return self._by_torch(node, args, kwargs)
            if not chosen:
                # Integers that become floating numbers here are lifted first, so that the arithmetic counts as rounded.
                args, kwargs = pytree.tree_map(self._lifted_integers, (args, dict(kwargs)))
        if rule is None:
            random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
            raise UntraceableError(f"it uses {_named(node)}, which {_DRAWS if random else _NO_RULE}")
        return rule(*args, **{name: value for name, value in kwargs.items() if name not in _OF_MEMORY})

    def _leave_out(self, node: torch.fx.Node, read: Any, args: Any) -> None:
        """Takes note of the zeros that a mask puts into a tensor, whatever the inputs are: a diagonal matrix, say."""
        mask, *sides = node.args
        if not isinstance(read, Array) or mask in self.moving:
            return
        chosen, *values = args
        zero = [side not in self.moving and _is_zero(value) for side, value in zip(sides, values, strict=True)]
        zeros = np.where(np.asarray(chosen, dtype=bool), *zero)
        if zeros.any():
            constant(read).leave_out(np.broadcast_to(zeros, read.shape))

    def _by_torch(self, node: torch.fx.Node, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """An operation of integers, truth values and constants alone: torch computes it."""
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise UntraceableError(f"it uses {_named(node)}, which {_DRAWS}")
        given, named = pytree.tree_map(_tensor, (args, dict(kwargs)))
        if "device" in named:
            named["device"] = torch.device("cpu")
        return pytree.tree_map(self._of_tensor, node.target(*given, **named))  # type: ignore[operator]

    def _of_tensor(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if not value.dtype.is_floating_point:
            return value.numpy(force=True)
        return self._lifted(value.detach().to("cpu", torch.float64).numpy())

    def _lifted(self, value: Any) -> Any:
        return value if self.reading is None else self.reading.lift(value)

    def _lifted_integers(self, value: Any) -> Any:
        return self._lifted(value.astype(np.float64)) if _is_integers(value) else value

    def _stored(self, read: Any, node: torch.fx.Node) -> Any:
        """A result, marked as one that an evaluation may store in the dtype that the spec has there."""
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
            return read
        read = (
            read if isinstance(read, Array) else self._lifted(read if isinstance(read, Condition) else np.asarray(read))
        )
        # A cast that stands in the spec is asked for; one that an operation makes inside itself is its own business.
        # The metadata has the name of that operation, in some versions of torch as a text and no object.
        within = str(node.meta.get("original_aten") or node.target) != str(node.target)
        # What the spec gives at last is rounded by whoever judges it; to round it here would count that twice.
        last = all(user.op == "output" for user in node.users)
        asked = node.target is torch.ops.aten._to_copy.default and not within and not last
        return store(read, str(value.dtype).removeprefix("torch."), asked) if isinstance(read, Array) else read


_NO_RULE = "has no rule; give a formula in NumPy"
_DRAWS = "draws random numbers, so the spec has no one answer; put it in evaluation, or give a formula in NumPy"


def _named(node: torch.fx.Node) -> str:
    return f"{node.target}{line_of(node)}"


def _without_derivatives(node: torch.fx.Node, read: Any, args: Any) -> Any:
    """What was computed under `torch.no_grad`: a constant; a tensor that was written keeps its derivatives."""
    before = args[0] if args and is_written(node) else None
    if isinstance(before, Array) and isinstance(read, Array) and before.shape == read.shape:
        return attach(read, before, kept=True)
    return pytree.tree_map(constant, read)


def _moving(graph: torch.fx.GraphModule) -> set[Any]:
    found: set[Any] = set()
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        given = node.op == "placeholder" and (not isinstance(value, torch.Tensor) or value.dtype.is_floating_point)
        if given or any(each in found for each in node.all_input_nodes):
            found.add(node)
    return found


def _is_zero(value: Any) -> bool:
    base = constant(value)
    number = base.comparable() if isinstance(base, Array) else base
    return np.size(number) == 1 and bool(np.all(np.equal(number, 0)))


def _is_floating(value: Any) -> bool:
    """Whether a value is, or hangs on, floating numbers."""
    return isinstance(value, (Array, Condition)) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")


def _is_integers(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "iu"


def _gives_floating(node: torch.fx.Node) -> bool:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point for leaf in leaves)


def _tensor(value: Any) -> Any:
    return torch.from_numpy(np.array(value)) if isinstance(value, (np.ndarray, np.generic, Choice)) else value
