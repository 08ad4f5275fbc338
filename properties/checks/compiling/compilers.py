"""Compiled functions that count their graphs and graph breaks.

Dynamo is imported where it is used: the import takes more than a second, and imports Triton, which a process that
interprets kernels must not import before it has switched the interpreter on.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ....oracles import process
from ....oracles.op.declaration import Subject


class Compiled:
    """A function, compiled by torch.compile.

    Attributes:
        graphs: how many graphs were compiled for the function so far. breaks: how many graph breaks there were.

    Args:
        function: the function to compile. backend: the name of a backend of torch.compile.
        whole: whether a graph break is an error, and code for one extent of a marked axis.
        dynamic: as for torch.compile.
        marks: by the position of an argument, the axes that are marked dynamic in the first call.
    """

    def __init__(
        self, function: Subject, backend: str, whole: bool, dynamic: bool | None = None,
        marks: Mapping[int, Sequence[int]] = types.MappingProxyType({}),
    ) -> None:  # fmt: skip
        from torch._dynamo.backends.registry import lookup_backend

        self.graphs = self.breaks = 0
        self._marks = marks
        self._mark_dynamic = torch._dynamo.mark_dynamic if whole else torch._dynamo.maybe_mark_dynamic
        compile_graph: Callable[..., Any] = lookup_backend(backend)

        def counting(module: Any, operands: Any) -> Any:
            self.graphs += 1
            return compile_graph(module, operands)

        # Dynamo compiles a function anew for a limited number of shapes and then no more. Compilations for earlier
        # samples and other questions must not count towards that limit.
        torch._dynamo.reset()
        compile_: Callable[..., Subject] = torch.compile
        self._call = compile_(function, fullgraph=whole, backend=counting, dynamic=dynamic)

    def __call__(self, *args: Any) -> Any:
        arguments = args if self.graphs else [self._mark(i, a) for i, a in enumerate(args)]
        before = _count_breaks()
        try:
            with process.without_measuring_guards():
                return self._call(*arguments)
        finally:
            self.breaks += _count_breaks() - before

    def _mark(self, position: int, value: Any) -> Any:
        """An argument whose marked axes are dynamic: the code should not be compiled for one extent of them."""
        if position not in self._marks:
            return value
        # A mark is an attribute of the tensor. A sample's own tensor must not have it in later questions.
        tensor = value if value.requires_grad else value.detach()
        self._mark_dynamic(tensor, list(self._marks[position]))
        return tensor


def _count_breaks() -> int:
    from torch._dynamo.utils import counters

    return sum(counters["graph_break"].values())
