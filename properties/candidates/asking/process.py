"""The candidate's process: what its construction changed, what its calls left, and its results under autocast."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import msgspec
import torch

from ....oracles.op.bits import same_bits
from ....oracles.specs import UntraceableError
from ....oracles.verdicts.verdict import Code
from ..agreement import operands_of
from ..comparing import hold_all
from ..finding import FailingCall, Finding, not_asked, passing, process_changed, raised, summed, wrong
from ..host.calls import Answer, GoneError, Manner, Writes
from ..narrow_products import with_narrow_products
from ..session import Asking, Session
from ..specification import SpecError
from .later_calls import other_data

#: The largest number of lines about side effects of calls.
_LINES = 3
#: Of calls before outputs of earlier ones are compared: as many buffers may a candidate fill by turns, and be seen.
_CALLS = 4


def process(session: Session) -> Finding:
    """PURE:process: importing and constructing the candidate replaces nothing of torch, NumPy or Python."""
    changed = session.candidate.changed
    return process_changed("PURE:process", changed) if changed else passing("PURE:process")


def side_effects(session: Session) -> Finding:
    """PURE:left: no process still runs, no file of the judge, the spec or the candidate was written, no output changed
    after its call, and no call had a side effect that PURE:untouched and PURE:fresh detect at the given inputs.
    """
    lines = [*(session.history.beside or [])[:_LINES], *_changes_since(session)]
    if session.history.plain is not None:
        with contextlib.suppress(GoneError):
            session.history.operations = session.candidate.operations(session.history.plain)
    lines += session.candidate.left_behind()
    return wrong("PURE:left", Code.MUTATED, lines[0], *lines[1:]) if lines else passing("PURE:left")


def _changes_since(session: Session) -> list[str]:
    """A line for each output that changed after it was returned, and for each thing that was replaced in the process.

    An output that may share memory with an argument is left out, because later calls write the argument. Calls with
    other data come first: buffers that are filled by turns have in the end what equal calls wrote there.

    Raises:
        GoneError: the process has ended and cannot return the outputs.
    """
    calls, native = tuple(session.history.staying), session.native
    if calls and session.part is None:
        other = other_data(session, "PURE:left")
        for _ in range(_CALLS):
            session.call(other)
    answer = session.candidate.review() if calls or session.history.plain is not None else Answer()
    lent = [home in session.declared.writes for home in session.first.aliases.shared] if calls else []
    now, lines = iter(answer.earlier), [f"the process was changed: {line}" for line in answer.changed]
    for number, outputs in enumerate(calls, 1):
        for i, was in enumerate(outputs):
            own = len(outputs) != len(native.outputs) or (native.own[i] and native.shared[i] < 0)
            own = own and not any(lent[i : i + 1])
            is_now = next(now, None)
            if own and (is_now is None or not same_bits(was, is_now)):
                lines.append(f"an output of call {number} was changed after it was returned")
    return lines


def autocast(session: Session) -> Finding:
    """AUTOCAST: the candidate's outputs under autocast are those of the spec under autocast, or without it.

    Or they are those of the spec where contractions have factors of the half type, however they are written.
    """
    spec, arguments = session.spec, session.arguments
    if spec.numpy or not any(t.dtype == torch.float32 for t in arguments.tensors):
        return not_asked("AUTOCAST", "autocast changes nothing for this spec")
    cut = session.cut_for("AUTOCAST", arguments)
    writes = Writes() if cut.rows is not None else session.writes_at(cut.spec_arguments, session.spec.state)
    answer = session.call(cut.call_arguments, manner=Manner.AUTOCAST, fetched=cut.rows is not None, writes=writes)
    if answer.raised:
        return raised("AUTOCAST", answer.raised, True)
    if cut.rows is not None:
        assert session.part is not None
        if tuple(answer.shapes) != session.part.shapes:
            need = session.part.shapes
            return wrong("AUTOCAST", Code.ATTRIBUTE, f"the outputs have shapes {answer.shapes}, need {need}")
        answer = msgspec.structs.replace(answer, outputs=session.candidate.fetch(cut.rows).outputs)
    arguments = cut.spec_arguments
    under = replace(spec, autocast=True)
    terms = replace(session.terms, intermediates=True)
    first: Finding | None = None
    for other in (under, spec, None):
        try:
            other = other or with_narrow_products(under, arguments, spec.state)
            run = other.run(arguments, spec.state)
            readings = other.read(arguments, spec.state, terms)
            operands = operands_of(other, arguments, spec.state)
        except (SpecError, UntraceableError) as err:
            return first or not_asked("AUTOCAST", str(err))
        names, computed, which = session.select_for_comparison(run, answer)
        finding = summed(
            "AUTOCAST", hold_all(names, computed, [readings[i] for i in which], terms, None, operands), arguments
        )
        finding = replace(finding, sampled=cut.share)
        if finding.wrong is None:
            return finding
        if cut.rows is None:
            call = FailingCall(cut.call_arguments, spec.state, manner=Manner.AUTOCAST)
            finding = session.attach_call(call, finding, run.names[: len(run.outputs)])
        first = first or finding
    assert first is not None
    return first


ASKING: dict[str, Asking] = {"PURE:process": process, "PURE:left": side_effects, "AUTOCAST": autocast}
