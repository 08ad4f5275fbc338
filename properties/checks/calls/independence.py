"""CALLS: the same bits for the same values, whatever was called before, meanwhile, and with which objects.

What this is for: an op may remember. A cache may answer by the identity of a tensor, by its address, its shape; a
workspace may be shared by two calls; a flag may stay set after an exception; something may change at the thousandth
call. None of that is seen where each sample is one call on new tensors.

What is hard here: what a call must return cannot be asked of another call, which may be wrong in the same way. So two
sets of arguments of one structure are held against the formula first, on tensors that no call has seen. From then on
every call on equal values must return their bits, in values and in gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ....oracles.judge.judge import Judge
from ....oracles.op.bits import same_results
from ....oracles.op.declaration import Sample, Tensor, flat_outputs
from ....oracles.op.transforms import Vmap
from ....oracles.verdicts.verdict import Code
from ....oracles.verdicts.violation import Violation
from ..agreement import require_same
from .interrupted import call_expecting_error, interrupted
from .memory import require_no_growth, require_nothing_kept, set_aside
from .threads import in_other_threads
from .truth import Truth, held, observed

#: Calls without gradients in a row, whose every result is compared: of most samples; of the first of a cell, whose
#: calls are the cheapest; and of that one in long profiles.
MANY, THOUSAND, THOUSANDS = 200, 1000, 5000
#: Of the samples of a cell, one in so many is asked for many calls, the first among them: so a failure is repeated.
MANY_SHARE = 2
#: At most so many functions of torch are made to fail, one in a call.
FAILING = 12
#: How many objects are made in search of one with the identity of an object that is gone.
_REBIRTHS = 32


def independent(judge: Judge, sample: Sample) -> None:
    """CALLS: see the module."""
    try:
        with set_aside():
            _question_of(judge, sample)
    except Violation as violation:
        # Calls come before it that will never come again: what fails at the thousandth call need not fail at the next.
        violation.once = True
        raise


def _question_of(judge: Judge, sample: Sample) -> None:
    first, second = (held(judge, sample.with_args(args)) for args in (sample.args, sample.slices[0]))
    others = _others(judge, sample)
    for grad in (True, False):
        _same_objects(judge, first, second, grad)
        _same_addresses(judge, first, second, grad)
    _two_graphs(judge, first, second)
    _in_turn(judge, first, others)
    in_other_threads(judge, first, second)
    _after_errors(judge, first)
    require_nothing_kept(judge, first, "a call")
    if judge.tally.samples % MANY_SHARE == 0:
        _many(judge, first)


# ------------------------------------------------------------------------------------------- objects and addresses


def _same_objects(judge: Judge, first: Truth, second: Truth, grad: bool) -> None:
    """Other values in the same objects: written where autograd does not see it, and where it does."""
    given = first.copies(grad)
    first.asked(judge, given, "at first")
    _write(given, second, seen=False)
    second.asked(judge, given, "with the same objects, other data")
    _write(given, first, seen=True)
    first.asked(judge, given, "with the same objects, the first data again")


def _write(given: Sequence[Any], truth: Truth, seen: bool) -> None:
    """Write the values of a truth into objects of the same structure, with a new version of each object or without."""
    with torch.no_grad():
        for target, source in zip(given, truth.problem.args, strict=True):
            if isinstance(target, Tensor):
                (target if seen else target.data).copy_(source)


def _same_addresses(judge: Judge, first: Truth, second: Truth, grad: bool) -> None:
    """Other objects in the memory of earlier ones, and with their identities, as far as Python gives those again."""
    given = first.copies(grad)
    first.asked(judge, given, "at first")
    _write(given, second, seen=False)
    for i, earlier in enumerate(given):
        if isinstance(earlier, Tensor):
            given[i] = None
            given[i] = _reborn(earlier.untyped_storage(), earlier, i in second.problem.wrt and grad)
    second.asked(judge, given, "with other objects at the same addresses")
    given = [_elsewhere(a) for a in given]
    second.asked(judge, given, "at other addresses")


def _reborn(storage: Any, earlier: Tensor, grad: bool) -> Tensor:
    """A new tensor in the memory of an earlier one, and with the earlier one's identity, if Python gives it again.

    Args:
        storage: the memory. earlier: the tensor that is to be gone; the caller holds it no more.
        grad: whether the new one requires grad.
    """
    gone, shape, strides, dtype = id(earlier), earlier.shape, earlier.stride(), earlier.dtype
    del earlier
    made: list[Tensor] = []
    for _ in range(_REBIRTHS):
        made.append(torch.empty(0, dtype=dtype, device=storage.device).set_(storage, 0, shape, strides))
        if id(made[-1]) == gone:
            break
    return made[-1].requires_grad_(grad) if grad else made[-1]


def _elsewhere(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value


# ------------------------------------------------------------------------------------------- calls among other calls


def _two_graphs(judge: Judge, first: Truth, second: Truth) -> None:
    """Two graphs alive at once, other ops between forward and backward, backward twice; results stay as they were."""
    for reverse in (False, True):
        pairs = [(truth, truth.copies()) for truth in (first, second)]
        called = [(truth, given, truth.forward(judge, given, "among other calls")) for truth, given in pairs]
        if reverse:
            judge.between()
        derived = [
            (truth, truth.backward(judge, given, outputs, "of two graphs alive at once", again=True))
            for truth, given, outputs in (reversed(called) if reverse else called)
        ]
        for truth, found in derived:
            if found:
                require_same(judge, found, truth.gradients, "earlier gradients after later ones")
        for truth, _, outputs in called:
            require_same(judge, [y.detach() for y in outputs], truth.outputs, "an earlier result after later calls")
    with torch.no_grad():
        results = [
            (truth, truth.forward(judge, truth.copies(grad=False), "without gradients")) for truth in (first, second)
        ]
    for truth, outputs in results:
        require_same(judge, outputs, truth.outputs, "an earlier result, without gradients, after later calls")


def _others(judge: Judge, sample: Sample) -> list[Truth]:
    """What calls at two other structures return, whose very first calls were made in a mode and under a transform.

    What a first call leaves in a cache must serve the plain calls after it. A tensor of inference mode does not, nor
    does one that is wrapped for a transform that has ended.
    """
    inferred, transformed = (_alone(sample, args) for args in sample.others)
    found = _in_inference_mode(judge, inferred)
    truth = observed(judge, inferred, "after inference mode")
    require_same(judge, found, truth.outputs, "in inference mode at first")
    without = judge.op.promises.without
    steps = [step for name, step in (("jvp", "jvp"), ("vmap", Vmap(2))) if name not in without]
    if judge.op.differentiable_positions(transformed.args):
        path = judge.path(_alone(sample, transformed.args, transformed.args), tuple(steps), ())
        judge.run(path, what="under transforms at first")
        judge.hold(transformed, exactly=False)
    return [truth, observed(judge, transformed, "after transforms")]


def _alone(sample: Sample, args: tuple[Any, ...], *slices: tuple[Any, ...]) -> Sample:
    """A sample of other arguments, with these slices and no others."""
    return Sample(args, sample.seed, sample.regime, slices)


def _in_inference_mode(judge: Judge, sample: Sample) -> list[Tensor]:
    with torch.inference_mode():
        given = [a.clone() if isinstance(a, Tensor) else a for a in sample.args]
        found = flat_outputs(judge.call(judge.subject, *given, what="inference mode"))
    return [y.clone() for y in found]


def _in_turn(judge: Judge, first: Truth, others: Sequence[Truth]) -> None:
    """Calls at other structures and of other ops between forward and backward, and after inference mode."""
    given = first.copies()
    outputs = first.forward(judge, given, "before calls at other shapes")
    for other in others:
        other.asked(judge, other.copies(), "at another shape, among other calls")
    judge.between()
    first.backward(judge, given, outputs, "after calls at other shapes")
    for other in others:
        other.asked(judge, other.copies(), "at another shape again")
    with torch.inference_mode():
        first.forward(judge, [a.clone() if isinstance(a, Tensor) else a for a in given], "in inference mode")
    first.asked(judge, given, "after inference mode")


# ------------------------------------------------------------------------------------------- threads, errors, numbers


def _after_errors(judge: Judge, truth: Truth) -> None:
    """A call after one that was refused, and after one that failed half way, forward and backward."""
    # What documents nothing of wrong arguments may end the process by them.
    unchecked = "ERROR" in judge.op.documented_by(judge.subject_name).not_asked
    for refusal in () if unchecked else judge.op.refusals:
        mistaken = refusal.mutate(truth.problem.args)
        if mistaken is not None:
            call_expecting_error(judge.subject, mistaken)
    truth.asked(judge, truth.copies(), "after calls that were refused")
    for number in range(1, FAILING + 1):
        given = truth.copies()
        if not interrupted(functools.partial(_forward_and_backward, judge, truth, given), number):
            return
        truth.asked(judge, truth.copies(), f"after a call in which torch's function number {number} failed")


def _many(judge: Judge, truth: Truth) -> None:
    """Many calls: every result is the first one, and memory does not grow with their number."""
    given, leaves = truth.copies(grad=False), truth.copies()
    count = MANY if judge.tally.samples else THOUSAND if judge.light else THOUSANDS

    def in_a_row() -> None:
        with torch.no_grad():
            for number in range(count):
                outputs = flat_outputs(judge.subject(*given))
                if not all(map(same_results, outputs, truth.outputs)):
                    truth.forward(judge, given, f"at call {number + 1} in a row")
                    raise judge.broken(Code.BITS, "differs at one call and not at the next", where=f"call {number + 1}")

    judge.call(in_a_row, what="many calls in a row")
    judge.tally.count(count)
    call = functools.partial(_forward_and_backward, judge, truth, leaves)
    judge.call(lambda: require_no_growth(judge, call, "calls in a row"), what="many calls in a row")
    truth.asked(judge, truth.copies(), "after many calls")


def _forward_and_backward(judge: Judge, truth: Truth, given: Sequence[Any]) -> None:
    """A call and its derivatives, and nothing besides."""
    pairs = zip(flat_outputs(judge.subject(*given)), truth.cotangents, strict=False)
    tracked = [(y, g) for y, g in pairs if y.requires_grad]
    if tracked:
        leaves = [given[i] for i in truth.problem.wrt]
        torch.autograd.grad([y for y, _ in tracked], leaves, [g for _, g in tracked], allow_unused=True)
