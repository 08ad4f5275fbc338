"""A function of plain PyTorch as a formula: the aten operations that torch traces, read in NumPy's words.

torch traces the function on tensors without data, for the shapes and dtypes that it is called with; each operation of
the graph that has a rule (`rules/`) is evaluated on arrays of any reading. So the truth about a kernel is what its spec
says, with the bound and the derivatives that every formula has.

What is hard here: a dtype. A formula is about real numbers, and a spec in bfloat16 rounds every intermediate to
bfloat16 where it is run. Such roundings are marked in the formula (`reference.array.store`), and the contract says
whether an evaluation may make them. A cast that the spec asks for by itself may always be made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from ...reference.array import Array
from .reader import Reader, UntraceableError
from .rules import RULES

#: torch's decompositions of operations that have no rule of their own.
_DECOMPOSED = {op: rule for op, rule in core_aten_decompositions().items() if op not in RULES}


@dataclass(frozen=True)
class Traced:
    """A spec for the shapes and dtypes that it was traced with.

    Attributes:
        graph: aten operations; its inputs are the tensors, its outputs the tensors among the leaves of the result.
        dtypes: of the outputs.
    """

    graph: torch.fx.GraphModule
    dtypes: tuple[torch.dtype, ...]

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """The outputs for arrays of any reading, or of NumPy, in place of the tensors."""
        return Reader(self.graph).run(*arrays)  # type: ignore[no-any-return]


def traced(function: Callable[..., Any], *tensors: torch.Tensor) -> Traced:
    """The spec `function` at tensors like these.

    Args:
        function: of tensors alone; its result is a tensor, or a tree of which the tensors are taken in order.
        tensors: whose shapes, dtypes and devices it is traced for. A number that the function reads off a tensor, or a
            branch that it takes by one, cannot be traced.

    Raises:
        UntraceableError: the function cannot be traced. What has no rule is told when it is read.
    """

    def flat(*given: Any) -> list[torch.Tensor]:
        leaves = torch.utils._pytree.tree_leaves(function(*given))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    try:
        with torch.no_grad():
            # A function may write into tensors; that is traced as operations with results of their own, because arrays
            # are never written here.
            graph = make_fx(torch.func.functionalize(flat), decomposition_table=_DECOMPOSED, tracing_mode="fake")(
                *tensors
            )
    except Exception as err:
        raise UntraceableError(f"cannot be traced: {type(err).__name__}: {err}") from err
    (outputs,) = (node for node in graph.graph.nodes if node.op == "output")
    return Traced(graph, tuple(node.meta["val"].dtype for node in outputs.args[0]))


def formula_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as a formula of NumPy arrays; tensors among its arguments come as arrays, and are traced in float64.

    Raises (when called):
        UntraceableError: an operation of the function has no rule.
    """
    graphs: dict[Any, Traced] = {}

    def formula(*args: Any) -> Any:
        shapes = [(np.shape(a), _dtype(a)) if _is_array(a) else a for a in args]
        # The numbers and the branches that Python took are frozen into a graph, so it holds for these shapes, dtypes
        # and other arguments alone.
        key = repr(shapes)
        if key not in graphs:
            graphs[key] = _of_arrays(function, args)
        return graphs[key](*(a for a in args if _is_array(a)))

    return formula


def _is_array(value: Any) -> bool:
    return isinstance(value, (Array, np.ndarray))


def _dtype(value: Any) -> torch.dtype:
    if isinstance(value, Array) or value.dtype.kind == "f":
        return torch.float64
    return torch.bool if value.dtype.kind == "b" else torch.int64


def _of_arrays(function: Callable[..., Any], args: Sequence[Any]) -> Traced:
    positions = [i for i, a in enumerate(args) if _is_array(a)]

    def of_tensors(*tensors: Any) -> Any:
        given = list(args)
        for i, tensor in zip(positions, tensors, strict=True):
            given[i] = tensor
        return function(*given)

    return traced(of_tensors, *(torch.ones(np.shape(args[i]), dtype=_dtype(args[i])) for i in positions))
