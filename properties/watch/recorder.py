"""What records a program below autograd: every call of torch's dispatcher, with its operands as they were before it.

The program's own values are not changed by a bit: its calls are made with its own tensors, and what is kept are copies.
A fault of the recording is counted and told, and the program goes on.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .adjoints import Adjoints
from .call import DispatcherCall, Origin, Switches, name_of, results_of
from .keeping import CallStore, Keep
from .mapped_memory import TensorCopies
from .naming import NameFinder
from .origins import Origins
from .recording import Recording
from .regions import TABLE, RecordedRegion, RegionHooks

Tensor = torch.Tensor
_PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer)


#: In how many regions with a spec a thread is.
_DEPTH: ContextVar[int] = ContextVar("depth", default=0)


class Recorder:
    """The recording of a program.

    Attributes:
        store: of the calls. faults: what kept a call from being recorded -> how often. views: how many calls gave a
            view, which has no numbers of its own. steps: of optimizers, so far.
        named: finds the tensor whose error is followed; None for the loss.
    """

    def __init__(self, keep: Keep | None = None, file: Path | None = None, of: str = "") -> None:
        self.store = CallStore(keep or Keep())
        self.faults: Counter[str] = Counter()
        self.views, self.steps = 0, 0
        self.origins, self.copies = Origins(), TensorCopies(file)
        self.adjoints = Adjoints(
            self.copies, lambda: len(self.store.order), lambda *root: self.store.writers.note_root(self.steps, *root)
        )
        self.named = NameFinder(of, self.store.writers, self.copies) if of else None
        self._mode = _Mode(self)
        self._is_on = False
        self._lock = threading.RLock()  # around all but the calls themselves: threads of the program run on
        self._undo: list[Callable[[], None]] = []

    def recording(self) -> Recording:
        """What was recorded."""
        store, adjoints = self.store, self.adjoints
        beyond = f"; {store.beyond} calls were not kept, beyond the limit of memory" if store.beyond else ""
        functions = {key.__name__: count for key, count in adjoints.functions.items() if key not in TABLE}
        return Recording(
            store.calls, store.writers.sources, store.order, [float(loss) for loss in adjoints.losses], adjoints.last,
            functions, self.views, store.keep.text + beyond,
            [f"{count} times {text}" for text, count in self.faults.most_common(20)],
        )  # fmt: skip

    def start(self) -> None:
        """Begin to record, in this thread and in those that it will start."""
        _ACTIVE.append(self)
        # What is kept are many objects and no cycles: a collection that walks the program's as well takes a tenth.
        if not gc.get_freeze_count():
            gc.freeze()
            self._undo.append(gc.unfreeze)
        self.origins.modules.start()
        self.origins.modules.hear = self.named.hear if self.named is not None else None
        self.adjoints.start()
        regions = RegionHooks(self.record_region)
        regions.start()
        handle = register_optimizer_step_post_hook(lambda *_: self._end_step())
        self._undo += [handle.remove, self.adjoints.stop, self.origins.modules.stop]
        self._undo += [regions.stop, _enter_in_threads(self)]
        self._turn(True)

    def stop(self) -> None:
        """End the recording."""
        if self not in _ACTIVE:
            return
        _ACTIVE.remove(self)
        self.adjoints.settle()
        if self.named is not None:
            self.named.end()
        self._turn(False)
        while self._undo:
            self._undo.pop(0)()

    def _turn(self, on: bool) -> None:
        """Stand among torch's modes or not: a mode that records nothing costs time as well."""
        if on and not self._is_on:
            self._mode.__enter__()  # type: ignore[no-untyped-call]
        if self._is_on and not on:
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._is_on = on

    def _end_step(self) -> None:
        self.steps += 1
        modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
        # Modes leave in the order in which they came, so another one above ours keeps it there.
        if not self._is_on or (modes and modes[-1] is self._mode):
            self.adjoints.settle()
            self._turn(self.steps % self.store.keep.every == 0)

    def dispatch(self, op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Make a call of the program, and record it."""
        with self._lock:
            self.adjoints.settle()
            if self.named is not None:
                self.named.look()
            origin = self.origins.find()
            is_kept = not (op.is_view or self.steps % self.store.keep.every)
            self.views += op.is_view
            before = self.snapshot(op, args, kwargs, origin) if is_kept else None
        began = time.perf_counter()
        output = op(*args, **kwargs)
        seconds = time.perf_counter() - began
        if not is_kept:
            self.adjoints.expect(pytree.tree_leaves(output), None, origin)
        elif before is not None:
            results = results_of(op, args, kwargs, output)
            if op.namespace == "_c10d_functional":  # Ranks write their results while the program goes on.
                for result in results:
                    torch.ops._c10d_functional.wait_tensor(result)
            call = self.keep(before, results, seconds)
            self.adjoints.expect(results, call, origin)
        return output

    def record_region(self, region: RecordedRegion, args: Any, kwargs: Any, run: Callable[[], Any]) -> tuple[Any, Any]:
        """Run a region that has a spec, and record it as one call: what it gives, and the call if that is kept."""
        if not self._is_on or self.steps % self.store.keep.every:
            return run(), None
        with self._lock, torch._C._DisableTorchDispatch():
            self.adjoints.settle()
            origin = self.origins.find()
            before = self.snapshot(region, args, kwargs, origin)
        began = time.perf_counter()
        token = _DEPTH.set(_DEPTH.get() + 1)
        try:
            output = run()
        finally:
            _DEPTH.reset(token)
        seconds = time.perf_counter() - began
        self.adjoints.settle()
        if before is None:
            return output, None
        with torch._C._DisableTorchDispatch():
            results = region.results_of(output, args)
            call = self.keep(before, results, seconds)
        self.adjoints.expect(results, call, origin)
        return output, call

    def snapshot(self, op: Any, args: Any, kwargs: dict[str, Any], origin: Origin) -> DispatcherCall | None:
        """A call before it is made, with copies of its operands; None where it is not kept."""
        number = self.store.count((name_of(op), origin))
        if number is None:
            return None
        if 0 < self.store.keep.memory <= self.copies.nbytes:
            self.store.beyond += 1
            return None
        try:
            leaves, structure = pytree.tree_flatten((tuple(args), kwargs))
            copied = tuple(self.copies.copy(x) if isinstance(x, Tensor) else x for x in leaves)
            self.store.writers.note_operands(number, self.steps, [x for x in leaves if isinstance(x, Tensor)])
            on_cuda = any(isinstance(x, Tensor) and x.is_cuda for x in copied)
        except Exception as err:  # of a tensor that cannot be copied; the program must go on
            self.faults[f"{name_of(op)}: {type(err).__name__}: {str(err).partition(chr(10))[0][:200]}"] += 1
            return None
        return DispatcherCall(
            op, copied, structure, (), origin, find_switches(on_cuda), number, covered=_DEPTH.get() > 0
        )

    def keep(self, call: DispatcherCall, results: Sequence[Tensor], seconds: float) -> DispatcherCall | None:
        """Keep a call that was made, with copies of its results."""
        call.seconds = seconds
        call.adjoints, call.tracked = [None] * len(results), [False] * len(results)
        with self._lock:
            try:
                call.results = tuple(self.copies.copy(y) for y in results)
                self.store.writers.note_results(call.number, self.steps, results)
            except Exception as err:  # as above
                self.faults[f"{call.name}: {type(err).__name__}: {str(err).partition(chr(10))[0][:200]}"] += 1
                return None
            self.store.put((call.name, call.origin), call)
        return call


#: The recorders that stand among torch's modes, the innermost last.
_ACTIVE: list[Recorder] = []
# What the program copies of this process, as workers that load data, makes calls of its own.
os.register_at_fork(after_in_child=lambda: [*map(Recorder.stop, _ACTIVE[::-1])])


def active_recorder() -> Recorder | None:
    """The recorder that has begun last and has not ended; None outside of recordings."""
    return _ACTIVE[-1] if _ACTIVE else None


class _Mode(TorchDispatchMode):
    """The place among torch's modes where the recorder stands."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        # A program that compiles is compiled under the recorder as well: its values must not change.
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(each not in _PLAIN for each in types):
            return NotImplemented  # A subclass makes calls of plain tensors of its own, which are recorded.
        if not isinstance(func, torch._ops.OpOverload) or func.namespace == "profiler":
            return func(*args, **kwargs)
        return self._recorder.dispatch(func, args, kwargs)


def _enter_in_threads(recorder: Recorder) -> Callable[[], None]:
    """Record the threads that are started from now on; gives what ends this."""
    original = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        with _Mode(recorder) if recorder._is_on else contextlib.nullcontext():
            original(thread)
            recorder.adjoints.settle()

    threading.Thread.run = run  # type: ignore[method-assign, assignment]

    def undo() -> None:
        threading.Thread.run = original  # type: ignore[method-assign]

    return undo


def find_switches(on_cuda: bool = False) -> Switches:
    """What torch is told about arithmetic on a device now."""
    backends: Any = torch.backends
    flush = sys.float_info.min * 0.5 == 0.0
    if not on_cuda:
        return Switches(backends.mkldnn.matmul.fp32_precision, backends.mkldnn.conv.fp32_precision, flush)
    partials = backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    return Switches(backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision, flush, partials)
