"""Mutants of the graph: one operation that the production ops ask of torch, changed wherever one place asks for it.

What this is for: an expression in torch's operations, and what a call dispatches to, are more than their text says: a
sum with an axis may be asked for in one word. A mode of torch's dispatcher sees every operation below autograd and the
transforms, so each place is seen in forward, reverse and forward mode and under vmap.

What is hard here: an open mode changes the way that a call takes. An operator goes by way of the dispatcher, which
calls its kernel where the mode is closed. So operators are told that this mode is none, and the mode calls the kernels
of those that arrive nevertheless; and what watches the state of the process leaves the mode where it is.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils import _python_dispatch as dispatching

from opassay import impl
from opassay.impl.operator import torch_private
from opassay.impl.operator.operator import Operator
from opassay.oracles.process.torch_settings import hold_mode

from .graph_changes import Call, changes_of
from .mutants import MAX_TEXT, Mutant
from .planting import FOLDER


@dataclass(frozen=True, order=True)
class Place:
    """Where the production ops ask for an operation: the innermost of their functions that is running, and where in it.

    Attributes:
        file, function, line, last: as of a mutant. text: what stands there. operation: "aten.mul.Tensor".
    """

    file: str
    function: str
    line: int
    last: int
    text: str
    operation: str


#: Takes where an operation is asked for, and the call; gives its result.
Intercept = Callable[[Place, Call], Any]


class _Mode(dispatching.TorchDispatchMode):
    """Asks `intercept` for the result of every operation that the production ops ask for."""

    intercept: Intercept

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = kwargs or {}
        if not all(type(a) in (torch.Tensor, torch.nn.Parameter) and a.is_cpu for a in args if torch.is_tensor(a)):
            return operation(*args, **keywords)
        if operation.namespace == "opassay" and operation._opname in Operator.registry:
            with self:
                return Operator.registry[operation._opname].kernels.cpu(*args)
        if not operation.is_view:
            args = [_with_memory(a) for a in args]
        place = _asking(sys._getframe(1), str(operation)) if operation.namespace == "aten" else None
        if place is None:
            return operation(*args, **keywords)
        return self.intercept(place, Call.of(operation, args, keywords))


def _with_memory(value: Any) -> Any:
    """A tensor of zeros that has memory, in place of one that has none; other values as they are.

    Forward mode takes torch's ZeroTensor for the tangent of what has none. Multiplied by a number it comes to a mode,
    in which torch 2.11 to 2.15 has the kernel read the memory that is not there: SIGSEGV (docs/findings.md).
    """
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) and value._is_zerotensor() else value


#: The class, whose base has no types.
_MODE: Callable[[], _Mode] = _Mode


@contextlib.contextmanager
def _intercept_operations(intercept: Intercept) -> Iterator[None]:
    mode = _MODE()
    mode.intercept = intercept

    def others() -> int:
        return sum(one is not mode for one in dispatching._get_current_dispatch_mode_stack())

    counting = torch_private.dispatch_mode_count
    users = [
        (module, name)
        for key, module in list(sys.modules.items())
        if key.startswith(impl.__name__)
        for name, value in list(vars(module).items())
        if value is counting
    ]
    for module, name in users:
        setattr(module, name, others)
    try:
        with hold_mode(mode):
            yield
    finally:
        for module, name in users:
            setattr(module, name, counting)


@contextlib.contextmanager
def note_places(into: dict[Place, set[tuple[str, str]]]) -> Iterator[None]:
    """Within it, every place that asks for an operation is noted, with (kind, new) of the changes possible there."""

    def note(place: Place, call: Call) -> Any:
        into.setdefault(place, set()).update((kind, new) for kind, new, _ in changes_of(call))
        return call.result()

    with _intercept_operations(note):
        yield


@contextlib.contextmanager
def change_graph(mutant: Mutant, reached: Callable[[], object] = int) -> Iterator[None]:
    """Within it, a mutant's place gets the result of its change, at every call that allows it.

    Args:
        reached: called whenever that happens.
    """
    target = (mutant.file, mutant.function, mutant.line, mutant.statement, mutant.old)

    def change(place: Place, call: Call) -> Any:
        if (place.file, place.function, place.line, place.text, place.operation) == target:
            for kind, new, result in changes_of(call):
                if (kind, new) == (mutant.kind, mutant.new):
                    reached()
                    return result()
        return call.result()

    with _intercept_operations(change):
        yield


def graph_mutants(places: Mapping[Place, set[tuple[str, str]]]) -> list[Mutant]:
    """The mutants of the places that were noted, in the order of the text."""
    mutants, count = list[Mutant](), Counter[tuple[str, ...]]()
    for place in sorted(places):
        for kind, new in sorted(places[place]):
            name = (place.file, place.function, kind, place.text, place.operation, new)
            mutants.append(Mutant(*name, nth=count[name], line=place.line, last=place.last))
            count[name] += 1
    return mutants


def _asking(frame: FrameType | None, operation: str) -> Place | None:
    below = f"{FOLDER}/"
    while frame is not None and not frame.f_code.co_filename.startswith(below):
        frame = frame.f_back
    return None if frame is None else Place(*_where(frame.f_code, frame.f_lasti), operation)


@functools.cache
def _where(code: CodeType, instruction: int) -> tuple[str, str, int, int, str]:
    """(file, function, first line, last line, text) of an instruction; its text is that of the call that it is."""
    positions = list(code.co_positions())[instruction // 2]
    first, last, start, end = (value or 0 for value in positions)
    lines = [linecache.getline(code.co_filename, line) for line in range(first, last + 1)]
    # Columns count bytes of UTF-8.
    raw = [line.encode() for line in lines]
    if raw:
        raw[-1] = raw[-1][:end]
        raw[0] = raw[0][start:]
    text = " ".join(b" ".join(raw).decode(errors="replace").split())[:MAX_TEXT]
    return code.co_filename.removeprefix(f"{FOLDER}/"), code.co_qualname, first, last, text
