"""Which line of a spec's source an operation comes from."""

from __future__ import annotations

import linecache
import operator
import re
import sys
import traceback
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.fx.traceback
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .calls import SpecCall
from .loops import LOOPS
from .stand_ins import STAND_INS, is_in_forward

_LONGEST = 90  # characters of a line that are shown
#: The packages that read and judge specs. A spec may stand in a file beside theirs, under another name.
_OURS = tuple(f"{__name__.partition('.')[0]}.{name}." for name in ("oracles", "properties"))
_TORCHS = str(Path(torch.__file__).parent)
#: Files whose frames stand between the line that calls an operation and the mode that is told of the call.
_BETWEEN = (__file__, *(f"{_TORCHS}/{name}" for name in ("_compile.py", "_dynamo/", "fx/")))
#: The key in the metadata of a node under which the line of the spec stands.
_KEY = "line of the spec"
#: The keys for whether the spec had turned derivatives off there, and whether it wrote into a tensor meanwhile.
_CONSTANT, _OVERWRITTEN = "without derivatives", "written"
#: The key for the kinds of devices on which autocast was on there, each with its dtype.
_AUTOCAST = "autocast"
#: The key for whether the spec asked for a tensor without derivatives; autograd itself takes such ones, too.
_DETACHED = "detached"
#: Python that writes into a tensor: a method such as `clamp_`, an augmented assignment, or one to an index.
_WRITING = re.compile(r"\w_\(|[-+*/]=|\]\s*=[^=]")
#: Methods that hand the memory of a tensor to NumPy; a traced tensor has none.
_HANDING_OVER: tuple[Any, ...] = (torch.Tensor.numpy, torch.Tensor.__array__)
#: The functions by which a spec asks for a tensor without derivatives.
_DETACHING: tuple[Any, ...] = (torch.Tensor.detach, torch.Tensor.detach_, torch.detach)
_DETACHING += (getattr(torch.Tensor.data, "__get__"),)  # noqa: B009 - of x.data; torch types it as a tensor
#: The node of a graph that is read now, or was read last.
NODE: ContextVar[torch.fx.Node | None] = ContextVar("node", default=None)
#: The kinds of devices that have autocast here.
_KINDS = ("cpu", "cuda")
#: The functions that call the spec. Frames further out belong to whoever asked for the reading.
_ASKING = {SpecCall.results.__code__, SpecCall._call_spec.__code__}


class Lines(TorchDispatchMode):
    """A mode that marks every operation that is traced with the line of the spec that called it.

    Attributes:
        last: the line of the latest operation, "" before the first.
        wish: the mode that knows whether the spec wanted derivatives; it must be on as well.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.last = ""
        self.wish = _DerivativeWish()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.last = _innermost_line() or self.last
        if func in LOOPS:
            with self:
                return LOOPS[func](*args, **(kwargs or {}))
        constant = not (torch.is_grad_enabled() or is_in_forward())
        marks = {_KEY: self.last, _CONSTANT: constant, _OVERWRITTEN: constant and (self.wish.enabled or _line_writes())}
        marks |= {_AUTOCAST: self.wish.autocast, _DETACHED: self.wish.detaches}
        with torch.fx.traceback.annotate(marks):
            return func(*args, **(kwargs or {}))


class _DerivativeWish(TorchFunctionMode):
    """Knows whether the spec wanted derivatives when it called the function of torch that is running.

    Attributes:
        enabled: whether the spec did; False outside of functions of torch. A function that turns derivatives off inside
            itself does so in order to write into a tensor that keeps its derivatives: lengths that it clamps, say.
        detaches: whether that function gives a tensor without derivatives.
        autocast: the kinds of devices on which autocast was on at that call, with its dtype; none outside of functions.
    """

    enabled = detaches = False
    autocast: tuple[tuple[str, torch.dtype], ...] = ()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _HANDING_OVER and torch._is_functional_tensor(args[0]):
            raise TypeError("a tensor is handed to NumPy, and a spec is read without values; write that in torch")
        before, self.enabled, self.autocast = (self.enabled, self.autocast), torch.is_grad_enabled(), _autocast_dtypes()
        self.detaches = func in _DETACHING
        try:
            return STAND_INS.get(func, func)(*args, **(kwargs or {}))
        finally:
            self.enabled, self.autocast = before
            self.detaches = False


def _autocast_dtypes() -> tuple[tuple[str, torch.dtype], ...]:
    return tuple((kind, torch.get_autocast_dtype(kind)) for kind in _KINDS if torch.is_autocast_enabled(kind))


def _line_writes() -> bool:
    """Whether the line of Python that asked for an operation writes into a tensor: `x.clamp_(0)`, `x += 1`, `x[0] = 1`.

    The graph has no writes any more, so that only the source shows them.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    return frame is not None and bool(_WRITING.search(linecache.getline(frame.f_code.co_filename, frame.f_lineno)))


def calls_spec(function: Any) -> Any:
    """Mark a function as one that calls specs, so that its lines are none of a spec's."""
    _ASKING.add(function.__code__)
    return function


def _innermost_line() -> str:
    """The innermost line of the spec among the frames that called the current operation; "" if there is none."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code not in _ASKING:
        if _is_of_spec(frame):
            return _place(frame, frame.f_lineno)
        frame = frame.f_back
    return ""


def line_of_error(err: BaseException) -> str:
    """The line of the spec in which an exception was raised, "" if it is none of the spec's."""
    line, within = "", False
    for frame, number in traceback.walk_tb(err.__traceback__):
        within = within or frame.f_code in _ASKING
        if within and frame.f_code not in _ASKING and _is_of_spec(frame):
            line = _place(frame, number)
    return line


def _is_of_spec(frame: FrameType) -> bool:
    """Whether a frame is neither torch's nor of those that read and judge specs."""
    module = str(frame.f_globals.get("__name__"))
    return not (
        module.startswith(_OURS) or frame.f_code.co_filename.startswith((_TORCHS, "<eval_with_key>", "<frozen "))
    )


def _place(frame: FrameType, number: int) -> str:
    """A line and its text, if there is one; of the function where there is no file, as in a notebook and by `exec`."""
    name = frame.f_code.co_filename
    text = linecache.getline(name, number).strip()
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
    where = Path(name).name if Path(name).is_file() else frame.f_code.co_qualname
    return f"line {number} of {where}" + (f" ({text})" if text else "")


def line_of(node: torch.fx.Node) -> str:
    """The line of the spec that a node comes from, as it stands in a sentence; "" if it is not known."""
    line = node.meta.get("custom", {}).get(_KEY, "")
    return f" in {line}" if line else ""


def _is_of_array(frame: FrameType) -> bool:
    """Whether a frame is of the arrays that formulas in NumPy are called with, or of NumPy."""
    return str(frame.f_globals.get("__name__")).startswith((f"{__name__.partition('.')[0]}.reference.array", "numpy."))


def place_of_reading(formula: bool) -> tuple[str, str]:
    """The line that is read now, and the operation of torch in it; of a formula in NumPy the line alone."""
    if formula:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and (_is_of_array(frame) or not _is_of_spec(frame)):
            frame = frame.f_back
        return ("" if frame is None else _place(frame, frame.f_lineno)), ""
    node = NODE.get()
    while node is not None and node.target is operator.getitem:  # one of several results
        node = node.all_input_nodes[0]
    name = getattr(node and node.target, "__name__", "").partition(".")[0].strip("_")
    return ("" if node is None else line_of(node).removeprefix(" in ")), name


def is_constant(node: torch.fx.Node) -> bool:
    """Whether the spec computed a node under `torch.no_grad`."""
    return bool(node.meta.get("custom", {}).get(_CONSTANT, False))


def is_saved(node: torch.fx.Node) -> bool:
    """Whether autograd made a node of a tensor that it kept for a derivative, which goes on through that tensor."""
    by_spec = node.meta.get("custom", {}).get(_DETACHED, False)
    return node.target is torch.ops.aten.detach.default and not by_spec


def is_write(node: torch.fx.Node) -> bool:
    """Whether a node is a value that the spec wrote into a tensor under `torch.no_grad`."""
    return bool(node.meta.get("custom", {}).get(_OVERWRITTEN, False))


def autocast_at(node: torch.fx.Node) -> tuple[tuple[str, torch.dtype], ...]:
    """The kinds of devices on which autocast was on where the spec called a function of torch, each with its dtype."""
    dtypes: tuple[tuple[str, torch.dtype], ...] = node.meta.get("custom", {}).get(_AUTOCAST, ())
    return dtypes
