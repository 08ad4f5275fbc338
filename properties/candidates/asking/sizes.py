"""Arguments of other sizes, and elsewhere or otherwise laid out in memory: a candidate must refuse them or be right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import torch

from ....oracles.specs.tracing import without_fused_operations
from ....oracles.specs.work import WorkCounter, Workload
from ....oracles.verdicts.verdict import Outcome
from ...engine.limits import processor_seconds
from ..arguments import CallArguments, Tensor
from ..finding import FailingCall, Finding, in_variant, not_asked, passing, raised, with_lines
from ..host.calls import Answer, Manner
from ..inputs import WAYS, one_for_several, stand_in
from ..layouts import AnyLayout, DestinationLayout, MemoryLayout
from ..resizing import empty_arguments, resizable, resize, resized_tensor
from ..row_sample import draw_tensor, part_of
from ..session import Asking, Session
from ..specification import SpecError

#: Sizes that replace a size of the arguments: just above common blocks, a multiple of common blocks, and 1 or an odd
#: number.
LARGE, ALIGNED, SMALL = (129, 1025, 4099), (128, 1024, 4096), (1, 37)
#: The largest number of elements of all arguments together, and the number of calls.
_MOST, _CALLS = 2**17, 6
#: Sizes at which kernels may take another branch: powers of two, one less and one more. Each in turn replaces each size
#: of the arguments, in calls with at most `_FEW` elements, for `_SWEEP_SECONDS` of processor time.
_AT_BRANCHES = sorted({2**power + step for power in range(1, 13) for step in (-1, 0, 1)})
_FEW, _SWEEP_SECONDS = 2**15, 0.5
#: A reading of the spec takes longer than all these calls. So of the calls of either kind only the `_FARTHEST` that
#: differ most from torch are read: the first whatever it costs, and others while they take `_READING_SECONDS` together.
_FARTHEST, _READING_SECONDS = 3, 1.0
#: A call that takes longer to read is read in place of others if it differs from torch so many times as much for each
#: second.
_STANDS_OUT = 8.0
#: In one call an output has more than `_BEYOND` elements, if the candidate takes less than `_SECONDS` for it, which a
#: call with `_SOME` times the given rows shows.
_BEYOND, _SECONDS, _SOME = 2**20 + 2**18, 2.0, 64
#: The number of elements, arguments included, that are compared of this call.
_READ = 2**14
#: A size is left out if a call of the spec takes more than so many operations of torch, and more than so many times
#: those at the given inputs: a loop over steps or experts may have as many operations as the size says.
_OPERATIONS, _TIMES_GIVEN = 1000, 2
#: The same for multiplications in products of matrices. In a chain of products of a matrix with its own transpose, such
#: as Newton-Schulz iterations, each product takes the cube of the size, however few elements the arguments have.
_MULTIPLICATIONS = 2**29
#: The same for elements of results, which broadcasting multiplies, however few elements the arguments have.
_ELEMENTS = 2**26
#: The largest number of output elements if kernels are executed as PTX, thread by thread: each may be a long sum.
_EXECUTED = 2**15


class _OtherCall(NamedTuple):
    """A call at other sizes: its arguments, its answer, how far that is from torch's, and seconds to read the spec."""

    arguments: CallArguments
    answer: Answer
    distance: float
    seconds: float


def sizes(session: Session) -> Finding:
    """SIZES: each size in turn is replaced in all shapes that have it, because equal sizes may be the same axis."""
    if "SIZES" in session.packed:
        return session.packed["SIZES"]
    most = _most_work(session)
    others = list(_calls_at(session, _other_sizes(session, most), most))
    answered = [each for each in others if not each.answer.raised]
    swept = [each for each in _calls_at(session, _at_branches(session), most) if not each.answer.raised]
    judged = 0
    for each in [*_worth_reading(answered), *_worth_reading([each for each in swept if each.distance])]:
        finding = _hold(session, each)
        if finding is not None and finding.is_wrong:
            return finding
        judged += 0 if finding is None else finding.judged
    for arguments in empty_arguments(session.spec, session.arguments):
        finding = session.values("SIZES", arguments, refusable=True)
        if finding.is_wrong:
            return finding
    # AGAIN is the question, because with that code nothing is recorded of inputs that are those of another question.
    many = _many_rows(session) or session.values("AGAIN", session.arguments, manner=Manner.THREADS)
    if many.is_wrong:
        return with_lines(replace(many, question="SIZES"), "call       where torch has several threads")
    if judged:
        return passing("SIZES", judged)
    refusals = [raised("SIZES", each.answer.raised, refusable=True) for each in others if each.answer.raised]
    return refusals[-1] if refusals else not_asked("SIZES", "the spec takes no other sizes")


def _calls_at(session: Session, every: Iterable[CallArguments], most: Workload) -> Iterator[_OtherCall]:
    """Calls of the candidate at those arguments that the spec accepts with at most `most` work."""
    writes = session.writes_at(session.given_rows, session.spec.state)
    for arguments in every:
        work = _work_at(session, arguments, most)
        if work is None:
            continue
        # The candidate is called before the spec, so that it cannot find the right result in memory.
        answer = session.call(arguments, writes=writes)
        try:
            outputs = session.spec.outputs(arguments, session.spec.state)
        except SpecError:  # It does not take these values.
            continue
        distance = math.inf
        if len(answer.outputs) == len(outputs) and not session.spec.numpy and not (writes.buffers or writes.restored):
            distance = max(map(_distance, answer.outputs, outputs), default=0.0)
        # A later call may write the same memory again.
        copied = msgspec.structs.replace(answer, outputs=[y.detach().clone() for y in answer.outputs])
        yield _OtherCall(arguments, copied, distance, work.seconds)


def _worth_reading(calls: Sequence[_OtherCall]) -> Iterator[_OtherCall]:
    """The calls that differ most from torch, as far as there is time to read the spec there."""

    def rank(call: _OtherCall) -> tuple[float, float]:
        needed = _STANDS_OUT * call.seconds if call.seconds > _READING_SECONDS else 1.0
        return -call.distance / needed, call.seconds

    left = _READING_SECONDS
    # How far those are that torch alone does not tell, as of written tensors, is infinite: they are read, too.
    ranked = [each for i, each in enumerate(sorted(calls, key=rank)) if i < _FARTHEST or math.isinf(each.distance)]
    for i, each in enumerate(ranked):
        if i == 0 or each.seconds <= left:
            left -= each.seconds if i else 0.0
            yield each


def _hold(session: Session, other: _OtherCall) -> Finding | None:
    """Compare the answer to a call with the spec; None where the spec cannot be read at these sizes."""
    arguments, state = other.arguments, session.spec.state
    try:
        run = session.spec.run(arguments, state)
        finding = session.hold("SIZES", arguments, state, run, other.answer, usual=True)
    except SpecError:
        return None
    finding = in_variant(replace(finding, sampled=session.share), session.history.executed)
    return session.attach_call(FailingCall(arguments, dict(state)), finding, run.names[: len(run.outputs)])


def _many_rows(session: Session) -> Finding | None:
    """A call with so many rows that an output has more than 2^20 elements, some of which are compared; or None.

    torch has several threads then, among which it divides the rows.

    There is no such call for a spec that mixes its rows or takes them one after another, nor for a candidate that would
    take too long.
    """
    outputs = session.native.outputs
    count = len(outputs[0]) if outputs and outputs[0].ndim else 0
    if session.part is not None or session.spec.reads_values or not count or not outputs[0].numel():
        return None
    rows, some = _BEYOND * count // outputs[0].numel() + 1, _SOME * count
    rng, originals = session.generator("SIZES beyond"), session.arguments.tensors
    shapes = [(rows, *t.shape[1:]) if t.ndim and len(t) == count else tuple(t.shape) for t in originals]
    if rows <= some or sum(map(math.prod, shapes)) > 8 * _BEYOND:
        return None
    zeros = [resized_tensor(t, shape, rng) for t, shape in zip(originals, shapes, strict=True)]
    tensors = [draw_tensor(t, WAYS["SIGNS"], rng) if t.dtype.is_floating_point else t for t in zeros]
    many = session.arguments.with_tensors(tensors)
    shapes = [(some, *t.shape[1:]) if t.ndim and len(t) == count else tuple(t.shape) for t in originals]
    # A loop over rows has 64 times the operations at 64 times the rows; its reading over all rows would take hours.
    most = _count_work(session)._replace(multiplications=math.inf, elements=math.inf, steps=math.inf)
    if _work_at(session, _with_shapes(session, shapes, rng), most) is None:
        return None
    part = part_of(session.spec, many, session.terms, _READ)
    if part is None or session.first.repeat.seconds * _SOME > _SECONDS:
        return None
    answer = session.call(part.of(many, range(some)), fetched=True)
    if not answer.raised and answer.repeat.seconds * rows / some > _SECONDS:
        return None
    answer = answer if answer.raised else session.call(many, manner=Manner.THREADS, fetched=True)
    if answer.raised:
        return raised("SIZES", answer.raised, refusable=True)
    finding = session.compare_rows("SIZES", many, session.spec.state, answer, part.rows(rng), part=part)
    if finding.wrong is None:
        return finding
    return replace(finding, wrong=finding.wrong.with_lines(f"held       {finding.sampled}, and said of these"))


def _other_sizes(session: Session, most: Workload) -> Iterator[CallArguments]:
    rng = session.generator("SIZES")
    tensors, extents = session.arguments.tensors, resizable(session.spec, session.arguments)
    # Among the large sizes the largest that fits is used, because a fault that begins at a size remains above it.
    kinds = (LARGE[::-1], list(rng.permutation(ALIGNED)), list(rng.permutation(SMALL)))
    calls = 0
    for old, sizes in ((old, sizes) for sizes in kinds for old in extents):
        if calls >= _CALLS:
            return
        resized = (resize(tensors, old, int(new), _MOST) for new in sizes)
        fitting = (_with_shapes(session, shapes, rng) for shapes in resized if shapes)
        arguments = next((each for each in fitting if _work_at(session, each, most)), None)
        if arguments is not None:
            calls += 1
            yield arguments


def _count_work(session: Session) -> Workload:
    """The work of a call of the spec at the given inputs."""
    counter = WorkCounter(Workload(*[math.inf] * 4))
    with counter, without_fused_operations():
        session.spec.outputs(session.arguments, session.spec.state)
    return counter.work


def _most_work(session: Session) -> Workload:
    """The largest work of a call of the spec at another size."""
    work = _count_work(session)
    return Workload(
        max(_OPERATIONS, _TIMES_GIVEN * work.operations),
        max(_MULTIPLICATIONS, _TIMES_GIVEN * work.multiplications),
        max(_ELEMENTS, _TIMES_GIVEN * work.elements),
        math.inf,
    )


def _work_at(session: Session, arguments: CallArguments, most: Workload) -> Workload | None:
    """The work at some arguments; None if the spec refuses them, if it is more than `most`, or if kernels are executed
    and have many outputs.
    """
    others = stand_in(arguments)  # outside of the count
    try:
        with WorkCounter(most) as counter, without_fused_operations():
            outputs = session.spec.outputs(others, session.spec.state)
    except SpecError:
        return None
    many = session.history.executed is not None and sum(y.numel() for y in outputs) > _EXECUTED
    return None if many else counter.work


def _distance(computed: Tensor, native: Tensor) -> float:
    """The largest difference from torch's output relative to its largest element; infinite for another form."""
    if computed.shape != native.shape or computed.dtype != native.dtype:
        return math.inf
    if torch.equal(computed, native):
        return 0.0
    if not native.dtype.is_floating_point:
        return math.inf
    ours, theirs = computed.detach().double(), native.detach().double()
    errors = torch.where((ours == theirs) | (ours.isnan() & theirs.isnan()), 0.0, (ours - theirs).abs())
    largest = theirs[theirs.isfinite()].abs().max().item() if bool(theirs.isfinite().any()) else 0.0
    distance = errors.nan_to_num(math.inf).max().item() / largest if largest else math.inf
    return float(distance)


def _at_branches(session: Session) -> Iterator[CallArguments]:
    rng = session.generator("SIZES at branches")
    # Sizes of an axis that is the last one of some tensor come first, because kernels cut blocks along that axis.
    tensors = session.arguments.tensors
    last = {t.shape[-1] for t in tensors if t.ndim}
    extents = sorted(resizable(session.spec, session.arguments), key=lambda n: n not in last)
    ends = processor_seconds() + _SWEEP_SECONDS
    for old in extents:
        for new in rng.permutation(_AT_BRANCHES):
            shapes = resize(tensors, old, int(new), _FEW)
            if processor_seconds() > ends:
                return
            if shapes is not None:
                yield _with_shapes(session, shapes, rng)


def _with_shapes(session: Session, shapes: Sequence[tuple[int, ...]], rng: Any) -> CallArguments:
    """The given arguments with tensors of other shapes and with other values."""
    resized = [resized_tensor(t, shape, rng) for t, shape in zip(session.arguments.tensors, shapes, strict=True)]
    return session.filled(session.arguments.with_tensors(resized), WAYS["SIGNS"], rng)


def align(session: Session) -> Finding:
    """ALIGN: the given values at odd addresses; a candidate may raise."""
    return session.values("ALIGN", session.arguments, manner=Manner.SHIFTED, refusable=True, alone=True)


def strides(session: Session) -> Finding:
    """STRIDES: values in every layout in turn; a candidate may refuse a layout, but must not give wrong results."""
    if not any(t.ndim for t in session.arguments.tensors):
        return not_asked("STRIDES", "no argument has an axis")
    findings = []
    for text, layout, arguments in _in_layouts(session):
        try:
            finding = session.values("STRIDES", arguments, refusable=True, alone=True, layout=layout)
        except SpecError:
            if arguments.structure == session.arguments.structure:
                raise
            continue  # the spec does not take one tensor as several arguments
        if finding.is_wrong and finding.wrong is not None:
            return replace(finding, wrong=finding.wrong.with_lines(f"layout     {text}"))
        findings.append((text, finding))
    return _sum_up(findings)


def _in_layouts(session: Session) -> Iterator[tuple[str, AnyLayout | None, CallArguments]]:
    """Layouts of the arguments in words, and the arguments; last those with one tensor in several places."""
    for layout in MemoryLayout:
        expanded = layout is MemoryLayout.EXPANDED
        yield layout, layout, _equal_along_rows(session.arguments) if expanded else session.arguments
    if session.writes:
        yield from ((layout, layout, session.arguments) for layout in DestinationLayout)
    writes = session.spec.find_writes(session.arguments, session.spec.state)
    same = None if session.part else one_for_several(session.arguments, writes)
    if same is not None:
        yield f"one tensor as {same[0]}", None, same[1]


def _sum_up(findings: list[tuple[str, Finding]]) -> Finding:
    """One finding for all layouts: "refused" if all were refused; else with the names of those that were."""
    layouts = [layout for layout, finding in findings if finding.outcome is Outcome.REFUSED]
    others = [finding for _, finding in findings if finding.outcome is not Outcome.REFUSED]
    if not others:
        return findings[0][1]
    left_out = f"the candidate refuses {', '.join(layouts)}" if layouts else ""
    judged, elements = sum(each.judged for each in others), sum(each.elements for each in others)
    return replace(others[0], judged=judged, elements=elements, left_out=left_out)


def _equal_along_rows(arguments: CallArguments) -> CallArguments:
    """The arguments, in which floating tensors have the values of index 0 at all indices along axis 0."""

    def first_row(tensor: Tensor) -> Tensor:
        changes = tensor.is_floating_point() and tensor.ndim and tensor.numel()
        return tensor[:1].expand(tensor.shape).clone() if changes else tensor

    return arguments.changed(first_row)


ASKING: dict[str, Asking] = {
    "SIZES": sizes,
    "STRIDES": strides,
    "ALIGN": align,
}
