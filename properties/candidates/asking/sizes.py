"""Arguments of other sizes, and elsewhere or otherwise laid out in memory: a candidate must refuse them or be right."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from ....oracles.machine.ptx.books import TOO_MUCH
from ....oracles.verdicts.verdict import Outcome
from ....oracles.verdicts.violation import Violation
from ..arguments import CallArguments, Tensor
from ..domain.copies import safe_calls
from ..finding import FailingCall, Finding, in_variant, not_asked, passing, raised, with_lines
from ..host.calls import GoneError, Manner
from ..inputs import WAYS, keep, one_for_several
from ..layouts import AnyLayout, DestinationLayout, MemoryLayout, can_be_far
from ..other_calls import (
    OtherCall,
    beyond_draws,
    calls_at_branches,
    calls_of_long_sizes,
    calls_of_sizes,
    calls_of_values,
    joint_calls,
    suspicion_of,
    with_numbers,
    worth_reading,
)
from ..results import Distance, distance_from
from ..row_sample import draw_tensor, part_of
from ..session import Asking, Session
from ..specification import SpecError
from ..workload import CallLimit, calls_within, count_work, limit_of, work_at

#: Operations of the spec in all calls at sizes where kernels may take another branch.
_OPERATIONS = 4000
#: In one call an output has more than `_BEYOND` elements, if the candidate takes less than `_SECONDS` for it, which a
#: call with `_SOME` times the given rows shows.
_BEYOND, _SECONDS, _SOME = 2**20 + 2**18, 2.0, 64
#: Blocks along two axes of a grid at most, for there are more rows; and elements that are compared, arguments included.
_ROWS, _READ = 65535, 2**14


def sizes(session: Session) -> Finding:
    """SIZE:sizes: other calls that the spec takes, of other sizes, integers and options."""
    if "SIZE:sizes" in session.packed:
        return session.packed["SIZE:sizes"]
    if session.share:
        return not_asked("SIZE:sizes", "the candidate is wrong at the given size")
    limit, rng = limit_of(session), session.generator("SIZES")
    large = itertools.chain(calls_of_sizes(session, rng, limit), calls_of_long_sizes(session, rng))
    others = list(_calls_at(session, large, limit))
    joint = _calls_at(session, joint_calls(session, rng), limit)
    branches = calls_at_branches(session, session.generator("SIZES at branches"))
    swept = _calls_at(session, itertools.islice(branches, calls_within(session, _OPERATIONS)), limit)
    swept = (each for each in swept if any(distance.error for distance in each.distances))
    valued = _calls_at(session, calls_of_values(session, session.generator("SIZES values")), limit)
    judged, doubt = 0, None
    for each_kind in (others, joint, swept, valued):
        calls = [each for each in each_kind if not each.answer.raised]
        for each in worth_reading(calls, session.domain.shapes.start):
            finding = _hold(session, each)
            suspicion = None if finding is None else suspicion_of(session, finding, each.arguments)
            doubt = doubt or suspicion
            if finding is not None and finding.is_wrong and suspicion is None:
                return finding
            judged += 0 if finding is None else finding.judged
    for arguments in with_numbers(session.spec, session.domain.empties(session.arguments)):
        try:
            finding = session.values("SIZE:sizes", arguments, refusable=True)
        except SpecError:  # what has no elements may have no reading
            continue
        if finding.is_wrong:
            return finding
    # The code is CALLS:again, because with that nothing is recorded of inputs that are those of another question.
    many = _many_rows(session) or session.values("CALLS:again", session.arguments, manner=Manner.THREADS)
    if many.is_wrong:
        return with_lines(replace(many, question="SIZE:sizes"), "call       where torch has several threads")
    if judged:
        return doubt or replace(passing("SIZE:sizes", judged), left_out=limit.text)
    refusals = [raised("SIZE:sizes", each.answer.raised, refusable=True) for each in others if each.answer.raised]
    return refusals[-1] if refusals else not_asked("SIZE:sizes", "the spec takes no other sizes")


def _calls_at(session: Session, every: Iterable[CallArguments], limit: CallLimit) -> Iterator[OtherCall]:
    """Calls of the candidate at those arguments that the spec accepts, within a limit."""
    writes = session.writes_at(session.given_rows, session.spec.state)
    for arguments in safe_calls(session.spec, every):
        work = work_at(session, arguments, limit)
        if work is None:
            continue
        # The candidate is called before the spec, so that it cannot find the right result in memory.
        try:
            answer = session.call(arguments, writes=writes)
        except Violation:  # as of an address before its memory
            if beyond_draws(session, arguments) != "below":
                raise
            continue
        limit.note(arguments, answer.repeat.seconds)
        try:
            outputs = session.spec.outputs(arguments, session.spec.state)
        except SpecError:  # It does not take these values.
            continue
        distances = [Distance(math.inf, 0.0)]
        if len(answer.outputs) == len(outputs) and not session.spec.numpy and not (writes.buffers or writes.restored):
            distances = list(map(distance_from, answer.outputs, outputs))
        # A later call may write the same memory again.
        copied = msgspec.structs.replace(answer, outputs=[y.detach().clone() for y in answer.outputs])
        yield OtherCall(arguments, distances, work.seconds, copied)


def _hold(session: Session, other: OtherCall) -> Finding | None:
    """Compare the answer to a call with the spec; None where the spec cannot be read at these sizes."""
    arguments, state = other.arguments, session.spec.state
    try:
        run = session.spec.run(arguments, state)
        finding = session.hold("SIZE:sizes", arguments, state, run, other.answer)
    except SpecError:
        return None
    finding = in_variant(replace(finding, sampled=session.share), session.history.executed)
    return session.attach_call(FailingCall(arguments, dict(state)), finding, run.names[: len(run.outputs)])


def _many_rows(session: Session) -> Finding | None:
    """A call with so many rows that torch divides them among threads, some of which are compared; or None.

    None is for a spec that mixes rows, takes them in turn or is given their number, and where time or memory do not do.
    """
    outputs = session.native.outputs
    count = len(outputs[0]) if outputs and outputs[0].ndim else 0
    is_told = any(type(leaf) is int and leaf == count for leaf in session.arguments.leaves)
    if session.part is not None or session.spec.reads_values or not count or not outputs[0].numel() or is_told:
        return None
    rows, some = max(_BEYOND * count // outputs[0].numel(), _ROWS) + 1, _SOME * count
    rng, originals = session.generator("SIZES beyond"), session.arguments.tensors
    # What has rows and another axis that move together is as long by chance, as the bias of a square layer.
    tied = {i for s in session.domain.shapes.symbols if any(d for _, d in s.axes) for i, d in s.axes if d == 0}
    own = {i for i, t in enumerate(originals) if t.ndim and len(t) == count} - tied
    shapes, fewer = (
        [(n, *t.shape[1:]) if i in own else tuple(t.shape) for i, t in enumerate(originals)] for n in (rows, some)
    )
    if rows <= some or sum(map(math.prod, shapes)) > 8 * _BEYOND:
        return None
    tensors = [
        draw_tensor(t.new_empty(shape), WAYS["FWD:signs"], rng) if t.dtype.is_floating_point else t
        for t, shape in zip(originals, shapes, strict=True)
    ]
    many = keep(session.arguments.with_tensors(tensors), session.domain, rng)
    # A loop over rows has 64 times the operations at 64 times the rows; its reading over all rows would take hours.
    most = count_work(session)._replace(multiplications=math.inf, elements=math.inf, steps=math.inf)
    few = session.domain.at(session.arguments, tuple(fewer))
    work = work_at(session, session.filled(few, WAYS["FWD:signs"], rng), CallLimit(most))
    part = None if work is None else part_of(session.spec, many, session.terms, _READ)
    if part is None or session.first.repeat.seconds * _SOME > _SECONDS:
        return None
    answer = session.call(part.of(many, range(some)), fetched=True)
    if not answer.raised and answer.repeat.seconds * rows / some > _SECONDS:
        return None
    try:
        answer = answer if answer.raised else session.call(many, manner=Manner.THREADS, fetched=True)
    except Violation as violation:
        if TOO_MUCH in violation.title:
            return None
        raise
    if answer.raised:
        return raised("SIZE:sizes", answer.raised, refusable=True)
    finding = session.compare_rows("SIZE:sizes", many, session.spec.state, answer, part.rows(rng), part=part)
    if finding.wrong is None:
        return finding
    return replace(finding, wrong=finding.wrong.with_lines(f"held       {finding.sampled}, and said of these"))


def align(session: Session) -> Finding:
    """LAYOUT:align: the given values at odd addresses; a candidate may raise."""
    return session.values("LAYOUT:align", session.arguments, manner=Manner.SHIFTED, refusable=True, alone=True)


def strides(session: Session) -> Finding:
    """LAYOUT:strides: values in every layout in turn; a candidate may refuse a layout, but not give wrong results."""
    if not any(t.ndim for t in session.arguments.tensors):
        return not_asked("LAYOUT:strides", "no argument has an axis")
    findings = []
    for text, layout, arguments in _in_layouts(session):
        try:
            finding = session.values("LAYOUT:strides", arguments, refusable=True, alone=True, layout=layout)
        except SpecError:
            if arguments.structure == session.arguments.structure:
                raise
            continue  # the spec does not take one tensor as several arguments
        except (Violation, GoneError) as fault:
            fault.add_note(f"layout     {text}")
            raise
        if finding.is_wrong and finding.wrong is not None:
            return replace(finding, wrong=finding.wrong.with_lines(f"layout     {text}"))
        findings.append((text, finding))
    return _sum_up(findings)


def _in_layouts(session: Session) -> Iterator[tuple[str, AnyLayout | None, CallArguments]]:
    """Layouts of the arguments in words, and the arguments; last those with one tensor in several places."""
    for layout in MemoryLayout:
        if layout is MemoryLayout.FAR and not can_be_far(session.arguments.tensors):
            continue
        expanded = layout is MemoryLayout.EXPANDED
        yield layout, layout, _equal_along_rows(session.arguments) if expanded else session.arguments
    if session.writes:
        yield from ((layout, layout, session.arguments) for layout in DestinationLayout)
    writes = session.spec.find_writes(session.arguments, session.spec.state)
    same = None if session.part else one_for_several(session.arguments, writes, session.domain)
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


ASKING: dict[str, Asking] = {"SIZE:sizes": sizes, "LAYOUT:strides": strides, "LAYOUT:align": align}
