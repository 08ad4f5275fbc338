"""Which operations of torch a call runs, and whether code of Triton: as the candidate's own process tells it.

It is no part of a verdict: a candidate that has changed its process may say what it likes.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from torch.utils._python_dispatch import TorchDispatchMode

#: Names that are told, and characters of one.
_NAMES, _LENGTH = 256, 120
#: Where Triton's kernels are started: by themselves, in its interpreter, and by torch's compiler.
_STARTS = (
    ("triton.runtime.jit", "JITFunction", "run"),
    ("triton.runtime.interpreter", "InterpretedFunction", "run"),
    ("torch._inductor.runtime.triton_heuristics", "CachingAutotuner", "run"),
)


class Operations(msgspec.Struct, frozen=True):
    """What a call ran.

    Attributes:
        operations: names as torch has them, each once, in order of the alphabet: "aten::mul".
        triton: whether a kernel of Triton was started.
    """

    operations: list[str] = []
    triton: bool = False

    def require(self) -> Operations:
        """Itself; ValueError where it is not what `record` gives, for a stranger's process may have said it."""
        if len(self.operations) > _NAMES or any(len(name) > _LENGTH for name in self.operations):
            raise ValueError("got operations that are too many or too long")
        return self


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func._schema.name)[:_LENGTH])
        return func(*args, **(kwargs or {}))


def record(call: Callable[[], object]) -> Operations:
    """What a call runs; what it raises is no matter here."""
    recorder = _Recorder()
    # SystemExit of a candidate must not end whoever judges it in his own process.
    with _counting_kernels() as count, contextlib.suppress(Exception, SystemExit), recorder:
        call()
    return Operations(sorted(recorder.names)[:_NAMES], bool(count[0]))


@contextlib.contextmanager
def _counting_kernels() -> Iterator[list[int]]:
    """Count the starts of Triton's kernels, as far as what starts them has been imported."""
    count, undo = [0], contextlib.ExitStack()
    for module, name, method in _STARTS:
        owner = getattr(sys.modules.get(module), name, None)
        if owner is not None and method in vars(owner):
            before = vars(owner)[method]
            setattr(owner, method, _count_calls(before, count))
            undo.callback(setattr, owner, method, before)
    with undo:
        yield count


def _count_calls(function: Callable[..., Any], count: list[int]) -> Callable[..., Any]:
    def counting(*args: Any, **options: Any) -> Any:
        count[0] += 1
        return function(*args, **options)

    return counting
