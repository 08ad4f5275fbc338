"""Calls that end in an exception, at one of the calls of torch that a subject makes.

A kernel may run out of memory anywhere, and the next call must be right all the same: a flag that was set for a moment,
a half-written workspace, a count of nested calls must not stay as they were when the exception was raised.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.overrides import TorchFunctionMode

from ....oracles.process import interrupt, undisturbed


class Interrupted(RuntimeError):
    """The exception that a call of torch is made to raise; a RuntimeError, as torch's own errors are."""


#: To read an attribute is no call. To switch gradients on or off cannot fail, and blocks restore the switch by it.
_READS, _SWITCHES = frozenset({"__get__"}), frozenset({"_set_grad_enabled"})


class AtEveryFunction(TorchFunctionMode):
    """Calls `do` before every function of torch that this thread calls, except functions of the names in `but`."""

    def __init__(self, do: Callable[[], object], but: frozenset[str] = _READS) -> None:
        super().__init__()
        self.do, self.but = do, but

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") not in self.but:
            self.do()
        return func(*args, **(kwargs or {}))


def call_interrupted(call: Callable[[], Any], at: int) -> bool:
    """Make a call in which torch's function number `at` fails; whether there was a function of that number.

    The result or the exception of the call is not judged.
    """
    called = 0

    def count() -> None:
        nonlocal called
        called += 1
        if called == at:
            raise Interrupted("a call of torch that fails")

    def run() -> None:
        with AtEveryFunction(count, _READS | _SWITCHES):
            call()

    try:
        undisturbed(run, ())
    except BaseException:
        interrupt.reraise()
    return called >= at


def call_expecting_error(call: Callable[..., Any], args: Sequence[Any]) -> None:
    """Make a call that should raise, for what it may leave behind. Whether it raises, ERROR judges."""
    with contextlib.suppress(Exception):
        undisturbed(call, args)
    interrupt.reraise()
