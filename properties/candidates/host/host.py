"""Where a candidate runs: calls it as it is asked to, and says what came of it and what it left behind.

This is the whole of what stands between a candidate and its judge, in a process apart and in the caller's. It knows no
spec and no expected value.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import torch

from ....oracles import process
from ....oracles.machine.limits import beyond_machine
from ....oracles.machine.ptx.account import ACCOUNT, Variant, on_variant
from ....oracles.machine.ptx.hardware import APART
from ....oracles.op.bits import same_results
from ....oracles.op.copies import put_another
from ....oracles.process import interrupt
from ....oracles.specs.autograd_calls import run_with_own_derivatives
from ....oracles.specs.evaluation import evaluating
from ....oracles.verdicts.violation import Code, Violation, error_lines, error_name
from ..arguments import CallArguments, Tensor, device_of, floating, lacking, parameters_of
from ..arguments import call as called
from ..far_answer import answer_far, surround
from ..layouts import MemoryLayout, place, place_all, strides_of
from ..ranks.seats import is_rank
from ..results import Result, homes_of, overlaps, overlaps_itself, result_of
from .backward import call_apart, pull
from .calls import (
    DESTINATIONS,
    Aliases,
    Answer,
    CandidateCall,
    Executed,
    Manner,
    Pulled,
    Repeat,
    Sequel,
    Writes,
    WrittenTensors,
    require_plain_outputs,
    stays,
)
from .changes import counts_against, deep
from .module_files import frames_of
from .module_state import ModuleState
from .operations import Operations, record

#: Elements of outputs that are copied as soon as the candidate returns: of larger ones few rows are asked for.
_FEW = 2**22
#: What a first call replaces, a second may find replaced; what later ones replace is told in the end.
_BASELINE_CALL = 2
#: The numbers of threads of torch in manners, and the variants of kernels as PTX; others have one after the other.
_THREADS = {Manner.THREADS: 4, Manner.ALONE: 1}
_VARIANTS = {Manner.STEADY: Variant(), Manner.ALONE: Variant(), Manner.REORDERED: Variant(APART)}


@dataclass
class _OpenCall:
    """A call that was made, and what is known of it: what the candidate gave, copies of that, seconds, gradients."""

    call: CandidateCall
    arguments: CallArguments
    result: Any = None
    copies: list[Tensor] = field(default_factory=list)
    seconds: float = 0.0
    pulled: Pulled = field(default_factory=Pulled)
    answer: Answer = field(default_factory=Answer)
    changed: list[str] = field(default_factory=list)
    far: Any = None


class CandidateHost:
    """A candidate in this process.

    Args:
        alone: whether nothing but the candidate changes this process, which is compared in the end then, too.

    Attributes:
        name, parameters: see `calls.Answering`. state: its parameters and buffers; shapes: of these, by name.
        changed: what its making changed in the process, a line each. function: itself.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], changed: Sequence[str] = (), alone: bool = False
    ) -> None:
        process.settle()
        self._alone, self.name, self._calls = alone, name, 0
        self.changed: Sequence[str] = tuple(changed)
        self.function: Any = function
        ACCOUNT.start()
        self.state = ModuleState(function)
        self.parameters = parameters_of(function)
        self.shapes = {name: tuple(parts.shape) for name, parts in self.state.parts.items()}
        self._inputs: list[Tensor] = []
        self._copies: list[Tensor] = []
        self._before: list[Tensor] = []
        self._stored: list[Any] = []
        self._latest: list[Tensor] = []
        self._staying: list[Sequence[Tensor]] = []
        self._open: _OpenCall | None = None
        self._baseline: Any = None

    def ask(self, call: CandidateCall) -> Answer:
        """The answer to a call; whatever the candidate raises is an answer, too."""
        self.begin(call)
        return self.finish(call.sequel)

    def begin(self, call: CandidateCall) -> None:
        """Make a call, of which `finish` tells what came; what its sequel says is no matter yet."""
        if call.stored:
            self._stored = call.leaves or self._stored
            call = msgspec.structs.replace(call, leaves=self._stored)
        arguments = self._placed(call)
        (self.state.assign if call.manner is Manner.ASSIGNED else self.state.set)(call.state)
        self._calls += 1
        self._open = current = _OpenCall(call, arguments)
        ACCOUNT.begin()
        self._attempt(current, self._run, call.watched)

    def finish(self, sequel: Sequel) -> Answer:
        """The answer to the call that was begun last."""
        current = self._open
        assert current is not None
        if not current.answer.raised:
            self._attempt(current, functools.partial(self._answer, sequel=sequel), sequel.watched)
        answer = current.answer
        if ACCOUNT.launches and answer.executed is None:
            answer = msgspec.structs.replace(answer, executed=_executed())
        if self._alone and self._calls == _BASELINE_CALL:
            self._baseline = deep().read()
        return msgspec.structs.replace(answer, changed=current.changed) if current.changed else answer

    def _attempt(self, current: _OpenCall, act: Callable[[_OpenCall], None], watched: bool) -> None:
        """Do something of a call in its surroundings; an exception becomes its answer, and changes are noted."""
        call = current.call
        # A first call may compile, load and open things that are kept for good.
        tiers = (deep(), process.LEFTOVERS) if self._calls > 1 else (deep(),)
        device = device_of((*current.arguments.tensors, *self.state.tensors.values()))
        # The surroundings are outermost, because they set modes back that the candidate may have left changed. A new
        # object reads the settings, because the one of a cell gives the values that the cell began with.
        with (
            _surrounding(call.manner, device), on_variant(_VARIANTS.get(call.manner, self._calls - 1)),
            torch.set_grad_enabled(call.backward is not None),
            process.seeded(self._calls) if watched else contextlib.nullcontext(),
            process.watched(*((process.SampleSettings(),) if watched else ())) as settings,
            process.watched(*(tiers if watched else ())) as changed,
        ):  # fmt: skip
            try:
                with evaluating(self.function) if call.manner is Manner.EVALUATION else contextlib.nullcontext():
                    act(current)
            except BaseException as err:
                interrupt.reraise()
                text = ": ".join([error_name(err), *error_lines(err)[:3]])
                beyond = beyond_machine(err)
                executed = _executed(beyond) if beyond else None
                current.answer = Answer(raised="\n".join([text, *frames_of(err)]), executed=executed)
        interrupt.reraise()  # the candidate may have caught what a handler of the caller raised
        current.changed += [*settings, *(line for line in changed if counts_against(line))]

    @functools.cached_property
    def _compiled(self) -> Callable[..., Any]:
        """The candidate, traced for torch.compile; no code is generated, because what is assumed is so in tracing.

        What was compiled before is dropped: torch may take that of another function with the same code object for it.
        """
        torch._dynamo.reset()
        for home, name in ACCOUNT.launchers:  # a launch is one step; what executes it is none of the candidate's
            setattr(home, name, torch._dynamo.disable(getattr(home, name)))
        compiled = torch.compile(self.function, backend="eager", dynamic=False)
        # A candidate may be judged more often than a function is usually compiled, and would not be compiled then.
        patch: Any = torch._dynamo.config.patch(recompile_limit=2**16, accumulated_recompile_limit=2**16)
        traced: Callable[..., Any] = process.without_measuring_guards()(patch(compiled))
        return traced

    def fetch(self, rows: Sequence[int], earlier: bool = False) -> Answer:
        """See `calls.Answering`."""
        if not earlier:
            return Answer([y.detach()[list(rows)] for y in self._latest])  # an index copies
        # An output that a later call has made shorter has not all of the rows any more, and is given without any.
        fits = [y.ndim > 0 and len(y) > max(rows, default=0) for y in self._before]
        copies = [y.detach()[list(rows) if whole else []] for y, whole in zip(self._before, fits, strict=True)]
        return Answer(earlier=copies)

    def review(self) -> Answer:
        """See `calls.Answering`."""
        changed = [] if self._baseline is None else deep().restored(self._baseline, True)
        earlier = _copies([y for outputs in self._staying for y in outputs])
        return Answer(earlier=earlier, changed=list(filter(counts_against, changed)))

    def operations(self, call: CandidateCall) -> Operations:
        """See `calls.Answering`."""
        arguments = self._placed(call)
        self.state.set(call.state)
        with torch.no_grad():
            return record(lambda: _result_of(self.function, call, arguments))

    def left_behind(self) -> list[str]:
        """See `calls.Answering`; of its own process nobody can say what the candidate left there."""
        return []

    def _run(self, current: _OpenCall) -> None:
        call, arguments = current.call, current.arguments
        backward, inputs = call.backward, floating(arguments.tensors)
        leaves = [] if backward is None else [inputs[i] for i in backward.moving]
        leaves += [] if backward is None else [self.state.tensors[name] for name in backward.wanted]
        for leaf in leaves:
            leaf.requires_grad_(True)
        if backward is not None and backward.inner:
            # Views, so that their memory is that of the arguments.
            arguments = current.arguments = arguments.changed(lambda t: t.view_as(t))
        start = time.perf_counter()
        function = self._compiled if call.manner is Manner.COMPILED else self.function
        with surround(call.manner) as current.far:
            current.result = _result_of(function, call, arguments)
        outputs = require_plain_outputs(current.result.tensors)
        process.await_work(device_of(outputs))
        current.seconds = time.perf_counter() - start
        # Outputs are copied at once: a thread of the candidate may still be running, and a backward may write them.
        if backward is not None or sum(y.numel() for y in outputs) <= _FEW:
            current.copies = _copies(outputs)
        if backward is not None:
            call_at = functools.partial(_result_of, self.function, call)
            current.pulled = pull(outputs, leaves, backward, functools.partial(call_apart, call_at, arguments, leaves))

    def _answer(self, current: _OpenCall, sequel: Sequel) -> None:
        call, arguments, result = current.call, current.arguments, current.result
        outputs, writes = result.tensors, sequel.writes
        if current.far is not None:
            self._latest = [y.detach() for y in outputs]
            current.answer = answer_far(current.far, result, arguments, _executed())
            return
        # Rows that are fetched after this answer are copied before anything runs that could write the outputs.
        later = sequel.times > 1 or not sequel.fetched
        first = current.copies or ([y.detach().clone() for y in outputs] if later else [y.detach() for y in outputs])
        compared = sequel.times > 1 and not sequel.fetched
        differs, last = self._repeat(current, sequel, replace(result, tensors=tuple(first)))
        earlier = _copies(self._copies) if sequel.earlier else []
        self._before, self._copies, self._latest = self._copies, list(outputs), first
        if stays(msgspec.structs.replace(call, sequel=sequel), outputs, len(self._staying)):
            self._staying.append([y.detach() for y in outputs])
        buffers = [None if (now := self.state.parts_now(name)) is None else now.clone() for name in writes.buffers]
        aliases = Aliases(homes_of(result.raw, arguments.tensors), overlaps(result.raw))
        repeat = Repeat(differs, list(last.tensors) if differs or compared else [], current.seconds)
        stored = WrittenTensors(buffers, _copies(arguments.tensors) if writes.after else [])
        values, shapes = ([], [tuple(y.shape) for y in first]) if sequel.fetched else (first, [])
        current.answer = Answer(
            values, last.form, list(last.plain), stored, aliases, repeat, current.pulled, earlier, shapes=shapes
        )

    def _repeat(self, current: _OpenCall, sequel: Sequel, first: Result) -> tuple[int, Result]:
        """Repeat a call, and return the number and result of the first repeat with other bits than `first`.

        0 and the result of the last one if there is none. Before a repeat everything in `sequel.writes` gets its first
        values again.
        """
        call, arguments, writes = current.call, current.arguments, sequel.writes
        was, result = self._read_writes(writes, arguments) if sequel.times > 1 else [], first
        odd: tuple[int, Result] | None = None
        for number in range(2, sequel.times + 1):
            self.state.set({name: call.state[name] for name in writes.buffers if name in call.state})
            with torch.no_grad():
                for i in writes.restored:
                    arguments.tensors[i].copy_(call.arguments.tensors[i])
            with on_variant(_VARIANTS.get(call.manner, self._calls + number - 2)):
                result = _result_of(self.function, call, arguments)
            require_plain_outputs(result.tensors)
            same = (result.form, result.plain) == (first.form, first.plain)
            same = same and all(map(same_results, result.tensors, first.tensors))
            if odd is None and not (same and all(map(same_results, self._read_writes(writes, arguments), was))):
                odd = number, replace(result, tensors=tuple(_copies(result.tensors)))
                if not is_rank():  # for which others wait in every call
                    return odd
        return odd or (0, result)

    def _read_writes(self, writes: Writes, arguments: CallArguments) -> list[Tensor]:
        """Copies of the tensors that a call writes; an empty tensor for a buffer that no longer exists."""
        now = [*map(self.state.parts_now, writes.buffers), *(arguments.tensors[i] for i in writes.restored)]
        return _copies([torch.empty(0) if value is None else value for value in now])

    def _placed(self, call: CandidateCall) -> CallArguments:
        """The arguments of a call in memory as its manner says."""
        arguments = call.arguments
        # Copies, because the memory is written by later calls, and the caller's tensors are the caller's.
        tensors = [t.detach().clone(memory_format=torch.contiguous_format) for t in arguments.tensors]
        if call.manner in (Manner.SAME, Manner.REBORN):
            tensors = self._in_earlier_memory(tensors, call.manner is Manner.REBORN)
        elif call.placing.strides or call.placing.rows:
            tensors = place_all(tensors, call.placing)
        elif call.manner is Manner.SHIFTED:
            tensors = [place(t, t.stride(), offset=1) for t in tensors]
        if call.manner is Manner.PARAMETERS:
            tensors = [torch.nn.Parameter(t, False) if t.dtype.is_floating_point else t for t in tensors]
        self._inputs = tensors
        return arguments.with_tensors(tensors)

    def _in_earlier_memory(self, new: Sequence[Tensor], reborn: bool) -> list[Tensor]:
        earlier, self._inputs = self._inputs, []
        # What is expanded cannot be written, nor can other values be where two tensors overlap.
        is_writable = not any(map(overlaps_itself, earlier)) and not overlaps(earlier)
        if not is_writable or [(t.shape, t.dtype) for t in earlier] != [(t.shape, t.dtype) for t in new]:
            return list(new)
        tensors = []
        for i, values in enumerate(new):
            with torch.no_grad():
                # No version counter tells of it: a cache that asks for one is asked for more than that.
                earlier[i].data.copy_(values)
            if reborn:
                put_another(earlier, i)
            tensors.append(earlier[i])
        return tensors


def _executed(beyond: str = "") -> Executed:
    """What the account of this process says; `beyond`: see `oracles.machine.limits`."""
    fault = ACCOUNT.fault
    text = [beyond] if fault is None else fault.message.splitlines() if isinstance(fault, Violation) else [str(fault)]
    code = str(fault.code) if fault is not None else str(Code.NO_DEVICE) if beyond else ""
    return Executed(len(ACCOUNT.variants), ACCOUNT.tale, ACCOUNT.words, code, text if code else [])


def _result_of(function: Callable[..., Any], call: CandidateCall, arguments: CallArguments) -> Result:
    """What a candidate gives, or writes into destinations, which hold NaN before; then what it returns says nothing."""
    device = arguments.tensors[0].device if arguments.tensors else None
    places = [torch.zeros(shape, dtype=getattr(torch, dtype), device=device) for shape, dtype in call.destinations]
    for y in floating(result_of(places).tensors):
        y.fill_(math.nan)
    if call.placing.destinations:
        layout = MemoryLayout[call.placing.destinations]
        places = [place(y, strides_of(layout, y.shape)) for y in places]
    numbers = floating(result_of(places).tensors)
    result = result_of(run_with_own_derivatives(lambda: called(function, arguments.args, places)))
    if not places:
        return result
    apart = result.tensors and max(homes_of(result.tensors, places)) < 0
    if apart and all(bool(y.isnan().all()) for y in numbers):
        names = ", ".join(lacking(parameters_of(function), arguments.args))
        raise TypeError(
            f"takes {names}, which the spec does not take: so it was given memory for outputs, and wrote nothing there"
        )
    return replace(result_of(places), form=DESTINATIONS)


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [t.detach().clone() for t in tensors]


@contextlib.contextmanager
def _surrounding(manner: Manner, device: str) -> Iterator[None]:
    """What surrounds a call of a manner with tensors on a device."""
    if manner is Manner.AUTOCAST:
        with torch.autocast(device, dtype=torch.bfloat16):
            yield
        return
    if manner in _THREADS:
        count = torch.get_num_threads()
        torch.set_num_threads(_THREADS[manner])
        try:
            yield
        finally:
            torch.set_num_threads(count)
        return
    if manner is not Manner.POISONED:
        yield
        return
    before, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    # The switch is a property of the module's class, which its annotations do not show.
    switch: Any = torch.utils.deterministic
    fill = switch.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    switch.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
        switch.fill_uninitialized_memory = fill
