"""Where a call comes from: the module around it, the program's own line, and in backward the forward call behind it."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules import module as hooks

from . import DEMO
from .call import Origin

#: Folders whose frames are no line of a program: torch's, and ours.
_OURS = [Path(__file__).resolve().parents[2] / room for room in ("impl", "oracles", "properties", "reports")]
_SKIPPED = tuple(f"{folder}/" for folder in (*_OURS, Path(torch.__file__).parent))
#: The function by which Python enters autograd's engine: frames beyond it made the backward pass, and not this call.
_ENGINE = "_engine_run_backward"
#: What the metadata of an autograd node has of us.
_KEY = "opassay origin"


@functools.cache
def is_users(filename: str) -> bool:
    """Whether a file is one of the program, and none of torch or ours."""
    return filename == str(DEMO) or not filename.startswith((*_SKIPPED, "<"))


def find_line() -> str:
    """The innermost line of the program, as file:line; empty where there is none this side of autograd's engine."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != _ENGINE:
        if is_users(frame.f_code.co_filename):
            return f"{shorten(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


@functools.cache
def shorten(filename: str) -> str:
    """A path below the working directory, or the last two parts of another one."""
    path = Path(filename)
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return "/".join(path.parts[-2:])


#: Told of the output of a module: (module, path, output).
Hear = Callable[[torch.nn.Module, str, Any], None]


class _ModuleStack(threading.local):
    """The modules that a thread is in, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[torch.nn.Module] = []


class ModulePaths:
    """The paths of the modules that are being called, innermost last, in each thread; by hooks on all modules.

    Attributes:
        hear: who is told of outputs, if anybody.
    """

    def __init__(self) -> None:
        self._here, self._lock = _ModuleStack(), threading.Lock()
        self._names: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()
        self._handles: list[Any] = []
        self.hear: Hear | None = None

    def start(self) -> None:
        """Listen to calls of modules."""
        self._handles = [
            hooks.register_module_forward_pre_hook(self._before),
            hooks.register_module_forward_hook(self._after, always_call=True),
        ]

    # torch.compile traces hooks, too; what it compiles has none of these.
    def _before(self, module: torch.nn.Module, _args: Any) -> None:
        if not torch.compiler.is_compiling():
            with self._lock:  # Another thread may be naming the modules around this one.
                if module not in self._names:  # No module that was called before has it as a part.
                    self.name(module, type(module).__name__)
            self._here.stack.append(module)

    def _after(self, module: torch.nn.Module, _args: Any, output: Any) -> None:
        if not torch.compiler.is_compiling():
            if self.hear is not None:
                self.hear(module, self.current, output)
            del self._here.stack[-1:]

    def stop(self) -> None:
        """Listen no more."""
        for handle in self._handles:
            handle.remove()

    def name(self, root: torch.nn.Module, prefix: str = "") -> None:
        """Give a module's own modules their paths in it; of two that share one, the name that comes first."""
        for path, module in root.named_modules():
            name = ".".join(part for part in (prefix, path) if part)
            self._names.setdefault(module, name or type(root).__name__)

    @property
    def current(self) -> str:
        """The path of the innermost module; empty outside of modules."""
        return self._names.get(self._here.stack[-1], "") if self._here.stack else ""


class Origins:
    """What finds the origin of each call."""

    def __init__(self) -> None:
        self.modules = ModulePaths()

    def find(self) -> Origin:
        """The origin of the call that is being dispatched."""
        node, module = torch._C._current_autograd_node(), self.modules.current
        line = find_line()
        if node is None or module:  # A forward pass that is repeated in backward is one.
            return Origin(module, line)
        metadata: dict[str, Origin] = node.metadata  # type: ignore[assignment]
        forward = metadata.get(_KEY, Origin())
        return Origin(forward.module, line or forward.line, node.name().removeprefix("torch::autograd::"))

    @staticmethod
    def mark(node: Any, origin: Origin) -> None:
        """Tell an autograd node which call made it."""
        node.metadata.setdefault(_KEY, origin)
