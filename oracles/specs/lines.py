"""Which line of a spec's source an operation comes from."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.fx.traceback
from torch.utils._python_dispatch import TorchDispatchMode

from .calls import Call

_TORCHS = str(Path(torch.__file__).parent)
#: Under this name the line is kept with every node of the graph.
_KEY = "line of the spec"
#: What calls the spec. Beyond these frames stand the lines of whoever asked for the reading.
_ASKING = (Call.results.__code__, Call._called.__code__)


class Lines(TorchDispatchMode):
    """While it is on, every operation that is traced is marked with the line of the spec that asked for it.

    Attributes:
        last: the line of the latest operation, "" before the first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.last = self._line() or self.last
        with torch.fx.traceback.annotate({_KEY: self.last}):
            return func(*args, **(kwargs or {}))

    def _line(self) -> str:
        """The innermost line of the spec that is not torch's."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code not in _ASKING:
            name = frame.f_code.co_filename
            if not name.startswith((_TORCHS, "<")):
                text = linecache.getline(name, frame.f_lineno).strip()
                return f"line {frame.f_lineno} of {Path(name).name}" + (f" ({text})" if text else "")
            frame = frame.f_back
        return ""


def line_of(node: torch.fx.Node) -> str:
    """The line of the spec that a node comes from, as it stands in a sentence; "" if it is not known."""
    line = node.meta.get("custom", {}).get(_KEY, "")
    return f" in {line}" if line else ""
