"""The tensor that a program has under a name: a variable, the output of a module, or the result of a line.

A name is looked up in the frames of the program before each of its calls, so that what a line assigned is seen when
the next one calls torch. A frame is kept until then: a function may return what it has just assigned. Nothing of the
program is run for this: an attribute that only code would give has no name here.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ...oracles.verdicts.watched import CallPlace
from .call import DispatcherCall, Tensor, is_floating, tensors_in
from .mapped_memory import TensorCopies
from .origins import is_users, shorten
from .recording import FollowedNumber
from .writers import Seed, Source, StorageWriters, Writing, geometry_of

_LINE = re.compile(r".+:\d+")
_MOST = 24  # names that an error lists


class NameNotFound(ValueError):
    """No tensor that a recorded call computes has this name."""


class NameFinder:
    """Finds the last value that a program gives a name."""

    def __init__(self, name: str, writers: StorageWriters, copies: TensorCopies) -> None:
        """The name: `logits`, `model.head.weight.grad`, `model.head`, `train.py:31`; with an element, `logits[0, 3]`.

        Raises:
            NameNotFound: the name has none of these forms.
        """
        form = re.fullmatch(r"([^\[\]]+?)\s*(?:\[\s*(-?\d+(?:\s*,\s*-?\d+)*)\s*\])?", name.strip())
        if form is None:
            raise NameNotFound(f"of: got {name!r}, need a variable, a module's path or FILE:LINE, and perhaps [i, j]")
        self.name, element = form[1], form[2]
        self._element = None if element is None else [int(i) for i in element.split(",")]
        self._parts = () if _LINE.fullmatch(self.name) else tuple(self.name.split("."))
        self._writers, self._copies = writers, copies
        self._latest: tuple[Tensor, Source] | None = None
        self._module: torch.nn.Module | None = None
        self._frames = threading.local()
        self._other = ""
        self._lines: set[tuple[str, int]] = set()
        self._modules: dict[str, None] = {}

    def look(self) -> None:
        """Look into the frames that were there at the last call, and remember those that are there now."""
        with torch._C._DisableTorchDispatch():
            for frame in getattr(self._frames, "before", ()):
                self._note(_value_in(frame, self._parts))
        self._frames.before = [frame for frame in self._walk() if self._parts and _binds(frame, self._parts[0])]

    def end(self) -> None:
        """Look once more, and keep no frame."""
        self.look()
        self._frames.before = []

    def hear(self, module: torch.nn.Module, path: str, output: Any) -> None:
        """Told of a module's output."""
        self._modules.setdefault(path)
        # The class of the outermost module stands for a name of it that nobody told.
        if module is self._module or self.name in (path, path.partition(".")[2]):
            with torch._C._DisableTorchDispatch():
                self._note(next(filter(is_floating, tensors_in(output)), None))

    def _walk(self) -> Iterator[FrameType]:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if is_users(frame.f_code.co_filename):
                self._lines.add((frame.f_code.co_filename, frame.f_lineno))
                yield frame
            frame = frame.f_back

    def _note(self, value: Any) -> None:
        if isinstance(value, torch.nn.Module):
            self._module = value
        elif is_floating(value) and _is_plain(value):
            source = self._writers.source_of(value)
            if source[0] and (self._latest is None or _newer(source, self._latest[1])):
                self._latest = self._copies.copy(value), source
        elif value is not None:
            self._other = type(value).__name__

    def find(self, calls: Sequence[DispatcherCall]) -> tuple[FollowedNumber, Seed, int]:
        """The element that is followed, the named or the largest one; where a sweep starts, and the call behind it.

        Raises:
            NameNotFound: no call that was kept has computed a tensor of this name, or it has no such element.
        """
        tensor, source = (self._latest or (None, None)) if self._parts else _result_of_line(self.name, calls)
        writers = {call.number: call for call in calls}
        writer = writers.get(source[0][-1].number) if source is not None else None
        if tensor is None or source is None or writer is None:
            raise NameNotFound(self._message())
        values = tensor.detach().double().cpu().reshape(-1)
        at, about = self._choose(tensor, values)
        where = CallPlace(writer.name, writer.origin.module, writer.origin.line, writer.origin.node).text
        place = [int(i) for i in torch.unravel_index(torch.tensor(at), tensor.shape)]
        gradient = torch.zeros(len(values), dtype=torch.float64)
        gradient[at] = 1.0
        number = FollowedNumber(f"{self.name}{place or ''}", f"{about}of {where}", float(values[at]))
        return number, (tensor, source, gradient), writer.number + 1

    def _choose(self, tensor: Tensor, values: Tensor) -> tuple[int, str]:
        """The position of the element that is followed, and which of how many it is."""
        shape = tuple(tensor.shape)
        elements = f"of its {' × '.join(map(str, shape))} elements, "
        if self._element is None:
            if len(values) == 1:
                return 0, ""
            sizes = torch.where(values.isfinite(), values.abs(), -1.0)
            return int(sizes.argmax()), f"the largest {elements}"
        index = [i + size if i < 0 else i for i, size in zip(self._element, shape, strict=False)]
        if len(self._element) != len(shape) or not all(0 <= i < n for i, n in zip(index, shape, strict=True)):
            raise NameNotFound(f"of: got element {self._element} of {self.name}, which has the shape {shape}")
        at = 0
        for i, size in zip(index, shape, strict=True):
            at = at * size + i
        return at, f"one {elements}" if shape else ""

    def _message(self) -> str:
        what = f"is a {self._other}" if self._other else "is no floating tensor that a recorded call computes"
        variables, modules = sorted({name for line in self._lines for name in _assigned_at(*line)}), list(self._modules)
        lines = sorted({f"{shorten(file)}:{number}" for file, number in self._lines})
        kinds = (("variables", variables), ("modules", modules), ("lines", lines))
        lists = (f"{kind}: {', '.join(names[:_MOST])}{', …' * (len(names) > _MOST)}" for kind, names in kinds if names)
        return f"of: {self.name!r} {what}; what can be named: {'; '.join(lists) or 'nothing'}"


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor has elements that are real numbers in memory of its own."""
    return tensor.layout == torch.strided and not (tensor.is_complex() or tensor.is_nested) and tensor.numel() > 0


def _newer(source: Source, than: Source) -> bool:
    """Whether a value was written later than another, or is another view of the same."""
    own, other = source[0][-1], than[0][-1]
    return source != than and (own.number, own.position) >= (other.number, other.position)


def _binds(frame: FrameType, name: str) -> bool:
    code = frame.f_code
    is_function = code.co_flags & inspect.CO_OPTIMIZED  # A module's variables are among the names that it uses.
    names = (code.co_varnames, code.co_cellvars, code.co_freevars) if is_function else (code.co_names, frame.f_locals)
    return any(name in some for some in names)


def _value_in(frame: FrameType, parts: Sequence[str]) -> Any:
    """The value of a dotted name in a frame; None where there is none."""
    value = frame.f_locals.get(parts[0])
    for part in parts[1:]:
        value = _part_of(value, part)
    return value


def _part_of(value: Any, part: str) -> Any:
    """An attribute or an item of a value, without a call of its code."""
    if isinstance(value, Tensor):
        return value.grad if part == "grad" and (value.is_leaf or value.retains_grad) else None
    if isinstance(value, (tuple, list)) and part.isdigit():
        return value[int(part)] if int(part) < len(value) else None
    own = getattr(value, "__dict__", {})
    tables = [own, *(own.get(name, {}) for name in ("_parameters", "_buffers", "_modules"))]
    tables += [value] if isinstance(value, dict) else []
    return next((table[part] for table in tables if isinstance(table, dict) and part in table), None)


def _result_of_line(line: str, calls: Sequence[DispatcherCall]) -> tuple[Tensor | None, Source | None]:
    """The first floating result of the last call of a line that is no call of backward."""
    for call in reversed(calls):
        is_there = call.origin.line == line or call.origin.line.endswith(f"/{line}")
        if not is_there or call.origin.node or call.covered:
            continue
        for position, result in enumerate(call.results):
            if is_floating(result) and _is_plain(result):
                place = geometry_of(result)
                return result, ((Writing(call.number, position, 0, place),), place)
    return None, None


@functools.cache
def _assignments_of(file: str) -> list[tuple[int, int, frozenset[str]]]:
    """First and last line of each assignment of a file, and the names that it assigns."""
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, ValueError, SyntaxError):  # of what is no file of Python, as a cell of a notebook
        return []
    assignments = []
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = (each for target in targets if isinstance(target, ast.AST) for each in ast.walk(target))
        assigned = frozenset(each.id for each in names if isinstance(each, ast.Name))
        if assigned and isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            assignments.append((node.lineno, node.end_lineno or node.lineno, assigned))
    return assignments


def _assigned_at(file: str, line: int) -> Iterator[str]:
    return (name for first, last, names in _assignments_of(file) if first <= line <= last for name in names)
