"""Functions as torch.compile makes them, which count what was compiled and where a graph broke.

Dynamo is imported where it is used: it takes more than a second, and brings Triton, which a process that is to
interpret kernels must not have imported before it is told to.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ....oracles.op.declaration import Subject


class Compiled:
    """A function as torch.compile makes it.

    Attributes:
        graphs: how many graphs were compiled for it so far. breaks: at how many places a graph was broken.

    Args:
        function: what is compiled. backend: the name of a backend of torch.compile.
        whole: whether a graph break is an error. dynamic: as torch.compile has it.
        marks: by the position of an argument, the axes that are marked dynamic in the first call.
    """

    def __init__(
        self, function: Subject, backend: str, whole: bool, dynamic: bool | None = None,
        marks: Mapping[int, Sequence[int]] = types.MappingProxyType({}),
    ) -> None:  # fmt: skip
        from torch._dynamo.backends.registry import lookup_backend

        self.graphs = self.breaks = 0
        self._marks = marks
        compile_graph: Callable[..., Any] = lookup_backend(backend)

        def counting(module: Any, operands: Any) -> Any:
            self.graphs += 1
            return compile_graph(module, operands)

        # Dynamo compiles a function anew for some shapes only and then gives up on it. What was compiled for earlier
        # samples, and for other questions, must not count towards that limit.
        torch._dynamo.reset()
        compile_: Callable[..., Subject] = torch.compile
        self._call = compile_(function, fullgraph=whole, backend=counting, dynamic=dynamic)

    def __call__(self, *args: Any) -> Any:
        given = args if self.graphs else [self._marked(i, a) for i, a in enumerate(args)]
        before = _broken_so_far()
        try:
            with _without_measuring_guards():
                return self._call(*given)
        finally:
            self.breaks += _broken_so_far() - before

    def _marked(self, position: int, value: Any) -> Any:
        """An argument with its axes marked: those that the code must not be compiled for one extent of."""
        if position not in self._marks:
            return value
        # A mark is an attribute of the tensor. A sample's own tensor must not have it in later questions.
        tensor = value if value.requires_grad else value.detach()
        torch._dynamo.mark_dynamic(tensor, list(self._marks[position]))
        return tensor


def _broken_so_far() -> int:
    from torch._dynamo.utils import counters

    return sum(counters["graph_break"].values())


@contextlib.contextmanager
def _without_measuring_guards() -> Iterator[None]:
    """Dynamo flushes the processor's caches to measure each guard for its log, which takes a third of a compilation."""
    from torch._dynamo import guards

    name = "profile_guard_manager"
    measure = getattr(guards, name, None)
    if measure is None:
        yield
        return
    setattr(guards, name, lambda *given: 0.0)
    try:
        yield
    finally:
        setattr(guards, name, measure)
