"""What a call changes or shares, and whether earlier calls affect it: inputs, outputs, caches, counters."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from ....oracles.op.bits import same_bits, same_results
from ....oracles.verdicts.verdict import Code, Outcome
from ..arguments import CallArguments, Tensor
from ..call_history import shared_memory
from ..finding import Finding, lines_of_variant, passing, process_changed, raised, with_lines, wrong
from ..host.calls import Answer, Manner
from ..inputs import WAYS, keep
from ..results import overlaps
from ..row_sample import Part, draw_tensor
from ..session import Asking, Session
from .output_values import bits_in_turn, of_packed_ways

#: The seconds that a series of equal calls may take, and the least and largest number of its calls.
_SECONDS, _LEAST, _MOST = 0.5, 4, 320
#: The number of calls after a series, each of which is asked by itself.
_SINGLE = 3
#: The number of calls in a series of a large problem.
_OF_LARGE = 2


def untouched(session: Session) -> Finding:
    """PURE:untouched: a call writes no argument, parameter or buffer that the spec does not write, and replaces
    nothing of torch. Tensors that the spec writes are compared like outputs, in every question.
    """
    answer = session.first
    if answer.raised:
        return raised("PURE:untouched", answer.raised)
    if session.history.changed:
        return process_changed("PURE:untouched", session.history.changed)
    exempt = {*session.native.writes, *session.declared.writes}
    for i, (before, after) in enumerate(zip(session.arguments.tensors, answer.writes.after, strict=True)):
        if i not in exempt and not same_bits(before, after):
            session.history.beside = None
            return wrong("PURE:untouched", Code.MUTATED, f"{session.arguments.label(i)} was written")
    for name, now in zip(session.shared, answer.writes.buffers, strict=False):
        before = session.spec.state[name]
        if name not in exempt and (now is None or not same_bits(before.to(now.dtype), now)):
            return wrong("PURE:untouched", Code.MUTATED, f"{name} was written")
    return passing("PURE:untouched")


def fresh(session: Session) -> Finding:
    """PURE:fresh: an output shares memory with an argument, or with another output, only if the spec's output does."""
    for name, other in shared_memory(session.arguments, session.first, session.native, session.declared.writes):
        session.history.beside = None
        return wrong("PURE:fresh", Code.ALIASED, f"{name} shares memory with {other}")
    return passing("PURE:fresh")


def other_data(session: Session, code: str) -> CallArguments:
    """Arguments like the given ones with other values, from the generator of a question."""
    rng = session.generator(code)
    if session.part is not None:
        return keep(session.arguments.changed(lambda t: draw_tensor(t, WAYS["FWD:seeds"], rng)), session.domain, rng)
    return session.filled(session.arguments, WAYS["FWD:seeds"], rng)


def _call_before(session: Session) -> None:
    """Make a call at the given arguments, unless the problem is large and the latest call had the same shapes."""
    if session.part is None or not session.history.alike:
        # Memory that several arguments share could not be written with other data for each of them.
        apart = bool(overlaps(session.arguments.tensors))
        session.call(session.arguments.copied() if apart else session.arguments)


def same(session: Session) -> Finding:
    """CALLS:same: a call with other data in the same tensor objects as an earlier call."""
    _call_before(session)
    finding = None if session.part is None or session.history.strayed else _same_with_the_ways(session, session.part)
    if finding is not None:
        return finding
    _call_before(session)
    return session.values("CALLS:same", other_data(session, "CALLS:same"), manner=Manner.SAME)


def _same_with_the_ways(session: Session, part: Part) -> Finding | None:
    """CALLS:same, CALLS:kept and the kinds of `inputs.WAYS` of a large problem in one call; None if something is wrong.

    The call does not show which of these questions finds the fault, so then each needs a call of its own.
    """
    rows = part.rows(session.generator("KEPT"))
    was = session.candidate.fetch(rows).outputs
    later = of_packed_ways(session, part, next(iter(WAYS)), rows, Manner.SAME)
    findings = list(session.packed.values())
    if any(each.is_wrong for each in findings):
        session.packed.clear()
        return None
    session.packed["CALLS:kept"] = _compare_rows(part, rows, was, later)
    return Finding(
        "CALLS:same", Outcome.VERIFIED, judged=sum(each.judged for each in findings), sampled=findings[0].sampled
    )


def reborn(session: Session) -> Finding:
    """CALLS:reborn: a call with new tensors in the memory of an earlier call's tensors."""
    _call_before(session)
    if session.part is not None and not session.history.strayed:
        # Operands of 12 bits are other data, too, so DATA:bits shares the call; if it fails, each has its own call.
        finding = next(bits_in_turn(session, Manner.REBORN), None)
        if finding is not None and not finding.is_wrong:
            session.packed["DATA:bits"] = finding
            return replace(finding, question="CALLS:reborn")
        _call_before(session)
    return session.values("CALLS:reborn", other_data(session, "CALLS:reborn"), manner=Manner.REBORN)


def outputs_survive_calls(session: Session) -> Finding:
    """CALLS:kept: a call with other data does not change the outputs of an earlier call."""
    if session.part is not None:
        return session.packed.get("CALLS:kept") or _compare_earlier_rows(session, session.part)
    first = session.call(session.arguments)
    later = session.call(other_data(session, "CALLS:kept"), earlier=True)
    if first.raised or later.raised:
        return raised("CALLS:kept", first.raised or later.raised)
    native = session.native
    for name, own, was, now in zip(native.names, native.own, first.outputs, later.earlier, strict=False):
        if own and not same_bits(was, now):
            return wrong("CALLS:kept", Code.ALIASED, f"{name} of an earlier call was changed by a later one")
    return replace(passing("CALLS:kept"), sampled=session.share)


def _compare_earlier_rows(session: Session, part: Part) -> Finding:
    """CALLS:kept by rows of the latest call's outputs, which are read again after a call of the packed ways."""
    _call_before(session)
    rows = part.rows(session.generator("KEPT"))
    was = session.candidate.fetch(rows).outputs
    return _compare_rows(part, rows, was, of_packed_ways(session, part, next(iter(WAYS)), rows))


def _compare_rows(part: Part, rows: Sequence[int], was: Sequence[Tensor], later: Answer) -> Finding:
    """CALLS:kept by some rows of a call's outputs, read before and after a later call.

    Args:
        part: describes the rows in words. rows: their indices along axis 0.
        was: these rows of each output before the later call. later: its answer; `earlier` has the rows after it.
    """
    if later.raised:
        return raised("CALLS:kept", later.raised)
    if len(was) != len(later.earlier) or not all(map(same_bits, was, later.earlier)):
        return wrong("CALLS:kept", Code.ALIASED, "outputs of an earlier call were changed by a later one")
    return Finding("CALLS:kept", Outcome.VERIFIED, sampled=part.describe(rows))


def again(session: Session) -> Finding:
    """CALLS:again: a series of equal calls; outputs with other bits than the first's are compared with the spec."""
    first, part = session.first, session.part
    usual = max(_LEAST, min(_MOST, int(_SECONDS / max(first.repeat.seconds, 1e-9))))
    times = session.history.in_a_row or (usual if part is None else _OF_LARGE)
    # Kernels that are executed as PTX run each call in another variant, so there is a call for each variant.
    variants = 0 if session.history.executed is None else session.history.executed.variants
    times = max(_LEAST, variants) if variants and not session.history.in_a_row else times
    # If every call has other bits, each is compared with the spec. Without a requested number of calls that may take as
    # long as the calls alone.
    began = time.monotonic()
    until = math.inf if session.history.in_a_row or variants else began + _SECONDS
    writes, done = session.writes_at(session.given_rows, session.spec.state), 0
    while True:
        # A call with other bits ends a series, and the next series begins after it.
        answer = session.call(
            session.arguments, times=times - done, watched=not done, fetched=part is not None, writes=writes
        )
        if answer.raised:
            return raised("CALLS:again", answer.raised)
        if answer.changed:
            return process_changed("CALLS:again", answer.changed)
        answer = _require_last(answer, times - done) if part is None else answer
        finding = (
            _compare_repeats(session, answer, done)
            if part is None
            else _compare_repeated_rows(session, answer, done, times)
        )
        done += answer.repeat.differs or times - done
        if done == times and part is None and until < math.inf:  # the first call may have been a slow one
            times = max(times, min(_MOST, int(_SECONDS / max(time.monotonic() - began, 1e-9) * done)))
        if finding.wrong is not None or done >= times or time.monotonic() > until:
            alone = finding.wrong is None and part is None and not variants
            return _single_calls(session, finding, done) if alone else finding


def _single_calls(session: Session, finding: Finding, done: int) -> Finding:
    """`finding`, of a series of `done` calls, if ordinary calls after it are right as well."""
    writes = session.writes_at(session.arguments, session.spec.state)
    for number in range(done, done + _SINGLE):
        answer = session.call(session.arguments, writes=writes)
        if answer.raised:
            return raised("CALLS:again", answer.raised)
        finding = finding if finding.wrong is not None else _compare_repeats(session, answer, number)
    return finding


def _require_last(answer: Answer, times: int) -> Answer:
    """The answer to a series; if its last call has other outputs than the first, it is the one with other bits.

    The candidate's process, which compares all of them, could say that none has.
    """
    first, last = answer.outputs, answer.repeat.different
    if times == 1 or answer.repeat.differs or (len(last) == len(first) and all(map(same_results, last, first))):
        return answer
    return msgspec.structs.replace(answer, repeat=msgspec.structs.replace(answer.repeat, differs=times))


def _compare_repeats(session: Session, answer: Answer, done: int) -> Finding:
    """Compare the first call of a series, and the one with other bits; `done`: how many calls came before it."""
    differs, different = answer.repeat.differs, answer.repeat.different
    for number, outputs in ((1, answer.outputs), *([(differs, different)] if differs else [])):
        each = msgspec.structs.replace(answer, outputs=outputs)
        finding = session.hold("CALLS:again", session.arguments, session.spec.state, session.native, each)
        if finding.wrong is not None:
            return _add_number(finding, done + number, session)
    return replace(passing("CALLS:again", sum(t.numel() for t in answer.outputs)), sampled=session.share)


def _add_number(finding: Finding, number: int, session: Session) -> Finding:
    """The finding with the number of the wrong call, unless it is the first, and with the variant of its kernel."""
    if number == 1:
        return finding
    return with_lines(finding, f"call       {number} in a row", *lines_of_variant(session.history.executed))


def _compare_repeated_rows(session: Session, answer: Answer, done: int, times: int) -> Finding:
    """Compare rows of the first call of a series, and the same rows of the call with other bits, if there is one.

    Args:
        session, answer: of a large problem. done: how many calls were before the series. times: of all calls.
    """
    part, state = session.part, session.spec.state
    assert part is not None
    rows = session.rows_for("CALLS:again", session.arguments)
    finding = session.compare_rows("CALLS:again", session.arguments, state, answer, rows)
    finding = _add_number(finding, done + 1, session)
    differs, different = answer.repeat.differs, answer.repeat.different
    if finding.wrong is None and differs:
        if tuple(tuple(y.shape) for y in different) != part.shapes:
            return wrong("CALLS:again", Code.ATTRIBUTE, f"call {done + differs} in a row has outputs of other shapes")
        few = session.given_rows
        other = msgspec.structs.replace(answer, outputs=[y[rows] for y in different])
        finding = session.hold("CALLS:again", few, state, session.spec.run(few, state), other)
        finding = _add_number(finding, done + differs, session)
    return replace(finding, sampled=f"{part.describe(rows)}, {times} calls")


ASKING: dict[str, Asking] = {
    "PURE:untouched": untouched,
    "PURE:fresh": fresh,
    "CALLS:same": same,
    "CALLS:kept": outputs_survive_calls,
    "CALLS:reborn": reborn,
    "CALLS:again": again,
}
