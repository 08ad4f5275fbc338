"""CALLS: the same bits for the same values, whatever was called before, meanwhile, and with which objects.

What this is for: an op may have a state. A cache may answer by the identity of a tensor, by its address, its shape; a
workspace may be shared by two calls; a flag may stay set after an exception; something may change at the thousandth
call. No such fault shows where each sample is one call on new tensors.

What is hard here: a call cannot be judged by another call, which may be wrong in the same way. So the results at two
sets of arguments of one structure are judged by the formula first, on tensors that no call has had before. From then on
every call on equal values must return the bits of these results, in values and in gradients.

Two threads that run freely rarely disturb each other, and never at the same place twice. So two threads also take
turns: each hands over to the other one before every function of torch that it calls. And a kernel may run out of memory
anywhere: calls end in an exception at one of the calls of torch that a subject makes, and the next call must be right.
A flag that was set for a moment, a half-written workspace, a count of nested calls must not stay as they were then.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ....oracles.judge.judge import Judge
from ....oracles.op.bits import same_results
from ....oracles.op.copies import put_another
from ....oracles.op.declaration import Sample, Tensor, flat_outputs
from ....oracles.op.transforms import Vmap
from ....oracles.process import interrupt, undisturbed
from ....oracles.verdicts.violation import Code, Violation, raised
from ...collector import set_aside
from ..agreement import require_same
from .memory import require_no_growth, require_release
from .truth import Truth, establish_truth, observe_truth


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


#: Calls by each of two threads that run freely.
AT_ONCE = 8
#: Seconds after which a thread counts as deadlocked.
_DEADLOCK = 60.0
#: Seconds after which a thread goes on out of turn, because the other one may wait for a lock that this one holds.
_TURN = 0.005


class _Turns:
    """Two threads of which one runs at a time."""

    def __init__(self) -> None:
        self._may_run = (threading.Semaphore(1), threading.Semaphore(0))
        self._alone = False

    def hand_over(self, own: int) -> None:
        """Let the other thread run, and wait until it hands over; `own` is the number of this thread, 0 or 1."""
        if not self._alone:
            self._may_run[1 - own].release()
            self._may_run[own].acquire(timeout=_TURN)

    def leave(self, own: int) -> None:
        """This thread is done, and the other one runs alone from now on."""
        self._alone = True
        self._may_run[1 - own].release()


def check_threads(judge: Judge, first: Truth, second: Truth) -> None:
    """Violation unless calls in other threads return what they must."""
    both = (first, second)
    _run(judge, [functools.partial(first.find_difference, judge, 1)], "in another thread")
    _run(judge, [functools.partial(truth.find_difference, judge, AT_ONCE) for truth in both], "in two threads at once")
    turns = _Turns()

    def taking_turns(own: int) -> str:
        try:
            with AtEveryFunction(lambda: turns.hand_over(own)):
                return both[own].find_difference(judge, 2)
        finally:
            turns.leave(own)

    _run(judge, [functools.partial(taking_turns, own) for own in (0, 1)], "in two threads that take turns")


def _run(judge: Judge, work: Sequence[Callable[[], str]], what: str) -> None:
    """Run functions in a thread each; Violation where one returns a text (a difference), raises, or does not return."""
    wrong: list[str | BaseException] = []
    # Without a barrier the first thread would end before the second one has started.
    start = threading.Barrier(len(work))

    def body(call: Callable[[], str]) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            start.wait()
        try:
            difference = call()
        except BaseException as err:
            wrong.append(err)
        else:
            wrong.extend([difference] if difference else [])

    threads = [threading.Thread(target=body, args=(call,), daemon=True) for call in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_DEADLOCK)
    if any(thread.is_alive() for thread in threads):
        raise judge.violation(Code.RAISED, f"does not return within {_DEADLOCK:.0f} s", where=what)
    for fault in wrong:
        if isinstance(fault, Violation):
            raise fault
        if isinstance(fault, BaseException):
            raise raised(judge.op.name, fault, what) from fault
        raise judge.violation(Code.BITS, fault, where=what)
    judge.tally.count(len(work))


#: Calls without gradients in a row, of which every result is compared: of most samples; of the first sample of a cell,
#: whose calls are the cheapest; and of the first sample in long profiles.
MANY, THOUSAND, THOUSANDS = 200, 1000, 5000
#: One sample of a cell in this many, beginning with the first, is called many times, so that a failure shows again.
MANY_SHARE = 2
#: At most this many functions of torch are made to fail, one in each call.
FAILING = 12


def check_independence(judge: Judge, sample: Sample) -> None:
    """CALLS: see the module."""
    try:
        with set_aside():
            _judge_calls(judge, sample)
    except Violation as violation:
        # The failure cannot be repeated: it depends on all earlier calls of the process, and a call that fails as the
        # thousandth one need not fail again.
        violation.once = True
        raise


def _judge_calls(judge: Judge, sample: Sample) -> None:
    first, second = (establish_truth(judge, sample.with_args(args)) for args in (sample.args, sample.slices[0]))
    others = _others(judge, sample)
    for grad in (True, False):
        _same_objects(judge, first, second, grad)
        _same_addresses(judge, first, second, grad)
    _two_graphs(judge, first, second)
    _in_turn(judge, first, others)
    check_threads(judge, first, second)
    _after_errors(judge, first)
    require_release(judge, first, "a call")
    if judge.tally.samples % MANY_SHARE == 0:
        _many(judge, first)


def _same_objects(judge: Judge, first: Truth, second: Truth, grad: bool) -> None:
    """Calls on the same objects with other values, written once without and once with new versions."""
    arguments = first.copies(grad)
    first.ask(judge, arguments, "at first")
    _write(arguments, second, new_versions=False)
    second.ask(judge, arguments, "with the same objects, other data")
    _write(arguments, first, new_versions=True)
    first.ask(judge, arguments, "with the same objects, the first data again")


def _write(arguments: Sequence[Any], truth: Truth, new_versions: bool) -> None:
    """Write the values of a truth's sample into objects of the same structure, with or without new versions."""
    with torch.no_grad():
        for target, source in zip(arguments, truth.problem.args, strict=True):
            if isinstance(target, Tensor):
                (target if new_versions else target.data).copy_(source)


def _same_addresses(judge: Judge, first: Truth, second: Truth, grad: bool) -> None:
    """Calls on new objects in the memory of earlier ones, if possible with the same `id`; then at other addresses."""
    arguments = first.copies(grad)
    first.ask(judge, arguments, "at first")
    _write(arguments, second, new_versions=False)
    for i in [i for i, argument in enumerate(arguments) if isinstance(argument, Tensor)]:
        put_another(arguments, i)
        arguments[i].requires_grad_(i in second.problem.wrt and grad)
    second.ask(judge, arguments, "with other objects at the same addresses")
    arguments = [_copy_elsewhere(a) for a in arguments]
    second.ask(judge, arguments, "at other addresses")


def _copy_elsewhere(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value


def _two_graphs(judge: Judge, first: Truth, second: Truth) -> None:
    """Two graphs alive at once, other ops between forward and backward, backward twice; no earlier result changes."""
    for reverse in (False, True):
        pairs = [(truth, truth.copies()) for truth in (first, second)]
        called = [
            (truth, arguments, truth.forward(judge, arguments, "among other calls")) for truth, arguments in pairs
        ]
        if reverse:
            judge.between()
        derived = [
            (truth, truth.backward(judge, arguments, outputs, "of two graphs alive at once", again=True))
            for truth, arguments, outputs in (reversed(called) if reverse else called)
        ]
        for truth, grads in derived:
            if grads:
                require_same(judge, grads, truth.gradients, "earlier gradients after later ones")
        for truth, _, outputs in called:
            require_same(judge, [y.detach() for y in outputs], truth.outputs, "an earlier result after later calls")
    with torch.no_grad():
        results = [
            (truth, truth.forward(judge, truth.copies(grad=False), "without gradients")) for truth in (first, second)
        ]
    for truth, outputs in results:
        require_same(judge, outputs, truth.outputs, "an earlier result, without gradients, after later calls")


def _others(judge: Judge, sample: Sample) -> list[Truth]:
    """The truths at two other structures, of which the first calls run in inference mode and under transforms.

    An object that a first call leaves in a cache must serve the plain calls after it. A tensor of inference mode does
    not, nor does one that is wrapped for a transform that has ended.
    """
    inferred, transformed = (_alone(sample, args) for args in sample.others)
    outputs = _call_in_inference_mode(judge, inferred)
    truth = observe_truth(judge, inferred, "after inference mode")
    require_same(judge, outputs, truth.outputs, "in inference mode at first")
    without = judge.op.promises.without
    steps = [step for name, step in (("jvp", "jvp"), ("vmap", Vmap(2))) if name not in without]
    if judge.op.differentiable_positions(transformed.args):
        path = judge.path(_alone(sample, transformed.args, transformed.args), tuple(steps), ())
        judge.run(path, what="under transforms at first")
        judge.hold(transformed, exactly=False)
    return [truth, observe_truth(judge, transformed, "after transforms")]


def _alone(sample: Sample, args: tuple[Any, ...], *slices: tuple[Any, ...]) -> Sample:
    """A sample of other arguments, with these slices alone."""
    return Sample(args, sample.seed, sample.regime, slices)


def _call_in_inference_mode(judge: Judge, sample: Sample) -> list[Tensor]:
    with torch.inference_mode():
        copies = [a.clone() if isinstance(a, Tensor) else a for a in sample.args]
        outputs = flat_outputs(judge.call(judge.subject, *copies, what="inference mode"))
    return [y.clone() for y in outputs]


def _in_turn(judge: Judge, first: Truth, others: Sequence[Truth]) -> None:
    """Calls at other structures and of other ops between forward and backward, and after inference mode."""
    arguments = first.copies()
    outputs = first.forward(judge, arguments, "before calls at other shapes")
    for other in others:
        other.ask(judge, other.copies(), "at another shape, among other calls")
    judge.between()
    first.backward(judge, arguments, outputs, "after calls at other shapes")
    for other in others:
        other.ask(judge, other.copies(), "at another shape again")
    with torch.inference_mode():
        first.forward(judge, [a.clone() if isinstance(a, Tensor) else a for a in arguments], "in inference mode")
    first.ask(judge, arguments, "after inference mode")


def _after_errors(judge: Judge, truth: Truth) -> None:
    """A call after one that was refused, and after one that failed half way, forward and backward."""
    # A subject whose documentation says nothing about wrong arguments may end the process at one.
    unchecked = "ERROR" in judge.op.documented_by(judge.subject_name).not_asked
    for refusal in () if unchecked else judge.op.refusals:
        mistaken = refusal.mutate(truth.problem.args)
        if mistaken is not None and not refusal.ends_work_on(judge.device):
            call_expecting_error(judge.subject, mistaken)
    truth.ask(judge, truth.copies(), "after calls that were refused")
    for number in range(1, FAILING + 1):
        arguments = truth.copies()
        if not call_interrupted(functools.partial(_forward_and_backward, judge, truth, arguments), number):
            return
        truth.ask(judge, truth.copies(), f"after a call in which torch's function number {number} failed")


def _many(judge: Judge, truth: Truth) -> None:
    """Many calls: every result has the bits of the truth, and memory does not grow with the number of calls."""
    arguments, leaves = truth.copies(grad=False), truth.copies()
    count = MANY if judge.tally.samples else THOUSAND if judge.light else THOUSANDS

    def in_a_row() -> None:
        with torch.no_grad():
            for number in range(count):
                outputs = flat_outputs(judge.subject(*arguments))
                if not all(map(same_results, outputs, truth.outputs)):
                    truth.forward(judge, arguments, f"at call {number + 1} in a row")
                    raise judge.violation(
                        Code.BITS, "differs at one call and not at the next", where=f"call {number + 1}"
                    )

    judge.call(in_a_row, what="many calls in a row")
    judge.tally.count(count)
    call = functools.partial(_forward_and_backward, judge, truth, leaves)
    judge.call(lambda: require_no_growth(judge, call, "calls in a row"), what="many calls in a row")
    truth.ask(judge, truth.copies(), "after many calls")


def _forward_and_backward(judge: Judge, truth: Truth, arguments: Sequence[Any]) -> None:
    """A call and its gradients, without any check."""
    truth.differentiate(judge, arguments, flat_outputs(judge.subject(*arguments)), "many calls in a row")
